"""Resuming on another processor: a recorded answer serves the same question asked with other last digits.

The answer belongs to the tokens as they were sent, X. A program that asks X' at the same place (round, row), less than
`NEAR` away, gets it, at first as it is: f(X) for f(X'). What this costs depends on how steep f is, so it is undone as
soon as there is a model: the program runs again, and every such answer is moved by model(X') - model(X). A model that
is right to eight digits makes that difference right to eight digits of something that is itself in the last digits.
What a program settles (`learners.core.settling`) is given back as it was settled first: then nothing differs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from unsoftmax.oracles.decisions import Place
from unsoftmax.oracles.recording import Store
from unsoftmax.oracles.sequences import Sequences, unrepeatable
from unsoftmax.probes.base import Array, Probes

NEAR = 2.0**-36
"""Largest distance of two tokens, beside the largest entry of the sequence, that may be rounding (1.5e-11): programs on
two processors were up to 4e-13 apart, and 1e-11 where a subspace is ill determined; what differs on purpose is farther
apart, or stands at another place."""

_ROUNDINGS = 16.0
"""Units of rounding of an answer below which a difference of two of the model's is its own arithmetic."""

Model = Callable[[Array, Array | None], Array]


@runtime_checkable
class Notes(Store, Protocol):
    """A store that also keeps what was asked where."""

    def note(self, at: int, asked: Sequences) -> None:
        """Keep sequences of round `at`; before their answers are put."""

    def noted(self, at: int, rows: Array) -> list[Sequences]:
        """What was asked at some of these rows of round `at`, the latest last."""

    def places(self, at: int, rows: Array) -> Array:
        """Which of these rows (n,) of round `at` were noted."""

    def settle(self, place: Place, value: Array) -> None:
        """Keep what was settled at a place."""

    def settled(self, place: Place) -> Array | None:
        """What was settled there, None if nothing was."""


