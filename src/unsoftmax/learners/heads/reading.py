"""All W_h of heads whose values are known: what is asked, in which order, and what is asked again.

Columns whose check does not come out: a second solution, or errors of the values.

Longer tokens leave less room for a second solution, so its gap shrinks; errors of the values they show larger. A column
that longer tokens do not improve goes back to the answers it had.

Theory: docs/theory/multi-head.md, "Generic heads", isolation.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from unsoftmax.errors import Code, ModelMismatch, NotIdentifiable, UnsoftmaxError
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.core.driver import together
from unsoftmax.learners.heads.assembly import Measured, fixed_point
from unsoftmax.learners.heads.checks import Check, Judged, judged
from unsoftmax.learners.heads.constants import HEADS
from unsoftmax.learners.heads.ground import Ground
from unsoftmax.learners.heads.isolation import Entries, balanced, isolate, scaled
from unsoftmax.learners.heads.ranks import read_rank
from unsoftmax.learners.heads.three_tokens import (
    Shares,
    ask_shares,
    design_shares,
    everywhere,
    lengthened,
    regrown,
    saturated,
    solve_column,
)
from unsoftmax.precision import HALF_DIGITS, SHORT_FORMAT
from unsoftmax.probes.base import Array
from unsoftmax.probes.bases import householder_basis
from unsoftmax.probes.scales import on_grid


@dataclass(eq=False)
class Doubts:
    """Gaps above `explained` are wrong whatever other columns show; `best` has what a doubtful column had before."""

    explained: float
    best: dict[int, _Before] = field(default_factory=dict)
    accepted: set[int] = field(default_factory=set)
    seen: dict[int, list[float]] = field(default_factory=dict)

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

    def unsure(self, found: Judged, shares: list[Shares], columns: list[Array]) -> tuple[list[int], bool]:
        """The same of coarse answers, which tell how far a right column may be off: a column in doubt is asked with
        other tokens a number of times, and the best of its answers are kept."""
        again, restored, doubts = [], False, found.doubts(found.typical)
        for j in map(int, np.flatnonzero(doubts > 1)):
            if j in self.accepted:
                continue
            self.seen.setdefault(j, []).append(float(doubts[j]))
            if self.seen[j][-1] == min(self.seen[j]):
                self.best[j] = _Before.of(float(found.gaps[:, j].max()), j, shares, columns)
            if len(self.seen[j]) > HEADS.turns and self.best[j].gap <= self.explained:
                self.best[j].restore(j, shares, columns)
                self.accepted.add(j)
                restored = True
            else:
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

    def doubted(self, doubts: Doubts, v: Array, error_of_v: float, stuck: list[int]) -> tuple[list[int], bool]:
        """Columns that did not solve, or whose checks contradict them, and whether any others changed."""
        ground, columns = self.ground, self.columns or []
        shares = [m.shares for m in self.measured]
        if ground.noise <= SHORT_FORMAT:
            return doubts.wrong(self.check.gaps(ground, v, self.W), shares, columns)
        found = self.judged(v, error_of_v)
        again, restored = doubts.unsure(found, shares, columns)
        again = sorted({*again, *stuck})
        # A target outside the class contradicts most columns, from wherever they are solved.
        few = 2 * len(again) <= len(found.errors)
        solved = [j for j in again if few and self._elsewhere(j, found, v, error_of_v)]
        return [j for j in again if j not in solved], restored or bool(solved)

    def judged(self, v: Array, error_of_v: float, only: tuple[int, ...] | None = None) -> Judged:
        """Every column, or these, by what answers as coarse as these leave of it."""
        noise = max(self.ground.noise, error_of_v)
        return judged(self.check, self.ground, v, self.measured, self.columns or [], self.W, noise, only)

    def _elsewhere(self, j: int, found: Judged, v: Array, error_of_v: float) -> bool:
        """Column j solved once more (in place) from random starts, until its checks are met; no query is spent."""
        columns, rng = self.columns or [], np.random.default_rng(j)
        active = [h for h, u in enumerate(columns) if j < len(u)]
        kept = np.array([columns[h][j] if h in active else self.W[h] @ self.B[j] for h in range(len(columns))])
        asked = [m.shares if h in active else None for h, m in enumerate(self.measured)]
        for _ in range(HEADS.starts):
            start = kept.copy()
            for h in active:
                head = self.measured[h].head
                free = start[h] - head.bound.T @ (head.bound @ start[h])
                size = float(np.linalg.norm(free)) / np.sqrt(len(head.free)) * HEADS.start_size ** rng.uniform(-1, 1)
                start[h] = free + head.bound.T @ (rng.standard_normal(len(head.bound)) * size)
            U, arrived = solve_column(self.ground, v, start, asked, j, True)
            for h in active:
                columns[h][j] = U[h]
            if arrived and self.judged(v, error_of_v, (j,)).doubts(found.typical)[j] <= 1:
                return True
        for h in active:
            columns[h][j] = kept[h]
        return False


def read_heads(
    ground: Ground,
    v: Array,
    rank: int | None,
    rng: np.random.Generator,
    error_of_v: float = 0.0,
    B: Array | None = None,
) -> Asking[Reading]:
    """Heads with values v (H, d) known to a relative `error_of_v`, one query per entry (or per degree of freedom).

    `B` (n, d): query tokens in which they are read; a basis if it is left out.
    """
    others = [_others(ground, v, h) for h in range(len(v))]
    d = ground.dim
    if B is None:
        B = np.linalg.qr(rng.standard_normal((d, d)))[0] if ground.axis is None else householder_basis(ground.axis)
    if ground.spec.dtype != "float64":
        B = on_grid(B, 1.0, ground.spec.dtype)
    heads = yield from together(
        [scaled(ground, isolate(v[h], others[h]), B, np.random.default_rng(rng.integers(2**63))) for h in range(len(v))]
    )
    ground, heads = balanced(ground, heads)
    tables = [Entries.empty(ground, head, B) for head in heads]
    total = float(np.linalg.norm(_others(ground, v, len(v)), axis=1).sum())
    crosses = yield from together([read_rank(table, ground.noise, total, rank) for table in tables])
    shares = [
        design_shares(ground, table.head, B[c.columns], table.logits()[:, c.columns])
        for table, c in zip(tables, crosses, strict=True)
    ]
    measured = [Measured(*parts) for parts in zip(tables, crosses, shares, strict=True)]
    check = Check.random(ground, heads, B[: max((len(c.columns) for c in crosses), default=0)], rng)
    yield from check.ask()
    yield from ask_shares(ground, shares, B, [everywhere(s) for s in shares], "main")
    reading = Reading(ground, measured, check, B, None, np.zeros((len(v), d, d)))
    return (yield from settled(v, reading, max(HALF_DIGITS, HEADS.amplified * error_of_v), error_of_v))


def settled(v: Array, reading: Reading, explained: float = HEADS.explained, error_of_v: float = 0.0) -> Asking[Reading]:
    """Solve, check every column, and ask again those that saturated or came out wrong."""
    ground, shares = reading.ground, [m.shares for m in reading.measured]
    doubts, grown = Doubts(max(explained, 1e4 * ground.noise)), False
    for left in reversed(range(CORE.repairs)):
        W, columns, stuck = fixed_point(ground, v, reading.measured, reading.columns)
        reading = replace(reading, columns=columns, W=W)
        ask = [saturated(ground, s, U) for s, U in zip(shares, columns, strict=True)]
        again = {int(j) for _, part in ask for j in part}
        if not again:
            if len(reading.check.tokens) and (not stuck or ground.noise > SHORT_FORMAT):
                stuck, restored = reading.doubted(doubts, v, error_of_v, stuck)
                if restored and not stuck:
                    W, columns, _ = fixed_point(ground, v, reading.measured, columns)
                    return replace(reading, columns=columns, W=W)
            if not stuck:
                ask = [regrown(ground, s, U) for s, U in zip(shares, columns, strict=True)]
                if grown or not left or not any(len(i) for i, _ in ask):
                    return reading
                grown = True
                yield from ask_shares(ground, shares, reading.B, ask, "repair")
                continue
            ask, again = [lengthened(ground, s, np.array(stuck)) for s in shares], set(stuck)
        if not left:
            break
        for U in columns:
            U[[j for j in again if j < len(U)]] = np.nan
        yield from ask_shares(ground, shares, reading.B, ask, "repair")
    raise _contradiction(reading, v, error_of_v, sorted(again))


def _contradiction(reading: Reading, v: Array, error_of_v: float, again: list[int]) -> UnsoftmaxError:
    """Why these columns did not come out: coarse answers do not determine them, or they are no head's."""
    noise = max(reading.ground.noise, error_of_v)
    if reading.ground.noise > SHORT_FORMAT:
        errors = reading.judged(v, error_of_v).errors
        off = float(errors[again].max())
        # A target outside the class contradicts most columns.
        if 2 * len(again) <= len(errors):
            why = (
                f"they may be off by {off:.1g} times their size, by the conditioning of their three-token answers"
                if not off < CORE.unknown_error
                else f"{len(errors) - len(again)} others are right, and these would not come out"
            )
            return NotIdentifiable(
                f"rounding or noise of {noise:.1g} of the answers leaves {len(again)} columns of W open: {why}",
                advice="give answers with more digits (float64), or try another seed.",
                code=Code.UNDETERMINED,
            )
    return ModelMismatch(
        f"the three-token answers of {len(again)} columns contradict a sum of softmax heads with the values found; the "
        "target is outside the class, or the heads are too many or too alike for this method."
    )


def _others(ground: Ground, v: Array, h: int) -> Array:
    """Values of all heads but h, a head with W = 0 included, (m, d)."""
    rest = v[np.arange(len(v)) != h]
    return rest if ground.zero is None else np.vstack([rest, ground.zero])
