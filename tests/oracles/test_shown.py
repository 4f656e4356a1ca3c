"""A language model that shows less of the next token."""

from __future__ import annotations

import numpy as np
import pytest

import unsoftmax as us
from unsoftmax.oracles import Shown
from unsoftmax.probes.base import Probes

MODEL = us.models.TokenLayer.random(8, 30, 1, 6)
ORACLE = us.logit_oracle(MODEL, 30, max_length=6)
IDS = np.random.default_rng(0).integers(0, 30, (4, 5))


def log_probabilities() -> np.ndarray:
    logits = MODEL(IDS)
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def test_all_of_them() -> None:
    shown = Shown(ORACLE)
    assert shown.spec.shows == "log-probabilities"
    np.testing.assert_allclose(shown(Probes(IDS)), log_probabilities(), atol=1e-12)


def test_chosen_ones_go_before_the_prompt() -> None:
    shown = Shown(ORACLE, "chosen", 3)
    assert shown.spec.outputs == 3
    assert shown.spec.domain.max_length == 9
    chosen = np.array([[1, 2, 3]] * 4)
    answers = shown(Probes(np.concatenate([chosen, IDS], axis=1)))
    np.testing.assert_allclose(answers, log_probabilities()[:, 1:4], atol=1e-12)


def test_the_likeliest_come_with_their_ids() -> None:
    answers = Shown(ORACLE, "top", 4)(Probes(IDS))
    expected = np.sort(log_probabilities(), axis=1)[:, ::-1][:, :4]
    np.testing.assert_allclose(answers[:, 4:], expected, atol=1e-12)
    ids = answers[:, :4].astype(int)
    np.testing.assert_allclose(np.take_along_axis(log_probabilities(), ids, axis=1), expected, atol=1e-12)


def test_rounding_is_declared() -> None:
    shown = Shown(ORACLE, decimals=2)
    assert shown.spec.tolerance == pytest.approx(0.005)
    assert shown.spec.kind == "approximate"
    assert np.abs(shown(Probes(IDS)) - log_probabilities()).max() <= 0.005 + 1e-12


def test_what_shows_less_already_cannot_be_opened() -> None:
    with pytest.raises(us.errors.InvalidArgument, match="all logits"):
        Shown(Shown(ORACLE, "top", 4))
    with pytest.raises(us.errors.InvalidArgument, match="top"):
        Shown(ORACLE, "top", 31)
