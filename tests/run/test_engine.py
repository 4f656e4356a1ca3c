"""The engine: rounds, chunks, memory, failure in the middle, executors."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest

import unsoftmax as us
from unsoftmax.oracles import MemoryStore, Stack
from unsoftmax.probes import LazyProbes, Probes
from unsoftmax.probes.base import PART_BYTES
from unsoftmax.run import engine

HEAD = us.models.SingleHead.random(8, norm=2.0, seed=1)


def test_max_batch_is_the_largest_call_the_target_sees() -> None:
    sizes = []

    def target(X):
        sizes.append(len(X))
        return HEAD(X)

    us.recover(us.oracle(target, 8, max_batch=5), us.learners.SingleHead())
    assert max(sizes) == 5


def test_lazy_rounds_build_one_chunk_at_a_time() -> None:
    held = []

    def build(start, stop):
        held.append(stop - start)
        return Probes(np.zeros((stop - start, 2, 8)))

    def program():
        answers = yield LazyProbes(100_000, 2 * 8 * 8, build)
        return answers.shape

    assert engine.run(program(), Stack(us.oracle(HEAD))) == (100_000,)
    assert sum(held) == 100_000
    assert max(held) * 2 * 8 * 8 <= PART_BYTES


def test_one_yield_is_one_round() -> None:
    recovery = us.recover(us.oracle(HEAD), us.learners.SingleHead(), verify=False)
    assert recovery.status is us.Status.UNVERIFIED
    assert recovery.usage.rounds == 4  # values, two pilots, main
    assert recovery.usage.tokens == 8 + 2 * (22 + 64)


class FailsOnce:
    """A target that raises on its third call, then works."""

    dim = 8

    def __init__(self):
        self.calls, self.received = 0, 0

    def __call__(self, X):
        self.calls += 1
        if self.calls == 3:
            raise ConnectionError("gone")
        self.received += len(X)
        return HEAD(X)


def test_what_was_answered_before_a_failure_is_not_paid_again() -> None:
    target, store = FailsOnce(), MemoryStore()
    oracle = us.oracle(target, max_batch=16)
    with pytest.raises(us.errors.OracleError, match="ConnectionError") as error:
        us.recover(oracle, us.learners.SingleHead(), ledger=store)
    assert error.value.recovery.status is us.Status.TARGET_FAILED
    assert len(store.answers) == target.received > 0
    recovery = us.recover(oracle, us.learners.SingleHead(), ledger=store)
    assert target.received == recovery.usage.asked
    assert us.models.distance(recovery.model, HEAD) < 1e-13


def test_interrupt_keeps_what_was_paid_for() -> None:
    store, calls = MemoryStore(), []

    def target(X):
        calls.append(len(X))
        if len(calls) == 4:
            raise KeyboardInterrupt
        return HEAD(X)

    with pytest.raises(KeyboardInterrupt):
        us.recover(us.oracle(target, 8, max_batch=16), us.learners.SingleHead(), ledger=store)
    assert len(store.answers) == sum(calls[:3])


def test_process_pool_gives_the_same_bytes() -> None:
    oracle = us.oracle(HEAD, max_batch=16)
    serial = us.recover(oracle, us.learners.SingleHead())
    with ProcessPoolExecutor(2) as pool:
        parallel = us.recover(oracle, us.learners.SingleHead(), executor=pool)
    assert np.array_equal(serial.model.W, parallel.model.W)
    assert parallel.usage.billed == serial.usage.billed


def test_budget_reached_in_flight_keeps_answers_that_arrive() -> None:
    store = MemoryStore()
    stack_budget = us.Budget(queries=40)
    with ThreadPoolExecutor(2) as pool:
        stack = Stack(us.oracle(HEAD), stack_budget, store, pool)
        probes = Probes(np.random.default_rng(0).standard_normal((64, 2, 8)))
        with pytest.raises(us.errors.BudgetExceeded):
            list(stack.ask(probes[i : i + 8] for i in range(0, 64, 8)))
    assert stack.meter.billed == 40 == len(store.answers)


def test_progress_reports_every_chunk() -> None:
    seen = []
    us.recover(us.oracle(HEAD, max_batch=16), us.learners.SingleHead(), progress=seen.append)
    assert seen[0].phase == "values"
    assert seen[-1].phase == "verify"
    assert all(p.done <= p.size for p in seen)
    assert [p.billed for p in seen] == sorted(p.billed for p in seen)


def test_without_a_learner_the_result_says_what_was_tried() -> None:
    recovery = us.recover(us.oracle(HEAD))
    assert recovery.notes
    assert us.models.distance(recovery.model, HEAD) < 1e-13


def test_what_does_not_fit_into_memory_is_said():
    def greedy():
        yield from ()
        raise MemoryError

    with pytest.raises(us.errors.InvalidArgument, match="memory"):
        engine.run(greedy(), Stack(us.oracle(us.models.SingleHead.random(3, seed=0))))


def test_equations_without_a_solution_end_in_a_refusal_that_keeps_the_bill(monkeypatch) -> None:
    def singular(*_args, **_rest):
        raise np.linalg.LinAlgError("SVD did not converge")

    monkeypatch.setattr("unsoftmax.learners.low_rank.LowRank.program", asking_then(singular))
    with pytest.raises(us.errors.ModelMismatch, match=r"LowRank .* \(SVD did not converge\)") as refusal:
        us.recover(us.oracle(HEAD), us.learners.LowRank())
    assert refusal.value.recovery.usage.billed == 3


def asking_then(act):
    """A program that asks three sequences, and then acts on the answers."""

    def program(self, spec, seed):
        return act((yield Probes(np.ones((3, 2, spec.dim)))))

    return program