@dataclass
class Nearness:
    """Finds answers by place and by closeness of the tokens; `model` moves them to the tokens asked now."""

    store: Notes
    limit: float = NEAR
    model: Model | None = None
    served: int = 0
    """Answers given to tokens that differ from those sent."""
    farthest: float = 0.0
    """Largest distance among them."""
    steep: bool = False
    """Whether the model, once there is one, moved an answer by more than rounding."""
    recalled: int = 0
    """Settled numbers that came out otherwise this time."""
    epoch: int = 0
    """Which start this is: what a program settled under another tolerance is not for the next."""
    _named: Counter[tuple[int, str]] = field(default_factory=Counter)
    _found: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    """Address of what is asked now -> round and row whose answer serves it, here and wherever it is asked again."""

    def note(self, at: int, first: int, probes: Probes, keys: Array, known: Array) -> None:
        """Keep of a chunk with addresses `keys` the sequences whose last digits are this processor's; on request, all.

        `known` (n,) have an answer already; they are kept where their place was not, unless it is another's answer.
        """
        every = getattr(self.store, "keep_tokens", False) and probes.tokens.ndim == 3
        rows = np.arange(len(probes)) if every else np.flatnonzero(unrepeatable(probes))
        if len(rows):
            borrowed = np.array([keys[row].tobytes() in self._found for row in rows])
            rows = rows[~(known[rows] & (borrowed | self.store.places(at, first + rows)))]
        if len(rows):
            some = probes.take(rows)
            self.store.note(at, Sequences(first + rows, keys[rows], some.tokens, some.counts))

    def rewind(self) -> None:
        """A program begins (again)."""
        self._named.clear()

    def settle(self, at: int, name: str, value: Array) -> Array:
        """What a run before settled under this name before round `at`, or `value`, which is kept."""
        place = at, f"{name} {self.epoch}" if self.epoch else name, self._named[at, name]
        self._named[at, name] += 1
        kept = self.store.settled(place) if self.limit > 0 else None
        if kept is None:
            self.store.settle(place, value)
            return value
        self.recalled += int(not np.array_equal(kept, value, equal_nan=True))
        return kept

    @property
    def used(self) -> bool:
        """Whether anything was taken that is not this processor's own."""
        return self.served + self.recalled > 0

    def follow(self, model: Any, dim: int) -> bool:
        """Move answers by what `model` says from now on; False if it cannot be asked."""
        try:
            np.asarray(model(np.zeros((1, 2, dim)), None), dtype=np.float64)
        except Exception:
            # Behind an unknown network, W says nothing about the answers themselves.
            return False
        self.model, self.served, self.recalled = model, 0, 0
        return True

    def find(self, at: int, first: int, probes: Probes, keys: Array, unknown: Array) -> tuple[Array, Array]:
        """Of the rows `unknown` of a chunk that begins at row `first`: those that have a near answer, and these."""
        nothing = np.empty(0, dtype=np.int64), np.empty(0)
        if self.limit <= 0 or probes.tokens.ndim != 3 or probes.again or not len(unknown):
            return nothing
        found: dict[int, tuple[Array, float, Array]] = {}
        for asked in self.store.noted(at, first + unknown):
            found |= self._close(asked, first, probes, unknown)
        self._found |= {keys[row].tobytes(): (at, first + row) for row in found}
        for row in unknown if self._found else ():
            if int(row) not in found:
                found |= self._before(int(row), keys[row].tobytes(), probes)
        if not found:
            return nothing
        rows = np.array(sorted(found), dtype=np.int64)
        known, answers = self.store.get(np.array([found[row][0] for row in rows]))
        rows = rows[known]
        if len(rows):
            sent = np.array([found[row][2] for row in rows])
            answers = self._moved(answers, sent, probes.take(rows))
            self.served += len(rows)
            self.farthest = max(self.farthest, *(found[row][1] for row in rows))
        return rows, answers

    def _before(self, row: int, key: bytes, probes: Probes) -> dict[int, tuple[Array, float, Array]]:
        """The same for a sequence that was asked before, at another place, where a near answer served it."""
        at, place = self._found.get(key, (-1, -1))
        found: dict[int, tuple[Array, float, Array]] = {}
        for asked in self.store.noted(at, np.array([place])):
            found |= self._close(asked, place - row, probes, np.array([row]))
        return found

    def _close(
        self, asked: Sequences, first: int, probes: Probes, unknown: Array
    ) -> dict[int, tuple[Array, float, Array]]:
        """Row -> address, distance and tokens as sent, of what is near."""
        here, mine, theirs = np.intersect1d(unknown + first, asked.rows, return_indices=True)
        if not len(here) or asked.tokens.shape[1:] != probes.tokens.shape[1:]:
            return {}
        new, old = probes.take(unknown[mine]), asked.take(theirs)
        size = np.abs(new.tokens).max(axis=(1, 2))
        apart = np.abs(new.tokens - old.tokens).max(axis=(1, 2)) / np.where(size > 0, size, 1.0)
        near = (apart <= self.limit) & _same(new.counts, old.counts, len(here))
        return {int(unknown[mine[i]]): (old.addresses[i], float(apart[i]), old.tokens[i]) for i in np.flatnonzero(near)}

    def _moved(self, answers: Array, sent: Array, asked: Probes) -> Array:
        """Answers as the model says they would be for the tokens asked now."""
        if self.model is None:
            return answers
        change = self.model(asked.tokens, asked.counts) - self.model(sent, asked.counts)
        rounding = _ROUNDINGS * np.finfo(np.float64).eps * np.abs(answers).max(initial=0.0)
        material = np.isfinite(change) & (np.abs(change) > rounding)
        self.steep |= bool(material.any())
        return np.where(material, answers + np.where(material, change, 0.0), answers)

    def __str__(self) -> str:
        said = []
        if self.recalled:
            said.append(f"{self.recalled} results on the way were taken as the ledger has them")
        if self.served:
            moved = " and moved by what the model says about the difference" if self.steep else ""
            said.append(
                f"{self.served} recorded answers were asked with tokens that differ in their last digits (by up to "
                f"{self.farthest:.1g}), as on another processor; they were taken{moved}"
            )
        return "; ".join(said)


def _same(counts: Array | None, others: Array | None, n: int) -> Array:
    """Which of n sequences have the same counts; None: all are 1."""
    one, other = (np.ones((n, 1), dtype=np.int64) if c is None else c for c in (counts, others))
    return np.asarray((one == other).all(axis=1))
