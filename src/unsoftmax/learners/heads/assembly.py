"""From logits to matrices: every W_h in the common bases, the other heads' part of its answers taken away.

Theory: docs/theory/multi-head.md, "Generic heads", three tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit

from unsoftmax.errors import ModelMismatch
from unsoftmax.learners.core.cross import Cross
from unsoftmax.learners.heads.constants import HEADS
from unsoftmax.learners.heads.ground import Ground
from unsoftmax.learners.heads.isolation import Entries, Isolated
from unsoftmax.learners.heads.three_tokens import (
    Shares,
    solve_column,
)
from unsoftmax.precision import HALF_DIGITS, SHORT_FORMAT
from unsoftmax.probes.base import Array


@dataclass(frozen=True, eq=False)
class Measured:
    """Everything read about one head."""

    entries: Entries
    cross: Cross
    shares: Shares

    @property
    def head(self) -> Isolated:
        return self.entries.head

    def with_value(self, v: Array) -> Measured:
        """The same answers read with a better value v (d,) of this head."""
        head = replace(self.head, v=v)
        return Measured(replace(self.entries, head=head), self.cross, replace(self.shares, head=head))

    def matrix(self, free: Array, U: Array) -> Array:
        """W (d, d) from the free logits (p, d) and the solved columns U (n, d) of W b."""
        head = self.head
        tall = np.vstack([head.bound @ U.T, free[:, self.cross.columns]])
        if self.cross.full:
            M = tall
        else:
            left = np.linalg.svd(tall, full_matrices=False)[0][:, : self.cross.rank]
            chosen = self.cross.rows + len(head.bound)
            M = left @ np.linalg.lstsq(left[chosen], free[self.cross.rows], rcond=None)[0]
        basis = np.vstack([head.bound, head.free])
        B, shown = self.entries.B, np.linalg.solve(basis, M).T
        # Of fewer columns than dimensions W is what they show, and 0 beside them.
        return np.asarray((np.linalg.solve(B, shown) if len(B) == B.shape[1] else np.linalg.lstsq(B, shown)[0]).T)


def fixed_point(
    ground: Ground, v: Array, measured: list[Measured], columns: list[Array] | None = None
) -> tuple[Array, list[Array], list[int]]:
    """W (H, d, d) consistent with all answers at once, the solved columns W b of every head, and which columns did not
    solve; no query is spent. `columns` of an earlier solve are a start that keeps to its solution, except
    where they are NaN."""
    H, d = v.shape
    W = np.zeros((H, d, d))
    change, before, stuck = np.inf, np.inf, list[int]()
    for sweep in range(HEADS.most_sweeps):
        free = [m.entries.logits(_leaks(v, W, m, h) if sweep else 0.0) for h, m in enumerate(measured)]
        columns, stuck = _solve_columns(ground, v, W, measured, free, columns)
        new = np.array([m.matrix(f, U) for m, f, U in zip(measured, free, columns, strict=True)]).reshape(H, d, d)
        sizes = np.linalg.norm(new, axis=(1, 2))
        change = float((np.linalg.norm(new - W, axis=(1, 2)) / np.where(sizes > 0, sizes, 1.0)).max(initial=0.0))
        W = new
        rounding = change > before / 2 and change < max(HALF_DIGITS, 1e4 * ground.noise)
        if stuck or change <= 8 * ground.noise or rounding:
            return W, columns, stuck
        before = change
    if ground.noise > SHORT_FORMAT:
        # Columns that noise moves most keep the others moving: their checks tell which.
        return W, columns or [], stuck
    raise ModelMismatch(
        f"the heads' contributions to each other's answers do not settle (still changing by {change:.1g}); the "
        'values found are wrong or nearly dependent. Try another seed, or method="rational" for few heads.'
    )


def _solve_columns(
    ground: Ground, v: Array, W: Array, measured: list[Measured], free: list[Array], start: list[Array] | None
) -> tuple[list[Array], list[int]]:
    """W_h b_j for the columns every head was read in, list of (n_h, d), and the columns that did not solve."""
    counts = [len(m.cross.columns) for m in measured]
    solved = [np.empty((n, ground.dim)) for n in counts]
    stuck = []
    for j in range(max(counts, default=0)):
        active = [j < n for n in counts]
        U = np.array(
            [
                m.head.free_part(f[:, j]) if a else Wh @ m.entries.B[j]
                for m, f, Wh, a in zip(measured, free, W, active, strict=True)
            ]
        )
        asked = [m.shares if a else None for m, a in zip(measured, active, strict=True)]
        warm = start is not None and not any(np.isnan(start[h][j]).any() for h in np.flatnonzero(active))
        if warm and start is not None:
            for h in np.flatnonzero(active):
                bound = measured[h].head.bound
                U[h] += bound.T @ (bound @ start[h][j])
        U, arrived = solve_column(ground, v, U, asked, j, warm)
        stuck += [] if arrived else [j]
        for h in np.flatnonzero(active):
            solved[h][j] = U[h]
    return solved, stuck


def _leaks(v: Array, W: Array, m: Measured, h: int) -> Array | float:
    """What the other heads add to the isolated answers because z.v_g is not exactly 0 (rounded tokens), (p, d)."""
    entries = m.entries
    limit = HEADS.leak * np.finfo(float).eps * np.abs(entries.head.rows @ v[h]).min()
    total: Array | float = 0.0
    for g in range(len(v)):
        product = entries.head.rows @ v[g]
        if g != h and np.abs(product).max() > limit:
            t = (entries.head.rows @ W[g] @ entries.B.T) * entries.shrink
            total = total + product[:, None] * entries.shrink * expit(t)
    return total
