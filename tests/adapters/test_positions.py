"""Part and position of any callable: what `us.oracle` asks is what its spec says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import unsoftmax as us
from unsoftmax.oracles.identity import identity
from unsoftmax.probes.base import Probes

HEAD = us.models.SingleHead.random(6, norm=2.0, seed=1)
LAYER = us.models.AttentionLayer.random(6, 2, seed=1)


def at_first(X):
    """A head that answers for its first token."""
    return HEAD(np.roll(X, -1, axis=1))


def everywhere(X):
    """Answers of a layer for every position, (batch, N, outputs)."""
    N = X.shape[1]
    return np.stack([LAYER(X[:, [*range(i), *range(i + 1, N), i]]) for i in range(N)], axis=1)


@given(position=st.integers(-4, 4), length=st.integers(1, 5), seed=st.integers(0, 99))
def test_answers_for_every_position_are_read_where_the_query_token_is_put(position, length, seed) -> None:
    X = np.random.default_rng(seed).standard_normal((3, length, 6))
    oracle = us.oracle(everywhere, 6, outputs=6, position=position)
    assert np.allclose(oracle(Probes(X)), LAYER(X), atol=1e-12)


def test_a_target_that_answers_for_its_first_token_is_recovered_there() -> None:
    recovery = us.recover(us.oracle(at_first, 6, position="first"), us.learners.SingleHead())
    assert us.models.distance(recovery.model, HEAD) < 1e-12
    assert recovery.certificate.scope.position == 0
    with pytest.raises(us.errors.UnsoftmaxError):
        us.recover(us.oracle(at_first, 6), us.learners.SingleHead())


def test_rows_with_counts_and_single_numbers_for_every_position() -> None:
    oracle = us.oracle(lambda X: everywhere(X)[:, :, :1], 6, position=1)
    rng = np.random.default_rng(0)
    X, counts = rng.standard_normal((4, 3, 6)), rng.integers(1, 3, (4, 3))
    counts[:, -1] = 1
    assert np.allclose(oracle(Probes(X, counts)), LAYER(X, counts)[:, 0], atol=1e-12)


@pytest.mark.parametrize(("part", "result"), [("b", lambda y: {"a": -y, "b": y}), (1, lambda y: (-y, y))])
def test_a_part_of_what_the_target_returns(part, result) -> None:
    oracle = us.oracle(lambda X: result(HEAD(X)), 6, part=part)
    recovery = us.recover(oracle, us.learners.SingleHead())
    assert us.models.distance(recovery.model, HEAD) < 1e-12
    assert f"its part '{part}'" in repr(recovery)


@pytest.mark.parametrize(("fn", "part", "words"), [(HEAD, 0, "one array"), (lambda X: {"a": HEAD(X)}, "b", "keys 'a'")])
def test_a_part_that_is_not_there_is_named(fn, part, words) -> None:
    with pytest.raises(us.errors.UnsoftmaxError, match=words):
        us.recover(us.oracle(fn, 6, part=part), us.learners.SingleHead())


def test_a_ledger_of_another_position_is_refused(tmp_path) -> None:
    us.recover(us.oracle(at_first, 6, position=0), us.learners.SingleHead(), ledger=tmp_path / "run.ledger")
    with pytest.raises(us.errors.LedgerError):
        us.recover(us.oracle(at_first, 6), us.learners.SingleHead(), ledger=tmp_path / "run.ledger")
    # The target behind a position is the same target: its parameters are still looked through.
    assert identity(us.oracle(at_first, 6, position=0)) == identity(us.oracle(at_first, 6))


def test_a_name_is_the_identity_of_token_targets_too() -> None:
    head = us.models.TokenHead.random(9, 2, seed=0)
    named = [us.token_oracle(lambda ids: head(ids), 9, name=name) for name in ("a", "a", "b")]
    assert identity(named[0]) == identity(named[1]) == {"name": "a"}
    assert identity(named[2]) == {"name": "b"}
