"""The ledger on disk: what is put comes back, for its own run alone, and damage is noticed."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import unsoftmax as us
from unsoftmax.errors import LedgerError
from unsoftmax.oracles import Ledger, MemoryStore
from unsoftmax.oracles.addresses import AddressIndex, addresses
from unsoftmax.oracles.identity import fingerprint
from unsoftmax.probes.base import Probes

LEARNER = us.learners.SingleHead()


def head(seed=0, dim=8):
    return us.models.SingleHead.random(dim, norm=2.0, seed=seed)


def keys_of(rng, n):
    return rng.integers(0, 2**64, size=(n, 2), dtype=np.uint64)


def test_addresses_tell_sequences_apart_and_only_them():
    rng = np.random.default_rng(0)
    tokens = rng.standard_normal((5, 2, 6))
    base = addresses(Probes(tokens))
    assert len({key.tobytes() for key in base}) == 5
    assert np.array_equal(base[1:3], addresses(Probes(tokens, phase="verify", offset=7)[1:3]))
    assert np.array_equal(base, addresses(Probes(tokens, np.ones((5, 2), dtype=int))))
    others = [
        Probes(tokens, np.full((5, 2), 2)),
        Probes(tokens, np.tile([1, 2], (5, 1))),
        Probes(tokens.reshape(5, 4, 3)),
        Probes(tokens[:, ::-1]),
        Probes(np.nextafter(tokens, np.inf)),
        Probes(tokens.astype(np.float32)),
    ]
    seen = {key.tobytes() for other in others for key in addresses(other)} | {key.tobytes() for key in base}
    assert len(seen) == 5 * (len(others) + 1)


@settings(max_examples=40, deadline=None)
@given(sizes=st.lists(st.integers(1, 300), max_size=20), seed=st.integers(0, 2**32))
def test_the_index_finds_everything_and_nothing_else(sizes, seed):
    rng = np.random.default_rng(seed)
    index, start, kept = AddressIndex(), 0, []
    for n in sizes:
        keys = keys_of(rng, n)
        index.add(keys, np.arange(start, start + n))
        kept.append(keys)
        start += n
    assert len(index) == start
    if kept:
        assert np.array_equal(index.find(np.concatenate(kept)), np.arange(start))
    assert (index.find(keys_of(rng, 50)) == -1).all()


@pytest.mark.parametrize("outputs", [None, 3])
def test_what_is_put_comes_back_after_reopening(tmp_path, outputs):
    rng = np.random.default_rng(1)
    keys = keys_of(rng, 200)
    answers = rng.standard_normal(200 if outputs is None else (200, outputs))
    memory = MemoryStore()
    with Ledger(tmp_path / "l.db") as ledger:
        for part in (slice(0, 1), slice(1, 120), slice(120, 150)):
            ledger.put(keys[part], answers[part], "main")
            memory.put(keys[part], answers[part])
    mixed = rng.permutation(200)
    with Ledger(tmp_path / "l.db") as ledger:
        assert len(ledger) == 150
        for store in (ledger, memory):
            known, held = store.get(keys[mixed])
            assert np.array_equal(known, mixed < 150)
            assert np.array_equal(held, answers[mixed[mixed < 150]])
        assert ledger.check() == []


def test_half_an_address_is_not_enough(tmp_path):
    keys = np.array([[5, 1]], dtype=np.uint64)
    with Ledger(tmp_path / "l.db") as ledger:
        ledger.put(keys, np.array([1.0]))
        known, held = ledger.get(np.array([[5, 2]], dtype=np.uint64))
        assert not known.any()
        assert len(held) == 0


def test_resume_is_free_and_bit_identical(tmp_path):
    oracle = us.oracle(head())
    plain = us.recover(oracle, LEARNER)
    first = us.recover(oracle, LEARNER, ledger=tmp_path / "l.db")
    again = us.recover(us.oracle(head(), max_batch=7), LEARNER, ledger=str(tmp_path / "l.db"))
    assert first.usage.billed == plain.usage.billed
    assert again.usage.billed == 0
    assert again.usage.asked == first.usage.asked
    for other in (first, again):
        assert np.array_equal(plain.model.W, other.model.W)
        assert np.array_equal(plain.model.v, other.model.v)


@pytest.mark.parametrize(
    ("target", "learner", "seed", "difference"),
    [
        (lambda: us.oracle(head(1)), LEARNER, 0, "target.parameters"),
        (lambda: us.oracle(head(0, dim=9)), LEARNER, 0, "spec.dim is 8 in the ledger and 9 in this run"),
        (lambda: us.oracle(head(), name="other"), LEARNER, 0, "target.name is 'SingleHead' in the ledger and 'other'"),
        (lambda: us.oracle(head(), max_norm=4.0), LEARNER, 0, "spec.domain.max_norm is None in the ledger and 4.0"),
        (lambda: us.oracle(head()), us.learners.SingleHead("coordinate"), 0, "configuration.probes is 'householder'"),
        (lambda: us.oracle(head()), LEARNER, 1, "seed is 0 in the ledger and 1 in this run"),
        (lambda: us.oracles.Rounded(us.oracle(head()), decimals=9), LEARNER, 0, "target.wrapper is 'absent'"),
    ],
)
def test_another_run_is_refused_with_what_differs(tmp_path, target, learner, seed, difference):
    path = tmp_path / "l.db"
    us.recover(us.oracle(head()), LEARNER, ledger=path)
    before = path.read_bytes()
    with pytest.raises(LedgerError, match="belongs to another run") as error:
        us.recover(target(), learner, seed=seed, ledger=path)
    assert difference in str(error.value)
    assert path.read_bytes() == before


def test_targets_are_told_apart_by_the_parameters_within_reach():
    W = np.eye(3)

    def closed(scale):
        V = scale * W
        return lambda tokens: tokens @ V

    class Bound:
        def __init__(self, V):
            self.V, self.calls, self.log = V, 0, []

        def __call__(self, tokens):
            self.calls += 1
            self.log.append(tokens)
            return tokens @ self.V

    assert fingerprint(closed(1.0)) == fingerprint(closed(1.0)) != fingerprint(closed(2.0))
    assert fingerprint(partial(np.dot, W)) != fingerprint(partial(np.dot, 2 * W))
    assert fingerprint(Bound(W).__call__) != fingerprint(Bound(2 * W).__call__)
    assert fingerprint(lambda tokens: tokens.sum()) is None
    one = Bound(W)
    before = fingerprint(one)
    one(np.ones((1, 3)))
    assert fingerprint(one) == before
    assert fingerprint(head()) == fingerprint(head()) != fingerprint(head(1))


def test_a_declared_name_is_the_identity(tmp_path):
    path = tmp_path / "l.db"
    for _ in range(2):
        log = np.random.default_rng().standard_normal(3)
        fn = lambda tokens, log=log: head()(tokens)  # noqa: E731
        recovery = us.recover(us.oracle(fn, 8, name="mine"), LEARNER, ledger=path)
    assert recovery.usage.billed == 0


def test_a_second_writer_is_locked_out(tmp_path):
    path = tmp_path / "l.db"
    code = f"from unsoftmax.oracles import Ledger; Ledger({str(path)!r})"
    with Ledger(path):
        with pytest.raises(LedgerError, match="in use by another run"):
            Ledger(path)
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert "LedgerError" in other.stderr
        assert "in use by another run" in other.stderr
    with Ledger(path) as free:
        assert len(free) == 0


def test_a_changed_answer_is_noticed(tmp_path):
    path = tmp_path / "l.db"
    keys = keys_of(np.random.default_rng(2), 10)
    with Ledger(path) as ledger:
        ledger.put(keys, np.arange(10.0))
    connection = sqlite3.connect(path)
    connection.execute("UPDATE chunks SET answers = ?", (np.arange(1.0, 11.0).tobytes(),))
    connection.commit()
    connection.close()
    with Ledger(path) as ledger:
        with pytest.raises(LedgerError, match="chunk 1 is not what was written"):
            ledger.get(keys)
        assert len(ledger.check()) == 1


def test_other_files_are_refused_and_left_alone(tmp_path):
    text = tmp_path / "notes.txt"
    text.write_text("not a database, but long enough to be taken for a header " * 20)
    with pytest.raises(LedgerError, match="not a database"):
        Ledger(text)
    foreign = tmp_path / "foreign.db"
    connection = sqlite3.connect(foreign)
    connection.execute("CREATE TABLE chunks (id INTEGER)")
    connection.commit()
    connection.close()
    before = foreign.read_bytes()
    with pytest.raises(LedgerError, match="not an unsoftmax ledger"):
        Ledger(foreign)
    assert foreign.read_bytes() == before
    with pytest.raises(LedgerError, match="check that the directory exists"):
        Ledger(tmp_path / "nowhere" / "l.db")


@pytest.mark.parametrize("dim", [6, 32])
def test_bytes_per_query(tmp_path, dim):
    path = tmp_path / "l.db"
    recovery = us.recover(us.oracle(head(dim=dim)), LEARNER, ledger=path)
    assert os.listdir(tmp_path) == ["l.db"]
    assert path.stat().st_size <= 64 * 1.1 * recovery.usage.billed


def test_a_refused_budget_leaves_no_file(tmp_path):
    with pytest.raises(us.errors.BudgetExceeded):
        us.recover(us.oracle(head()), LEARNER, budget=10, ledger=tmp_path / "l.db")
    assert os.listdir(tmp_path) == []


def test_two_rows_under_one_number_are_damage(tmp_path):
    path, rng = tmp_path / "run.db", np.random.default_rng(0)
    keys = [rng.integers(0, 2**63, (n, 2), dtype=np.uint64) for n in (2, 5)]
    with Ledger(path) as ledger:
        ledger.put(keys[0], rng.standard_normal(2))
        ledger._remember(1, keys[1])  # what a flipped bit in the number of a second row leads to
        with pytest.raises(LedgerError, match="damaged"):
            ledger.get(keys[1])
