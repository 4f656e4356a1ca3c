"""Relatives of the Llama layer: ALiBi, no positions, caps, sinks, QK-norm, heads that fill the space; and refusals."""

from __future__ import annotations

import numpy as np
import pytest

import unsoftmax as us
from tests.learners.rotary.test_llama import Rope, layer, recovered, worst
from unsoftmax.learners.core.base import RELATIVE_ERROR

Alibi = us.models.Alibi


def small(positions=None, **rest):
    usual = {"norm": "rms", "residual": True, "bias": False, "kv_groups": 2, "seed": 1}
    return us.models.AttentionLayer.random(32, 4, 8, positions=positions, scale=2.0, **(usual | rest))


SLOPES = Alibi(2.0 ** -np.arange(1.0, 5.0))
ROPE = Rope.ladder(8)


@pytest.mark.parametrize(
    "target",
    [
        pytest.param(small(SLOPES), id="ALiBi"),
        pytest.param(small(SLOPES, bias=True, norm=None), id="ALiBi with biases, no norm"),
        pytest.param(small(), id="no positions"),
        pytest.param(small(ROPE, softcap=30.0), id="soft cap 30"),
        pytest.param(small(ROPE, softcap=50.0), id="soft cap 50"),
        pytest.param(small(ROPE, sinks=True), id="sinks"),
        pytest.param(small(ROPE, sinks=True, window=20, norm=None, residual=False), id="sinks and window, no norm"),
        pytest.param(small(ROPE, sinks=True, norm=None), id="sinks beside a residual, no norm"),
        pytest.param(small(ROPE, qk_norm=True), id="QK-norm"),
    ],
)
def test_relatives_are_found(target):
    recovery = recovered(target, "balanced")
    model = recovery.model
    assert worst(target, model) <= 1e-7
    assert type(model.positions) is type(target.positions)
    assert (model.window, model.norm, model.residual) == (target.window, target.norm, target.residual)
    assert (model.softcap is None, model.sinks is None) == (target.softcap is None, target.sinks is None)
    bound = next(claim.bound for claim in recovery.certificate.claims if claim.name == RELATIVE_ERROR)
    assert us.models.distance(model, target) <= bound


@pytest.mark.parametrize("rest", [{}, {"norm": None}, {"norm": None, "residual": False, "bias": True}], ids=str)
def test_heads_that_fill_the_space(rest):
    target = layer(d=32, H=4, G=4, dh=8, seed=5, **rest)
    recovery = recovered(target, "balanced")
    assert recovery.model.residual == target.residual
    # Heads are told apart by a small difference of scores here: single draws lose digits, and say so.
    assert worst(target, recovery.model) <= 1e-3
    bound = next(claim.bound for claim in recovery.certificate.claims if claim.name == RELATIVE_ERROR)
    assert us.models.distance(recovery.model, target) <= bound


REFUSED = {
    "heads share values and fill the space": lambda: layer(d=16, H=4, G=2, dh=8),
    "sinks beside a query bias": lambda: small(ROPE, sinks=True, bias=True),
    "a key bias behind a soft cap": lambda: small(ROPE, softcap=5.0, bias=True),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_learned_is_refused(name):
    with pytest.raises((us.errors.ModelMismatch, us.errors.NotIdentifiable)):
        recovered(REFUSED[name]())
