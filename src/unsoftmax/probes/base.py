"""Probes: the sequences of one round, eager or lazy.

A program yields one `Probes` (or `LazyProbes`) per round and receives one answer per sequence. Large designs are
lazy: they know their size and build any slice on demand, so memory stays bounded while a round holds millions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unsoftmax.errors import InvalidArgument

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Probes:
    """Sequences to ask: `tokens` (batch, N, d) float64, or (batch, N) integer ids for a token oracle.

    `counts` (batch, N) positive integers: how often each row is repeated in place; the last row is the query
    token. `phase` names the line of the bill ("values", "pilot", "main", "repair", "verify").
    `offset` is the position of the first sequence in its round, for error messages. `saturable`: the program
    understands +-inf, the answer of a service whose output link is saturated; else such an answer is an error.
    `ahead`: queries that the program knows it will ask from here on, this round included, held against the budget
    before the first of them is sent (0 if it does not know).
    `again` numbers the times the very same sequences are asked on purpose: a ledger keeps an answer for each.
    """

    tokens: Array
    counts: Array | None = None
    phase: str = "main"
    offset: int = 0
    saturable: bool = False
    again: int = 0
    ahead: int = 0

    def __post_init__(self) -> None:
        if self.tokens.ndim not in (2, 3) or self.tokens.shape[1] < 1:
            raise InvalidArgument(
                f"`tokens` must have shape (batch, N, d) or (batch, N) with N >= 1 (got {self.tokens.shape})."
            )
        if self.counts is not None and self.counts.shape != self.tokens.shape[:2]:
            raise InvalidArgument(
                f"`counts` must have shape {self.tokens.shape[:2]} like the tokens (got {self.counts.shape})."
            )

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, rows: slice) -> Probes:
        start, _, _ = rows.indices(len(self))
        counts = None if self.counts is None else self.counts[rows]
        return Probes(self.tokens[rows], counts, self.phase, self.offset + start, again=self.again)

    def take(self, index: Array) -> Probes:
        """The sequences at `index` (an integer or boolean array), in that order."""
        counts = None if self.counts is None else self.counts[index]
        return Probes(self.tokens[index], counts, self.phase, self.offset, again=self.again)

    @property
    def lengths(self) -> Array:
        """Tokens per sequence, repetitions included, (batch,)."""
        if self.counts is None:
            return np.full(len(self), self.tokens.shape[1])
        return np.asarray(self.counts.sum(axis=1))

    @property
    def total_length(self) -> int:
        """Tokens of all sequences, repetitions included."""
        return len(self) * self.tokens.shape[1] if self.counts is None else int(self.counts.sum())

    @property
    def row_bytes(self) -> int:
        """Bytes of one sequence as stored."""
        return math.prod(self.tokens.shape[1:]) * self.tokens.itemsize


@dataclass(frozen=True, eq=False)
class LazyProbes:
    """A design of `size` sequences whose rows start..stop are made by `build(start, stop) -> Probes`."""

    size: int
    row_bytes: int
    build: Callable[[int, int], Probes]
    phase: str = "main"
    saturable: bool = False
    ahead: int = 0

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, rows: slice) -> Probes:
        start, stop, step = rows.indices(self.size)
        if step != 1:
            raise InvalidArgument("lazy probes can only be cut into contiguous slices (step 1).")
        made = self.build(start, max(start, stop))
        return Probes(made.tokens, made.counts, self.phase, start)


def one_row(x: Array, *, phase: str = "values", saturable: bool = False) -> Probes:
    """One-token sequences from the rows of x (batch, d)."""
    return Probes(np.ascontiguousarray(x, dtype=np.float64)[:, None, :], phase=phase, saturable=saturable)


PART_BYTES = 2**22
"""Bytes of a lazy design that are held at once while its answers are reread."""


def parts(request: Probes | LazyProbes) -> Iterator[Probes]:
    """A design in pieces that fit in memory, in order."""
    if isinstance(request, Probes):
        return iter([request])
    rows = max(1, PART_BYTES // request.row_bytes)
    return (request[start : start + rows] for start in range(0, len(request), rows))
