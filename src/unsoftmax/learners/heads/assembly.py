"""From logits to matrices: every W_h in the common bases, the other heads' part of its answers taken away."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit

from unsoftmax.errors import ModelMismatch
from unsoftmax.learners.base import Asking
from unsoftmax.learners.heads.columns import Cross, read_cross
from unsoftmax.learners.heads.ground import Ground, as_sent
from unsoftmax.learners.heads.isolation import Entries, Isolated, isolate, scaled
from unsoftmax.learners.heads.three_tokens import (
    Shares,
    ask_shares,
    design_shares,
    everywhere,
    lengthened,
    saturated,
    solve_column,
)
from unsoftmax.learners.lockstep import together
from unsoftmax.models.multi_head import MultiHead
from unsoftmax.probes.base import Array, Probes
from unsoftmax.probes.scales import on_grid

_SWEEPS = 40
_REPAIRS = 12
_EXPLAINED = 1e-8
_SETTLED = 1e-8
"""Sweeps that no longer improve below this have met rounding: large beside heads of small values."""

_LEAK = 4.0
"""Products z.v_g beyond this many rounding units of z.v_h count as leaks of head g into an isolated answer."""


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
        return np.asarray(np.linalg.solve(self.entries.B, np.linalg.solve(basis, M).T).T)


def read_heads(
    ground: Ground, v: Array, rank: int | None, rng: np.random.Generator
) -> Asking[tuple[Array, list[Measured], list[Array]]]:
    """W (H, d, d) of heads with values v (H, d), one query per entry (or per degree of freedom); what was read, and
    the solved columns."""
    others = [_others(ground, v, h) for h in range(len(v))]
    B = np.linalg.qr(rng.standard_normal((ground.dim, ground.dim)))[0]
    if ground.spec.dtype != "float64":
        B = on_grid(B, 1.0, ground.spec.dtype)
    heads = yield from together(
        [scaled(ground, isolate(v[h], others[h]), B, np.random.default_rng(rng.integers(2**63))) for h in range(len(v))]
    )
    tables = [Entries.empty(ground, head, B) for head in heads]
    crosses = yield from together([read_cross(table, ground.noise, rank) for table in tables])
    shares = [
        design_shares(ground, table.head, B[c.columns], table.logits()[:, c.columns])
        for table, c in zip(tables, crosses, strict=True)
    ]
    measured = [Measured(*parts) for parts in zip(tables, crosses, shares, strict=True)]
    ask = [everywhere(s) for s in shares]
    check = Check.random(ground, heads, B[: max((len(c.columns) for c in crosses), default=0)], rng)
    yield from check.ask(ground)
    for attempt in range(_REPAIRS):
        yield from ask_shares(ground, shares, B, ask, "main" if attempt == 0 else "repair")
        W, columns, stuck = fixed_point(ground, v, measured)
        ask = [saturated(ground, s, U) for s, U in zip(shares, columns, strict=True)]
        if not any(len(i) for i, _ in ask):
            wrong = np.array(stuck) if stuck else check.wrong(ground, v, W)
            if len(wrong) == 0:
                return W, measured, columns
            ask = [lengthened(s, wrong) for s in shares]
    raise ModelMismatch(
        f"the three-token answers of {len(wrong)} columns contradict a sum of softmax heads with the values found; the "
        "target is outside the class, or the heads are too many or too alike for this method."
    )


@dataclass(eq=False)
class Check:
    """One three-token query per column b that no solve uses: small square systems may have a second solution."""

    tokens: Array
    y: Array

    @classmethod
    def random(cls, ground: Ground, heads: list[Isolated], B: Array, rng: np.random.Generator) -> Check:
        n = len(B)
        z = rng.standard_normal((n, 2, ground.dim))
        size = np.array([heads[j % len(heads)].size for j in range(n)])
        z *= (2 * size[:, None] / np.linalg.norm(z, axis=2))[:, :, None]
        query = as_sent(B / ground.stretch, ground.spec)[:, None]
        return cls(np.concatenate([as_sent(z * ground.stretch + query, ground.spec), query], axis=1), np.zeros(n))

    def ask(self, ground: Ground) -> Asking[None]:
        if len(self.tokens):
            self.y = yield Probes(self.tokens, phase="check")

    def wrong(self, ground: Ground, v: Array, W: Array) -> Array:
        """Columns whose answer the heads found do not explain."""
        values, scores = v, W
        if ground.zero is not None:
            values = np.vstack([v, ground.zero])
            scores = np.concatenate([W, np.zeros((1, ground.dim, ground.dim))])
        size = np.abs(self.tokens @ values.T).sum(axis=(1, 2))
        gap = np.abs(MultiHead(scores, values)(self.tokens) - self.y)
        return np.flatnonzero(gap > max(_EXPLAINED, 1e4 * ground.noise) * size)


def _others(ground: Ground, v: Array, h: int) -> Array:
    """Values of all heads but h, a head with W = 0 included, (m, d)."""
    rest = np.delete(v, h, axis=0)
    return rest if ground.zero is None else np.vstack([rest, ground.zero])


def fixed_point(
    ground: Ground, v: Array, measured: list[Measured], columns: list[Array] | None = None
) -> tuple[Array, list[Array], list[int]]:
    """W (H, d, d) consistent with all answers at once, the solved columns W b of every head, and which columns did not
    solve; no query is spent. `columns` of an earlier solve are a start that keeps to its solution."""
    H, d = v.shape
    W = np.zeros((H, d, d))
    change = before = np.inf
    for sweep in range(_SWEEPS):
        free = [m.entries.logits(_leaks(v, W, m, h) if sweep else 0.0) for h, m in enumerate(measured)]
        columns, stuck = _solve_columns(ground, v, W, measured, free, columns)
        new = np.array([m.matrix(f, U) for m, f, U in zip(measured, free, columns, strict=True)]).reshape(H, d, d)
        sizes = np.linalg.norm(new, axis=(1, 2))
        change = float((np.linalg.norm(new - W, axis=(1, 2)) / np.where(sizes > 0, sizes, 1.0)).max(initial=0.0))
        W = new
        if stuck or change <= 8 * ground.noise or (change > before / 2 and change < max(_SETTLED, 1e4 * ground.noise)):
            return W, columns, stuck
        before = change
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
        if start is not None:
            for h in np.flatnonzero(active):
                bound = measured[h].head.bound
                U[h] += bound.T @ (bound @ start[h][j])
        U, arrived = solve_column(ground, v, U, asked, j, start is not None)
        stuck += [] if arrived else [j]
        for h in np.flatnonzero(active):
            solved[h][j] = U[h]
    return solved, stuck


def _leaks(v: Array, W: Array, m: Measured, h: int) -> Array | float:
    """What the other heads add to the isolated answers because z.v_g is not exactly 0 (rounded tokens), (p, d)."""
    entries = m.entries
    limit = _LEAK * np.finfo(float).eps * np.abs(entries.head.rows @ v[h]).min()
    total: Array | float = 0.0
    for g in range(len(v)):
        product = entries.head.rows @ v[g]
        if g != h and np.abs(product).max() > limit:
            t = (entries.head.rows @ W[g] @ entries.B.T) * entries.shrink
            total = total + product[:, None] * entries.shrink * expit(t)
    return total
