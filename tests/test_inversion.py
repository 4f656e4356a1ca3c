"""Answers back to logits: exact where they can be, NaN or infinite where they cannot, radii that cover."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit

from unsoftmax.inversion import (
    Noise,
    decimal_error,
    few_digits,
    logits,
    ray_logits,
    rounding_unit,
    saturating_logits,
    shares,
    shown_rounding,
)

SPANS = st.floats(-1e3, 1e3).filter(lambda x: abs(x) > 1e-3)


@given(t=st.floats(-30, 30), av=SPANS)
def test_logits_undo_the_share_however_close_to_an_end(t: float, av: float) -> None:
    """With b.v = 0 neither end cancels: the logit keeps its digits out to where 1 - sigma is rounding."""
    y = np.array([expit(t) * av])
    found = logits(y, np.array([av]), np.array([0.0]))
    gain = 1 / (abs(av) * expit(t) * expit(-t))
    rounding = 4 * np.finfo(float).eps * abs(av) * gain
    assert abs(found.t[0] - t) <= 1e-12 * max(1.0, abs(t)) + rounding
    assert found.gain[0] == pytest.approx(gain, rel=1e-9 + rounding)


def test_answers_outside_the_interval_have_no_logit() -> None:
    av, bv = np.array([2.0, 2.0, -2.0, 2.0]), np.array([1.0, 1.0, 1.0, 1.0])
    found = logits(np.array([1.0, 3.0, 1.5, 0.0]), av, bv)
    assert np.isnan(found.t).all()
    assert np.isinf(found.gain).all()


@given(
    alpha=st.floats(0.01, 0.99),
    span=SPANS,
    base=st.floats(-10, 10),
    radius=st.floats(1e-12, 0.2),
    share=st.floats(-1, 1),
)
def test_the_radius_of_a_share_covers_every_answer_inside_the_noise(alpha, span, base, radius, share) -> None:
    noise = radius * abs(span)
    y = np.array([base + alpha * span + share * noise])
    found = shares(y, np.array([span]), np.array([base]), np.array([noise * (1 + 1e-9) + 1e-12 * (1 + abs(base))]))
    t = np.log(alpha) - np.log1p(-alpha)
    if np.isfinite(found.radius[0]):
        assert abs(found.t[0] - t) <= found.radius[0]
        slope = (found.t[0] - t) / (found.mid[0] - alpha) if abs(found.mid[0] - alpha) > 1e-6 else None
        assert slope is None or found.flattest[0] * 0.999 <= slope <= found.steepest[0] * 1.001
    else:
        assert found.low[0] <= 0 or found.high[0] >= 1


@given(t=st.floats(-20, 20), degree=st.integers(1, 3), c=SPANS)
def test_ray_logits_undo_a_power_of_the_share(t: float, degree: int, c: float) -> None:
    y = np.array([expit(t) ** degree * c])
    found = ray_logits(y, np.array([c]), degree)[0]
    assert abs(found - t) <= 1e-11 * max(1.0, abs(t)) + 8 * degree * np.finfo(float).eps / expit(-t)


def test_ray_logits_of_the_wrong_sign_or_size_are_nan() -> None:
    assert np.isnan(ray_logits(np.array([-1.0, 1.0, 2.0]), np.ones(3), 1)).all()


def test_saturated_answers_become_the_bound_that_noise_allows() -> None:
    found = saturating_logits(np.array([0.5, 1.0, 0.0]), np.ones(3), np.zeros(3), 1e-6)
    assert found.t[0] == pytest.approx(0.0, abs=1e-12)
    assert np.isfinite(found.gain[0])
    assert found.t[1] == pytest.approx(np.log(1 / 2e-6), rel=1e-6)
    assert found.t[2] == pytest.approx(-np.log(1 / 2e-6), rel=1e-6)
    assert np.isinf(found.gain[1:]).all()


@pytest.mark.parametrize("name", ["float16", "float32", "float64"])
def test_the_number_format_of_answers_is_seen(name: str) -> None:
    y = np.random.default_rng(0).standard_normal(20).astype(name).astype(np.float64)
    assert rounding_unit(y) == np.finfo(name).eps


@pytest.mark.parametrize("decimals", range(2, 9))
def test_rounded_decimals_are_seen(decimals: int) -> None:
    y = np.round(np.random.default_rng(1).standard_normal(40), decimals)
    assert decimal_error(y) == pytest.approx(0.5 * 10.0**-decimals)
    assert few_digits(y) == pytest.approx(0.5 * 10.0**-decimals / np.abs(y).max())


@pytest.mark.parametrize("decimals", range(9, 15))
def test_many_decimals_are_seen_and_no_more_than_there_are(decimals: int) -> None:
    for seed in range(20):
        y = np.random.default_rng(seed).standard_normal(60)
        assert decimal_error(np.round(y, decimals)) == pytest.approx(0.5 * 10.0**-decimals)
        assert decimal_error(y) == 0
        assert decimal_error(1e3 * y) == 0


def test_few_or_unrounded_answers_are_not_taken_for_decimals() -> None:
    y = np.random.default_rng(1).standard_normal(40)
    assert decimal_error(y) == 0
    assert few_digits(y) == 0
    assert decimal_error(np.array([0.25, 0.5, 0.75])) == 0


def test_significant_digits_are_seen() -> None:
    y = np.array([float(f"{x:.5g}") for x in 10.0 ** np.random.default_rng(2).uniform(-6, 6, 40)])
    assert few_digits(y) == pytest.approx(0.5e-4)


def test_noise_grows_with_what_was_added_up_and_through_a_link() -> None:
    plain = Noise(1e-3, 1e-6)
    assert plain.radius(np.zeros(2), np.array([1.0, 1e3])).tolist() == [1e-3 + 1e-6, 1e-3 + 1e-3]
    linked = Noise(1e-3, 0.0, link="sigmoid").radius(np.array([0.0, 5.0]), 1.0)
    assert linked[0] == pytest.approx(4e-3, rel=0.01)
    assert linked[1] > 100 * linked[0] / 4


def test_a_format_shows_its_absolute_and_its_relative_error() -> None:
    y = np.random.default_rng(0).uniform(-1, 1, 8) * np.array([1000.0, 100, 10, 1, 1, 1, 0.1, 0.01])
    assert shown_rounding(y) == (0.0, 0.0)
    absolute, relative = shown_rounding(np.round(y, 6))
    assert absolute == pytest.approx(5e-7)
    assert relative <= 5e-9
    digits = np.array([float(f"{number:.5e}") for number in y])
    assert shown_rounding(digits)[1] == pytest.approx(5e-6)
    assert shown_rounding(y.astype("float32").astype("float64"))[1] == np.finfo("float32").eps
    assert shown_rounding(np.array([0.0, 0.5, 0.25])) == (0.0, 0.0)
