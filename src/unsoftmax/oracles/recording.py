"""Record, cache and resume are one stage: answers by content address, kept before they are used."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from unsoftmax.oracles.addresses import addresses
from unsoftmax.oracles.base import Stage
from unsoftmax.probes.base import Array, Probes


class Store(Protocol):
    """Where answers live: content address (two uint64) -> answer, a float64 array of shape () or (outputs,)."""

    def get(self, keys: Array) -> tuple[Array, Array]:
        """keys (n, 2) -> which are known (n,), and the answers of those, (known,) or (known, outputs)."""

    def put(self, keys: Array, answers: Array, phase: str = "") -> None:
        """Durable when it returns; keys (n, 2), answers (n,) or (n, outputs)."""


class Near(Protocol):
    """Answers by place, for tokens that differ by rounding (`oracles.nearness`)."""

    def note(self, at: int, first: int, probes: Probes, keys: Array, known: Array) -> None:
        """Keep what is asked in round `at` from row `first` on."""

    def find(self, at: int, first: int, probes: Probes, keys: Array, unknown: Array) -> tuple[Array, Array]:
        """Rows among `unknown` that have a near answer, and these; `keys` are the addresses of all."""

    def settle(self, at: int, name: str, value: Array) -> Array:
        """What a run before settled here before round `at`, or `value`."""

    def rewind(self) -> None:
        """A program begins (again)."""


@dataclass
class MemoryStore:
    """Answers in a dictionary: resume inside one process."""

    answers: dict[bytes, Array] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.answers)

    def get(self, keys: Array) -> tuple[Array, Array]:
        held = [self.answers.get(key.tobytes()) for key in keys]
        known = np.array([answer is not None for answer in held], dtype=bool)
        return known, np.array([answer for answer in held if answer is not None])

    def put(self, keys: Array, answers: Array, phase: str = "") -> None:
        self.answers.update(zip((key.tobytes() for key in keys), answers, strict=True))


@dataclass
class _Part:
    """One chunk between asking and serving: which rows are known, which were sent, which another chunk has sent."""

    keys: Array
    known: Array
    held: Array
    sent: Array
    first: Array
    """Place in `sent` that answers each unknown row, or -1 if an earlier chunk in flight does."""
    phase: str
    missing: int
    answer: Array | None = None

    def fill(self, rows: slice, answer: Array) -> None:
        """Answers of sent[rows] have come."""
        if self.answer is None:
            self.answer = answer if len(answer) == len(self.sent) else np.empty((len(self.sent), *answer.shape[1:]))
        if self.answer is not answer:
            self.answer[rows] = answer
        self.missing -= len(answer)


@dataclass
class Recorded:
    """Sends only what the store does not hold; a sequence that repeats is sent once.

    Answers are put into the store when they arrive (`keep`), in whatever order, and served in order. `room` says how
    many sequences the budget still pays for: a chunk is cut there, so that the last of a budget is not left unused.
    `near` also finds what was asked at the same place with other last digits; a place is the number of the call of
    `ask`, one for each round, and the row.
    """

    inner: Stage
    store: Store
    room: Callable[[], float] = lambda: math.inf
    near: Near | None = None
    _flying: dict[int, tuple[_Part, slice]] = field(default_factory=dict)
    _round: int = -1
    _row: int = 0

    def rewind(self) -> None:
        """A program begins (again): its rounds are counted from 0."""
        self._round = -1
        if self.near is not None:
            self.near.rewind()

    def settle(self, name: str, value: Array) -> Array:
        """What a run before settled here, or `value`, which is kept."""
        return value if self.near is None else self.near.settle(self._round + 1, name, value)

    def ask(self, chunks: Iterable[Probes]) -> Iterator[Array]:
        source = iter(chunks)
        self._round, self._row = self._round + 1, 0
        while True:
            sent: deque[_Part] = deque()
            known: list[_Part] = []
            for number, answer in enumerate(self.inner.ask(self._missing(source, sent, known))):
                self.keep(number, answer)
                if sent[0].missing == 0:
                    yield self._serve(sent.popleft())
            if not known:
                return
            yield self._serve(known[0])

    def _missing(self, source: Iterator[Probes], sent: deque[_Part], known: list[_Part]) -> Iterator[Probes]:
        """What must be sent, up to the first chunk of which nothing must: that one is served before going on, so
        that a replay of any length holds one chunk in memory."""
        self._flying.clear()
        number = 0
        for probes in source:
            part = self._part(probes)
            if part.missing == 0:
                known.append(part)
                return
            sent.append(part)
            whole = len(part.sent)
            cut = int(min(self.room(), whole)) or whole
            for rows in (slice(0, cut), slice(cut, whole)):
                if rows.start < rows.stop:
                    self._flying[number] = part, rows
                    number += 1
                    some = rows.stop - rows.start < len(probes)
                    yield probes.take(part.sent[rows]) if some else probes

    def keep(self, number: int, answer: Array) -> None:
        """Store the answer of what was sent as the `number`-th, once; called on arrival."""
        if number in self._flying:
            part, rows = self._flying.pop(number)
            sent = part.sent[rows]
            self.store.put(part.keys[sent], answer, part.phase)
            part.fill(rows, answer)

    def _part(self, probes: Probes) -> _Part:
        keys = addresses(probes)
        known, held = self.store.get(keys)
        start, self._row = self._row, self._row + len(probes)
        if self.near is not None:
            rows, answers = self.near.find(self._round, start, probes, keys, np.flatnonzero(~known))
            known, held = _with(known, held, rows, answers)
            self.near.note(self._round, start, probes, keys, known)
        unknown = np.flatnonzero(~known)
        sent, first = unknown, np.arange(len(unknown))
        elsewhere = [part.keys[part.sent[rows]] for part, rows in self._flying.values()]
        if _repeats(keys[unknown], elsewhere):
            flying = {key.tobytes() for part in elsewhere for key in part}
            places: dict[bytes, int] = {}
            names = [key.tobytes() for key in keys[unknown]]
            for row, name in zip(unknown, names, strict=True):
                if name not in flying:
                    places.setdefault(name, int(row))
            place = {name: i for i, name in enumerate(places)}
            sent = np.array(list(places.values()), dtype=np.int64)
            first = np.array([place.get(name, -1) for name in names], dtype=np.int64)
        return _Part(keys, known, held, sent, first, probes.phase, len(sent))

    def _serve(self, part: _Part) -> Array:
        if not part.known.any() and len(part.sent) == len(part.keys) and part.answer is not None:
            return part.answer
        unknown = np.flatnonzero(~part.known)
        elsewhere, here = unknown[part.first < 0], part.first >= 0
        late = self.store.get(part.keys[elsewhere])[1]
        pieces = [(np.flatnonzero(part.known), part.held), (elsewhere, late)]
        if part.answer is not None:
            pieces.append((unknown[here], part.answer[part.first[here]]))
        answers = np.empty((len(part.keys), *next(piece.shape[1:] for rows, piece in pieces if len(rows))))
        for rows, piece in pieces:
            if len(rows):
                answers[rows] = piece
        return answers


def _with(known: Array, held: Array, rows: Array, answers: Array) -> tuple[Array, Array]:
    """`held`, the answers of the rows `known`, with the `answers` of some more `rows`."""
    if not len(rows):
        return known, held
    before = np.flatnonzero(known)
    known = known.copy()
    known[rows] = True
    both = np.concatenate([held.reshape(len(before), *answers.shape[1:]), answers])
    return known, both[np.argsort(np.concatenate([before, rows]), kind="stable")]


def _repeats(keys: Array, elsewhere: list[Array]) -> bool:
    """Whether a sequence may occur twice among keys (n, 2) or also in flight; half an address is enough to doubt."""
    half = keys[:, 0]
    if len(np.unique(half)) < len(half):
        return True
    if not elsewhere:
        return False
    # By sorting: NumPy 2.0 looks up few whole numbers in a table, where those of 64 bits overflow.
    return bool(np.isin(half, np.concatenate([part[:, 0] for part in elsewhere]), kind="sort").any())
