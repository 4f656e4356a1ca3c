"""Targets that answer in one buffer, or work in place on what they are handed, are as good as any other."""

from __future__ import annotations

import numpy as np
import pytest

import unsoftmax as us
from unsoftmax.oracles import Perturbed, Recheck, Stochastic
from unsoftmax.oracles.recording import MemoryStore
from unsoftmax.probes import Probes

HEAD = us.models.SingleHead.random(6, norm=2.0, seed=2)
LAYER = us.models.AttentionLayer.random(6, 2, seed=2)


def reusing(model):
    """Every answer is a view of the same memory."""
    shape = (4096,) if model is HEAD else (4096, 6)
    buffer = np.empty(shape)

    def fn(tokens):
        answer = model(tokens)
        buffer[: len(answer)] = answer
        return buffer[: len(answer)]

    return fn


def overwriting(model):
    """The tokens are scratch memory to it."""

    def fn(tokens):
        answer = model(tokens.copy())
        tokens[:] = 7.0
        return answer

    return fn


@pytest.mark.parametrize("manner", [reusing, overwriting])
@pytest.mark.parametrize(
    ("model", "learner"), [(HEAD, us.learners.SingleHead()), (LAYER, us.learners.AttentionLayer(norm=None))]
)
def test_recovered_like_any_other(manner, model, learner):
    outputs = None if model is HEAD else 6
    target = us.oracle(manner(model), 6, outputs=outputs, max_batch=5)
    recovery = us.recover(target, learner, ledger=MemoryStore(), recheck=Recheck(every=8, sample=8))
    assert us.models.distance(recovery.model, model) < 1e-11


def test_repeated_tokens_of_several_lengths():
    rng = np.random.default_rng(0)
    probes = Probes(rng.standard_normal((4, 2, 6)), np.array([[1, 1], [2, 1], [3, 1], [1, 1]]))
    assert np.array_equal(us.oracle(reusing(HEAD), 6)(probes), us.oracle(overwriting(HEAD), 6)(probes))


@pytest.mark.parametrize("wrapper", [Perturbed, Stochastic])
def test_noise_belongs_to_what_was_asked(wrapper):
    tokens = np.random.default_rng(0).standard_normal((9, 2, 6))
    plain = wrapper(us.oracle(HEAD), 1e-3)(Probes(tokens.copy()))
    assert np.array_equal(plain, wrapper(us.oracle(overwriting(HEAD), 6), 1e-3)(Probes(tokens.copy())))
