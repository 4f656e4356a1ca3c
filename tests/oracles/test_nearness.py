"""Answers of tokens that differ by rounding: found by place within a distance, and moved by a model."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress

import numpy as np
import pytest

import unsoftmax as us
from unsoftmax.learners.core.reductions import reduced
from unsoftmax.oracles import Ledger, Stack
from unsoftmax.oracles.addresses import addresses
from unsoftmax.oracles.nearness import NEAR, Nearness
from unsoftmax.oracles.sequences import unrepeatable
from unsoftmax.probes.base import Probes
from unsoftmax.run import engine

HEAD = us.models.MultiHead.random(6, 2, norm=2.0, seed=1)
EPS = float(np.finfo(float).eps)


class Counting:
    """A target that counts what it receives."""

    accepts_counts = True

    def __init__(self, model=HEAD):
        self.model, self.dim, self.received = model, model.dim, 0

    def __call__(self, tokens, counts=None):
        self.received += len(tokens)
        return self.model(tokens, counts)


class Shaken:
    """A learner whose tokens are sent a share `apart` off at random: a ledger from another processor."""

    def __init__(self, learner, apart):
        self.learner, self.apart = learner, apart

    @property
    def affine(self):
        return getattr(self.learner, "affine", True)

    def forecast(self, spec):
        return self.learner.forecast(spec)

    def program(self, spec, seed):
        return reduced(self.learner.program(spec, seed), self._shaken(np.random.default_rng(7)))

    def _shaken(self, rng):
        def rewrite(probes):
            return Probes(
                probes.tokens * (1 + rng.uniform(-self.apart, self.apart, probes.tokens.shape)), probes.counts
            )

        return rewrite


def ask(ledger, tokens, counts=None, again=0, target=None):
    """One round in a fresh stack on a ledger; how many were sent, and the stack."""
    target = target or Counting()
    stack = Stack(us.oracle(target, max_batch=3), store=ledger)
    y = engine.answer(Probes(tokens, counts, again=again), stack, None)
    return target.received, y, stack.near


@pytest.fixture
def ledger(tmp_path):
    with Ledger(tmp_path / "l.db") as opened:
        yield opened


TOKENS = np.random.default_rng(0).standard_normal((8, 2, 6))


def test_a_last_digit_is_found_and_more_is_not(ledger):
    sent, y, _ = ask(ledger, TOKENS)
    assert sent == 8
    received, again, near = ask(ledger, TOKENS * (1 + 4 * EPS))
    assert (received, near.served) == (0, 8)
    np.testing.assert_array_equal(again, y)
    assert 0 < near.farthest <= 16 * EPS
    far = TOKENS.copy()
    far[[2, 5], 0, 0] += 4 * NEAR * np.abs(TOKENS).max()
    assert ask(ledger, far)[0] == 2


def test_only_at_its_own_place(ledger):
    """A bisection asks neighbours on purpose: nearness alone is no reason to take an answer."""
    ask(ledger, TOKENS)
    assert ask(ledger, np.roll(TOKENS, 1, axis=0) * (1 + 4 * EPS))[0] == 8


def test_only_with_the_same_counts_and_not_where_it_is_asked_again_on_purpose(ledger):
    counts = np.full((8, 2), 2)
    ask(ledger, TOKENS, counts)
    assert ask(ledger, TOKENS * (1 + 4 * EPS), counts + 1)[0] == 8
    assert ask(ledger, TOKENS * (1 + 4 * EPS), counts)[0] == 0
    assert ask(ledger, TOKENS * (1 + 8 * EPS), counts, again=1)[0] == 8


def test_the_same_sequence_at_two_places_is_sent_once_and_found_at_both(ledger):
    twice = np.concatenate([TOKENS, TOKENS])
    assert ask(ledger, twice)[0] == 8
    assert ask(ledger, twice * (1 + 4 * EPS))[0] == 0


def test_what_was_found_by_place_is_found_again_where_it_had_not_been_asked(ledger):
    """A run that was interrupted before it asked the same sequences once more."""
    ask(ledger, TOKENS)
    target, other = Counting(), TOKENS * (1 + 4 * EPS)
    stack = Stack(us.oracle(target, max_batch=3), store=ledger)
    first = engine.answer(Probes(other), stack, None)
    longer = Probes(np.concatenate([TOKENS[:2] + 1, other[::-1]]))
    for _ in range(2):
        np.testing.assert_array_equal(engine.answer(longer, stack, None)[2:], first[::-1])
        assert target.received == 2
        stack.rewind()
        engine.answer(Probes(other), stack, None)


def test_tokens_on_a_grid_are_kept_by_address_alone(ledger):
    grid = TOKENS.astype(np.float32).astype(float)
    assert not unrepeatable(Probes(grid)).any()
    assert unrepeatable(Probes(TOKENS)).all()
    ask(ledger, grid)
    assert ledger.noted(0, np.arange(8)) == []


def test_a_model_moves_answers_to_the_tokens_asked(ledger):
    """Strong scores turn a difference in the eleventh digit into a larger one; the model takes it back."""
    strong = us.models.MultiHead(HEAD.W * 1e2, HEAD.v)
    other = TOKENS * (1 + NEAR / 4)
    _, y, _ = ask(ledger, TOKENS, target=Counting(strong))
    near = Nearness(ledger)
    near.model = us.models.MultiHead(strong.W * (1 + 1e-9), strong.v)
    rows, moved = near.find(0, 0, Probes(other), addresses(Probes(other)), np.arange(8))
    assert len(rows) == 8
    truth = strong(other)
    assert np.abs(y - truth).max() > 1e4 * EPS
    assert np.abs(moved - truth).max() < 1e-2 * np.abs(y - truth).max()


@pytest.mark.parametrize("learner", [us.learners.MultiHead(), us.learners.LowRank()], ids=["heads", "low rank"])
def test_a_ledger_with_other_last_digits_is_paid_for_and_costs_no_digits(learner, tmp_path):
    model = HEAD if isinstance(learner, us.learners.MultiHead) else us.models.SingleHead.random(6, rank=2, seed=1)
    target = Counting(model)
    whole = us.recover(us.oracle(model), learner)
    with Ledger(tmp_path / "l.db") as ledger:
        us.recover(us.oracle(model), Shaken(learner, EPS), ledger=ledger)
        again = us.recover(us.oracle(target), learner, ledger=ledger)
    assert target.received <= 0.01 * whole.usage.billed
    assert any("recorded answers" in note for note in again.notes)
    before, after = (us.models.distance(r.model, model) for r in (whole, again))
    assert after <= 100 * max(before, EPS)


def test_answers_that_contradict_each_other_are_asked_again(tmp_path):
    """Answers too far from their tokens must not become the target's fault."""
    learner = us.learners.MultiHead()
    with Ledger(tmp_path / "l.db") as ledger:
        with suppress(us.errors.UnsoftmaxError):
            us.recover(us.oracle(HEAD), Shaken(learner, NEAR / 4), ledger=ledger)
        recovery = us.recover(us.oracle(HEAD), learner, ledger=ledger)
    assert recovery.status is us.Status.RECOVERED
    assert us.models.distance(recovery.model, HEAD) <= 1e-11


