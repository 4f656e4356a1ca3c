"""Which law scores follow, and what a weak cap leaves uncertain."""

from __future__ import annotations

from collections.abc import Generator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import unsoftmax as us
from unsoftmax.learners.core.base import RELATIVE_ERROR
from unsoftmax.learners.rotary import llama
from unsoftmax.learners.rotary.limits import EXACT
from unsoftmax.learners.rotary.weights import Reader
from unsoftmax.models import Rope

SCORES = np.array([[0.0, 0.3, -0.7, 2.0, -5.5], [0.0, -1.0, 0.4, 0.9, 1.5]])
"""Scores of two heads, of which one gives a token the weight 3e-4."""


def judged(monkeypatch: pytest.MonkeyPatch, bent: Any, error: float) -> str:
    """The law found from weights of SCORES and of their half and quarter, the smallest of them off by `error`."""
    s = np.stack([bent(scale * SCORES) for scale in (1.0, 0.5, 0.25)])
    weights = np.exp(s) / np.exp(s).sum(axis=-1, keepdims=True)
    weights[0, 0, 4] += error

    def shorter(*_: object) -> Generator[None, None, np.ndarray]:
        yield
        return weights[1:]

    monkeypatch.setattr(llama, "weights_before", shorter)
    begun = SimpleNamespace(block=np.zeros((4, 3)), q=np.zeros((1, 3)), weights=weights[:1])
    scene = SimpleNamespace(exact=True, limits=EXACT, noise=1e-16)
    reader = Reader(scene, SimpleNamespace(error=1e-16), gain=[(1.0, 1.0)])  # type: ignore[arg-type]
    found = llama.find_law(reader, begun)  # type: ignore[arg-type]
    next(found)
    with pytest.raises(StopIteration) as ended:
        found.send(weights)
    return str(ended.value.value)


def test_an_error_of_a_small_weight_is_no_bend(monkeypatch: pytest.MonkeyPatch) -> None:
    assert judged(monkeypatch, lambda s: s, 3e-9) == "linear"


@pytest.mark.parametrize("cap", [20.0, 300.0])
def test_a_cap_is_seen_beside_it(monkeypatch: pytest.MonkeyPatch, cap: float) -> None:
    assert judged(monkeypatch, lambda s: cap * np.tanh(s / cap), 3e-9) == "capped"


def test_a_cap_far_beyond_the_scores_is_stated_with_its_own_error() -> None:
    rest = {"norm": "rms", "residual": True, "bias": False, "scale": 2.0, "softcap": 300.0}
    layer = us.models.AttentionLayer.random(32, 4, 8, kv_groups=1, positions=Rope.ladder(8), seed=6, **rest)
    recovery = us.recover(us.oracle(layer), us.learners.AttentionLayer("lean"), seed=3)
    (bound,) = (claim.bound for claim in recovery.certificate.claims if claim.name == RELATIVE_ERROR)
    assert us.models.distance(recovery.model, layer) <= bound < 1e-4


@pytest.mark.parametrize("cap", [1000.0, 3000.0])
def test_a_cap_that_only_all_keys_together_show_is_found(cap: float) -> None:
    """Three scores bend by less than what is told from noise; keys that are taken for linear do not fit."""
    rest = {"norm": "rms", "residual": True, "bias": False, "scale": 2.0, "softcap": cap}
    target = us.models.AttentionLayer.random(32, 4, 8, kv_groups=2, positions=us.models.Rope.ladder(8), seed=1, **rest)
    recovery = us.recover(us.oracle(target), us.learners.AttentionLayer("balanced"), seed=1)
    assert recovery.model.softcap == pytest.approx(cap, rel=1e-4)
    bound = next(claim.bound for claim in recovery.certificate.claims if claim.name == RELATIVE_ERROR)
    assert us.models.distance(recovery.model, target) <= bound
