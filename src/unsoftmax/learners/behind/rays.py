"""W behind an unknown network, one query for each of its degrees of freedom: rays, a cross of columns and rows.

Theory: docs/theory/transformer.md, "Rays".
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from unsoftmax.errors import ModelMismatch
from unsoftmax.inversion import ray_logits
from unsoftmax.learners.behind.constants import BEHIND
from unsoftmax.learners.behind.infinity import Infinity, calibrated_rows, find_infinity
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.core.readable import INVISIBLE, SATURATED, Repair, Steps, find_scale, until_readable
from unsoftmax.probes.base import Array
from unsoftmax.probes.rays import RayPairs
from unsoftmax.probes.scales import on_grid, power_of_two
from unsoftmax.solvers.cross import completed, negligible, pivot_rows, pivots, visible_rank
from unsoftmax.spec import OracleSpec

REPAIR = Repair(readable=5.0, telling=9.0)
"""Up to |t| = 5 the smaller share is 0.7 %, which costs two digits; beyond, the query token is shortened and asked
again. Up to 9, a share of 1e-4, an answer tells how large its score is."""


@dataclass(frozen=True, eq=False)
class Scores:
    """W (d, d) as the rays show it, its `rank`; the network's `degree` from tokens of norm `length` on; relative
    `noise` of the answers there."""

    W: Array
    rank: int
    degree: int
    length: float
    noise: float


def read_scores(spec: OracleSpec, rng: np.random.Generator) -> Asking[Scores]:
    """The whole ray method."""
    infinity = yield from find_infinity(spec, rng)
    A, c = yield from calibrated_rows(infinity, spec, rng)
    B = on_grid(np.linalg.qr(rng.standard_normal((spec.dim, spec.dim)))[0], 2.0, spec.dtype)
    table = _Table(spec, infinity, RayPairs(A, B, infinity.length), c)
    if not (yield from table.find_scale(rng)):
        return Scores(np.zeros((spec.dim, spec.dim)), 0, infinity.degree, infinity.length, infinity.noise)
    T, rank = yield from table.all_entries(rng)
    # T = A W B' with well conditioned A and nearly orthogonal B.
    W = np.linalg.solve(A, np.linalg.solve(B, T.T).T) / table.scale
    return Scores(W, rank, infinity.degree, table.pairs.lam, infinity.noise)


@dataclass
class _Table:
    """The matrix A W B' times `scale`, entry by entry; NaN where not asked."""

    spec: OracleSpec
    infinity: Infinity
    pairs: RayPairs
    c: Array
    scale: float = 1.0
    T: Array = field(init=False)

    def __post_init__(self) -> None:
        self.T = np.full((self.spec.dim, self.spec.dim), np.nan)
        self.noise = 8 * self.infinity.noise

    def ask(self, rows: Array, columns: Array, shrink: Array, phase: str) -> Asking[Array]:
        y = yield self.pairs.at(rows, columns, shrink, phase)
        return ray_logits(y, self.c[rows], self.infinity.degree)

    def lengthen(self, scale: float) -> None:
        """Longer a: b must vanish next to it, also where attention leaves only a small part of a."""
        lam = self.pairs.lam
        needed = math.sqrt(scale / (self.spec.eps * 2.0**-12))
        if needed > lam:
            lam, old = power_of_two(2 * needed), lam
            self.c = self.c * (lam / old) ** self.infinity.degree
            self.pairs = RayPairs(self.pairs.A, self.pairs.B, lam)

    def find_scale(self, rng: np.random.Generator) -> Asking[bool]:
        """Set `scale` so that scores are about 0.8; False if none shows at any length."""
        farthest = 2.0**192 if self.spec.dtype == "float64" else 2.0**36

        def look(scale: float) -> Asking[float]:
            self.lengthen(scale)
            rows, columns = rng.integers(self.spec.dim, size=(2, CORE.entries_for_scale))
            t = yield from self.ask(rows, columns, np.full(CORE.entries_for_scale, scale), "pilot")
            readable = np.abs(np.nan_to_num(t, nan=np.inf)) < REPAIR.telling
            if readable.mean() <= 0.5:
                return SATURATED
            if not float(np.sqrt(np.mean(t[readable] ** 2))) > BEHIND.least_visible_logit:
                return INVISIBLE
            # Unreadable entries count as large ones.
            return float(np.sqrt(np.mean(np.where(readable, t, REPAIR.telling) ** 2))) / CORE.typical_logit

        found = yield from find_scale(look, 1.0, Steps(limit=farthest, floor=1 / (2.0**8 * farthest)))
        if found.size == SATURATED:
            raise ModelMismatch(
                "the answers stay saturated however small the query token is; no softmax head does that."
            )
        if found.size == INVISIBLE:
            return False
        self.scale = power_of_two(found.wished * math.sqrt(2))
        self.lengthen(self.scale)
        return True

    def measure(self, rows: Array, columns: Array, phase: str = "main") -> Asking[None]:
        """Fill the entries of rows x columns that are not known yet; saturated ones are asked again, shrunk."""
        i, j = (part.ravel() for part in np.meshgrid(rows, columns, indexing="ij"))
        unknown = np.isnan(self.T[i, j])
        i, j = i[unknown], j[unknown]
        if not len(i):
            return

        def ask(index: Array, shrink: Array, phase: str) -> Asking[Array]:
            return (yield from self.ask(i[index], j[index], shrink * self.scale, phase))

        shrink = np.full(len(i), self.fitting())
        t, left = yield from until_readable(ask, shrink, REPAIR, phase)
        if len(left):
            raise ModelMismatch(
                f"{len(left)} answers stay outside what one softmax head in front of a homogeneous network can answer, "
                "however small the query token is; several heads do that."
            )
        self.T[i, j] = t / shrink

    def fitting(self) -> float:
        """Factor on b that makes a typical score 0.8, from the entries so far: the pilot saw only a few."""
        seen = self.T[~np.isnan(self.T)]
        size = float(np.sqrt(np.mean(seen**2))) if len(seen) >= CORE.entries_for_scale else 0.0
        return min(power_of_two(CORE.typical_logit / size * math.sqrt(2)), 4.0) if size else 1.0

    def all_entries(self, rng: np.random.Generator) -> Asking[tuple[Array, int]]:
        """A growing block until its rank stops growing, then the columns and rows of a cross: table and rank."""
        d = self.spec.dim
        everything, k = np.arange(d), min(3, d)
        while True:
            yield from self.measure(everything[:k], everything[:k])
            rank = visible_rank(self.T[:k, :k], self.noise)
            if k == d:
                return self.T, rank
            if rank < k:
                T = yield from self._cross(k, rank)
                if (yield from self._confirmed(T, rng)):
                    return T, rank
            k = min(d, math.ceil(BEHIND.block_growth * k))

    def _cross(self, k: int, rank: int) -> Asking[Array]:
        everything = np.arange(self.spec.dim)
        _, columns = pivots(self.T[:k, :k], rank)
        yield from self.measure(everything, columns)
        rows = pivot_rows(self.T[:, columns])[:rank]
        yield from self.measure(rows, everything)
        return completed(self.T[:, columns], self.T[rows], rows, rank)

    def _confirmed(self, T: Array, rng: np.random.Generator) -> Asking[bool]:
        """Entries that the cross predicts, asked: is there anything beyond the rank?"""
        i, j = np.nonzero(np.isnan(self.T))
        chosen = rng.choice(len(i), min(CORE.to_spare, len(i)), replace=False)
        for row, column in zip(i[chosen], j[chosen], strict=True):
            yield from self.measure(np.array([row]), np.array([column]), "pilot")
        gap = np.abs(self.T[i[chosen], j[chosen]] - T[i[chosen], j[chosen]])
        return bool((gap <= negligible(self.noise, len(T)) * max(1.0, float(np.abs(T).max()))).all())
