"""Columns whose check does not come out: a second solution, or errors of the values.

Longer tokens leave less room for a second solution, so its gap shrinks; errors of the values they show larger. A column
that longer tokens do not improve goes back to the answers it had.

Theory: docs/theory/multi-head.md, "Generic heads", three tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from unsoftmax.learners.heads.three_tokens import Shares
from unsoftmax.precision import HALF_DIGITS
from unsoftmax.probes.base import Array

EXPLAINED = 1e-10
"""Gap, relative to the size of the answers, up to which a check is passed once the values are known to the last
digits, however small the others are."""

_APART = 1e3
"""A gap above this many times the median of all columns is in doubt: they share the values' errors."""


@dataclass(eq=False)
class Doubts:
    """Gaps above `explained` are wrong whatever other columns show; `best` has what a doubtful column had before."""

    explained: float
    best: dict[int, _Before] = field(default_factory=dict)
    accepted: set[int] = field(default_factory=set)

    def wrong(self, gaps: Array, shares: list[Shares], columns: list[Array]) -> tuple[list[int], bool]:
        """Columns to be asked with longer tokens, and whether any went back to earlier answers (in place)."""
        stands_out = max(EXPLAINED, _APART * float(np.median(gaps)))
        again, restored = [], False
        for j in map(int, np.flatnonzero(gaps > min(self.explained, stands_out))):
            gap, before = float(gaps[j]), self.best.get(j)
            if j in self.accepted:
                continue
            if before is not None and gap > before.gap / 2 and before.gap <= max(self.explained, HALF_DIGITS):
                before.restore(j, shares, columns)
                self.accepted.add(j)
                restored = True
                continue
            if before is None or gap < before.gap:
                self.best[j] = _Before.of(gap, j, shares, columns)
            again.append(j)
        return again, restored


@dataclass(frozen=True, eq=False)
class _Before:
    """One column: its gap, and per head that reads it the answers, tokens and solution."""

    gap: float
    parts: list[tuple[Array, Array, Array, Array, Array] | None]

    @classmethod
    def of(cls, gap: float, j: int, shares: list[Shares], columns: list[Array]) -> _Before:
        return cls(
            gap,
            [
                (s.tokens[:, j].copy(), s.y[:, j].copy(), s.size[:, j].copy(), s.second[j].copy(), U[j].copy())
                if j < len(U)
                else None
                for s, U in zip(shares, columns, strict=True)
            ],
        )

    def restore(self, j: int, shares: list[Shares], columns: list[Array]) -> None:
        for part, s, U in zip(self.parts, shares, columns, strict=True):
            if part is not None:
                s.tokens[:, j], s.y[:, j], s.size[:, j], s.second[j], U[j] = part
