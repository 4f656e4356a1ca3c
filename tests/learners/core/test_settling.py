"""What a program settles is its own the first time, and the ledger's in every later run."""

import numpy as np
import pytest

import unsoftmax as us
from unsoftmax.learners.core.base import Settled
from unsoftmax.learners.core.driver import together
from unsoftmax.learners.core.reductions import rescaled
from unsoftmax.learners.core.settling import begun, settle, settle_list, settle_rounded
from unsoftmax.oracles import Ledger, MemoryStore, Stack
from unsoftmax.probes.base import one_row
from unsoftmax.run import engine

HEAD = us.models.SingleHead.random(3, seed=0)


def settling(*values, name="numbers"):
    """Settle, ask one sequence, settle once more."""
    first = yield from settle(name, *values)
    yield one_row(np.ones((1, 3)))
    second = yield from settle_list(name, values)
    return first, second


def run(program, store):
    stack = Stack(us.oracle(HEAD), store=store)
    return engine.run(program, stack), stack.near


MINE = (np.arange(6.0).reshape(2, 3), 7.5, np.zeros((0, 3)))


def same(found, wanted):
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("store", [None, MemoryStore()], ids=["nothing", "memory"])
def test_without_a_ledger_everything_is_its_own(store):
    (first, second), _ = run(settling(*MINE), store)
    same(first, MINE)
    same(second, MINE)


def test_a_later_run_goes_on_from_what_was_settled_first(tmp_path):
    other = (MINE[0] + 1, 8.5, MINE[2])
    with Ledger(tmp_path / "l.db") as ledger:
        (first, _), near = run(settling(*MINE), ledger)
        same(first, MINE)
        assert not near.used
    with Ledger(tmp_path / "l.db") as ledger:
        (first, second), near = run(settling(*other), ledger)
        same(first, MINE)
        same(second, MINE)
        assert near.recalled == 2
        assert "2 results" in str(near)
        same(run(settling(*other, name="another"), ledger)[0][0], other)


def test_shapes_that_do_not_fit_are_not_taken(tmp_path):
    with Ledger(tmp_path / "l.db") as ledger:
        run(settling(*MINE), ledger)
        other = (np.ones((3, 3)), 1.0, MINE[2])
        (first, second), _ = run(settling(*other), ledger)
        same(first, other)
        same(second, MINE)


def short(x):
    return x.astype(np.float32).astype(np.float64)


def rounding(tokens, rounded=short):
    """Round, ask one sequence."""
    X = yield from settle_rounded("tokens", tokens, rounded)
    yield one_row(np.ones((1, 3)))
    return X


def test_numbers_between_two_of_a_grid_are_rounded_as_they_were_first(tmp_path):
    tokens = np.random.default_rng(0).standard_normal((5, 4, 3))
    low = np.float64(np.float32(tokens[2, 1, 0]))
    between = (low + np.float64(np.nextafter(np.float32(low), np.float32(9)))) / 2
    tokens[2, 1, 0] = between * (1 + 1e-10)
    other = tokens.copy()
    other[2, 1, 0] = between * (1 - 1e-10)
    assert (short(tokens) != short(other)).sum() == 1
    with Ledger(tmp_path / "l.db") as ledger:
        same([run(rounding(tokens), ledger)[0]], [short(tokens)])
        same([run(rounding(other), ledger)[0]], [short(tokens)])
        (place,) = ledger._decisions._rows
        assert len(ledger.settled(place)) < tokens.size


def test_what_is_not_rounded_is_not_settled(tmp_path):
    with Ledger(tmp_path / "l.db") as ledger:
        same([run(rounding(MINE[0], lambda x: x), ledger)[0]], [MINE[0]])
        assert not ledger._decisions._rows


def test_roundings_that_do_not_fit_are_not_taken(tmp_path):
    tokens = np.random.default_rng(0).standard_normal((5, 4, 3))
    for kept in ([np.ones(3)], [np.array([1e6]), np.array([5.0])], [np.ones(2), np.ones(3)]):
        with Ledger(tmp_path / f"{len(kept)}{len(kept[0])}.db") as ledger:

            def another():
                yield from settle_list("tokens", kept)  # noqa: B023
                yield one_row(np.ones((1, 3)))

            run(another(), ledger)
            same([run(rounding(tokens), ledger)[0]], [short(tokens)])


def test_what_an_inner_program_settles_is_settled(tmp_path):
    def both(*numbers):
        programs = [rescaled(settling(np.full(2, n)), 2.0) for n in numbers]
        return (yield from together(programs))

    with Ledger(tmp_path / "l.db") as ledger:
        run(both(1.0, 2.0), ledger)
        found, _ = run(both(3.0, 4.0), ledger)
    same([first[0] for first, _ in found], [np.full(2, 1.0), np.full(2, 2.0)])


def test_a_program_that_is_begun_settles_for_itself():
    program = settling(1.0)
    assert len(begun(program)) == 1
    assert isinstance(program.send(np.zeros(1)), Settled)


def test_what_was_settled_is_left_out_once_answers_contradict_each_other(tmp_path):
    with Ledger(tmp_path / "l.db") as ledger:
        run(settling(1.0), ledger)
        stack = Stack(us.oracle(HEAD), store=ledger)
        stack.near.limit = 0.0
        first, _ = engine.run(settling(2.0), stack)
        same(first, [2.0])
        same(run(settling(3.0), ledger)[0][0], [2.0])
