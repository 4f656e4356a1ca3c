"""The rank of one head's W that answers with noise show: columns until the next is predicted within their own errors.

An error of an answer moves the logit that is read from it by a known amount, and a known sum of such logits predicts a
fresh column. What is left beyond that is a direction of W, however much weaker than the others.

Theory: docs/theory/multi-head.md, "Generic heads", low rank.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.cross import Cross, grown, read_cross
from unsoftmax.learners.heads.constants import HEADS
from unsoftmax.learners.heads.isolation import Entries
from unsoftmax.precision import SHORT_FORMAT
from unsoftmax.solvers.cross import pivot_rows


def read_rank(entries: Entries, noise: float, total: float, rank: int | None) -> Asking[Cross]:
    """Read the free rows of one head, `rank` given or found (None); `total`: sum of the norms of all values."""
    if rank is None and noise > SHORT_FORMAT:
        rank, _ = yield from grown(_Shown(entries, noise * total), 0, len(entries.B), None)
    return (yield from read_cross(entries, noise, rank))


@dataclass(frozen=True, eq=False)
class _Shown:
    """Columns 0, 1, ... of a table; the next one is tested in rows that its pivot rows predict. `noise`: of an answer,
    per length of z."""

    entries: Entries
    noise: float
    tests: tuple[int, ...] = (1, 1)

    def rank(self, span: int) -> int:
        return span

    def look(self, span: int, count: int, before: int) -> Asking[list[bool]]:
        """Whether column `span`, or the one after it, is beyond the errors of its prediction; it is where too few rows
        are left to tell."""
        if not 0 < span < len(self.entries.F) - HEADS.rows_tested:
            return [True]
        j = span + before
        if j == len(self.entries.B):
            return [False]
        known = self.entries.logits()[:, :span]
        order = pivot_rows(np.linalg.qr(known)[0])[: span + HEADS.rows_tested]
        yield from self.entries.read(order, np.full(len(order), j))
        error = self.entries.errors(self.noise)[order]
        T, t, pivots = known[order], self.entries.logits()[order, j], slice(span)
        # t = T[rest] T[pivots]^-1 t[pivots]: through `rows` errors of the column count, through `share` those of T.
        rows = np.linalg.solve(T[pivots].T, T[span:].T).T
        share = np.linalg.solve(T[pivots], t[pivots])
        squares = error[:, :span] ** 2 @ share**2 + error[:, j] ** 2
        gap = t[span:] - rows @ t[pivots]
        allowed = np.sqrt(squares[span:] + rows**2 @ squares[pivots])
        return [not float(np.sqrt(np.mean((gap / allowed) ** 2))) <= HEADS.predicted]

    def leaves(self, span: int, left: list[bool]) -> bool:
        return any(left)

    def column(self, span: int, left: list[bool]) -> Asking[int]:
        missing = np.flatnonzero(np.isnan(self.entries.F[:, span]))
        yield from self.entries.read(missing, np.full(len(missing), span))
        return span + 1