def test_a_run_that_was_refused_with_its_own_answers_is_refused_for_nothing(tmp_path):
    """A target outside the class: it is not to be paid twice to hear so."""
    outside = us.models.MultiHead(HEAD.W, HEAD.v, c=np.ones((2, 6)))
    learner, target = us.learners.MultiHead(), Counting(outside)
    with Ledger(tmp_path / "l.db") as ledger:
        with pytest.raises(us.errors.ModelMismatch):
            us.recover(us.oracle(outside), Shaken(learner, EPS), ledger=ledger)
        with pytest.raises(us.errors.ModelMismatch):
            us.recover(us.oracle(target), learner, ledger=ledger)
    assert target.received == 0


def test_labels_do_not_show_last_digits_of_tokens(tmp_path):
    outside = us.models.MultiHead.random(4, 2, norm=2.0, seed=5)
    learner = us.learners.Membership(accuracy=1e-3)

    class Gone(Counting):
        def __call__(self, tokens, counts=None):
            if self.received > 200:
                raise KeyboardInterrupt
            return super().__call__(tokens, counts)

    def paid(target, learner, ledger):
        oracle = us.oracle(target, kind="membership")
        with suppress(us.errors.ModelMismatch, KeyboardInterrupt):
            us.recover(oracle, learner, ledger=ledger)
        return target.received

    whole = paid(Counting(outside), learner, None)
    with Ledger(tmp_path / "l.db") as ledger:
        first = paid(Gone(outside), Shaken(learner, EPS), ledger)
        assert 0 < first < whole
        assert first + paid(Counting(outside), learner, ledger) <= 1.01 * whole


def test_damaged_tokens_are_named(tmp_path):
    with Ledger(tmp_path / "l.db") as ledger:
        ask(ledger, TOKENS)
        assert ledger.check() == []
    with closing(sqlite3.connect(tmp_path / "l.db", isolation_level=None)) as raw:
        raw.execute("UPDATE sequences SET tokens = zeroblob(length(tokens)) WHERE id = 1")
    with Ledger(tmp_path / "l.db") as ledger:
        assert len(ledger.check()) == 1
        with pytest.raises(us.errors.LedgerError, match="tokens of chunk 1"):
            ask(ledger, TOKENS * (1 + 4 * EPS))


def test_damaged_decisions_are_named(tmp_path):
    with Ledger(tmp_path / "l.db") as ledger:
        ledger.settle((0, "size", 0), np.ones(3))
        assert ledger.check() == []
        np.testing.assert_array_equal(ledger.settled((0, "size", 0)), np.ones(3))
        assert ledger.settled((1, "size", 0)) is None
    with closing(sqlite3.connect(tmp_path / "l.db", isolation_level=None)) as raw:
        raw.execute("UPDATE decisions SET value = zeroblob(24)")
    with Ledger(tmp_path / "l.db") as ledger:
        assert len(ledger.check()) == 1
        with pytest.raises(us.errors.LedgerError, match="settled in row 1"):
            ledger.settled((0, "size", 0))


def test_a_ledger_from_before_tokens_were_kept_is_read_on(tmp_path):
    with Ledger(tmp_path / "l.db") as ledger:
        ask(ledger, TOKENS)
    with closing(sqlite3.connect(tmp_path / "l.db", isolation_level=None)) as raw:
        raw.execute("DROP TABLE sequences")
        raw.execute("DROP TABLE decisions")
    with Ledger(tmp_path / "l.db") as ledger:
        assert ask(ledger, TOKENS)[0] == 0
