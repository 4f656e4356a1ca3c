"""Answers that are rounded and not declared so: the refusal says how they are written and what to declare."""

from __future__ import annotations

import numpy as np
import pytest

import unsoftmax as us
from benchmarks.number_formats import bfloat16, significant
from unsoftmax.run.formats import written

EXACT = us.oracle(us.models.SingleHead.random(2, seed=0)).spec


def rounded(model, answer, **declared):
    return us.oracle(lambda X: answer(model(X)), model.dim, **declared)


@pytest.mark.parametrize("decimals", range(3, 9))
def test_decimals_are_named_with_the_tolerance_that_lets_the_head_be_learned(decimals) -> None:
    head = us.models.SingleHead.random(6, norm=2.0, seed=decimals)
    with pytest.raises(us.errors.ModelMismatch) as refusal:
        us.recover(rounded(head, lambda y: np.round(y, decimals)), us.learners.SingleHead())
    assert str(refusal.value).startswith(f"the answers are rounded to {decimals} decimals")
    tolerance = 0.5 * 10.0**-decimals
    assert f"tolerance={tolerance:g}" in refusal.value.advice
    recovery = us.recover(rounded(head, lambda y: np.round(y, decimals), tolerance=tolerance), us.learners.SingleHead())
    assert recovery.status is us.Status.RECOVERED


def test_digits_are_named_with_the_learner_that_takes_them() -> None:
    head = us.models.SingleHead.random(6, norm=2.0, seed=1)
    with pytest.raises(us.errors.ModelMismatch, match=r"written with 5 digits only.*Approximate") as refusal:
        us.recover(rounded(head, lambda y: significant(y, 5)), us.learners.SingleHead())
    assert "class SingleHead learns" in str(refusal.value)
    recovery = us.recover(rounded(head, lambda y: significant(y, 5)), us.learners.Approximate())
    assert us.models.distance(recovery.model, head) < 1e-2


def test_a_target_outside_the_class_is_called_so_whatever_its_decimals() -> None:
    head = us.models.SingleHead.random(6, norm=2.0, seed=1)
    with pytest.raises(us.errors.ModelMismatch, match="outside the class"):
        us.recover(rounded(head, lambda y: np.round(20 * np.tanh(y / 2), 7)), us.learners.SingleHead())


def test_a_refusal_for_another_reason_notes_the_format() -> None:
    network = us.models.Transformer.random(4, 6, norm=2.0, bias=True, seed=0)
    with pytest.raises(us.errors.ModelMismatch) as refusal:
        us.recover(rounded(network, lambda y: significant(y, 7)), us.learners.AttentionBehind())
    assert "written with 7 digits only" in " ".join(refusal.value.__notes__)


def test_formats_by_name() -> None:
    y = np.random.default_rng(0).standard_normal(64)
    noisy = us.learners.LowRank()
    assert written(y, EXACT, noisy) is None
    assert written(y[:2].round(3), EXACT, noisy) is None
    for answers, words in (
        (y.astype(np.float32).astype(float), "float32"),
        (y.astype(np.float16).astype(float), "float16"),
        (bfloat16(y), "bfloat16"),
        (y.round(4), "4 decimals"),
        (significant(1e3 * y, 6), "6 digits"),
    ):
        found = written(answers, EXACT, noisy)
        assert found is not None
        assert words in found.reason
