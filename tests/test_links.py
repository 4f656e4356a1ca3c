"""Output links: inverses, saturation, and the radius an error of the answer leaves in f."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit

from unsoftmax import links

FORWARD = {"sigmoid": expit, "tanh": np.tanh, "exp": np.exp, "log": np.log}


@pytest.mark.parametrize("link", FORWARD)
def test_inverse_undoes_the_link(link):
    f = np.array([1e-3, 0.5, 2.0, 7.0]) if link == "log" else np.array([-7.0, -0.5, 0.0, 1e-3, 3.0])
    assert np.allclose(links.inverse(link, FORWARD[link](f)), f, rtol=1e-9)


@pytest.mark.parametrize(
    ("link", "answer", "f"),
    [
        ("sigmoid", 1.0, np.inf),
        ("sigmoid", 0.0, -np.inf),
        ("sigmoid", 1.2, np.inf),
        ("tanh", -1.1, -np.inf),
        ("exp", 0.0, -np.inf),
        ("exp", -0.1, -np.inf),
        ("log", np.nan, -np.inf),
        ("log", -np.inf, -np.inf),
    ],
)
def test_answers_at_or_past_an_end_are_infinite(link, answer, f):
    assert links.inverse(link, np.array([answer]))[0] == f


def test_a_broken_service_is_not_taken_for_a_saturated_one():
    assert np.isnan(links.inverse("sigmoid", np.array([np.nan]))).all()


@given(
    link=st.sampled_from(sorted(FORWARD)),
    f=st.floats(-6, 6),
    error=st.floats(-12, -0.5),
    share=st.floats(-1, 1),
)
def test_radius_covers_every_answer_inside_the_error(link, f, error, share):
    f = abs(f) + 0.01 if link == "log" else f
    e = 10.0**error
    seen = links.inverse(link, FORWARD[link](np.array([f])) + share * e)[0]
    radius = float(links.radius(link, np.array([seen]), e)[0]) if np.isfinite(seen) else np.inf
    assert abs(seen - f) <= radius * (1 + 1e-9) + 1e-12


def test_two_classes_keep_their_digits_near_one():
    f = np.array([-40.0, 0.3, 40.0])
    p = np.stack([FORWARD["sigmoid"](-f), FORWARD["sigmoid"](f)], axis=1)
    assert np.allclose(links.from_probabilities(p), f, rtol=1e-14)
    assert np.isinf(links.inverse("sigmoid", p[:, 1])[2])
