"""Probes that see one head alone: z orthogonal to the values of all others makes F = (z.v_h) sigma(z'W_h b) exactly.

However strong the other heads are, d - H + 1 directions of every W_h cost one two-token query per entry.

Theory: docs/theory/multi-head.md, "Generic heads", isolation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from unsoftmax.errors import ModelMismatch
from unsoftmax.inversion import logits
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.core.readable import INVISIBLE, SATURATED, Repair, Steps, find_scale, until_readable
from unsoftmax.learners.heads.constants import HEADS
from unsoftmax.learners.heads.ground import Ground
from unsoftmax.probes.base import Array, LazyProbes, Probes
from unsoftmax.probes.scales import on_grid, power_of_two

_REPAIR = Repair(HEADS.readable, telling=12.0, tries=31)
"""How entries are asked again; up to |t| = 12 an answer still tells its size, also in float32."""


@dataclass(frozen=True, eq=False)
class Isolated:
    """Directions for one head: `free` (p, d) unit rows orthogonal to the other values, `bound` (d - p, d) their span.

    The first free row lies along v, the others half along it, so that z.v is never small. `size`: length of z that
    makes z'W b typical for the columns b of the common basis.
    """

    v: Array
    free: Array
    bound: Array
    size: float = 1.0

    def free_part(self, t: Array) -> Array:
        """The vector (d,) with products t (p,) along the free rows and none along the bound ones."""
        basis = np.vstack([self.bound, self.free])
        return np.asarray(np.linalg.solve(basis, np.concatenate([np.zeros(len(self.bound)), t])))

    @cached_property
    def dual(self) -> Array:
        """What each product along a free row is of a vector, (d, p): `free_part` is linear."""
        return np.linalg.inv(np.vstack([self.bound, self.free]))[:, len(self.bound) :]

    @property
    def rows(self) -> Array:
        """Free rows as they are asked, (p, d)."""
        return self.free * self.size


def isolate(v: Array, others: Array) -> Isolated:
    """Directions that see `v` (d,) and none of `others` (m, d)."""
    d, m = len(v), len(others)
    units = others / np.linalg.norm(others, axis=1, keepdims=True)
    Q = np.linalg.qr(units.T, mode="complete")[0] if m else np.eye(d)
    bound, free = Q[:, :m], Q[:, m:]
    along = free @ (free.T @ v)
    along /= np.linalg.norm(along)
    across = np.linalg.qr(np.column_stack([bound, along]), mode="complete")[0][:, m + 1 :]
    rows = np.vstack([along, (across.T + along) / np.sqrt(2)])
    return Isolated(v, rows, bound.T)


def independence(v: Array) -> float:
    """Smallest singular value of the normalised values (H, d): how far each is from the span of the others."""
    if len(v) == 0:
        return 1.0
    sizes = np.linalg.norm(v, axis=1, keepdims=True)
    if len(v) > v.shape[1] or not (np.isfinite(sizes) & (sizes > 0)).all():
        return 0.0
    return float(np.linalg.svd(v / sizes, compute_uv=False)[-1])


def scaled(ground: Ground, head: Isolated, B: Array, rng: np.random.Generator) -> Asking[Isolated]:
    """Find the length of z: a few random entries, grown or shrunk until their logits are readable."""

    def look(size: float) -> Asking[float]:
        rows = rng.integers(len(head.free), size=HEADS.pilot_entries)
        z = head.free[rows] * (size * rng.choice([-1.0, 1.0], size=HEADS.pilot_entries))[:, None]
        F = yield from ground.pairs(z, B[rng.integers(len(B), size=HEADS.pilot_entries)], phase="pilot")
        t = logits(F, z @ head.v, np.zeros(HEADS.pilot_entries)).t
        readable = np.abs(np.nan_to_num(t, nan=np.inf)) < 9.0
        if readable.sum() <= HEADS.pilot_entries // 2:
            return SATURATED
        typical = float(np.sqrt(np.mean(np.where(readable, np.nan_to_num(t), 9.0) ** 2)))
        return INVISIBLE if typical < 1e-3 and size < HEADS.longest else typical / CORE.typical_logit

    found = yield from find_scale(look, 1.0, Steps(shorter=1 / 64, longer=2.0**10, limit=HEADS.longest, looks=80))
    if found.size == SATURATED:
        raise ModelMismatch(
            "no size of the tokens makes a head's attention readable; its values may be wrong or the target is no head "
            "sum."
        )
    return Isolated(head.v, _on_grid(head.free, ground), head.bound, power_of_two(found.wished * 1.4))


def balanced(ground: Ground, heads: list[Isolated]) -> tuple[Ground, list[Isolated]]:
    """Shorter query tokens where the strongest head would need a z so short that it drowns in them; all z grow."""
    smallest = min((head.size for head in heads), default=1.0)
    # With an axis a query token's share of it is what reads: it must not get short.
    if smallest >= HEADS.drowning or ground.axis is not None:
        return ground, heads
    factor = power_of_two(smallest)
    return replace(ground, unit=ground.unit * factor), [replace(head, size=head.size / factor) for head in heads]


def _on_grid(rows: Array, ground: Ground) -> Array:
    return rows if ground.spec.dtype == "float64" else on_grid(rows, 1.0, ground.spec.dtype)


@dataclass(eq=False)
class Entries:
    """What was asked for one head: F (p, d) (NaN: not asked) and by how much z was shortened, `shrink` (p, d)."""

    ground: Ground
    head: Isolated
    B: Array
    F: Array
    shrink: Array

    @classmethod
    def empty(cls, ground: Ground, head: Isolated, B: Array) -> Entries:
        shape = (len(head.free), len(B))
        return cls(ground, head, B, np.full(shape, np.nan), np.ones(shape))

    def logits(self, foreign: Array | float = 0.0) -> Array:
        """z'W b (p, d) for unit free rows, NaN where unread; `foreign` is what other heads add to F."""
        av = (self.head.rows @ self.head.v)[:, None] * self.shrink
        t = logits(self.F - foreign, av, np.zeros_like(av)).t
        return np.asarray(t / (self.shrink * self.head.size))

    def errors(self, noise: float) -> Array:
        """How far the logits (p, d) may be off where answers are, by `noise` per length of z: t moves by
        dF / (z.v s (1 - s))."""
        av = (self.head.rows @ self.head.v)[:, None]
        share = self.F / (av * self.shrink)
        slope = av * share * (1 - share) * self.shrink * self.head.size
        return np.asarray(noise * np.linalg.norm(self.head.rows, axis=1)[:, None] / np.abs(slope))

    def read(self, rows: Array, columns: Array) -> Asking[None]:
        """Ask the entries; what saturates is asked again with a shorter z."""
        if len(rows) == 0:
            return

        def ask(index: Array, shrink: Array, phase: str) -> Asking[Array]:
            i, j = rows[index], columns[index]
            self.shrink[i, j] = shrink
            yield from self._ask(i, j, phase)
            z = self.head.rows[i] @ self.head.v * shrink
            return logits(self.F[i, j], z, np.zeros_like(z)).t

        _, left = yield from until_readable(ask, self.shrink[rows, columns], _REPAIR)
        if len(left):
            raise ModelMismatch(
                f"{len(left)} answers of an isolated head stay outside its open interval however short the tokens are; "
                "the values found do not isolate it. The target is outside the class, or noisier than declared."
            )

    def _ask(self, rows: Array, columns: Array, phase: str) -> Asking[None]:
        ground, z_all = self.ground, self.head.rows

        def build(start: int, stop: int) -> Probes:
            i, j = rows[start:stop], columns[start:stop]
            return Probes(ground.tokens(z_all[i] * self.shrink[i, j, None], self.B[j]))

        y = yield LazyProbes(len(rows), 2 * ground.dim * 8, build, phase)
        query = ground.tokens(self.B, self.B)[:, 1]
        shown = (y - (query @ ground.V)[columns]) / ground.stretch
        if ground.zero is not None:
            shown = shown - 0.5 * (z_all @ ground.zero)[rows] * self.shrink[rows, columns]
        self.F[rows, columns] = shown
