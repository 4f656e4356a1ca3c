"""All W_h of heads whose values are known: what is asked, in which order, and what is asked again.

Columns whose check does not come out: a second solution, or errors of the values.

Longer tokens leave less room for a second solution, so its gap shrinks; errors of the values they show larger. A column
that longer tokens do not improve goes back to the answers it had.

Theory: docs/theory/multi-head.md, "Generic heads", isolation.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from unsoftmax.errors import ModelMismatch
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.core.cross import read_cross
from unsoftmax.learners.core.driver import together
from unsoftmax.learners.heads.assembly import Measured, fixed_point
from unsoftmax.learners.heads.constants import HEADS
from unsoftmax.learners.heads.ground import Ground
from unsoftmax.learners.heads.isolation import Entries, Isolated, balanced, isolate, scaled
from unsoftmax.learners.heads.three_tokens import (
    Shares,
    ask_shares,
    design_shares,
    everywhere,
    lengthened,
    regrown,
    saturated,
)
from unsoftmax.models.multi_head import MultiHead
from unsoftmax.precision import HALF_DIGITS
from unsoftmax.probes.base import Array, Probes
from unsoftmax.probes.bases import householder_basis
from unsoftmax.probes.scales import held, on_grid


@dataclass(eq=False)
class Doubts:
    """Gaps above `explained` are wrong whatever other columns show; `best` has what a doubtful column had before."""

    explained: float
    best: dict[int, _Before] = field(default_factory=dict)
    accepted: set[int] = field(default_factory=set)

    def wrong(self, gaps: Array, shares: list[Shares], columns: list[Array]) -> tuple[list[int], bool]:
        """Columns to be asked with longer tokens, and whether any went back to earlier answers (in place)."""
        stands_out = max(HEADS.explained, HEADS.column_apart * float(np.median(gaps)))
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
        query = ground.query(B)[:, None]
        return cls(np.concatenate([held(z * ground.stretch + query, ground.spec.dtype), query], axis=1), np.zeros(n))

    def ask(self) -> Asking[None]:
        if len(self.tokens):
            self.y = yield Probes(self.tokens, phase="check")

    def gaps(self, ground: Ground, v: Array, W: Array) -> Array:
        """By how much the heads found miss the answer of every column, relative to the tokens' values, (n,)."""
        values, scores = v, W
        if ground.zero is not None:
            values = np.vstack([v, ground.zero])
            scores = np.concatenate([W, np.zeros((1, ground.dim, ground.dim))])
        size = np.abs(self.tokens @ values.T).sum(axis=(1, 2))
        return np.asarray(np.abs(MultiHead(scores / ground.unit, values)(self.tokens) - self.y) / size)


@dataclass(frozen=True, eq=False)
class Reading:
    """Everything read about all heads, the columns W b solved from it, and W (H, d, d) in the units of `ground`."""

    ground: Ground
    measured: list[Measured]
    check: Check
    B: Array
    columns: list[Array] | None
    W: Array

    def with_values(self, v: Array) -> Reading:
        """The same answers read with better values v (H, d)."""
        return replace(self, measured=[m.with_value(x) for m, x in zip(self.measured, v, strict=True)])


def read_heads(
    ground: Ground, v: Array, rank: int | None, rng: np.random.Generator, error_of_v: float = 0.0
) -> Asking[Reading]:
    """Heads with values v (H, d) known to a relative `error_of_v`, one query per entry (or per degree of freedom)."""
    others = [_others(ground, v, h) for h in range(len(v))]
    d = ground.dim
    B = np.linalg.qr(rng.standard_normal((d, d)))[0] if ground.axis is None else householder_basis(ground.axis)
    if ground.spec.dtype != "float64":
        B = on_grid(B, 1.0, ground.spec.dtype)
    heads = yield from together(
        [scaled(ground, isolate(v[h], others[h]), B, np.random.default_rng(rng.integers(2**63))) for h in range(len(v))]
    )
    ground, heads = balanced(ground, heads)
    tables = [Entries.empty(ground, head, B) for head in heads]
    crosses = yield from together([read_cross(table, ground.noise, rank) for table in tables])
    shares = [
        design_shares(ground, table.head, B[c.columns], table.logits()[:, c.columns])
        for table, c in zip(tables, crosses, strict=True)
    ]
    measured = [Measured(*parts) for parts in zip(tables, crosses, shares, strict=True)]
    check = Check.random(ground, heads, B[: max((len(c.columns) for c in crosses), default=0)], rng)
    yield from check.ask()
    yield from ask_shares(ground, shares, B, [everywhere(s) for s in shares], "main")
    reading = Reading(ground, measured, check, B, None, np.zeros((len(v), d, d)))
    return (yield from settled(v, reading, max(HALF_DIGITS, HEADS.amplified * error_of_v)))


def settled(v: Array, reading: Reading, explained: float = HEADS.explained) -> Asking[Reading]:
    """Solve, check every column, and ask again those that saturated or came out wrong."""
    ground, shares = reading.ground, [m.shares for m in reading.measured]
    doubts, grown = Doubts(max(explained, 1e4 * ground.noise)), False
    for _ in range(CORE.repairs):
        W, columns, stuck = fixed_point(ground, v, reading.measured, reading.columns)
        reading = replace(reading, columns=columns, W=W)
        ask = [saturated(ground, s, U) for s, U in zip(shares, columns, strict=True)]
        again = {int(j) for _, part in ask for j in part}
        if not again:
            if not stuck and len(gaps := reading.check.gaps(ground, v, W)):
                stuck, restored = doubts.wrong(gaps, shares, columns)
                if restored and not stuck:
                    W, columns, _ = fixed_point(ground, v, reading.measured, columns)
                    return replace(reading, columns=columns, W=W)
            if not stuck:
                ask = [regrown(ground, s, U) for s, U in zip(shares, columns, strict=True)]
                if grown or not any(len(i) for i, _ in ask):
                    return reading
                grown = True
                yield from ask_shares(ground, shares, reading.B, ask, "repair")
                continue
            ask, again = [lengthened(ground, s, np.array(stuck)) for s in shares], set(stuck)
        for U in columns:
            U[[j for j in again if j < len(U)]] = np.nan
        yield from ask_shares(ground, shares, reading.B, ask, "repair")
    raise ModelMismatch(
        f"the three-token answers of {len(again)} columns contradict a sum of softmax heads with the values found; the "
        "target is outside the class, or the heads are too many or too alike for this method."
    )


def _others(ground: Ground, v: Array, h: int) -> Array:
    """Values of all heads but h, a head with W = 0 included, (m, d)."""
    rest = np.delete(v, h, axis=0)
    return rest if ground.zero is None else np.vstack([rest, ground.zero])
