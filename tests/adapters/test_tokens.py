"""Token oracles share the stack: counting, budget, ledger and domain work on ids."""

from __future__ import annotations

import numpy as np
import pytest

import unsoftmax as us
from unsoftmax.oracles import MemoryStore, Stack
from unsoftmax.probes import Probes
from unsoftmax.run import engine

HEAD = us.models.TokenHead.random(12, 2, 1.0, seed=0)


def ask(oracle, ids, counts=None):
    def program():
        return (yield Probes(np.asarray(ids), None if counts is None else np.asarray(counts)))

    return engine.run(program(), Stack(oracle))


def test_a_plain_function_sees_copies_a_counting_one_sees_counts() -> None:
    seen = []

    def plain(ids):
        seen.append(ids.shape)
        return HEAD(ids)

    ids, counts = [[1, 2], [3, 4]], [[2, 1], [1, 1]]
    expected = HEAD(np.asarray(ids), np.asarray(counts))
    assert ask(us.token_oracle(plain, 12), ids, counts) == pytest.approx(expected, abs=1e-14)
    assert sorted(seen) == [(1, 2), (1, 3)]
    assert np.array_equal(ask(us.token_oracle(HEAD), ids, counts), expected)


@pytest.mark.parametrize(
    ("ids", "options"),
    [
        ([[1, 12]], {}),
        ([[-1, 1]], {}),
        ([[1, 3]], {"forbidden": [3]}),
        ([[1, 2, 3]], {"max_length": 2}),
        ([[1.0, 2.0]], {}),
    ],
)
def test_ids_outside_the_domain_never_reach_the_target(ids, options) -> None:
    def target(_):
        pytest.fail("the target was called")

    with pytest.raises(us.errors.DomainError):
        ask(us.token_oracle(target, 12, **options), ids)


@pytest.mark.parametrize(
    "options", [{"vocabulary": 0}, {"forbidden": [12]}, {"forbidden": range(12)}, {"vocabulary": 11}]
)
def test_impossible_specs_are_refused(options) -> None:
    with pytest.raises(us.errors.InvalidArgument):
        us.token_oracle(HEAD, **options)


def test_a_vocabulary_is_required_of_a_plain_function() -> None:
    with pytest.raises(us.errors.InvalidArgument, match="vocabulary"):
        us.token_oracle(lambda ids: ids[:, 0])


def test_learners_of_vectors_refuse_ids_and_the_other_way_round() -> None:
    with pytest.raises(us.errors.InvalidArgument):
        us.recover(us.token_oracle(HEAD), us.learners.SingleHead())
    with pytest.raises(us.errors.InvalidArgument, match="token_oracle"):
        us.recover(us.oracle(us.models.SingleHead.random(3)), us.learners.TokenHead())


def test_without_a_learner_the_token_learner_is_taken_and_a_ledger_resumes() -> None:
    store = MemoryStore()
    first = us.recover(us.token_oracle(HEAD), ledger=store)
    assert us.models.distance(first.model, HEAD) < 1e-13
    assert us.recover(us.token_oracle(HEAD), ledger=store).usage.billed == 0


@pytest.mark.parametrize("wrong", [{"tolerance": "a"}, {"tolerance": None}, {"forbidden": 5}, {"forbidden": ["a"]}])
def test_wrong_arguments_are_named(wrong) -> None:
    with pytest.raises(us.errors.InvalidArgument, match=next(iter(wrong))):
        us.token_oracle(HEAD, **wrong)
