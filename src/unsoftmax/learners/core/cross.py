"""The cross scheme: columns W b until nothing new shows, then only as many rows as the rank (section 5, chosen probes).

`grown` adds columns and looks at what they leave; exact and noisy logits of one head (single/cross, single/noisy_cross)
and tables of entries (`read_cross`) are its instances. Behind a network entries are read in blocks, which takes fewer
rounds; pivots and completion are the same (solvers/cross). Brackets of labels and gaps of tokens stay apart:
an entry there is an interval, and which one to sharpen is the question.

Theory: docs/theory/low-rank.md, "Chosen probes".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.precision import HALF_DIGITS
from unsoftmax.probes.base import Array
from unsoftmax.solvers.cross import completed, pivot_rows

S = TypeVar("S")
L = TypeVar("L")


class Scheme(Protocol[S, L]):
    """How a kind of access adds columns to a span S and what it sees of a fresh column, L."""

    @property
    def tests(self) -> tuple[int, ...]:
        """Fresh columns of each look; a look ends with the first test that finds something."""

    def rank(self, span: S) -> int:
        """Columns of the span."""

    def look(self, span: S, count: int, before: int) -> Asking[list[L]]:
        """What `count` fresh columns leave outside the span, after `before` others."""

    def leaves(self, span: S, left: list[L]) -> bool:
        """Whether that is more than noise."""

    def column(self, span: S, left: list[L]) -> Asking[S]:
        """The span with one more column; `left` is what the look before it saw."""


def grown(scheme: Scheme[S, L], span: S, dim: int, rank: int | None) -> Asking[tuple[S, list[L]]]:
    """Columns while fresh ones leave the span, or `rank` of them; and what the last fresh ones left of it."""
    left: list[L] = []
    while scheme.rank(span) < (dim if rank is None else rank):
        if rank is None:
            left = yield from _looked(scheme, span)
            if not scheme.leaves(span, left):
                return span, left
        span = yield from scheme.column(span, left)
    return span, [] if scheme.rank(span) == dim else (yield from _looked(scheme, span))


def _looked(scheme: Scheme[S, L], span: S) -> Asking[list[L]]:
    left: list[L] = []
    for count in scheme.tests:
        left += yield from scheme.look(span, count, len(left))
        if scheme.leaves(span, left):
            break
    return left


class Table(Protocol):
    """A matrix z_i'W b_j that is read entry by entry: F (p, d) is NaN where nothing was asked."""

    F: Array

    def logits(self) -> Array:
        """z_i'W b_j (p, d), NaN where not read."""

    def read(self, rows: Array, columns: Array) -> Asking[None]:
        """Ask the entries (rows[k], columns[k])."""


@dataclass(frozen=True, eq=False)
class Cross:
    """What was read of a table: `columns` in full, `rows` in every column, the rank; `full`: everything."""

    rank: int
    columns: Array
    rows: Array
    full: bool

    def completed(self, columns: Array, rows: Array) -> Array:
        """The whole matrix (m, d) of rank r from its chosen `columns` (m, c) and chosen `rows` (k, d)."""
        return columns if self.full else completed(columns, rows, self.rows, self.rank)


def read_cross(entries: Table, noise: float, rank: int | None) -> Asking[Cross]:
    """Read the free rows of one head, `rank` given or found (None)."""
    p, d = entries.F.shape
    if rank is None or rank < p - CORE.checks:
        scheme = _Leading(entries, max(HALF_DIGITS, 1e4 * noise), () if rank is not None else (1,))
        found, _ = yield from grown(scheme, 0, d, None if rank is None else min(rank, d))
        if found < p - CORE.checks:
            return (yield from _rows(entries, found))
    yield from _read_columns(entries, np.flatnonzero(np.isnan(entries.F[0])))
    return Cross(d, np.arange(d), np.arange(p), True)


@dataclass(frozen=True, eq=False)
class _Leading:
    """Columns 0, 1, ... of a table, the next one tested by pivot rows of those before; a span is their number."""

    entries: Table
    predicted: float
    tests: tuple[int, ...]

    def rank(self, span: int) -> int:
        return span

    def look(self, span: int, count: int, before: int) -> Asking[list[bool]]:
        """Whether column `span` is other than predicted; no column is where too few entries are left to tell."""
        if not 0 < span < len(self.entries.F) - CORE.checks:
            return [True]
        T = self.entries.logits()[:, :span]
        Q = np.linalg.qr(T)[0]
        pivots = pivot_rows(Q)
        known, checks = pivots[:span], pivots[span : span + CORE.checks]
        asked = pivots[: span + CORE.checks]
        yield from self.entries.read(asked, np.full(len(asked), span))
        t = self.entries.logits()[:, span]
        gap = np.abs(Q[checks] @ np.linalg.solve(Q[known], t[known]) - t[checks]).max()
        # Pivot rows amplify errors.
        growth = max(1.0, float(np.linalg.norm(np.linalg.inv(Q[known]), 2)))
        return [not gap <= self.predicted * np.abs(T).max() * growth]

    def leaves(self, span: int, left: list[bool]) -> bool:
        return any(left)

    def column(self, span: int, left: list[bool]) -> Asking[int]:
        yield from _read_columns(self.entries, np.array([span]))
        return span + 1


def _read_columns(entries: Table, columns: Array) -> Asking[None]:
    """What is not known yet of these columns."""
    j, rows = np.nonzero(np.isnan(entries.F[:, columns].T))
    if len(rows):
        yield from entries.read(rows, columns[j])


def _rows(entries: Table, rank: int) -> Asking[Cross]:
    """One column to spare, then the pivot rows (one to spare) in all other columns."""
    p, d = entries.F.shape
    columns = np.arange(min(rank + CORE.columns_beyond_rank, d))
    yield from _read_columns(entries, columns)
    U = np.linalg.svd(entries.logits()[:, columns], full_matrices=False)[0][:, :rank]
    rows = np.sort(pivot_rows(U)[: min(p, rank + CORE.columns_beyond_rank)])
    i, j = np.nonzero(np.isnan(entries.F[rows]))
    yield from entries.read(rows[i], j)
    return Cross(rank, columns, rows, len(columns) == d)
