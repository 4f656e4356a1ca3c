"""Reductions: what leaves and what comes back, eager and lazy, whatever the cut."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import unsoftmax as us
from unsoftmax.learners.core.reductions import in_subspace, odd_part, one_token, subspace_spec
from unsoftmax.learners.single_head import SingleHead
from unsoftmax.oracles.stack import Stack
from unsoftmax.probes import LazyProbes, Probes, one_row
from unsoftmax.run.engine import run

DIM = 5


def echo(request):
    """A program that asks one round and returns its answers."""
    y = yield request
    return y


def lazy(tokens, counts, phase):
    def build(start, stop):
        return Probes(tokens[start:stop], None if counts is None else counts[start:stop])

    return LazyProbes(len(tokens), tokens[0].nbytes, build, phase)


@settings(max_examples=25, deadline=None)
@given(size=st.integers(1, 9), max_batch=st.integers(1, 5), seed=st.integers(0, 99), counted=st.booleans())
def test_odd_part_is_the_difference_of_the_two_signs(size: int, max_batch: int, seed: int, counted: bool) -> None:
    rng = np.random.default_rng(seed)
    target = us.models.Transformer.random(DIM, 7, seed=seed)
    tokens = rng.standard_normal((size, 3, DIM))
    counts = rng.integers(1, 4, (size, 3)) if counted else None
    expected = target(tokens, counts) - target(-tokens, counts)
    for request in (Probes(tokens, counts, "main"), lazy(tokens, counts, "main")):
        stack = Stack(us.oracle(target, max_batch=max_batch))
        np.testing.assert_allclose(run(odd_part(echo(request)), stack), expected, rtol=1e-13, atol=1e-13)
        assert stack.meter.billed == 2 * size
        assert stack.meter.snapshot().phases == {"main": 2 * size}


def test_odd_part_makes_a_transformer_a_single_head() -> None:
    target = us.models.Transformer.random(DIM, 7, norm=2.0, seed=1)
    oracle = us.oracle(target)
    outcome = run(odd_part(SingleHead().program(oracle.spec, 0)), Stack(oracle))
    expected = us.models.SingleHead(target.W, target.A @ target.w_o)
    assert us.models.distance(outcome.model, expected) < 1e-12


@pytest.mark.parametrize("residual", [False, True])
def test_one_token_reaches_the_network_with_or_without_a_residual(residual: bool) -> None:
    target = us.models.Transformer.random(DIM, 7, bias=True, residual=residual, seed=2)
    x = np.random.default_rng(0).standard_normal((6, DIM))
    answers = run(one_token(echo(one_row(x)), zero_query=residual), Stack(us.oracle(target)))
    np.testing.assert_allclose(answers, target.network.of(x), rtol=1e-13)


def test_one_token_refuses_longer_sequences() -> None:
    with pytest.raises(us.errors.InvalidArgument, match="single vectors"):
        next(one_token(echo(Probes(np.zeros((1, 2, DIM))))))


@settings(max_examples=10, deadline=None)
@given(k=st.integers(1, DIM), seed=st.integers(0, 99))
def test_in_subspace_learns_the_compressed_head(k: int, seed: int) -> None:
    target = us.models.SingleHead.random(DIM, norm=2.0, seed=seed)
    basis = np.linalg.qr(np.random.default_rng(seed).standard_normal((DIM, k)))[0]
    oracle = us.oracle(target)
    spec = subspace_spec(oracle.spec, k)
    outcome = run(in_subspace(SingleHead().program(spec, 0), basis), Stack(oracle))
    expected = us.models.SingleHead(basis.T @ target.W @ basis, basis.T @ target.v)
    assert us.models.distance(outcome.model, expected) < 1e-9


def test_reductions_compose() -> None:
    target = us.models.Transformer.random(DIM, 7, norm=2.0, seed=3)
    basis = np.linalg.qr(np.random.default_rng(0).standard_normal((DIM, 2)))[0]
    tokens = np.random.default_rng(1).standard_normal((4, 3, 2))
    wide = tokens @ basis.T
    answers = run(odd_part(in_subspace(echo(lazy(tokens, None, "main")), basis)), Stack(us.oracle(target)))
    np.testing.assert_allclose(answers, target(wide) - target(-wide), rtol=1e-12)


def test_an_interrupted_reduction_closes_the_program_inside() -> None:
    closed = []

    def program():
        try:
            yield Probes(np.zeros((1, 1, DIM)))
        finally:
            closed.append(True)

    outer = odd_part(program())
    next(outer)
    outer.close()
    assert closed == [True]
