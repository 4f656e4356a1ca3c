"""Probes: the sequences of one round, eager or lazy.

A program yields one `Probes` (or `LazyProbes`) per round and receives one answer per sequence. Large designs are
lazy: they know their size and build any slice on demand, so memory stays bounded while a round holds millions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
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
        return self.like(self.tokens[rows], None if self.counts is None else self.counts[rows], self.offset + start)

    def take(self, index: Array) -> Probes:
        """The sequences at `index` (an integer or boolean array), in that order."""
        return self.like(self.tokens[index], None if self.counts is None else self.counts[index], self.offset)

    def like(self, tokens: Array, counts: Array | None, offset: int) -> Probes:
        """Other sequences of the same phase and with the same flags."""
        return replace(self, tokens=tokens, counts=counts, offset=offset)

    def rewritten(self, rewrite: Callable[[Probes], Probes], copies: int = 1) -> Probes:
        """Every sequence as the `copies` consecutive ones that `rewrite` makes of it; phase and flags stay."""
        made = rewrite(self)
        return replace(self.like(made.tokens, made.counts, self.offset * copies), ahead=self.ahead * copies)

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
        return Probes(made.tokens, made.counts, self.phase, start, self.saturable, made.again)

    def rewritten(self, rewrite: Callable[[Probes], Probes], copies: int = 1) -> LazyProbes:
        """As `Probes.rewritten`, slice by slice."""

        def build(start: int, stop: int) -> Probes:
            first, last = start // copies, -(-stop // copies)
            return rewrite(self[first:last])[start - first * copies : stop - first * copies]

        # Rewritten sequences may be a little longer or wider than theirs; a chunk only needs the order.
        row_bytes = max(rewrite(self[:1]).row_bytes, 1)
        return replace(self, size=len(self) * copies, row_bytes=row_bytes, build=build, ahead=self.ahead * copies)


Request = Probes | LazyProbes
"""What a program yields: the sequences of one round."""


def one_row(x: Array, *, phase: str = "values", saturable: bool = False) -> Probes:
    """One-token sequences from the rows of x (batch, d)."""
    return Probes(np.ascontiguousarray(x, dtype=np.float64)[:, None, :], phase=phase, saturable=saturable)


PART_BYTES = 2**22
"""Bytes of a lazy design that are held at once while it is asked or its answers are reread: few enough to stay in cache
between design and target, enough for BLAS."""


def parts(request: Request) -> Iterator[Probes]:
    """A design in pieces that fit in memory, in order."""
    if isinstance(request, Probes):
        return iter([request])
    rows = max(1, PART_BYTES // request.row_bytes)
    return (request[start : start + rows] for start in range(0, len(request), rows))


def joined(requests: Sequence[Request]) -> Request:
    """Requests of one phase and row size one after the other; lazy as soon as one of them is."""
    if len(requests) == 1:
        return requests[0]
    ahead = sum(request.ahead for request in requests)
    eager = [request for request in requests if isinstance(request, Probes)]
    if len(eager) == len(requests):
        return replace(concatenated(eager), ahead=ahead)
    ends = np.cumsum([len(request) for request in requests])

    def build(start: int, stop: int) -> Probes:
        cut = []
        for request, end in zip(requests, ends, strict=True):
            first = int(end) - len(request)
            if start < end and stop > first:
                cut.append(request[max(start - first, 0) : min(stop - first, len(request))])
        return concatenated(cut)

    head = requests[0]
    return LazyProbes(int(ends[-1]), head.row_bytes, build, head.phase, head.saturable, ahead)


def concatenated(probes: Sequence[Probes]) -> Probes:
    """Sequences of equal shape one after the other, with the flags of the first."""
    tokens = np.concatenate([part.tokens for part in probes])
    counts = None
    if any(part.counts is not None for part in probes):
        ones = [np.ones(p.tokens.shape[:2], dtype=np.int64) if p.counts is None else p.counts for p in probes]
        counts = np.concatenate(ones)
    return probes[0].like(tokens, counts, 0)
