"""Verification has teeth: small errors in W are seen, small departures from the class too."""

from __future__ import annotations

import numpy as np
import pytest

import unsoftmax as us
from unsoftmax import verify
from unsoftmax.oracles import Stack
from unsoftmax.run import engine

HEAD = us.models.SingleHead.random(16, norm=3.0, seed=2)


def certificate(model, target) -> us.Certificate:
    oracle = us.oracle(target)
    return engine.run(verify.check(model, oracle.spec, 0), Stack(oracle))


def test_the_truth_passes() -> None:
    assert certificate(HEAD, HEAD).holds


@pytest.mark.parametrize("norm", [1e-3, 1.0, 30.0, 1e3])
@pytest.mark.parametrize("size", [1e-9, 1e-6, 1e-3])
def test_an_error_in_W_is_seen_at_any_strength(norm, size) -> None:
    head = us.models.SingleHead.random(16, norm=norm, seed=2)
    error = np.random.default_rng(0).standard_normal((16, 16))
    wrong = us.models.SingleHead(head.W + size * np.linalg.norm(head.W) / np.linalg.norm(error) * error, head.v)
    assert not certificate(wrong, head).holds


def test_an_error_in_v_is_seen() -> None:
    wrong = us.models.SingleHead(HEAD.W, HEAD.v * (1 + 1e-4))
    assert not certificate(wrong, HEAD).holds


@pytest.mark.parametrize("weak", [1e-2, 1e-4, 1e-6])
def test_a_weak_second_head_is_seen(weak) -> None:
    second = us.models.SingleHead.random(16, norm=3.0, seed=9)
    both = us.models.MultiHead(np.stack([HEAD.W, second.W]), np.stack([HEAD.v, weak * second.v]))
    with pytest.raises(us.errors.ModelMismatch) as error:
        us.recover(us.oracle(both), us.learners.SingleHead())
    assert error.value.recovery.status is us.Status.MISMATCH


def test_queries_are_counted_exactly() -> None:
    for options in ({}, {"max_length": 4}, {"max_length": 1}):
        oracle = us.oracle(HEAD, **options)
        stack = Stack(oracle)
        engine.run(verify.check(HEAD, oracle.spec, 0), stack)
        assert stack.meter.billed == verify.queries(oracle.spec)


@pytest.mark.parametrize("tolerance", [1e-7, 1e-5, 1e-4])
def test_a_declared_tolerance_is_neither_held_against_the_model_nor_a_cover_for_garbage(tolerance):
    head = us.models.SingleHead.random(8, norm=2.0, seed=3)
    noisy = us.oracles.Perturbed(us.oracle(head), tolerance, adversarial=True)
    assert us.recover(noisy, us.learners.SingleHead()).status is us.Status.RECOVERED
    two = us.models.MultiHead.random(8, 2, norm=2.0, seed=5)
    with pytest.raises((us.errors.ModelMismatch, us.errors.NotIdentifiable)):
        us.recover(us.oracles.Perturbed(us.oracle(two), tolerance), us.learners.SingleHead())
