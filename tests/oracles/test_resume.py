"""Budgets, failures and executors around a ledger: nothing paid is lost, nothing is paid twice."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import unsoftmax as us
from unsoftmax.errors import BudgetExceeded, OracleError
from unsoftmax.learners.core.base import configuration
from unsoftmax.oracles import Budget, Ledger, MemoryStore, Stack
from unsoftmax.oracles.dispatching import before_sending_again
from unsoftmax.oracles.identity import identity
from unsoftmax.oracles.recording import _repeats
from unsoftmax.probes.base import Probes
from unsoftmax.run import engine

LEARNER = us.learners.SingleHead()


class Counting:
    """A head that counts what it receives, and can fail from some sequence on."""

    def __init__(self, dim=6, fail_at=None):
        self.head = us.models.SingleHead.random(dim, norm=2.0, seed=1)
        self.dim, self.fail_at = dim, fail_at
        self.received: list[bytes] = []
        self.lock = threading.Lock()

    def __call__(self, tokens):
        with self.lock:
            self.received += [row.tobytes() for row in tokens]
            if self.fail_at is not None and len(self.received) > self.fail_at:
                raise ConnectionError("gone")
        return self.head(tokens)


def test_a_budget_hit_on_the_way_is_used_up_and_continued(tmp_path):
    target = Counting()
    learner = us.learners.LowRank()  # its cost depends on the target, so the forecast cannot refuse it
    whole = us.recover(us.oracle(target.head), learner)
    oracle = us.oracle(target, name="quota", max_batch=40)
    budget = whole.usage.billed - 9
    with pytest.raises(BudgetExceeded) as error:
        us.recover(oracle, learner, budget=budget, ledger=tmp_path / "l.db")
    assert error.value.recovery is not None
    assert error.value.recovery.status is us.Status.BUDGET_EXHAUSTED
    assert "same ledger" in repr(error.value.recovery)
    assert len(target.received) == budget, "a quota is used up to its last query"
    recovery = us.recover(oracle, learner, budget=9, ledger=tmp_path / "l.db")
    assert len(target.received) == len(set(target.received)) == whole.usage.billed
    assert np.array_equal(recovery.model.W, whole.model.W)


@settings(max_examples=15, deadline=None)
@given(fail_at=st.integers(0, 150), batch=st.integers(1, 50), workers=st.sampled_from([0, 3]))
def test_a_failing_target_loses_only_the_calls_in_flight(fail_at, batch, workers):
    target, store = Counting(fail_at=fail_at), MemoryStore()
    oracle = us.oracle(target, max_batch=batch)
    pool = ThreadPoolExecutor(workers) if workers else None
    try:
        with pytest.raises(OracleError):
            us.recover(oracle, LEARNER, ledger=store, executor=pool)
        kept = len(store)
        # Whatever the target answered is in the store: only calls that failed are missing.
        assert kept > fail_at - batch
        assert kept <= fail_at
        target.fail_at, before = None, len(target.received)
        recovery = us.recover(oracle, LEARNER, ledger=store, executor=pool)
    finally:
        if pool is not None:
            pool.shutdown()
    whole = us.recover(us.oracle(target.head), LEARNER)
    assert recovery.usage.billed == len(target.received) - before == whole.usage.billed - kept
    assert np.array_equal(recovery.model.W, whole.model.W)


def test_addresses_of_all_sizes_are_compared_with_those_in_flight():
    """With NumPy 2.0 one address beyond 2^63 in flight ended the run."""
    high = np.array([[2**63 + 5, 1]], dtype=np.uint64)
    assert _repeats(high, [high])
    assert not _repeats(high, [high + np.uint64(1)])


def test_an_answer_that_arrived_is_kept_when_an_earlier_chunk_fails():
    second = threading.Event()

    def fn(tokens):
        if tokens[0, 0, 0] == 0:
            second.wait(10)
            raise ConnectionError("the first chunk fails after the second has answered")
        second.set()
        return tokens[:, 0, 0]

    store = MemoryStore()
    with ThreadPoolExecutor(2) as pool:
        stack = Stack(us.oracle(fn, 1, max_batch=1), store=store, executor=pool)
        with pytest.raises(OracleError, match="the first chunk fails"):
            engine.answer(Probes(np.arange(2.0).reshape(2, 1, 1)), stack, None)
    assert list(store.answers.values()) == [1.0]


@pytest.mark.parametrize("workers", [0, 4])
def test_a_repeated_sequence_is_sent_once_whatever_the_chunks(workers):
    rng = np.random.default_rng(0)
    values = rng.integers(0, 20, size=200).astype(float)
    target = Counting(dim=1)
    oracle, store = us.oracle(target, max_batch=7), MemoryStore()
    pool = ThreadPoolExecutor(workers) if workers else None
    stack = Stack(oracle, store=store, executor=pool)
    probes = Probes(values[:, None, None])
    for _ in range(2):
        answers = engine.answer(probes, stack, None)
        assert np.array_equal(answers, target.head(probes.tokens))
        assert len(target.received) == stack.meter.billed == 20
    if pool is not None:
        pool.shutdown()


def test_interrupt_leaves_the_ledger_resumable(tmp_path):
    target = Counting()

    def fn(tokens):
        if len(target.received) > 30:
            raise KeyboardInterrupt
        return target(tokens)

    with pytest.raises(KeyboardInterrupt):
        us.recover(us.oracle(fn, 6, max_batch=5, name="head"), LEARNER, ledger=tmp_path / "l.db")
    with Ledger(tmp_path / "l.db") as ledger:
        assert len(ledger) == len(target.received) > 30
        assert ledger.check() == []
    us.recover(us.oracle(target, name="head"), LEARNER, ledger=tmp_path / "l.db")
    assert len(target.received) == len(set(target.received))


class Retrying:
    """A source that sends every chunk three times before it succeeds, asking the meter each time."""

    def __init__(self):
        self.spec = us.oracle(us.models.SingleHead.random(4, seed=0)).spec
        self.head, self.sent = us.models.SingleHead.random(4, seed=0), 0

    def __call__(self, probes):
        self.sent += len(probes)
        for _ in range(2):
            before_sending_again(len(probes), int(probes.lengths.sum()))
            self.sent += len(probes)
        return self.head(probes.tokens)


@pytest.mark.parametrize("workers", [0, 2])
def test_retries_are_billed_and_stay_within_the_budget(workers):
    pool = ThreadPoolExecutor(workers) if workers else None
    source = Retrying()
    usage = us.recover(source, LEARNER, executor=pool).usage
    assert usage.billed == source.sent == sum(usage.phases.values())
    assert usage.phases["retry"] == 2 * usage.asked
    for budget in range(200, usage.billed, 37):
        limited = Retrying()
        with pytest.raises(BudgetExceeded):
            us.recover(limited, LEARNER, executor=pool, budget=budget)
        assert limited.sent <= budget
    if pool is not None:
        pool.shutdown()


def test_a_cost_needs_a_price_and_is_kept():
    with pytest.raises(us.errors.InvalidArgument, match="needs a price"):
        Budget(cost=1.0)
    target = Counting()
    budget = Budget(cost=2.0, price_per_query=0.01, price_per_token=0.001)
    with pytest.raises(BudgetExceeded, match="cost"):
        us.recover(us.oracle(target, max_batch=8), LEARNER, budget=budget)
    assert 0.01 * len(target.received) <= 2.0


def test_a_ledger_of_the_first_format_still_fits(tmp_path) -> None:
    target = us.models.SingleHead.random(4, norm=2.0, seed=0)
    oracle, learner = us.oracle(target), us.learners.SingleHead()
    # What a ledger was bound to before oracles could say more.
    names = ("dim", "kind", "tolerance", "dtype", "domain", "outputs", "link", "vocabulary")
    spec = {name: value for name, value in asdict(oracle.spec).items() if name in names}
    binding = {"target": identity(oracle), "spec": spec, "configuration": configuration(learner), "seed": 0}
    with Ledger(tmp_path / "run.ledger", binding):
        pass
    assert us.recover(oracle, learner, ledger=tmp_path / "run.ledger").status is us.Status.RECOVERED
