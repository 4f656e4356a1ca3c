"""Pairs of tokens q and a = q + delta that both lie on a sphere, for one delta and many q."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.probes.base import Array
from unsoftmax.probes.sphere import sphere


@dataclass(frozen=True, eq=False)
class Slice:
    """q = base + rho E s with a unit vector s (p - 1,): E (D, p - 1) has orthonormal columns across delta (D,).

    base (D,) is -delta / 2 where q may go everywhere across delta, and else the point of a subspace that does the same.
    """

    delta: Array
    E: Array
    rho: float
    base: Array

    @property
    def features(self) -> int:
        """Numbers that fix a function affine in q on the slice: p."""
        return 1 + self.E.shape[1]

    def draw(self, m: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Features [1, s] (m, p) and query tokens q (m, D) at random."""
        s = sphere(rng, (m, self.E.shape[1]))
        return np.column_stack([np.ones(m), s]), self.base + self.rho * s @ self.E.T

    def opposite(self) -> Slice:
        """The slice of -delta."""
        return Slice(-self.delta, self.E, self.rho, -self.base)


def slice_across(delta: Array, radius: float, directions: Array | None = None) -> Slice:
    """All q on the sphere of this radius, or those in the span of delta and `directions` (D, k)."""
    D = len(delta)
    basis = np.eye(D) if directions is None else directions
    Q = np.linalg.qr(np.column_stack([delta, basis]))[0]
    kept = Q[:, 1 : D if directions is None else 1 + directions.shape[1]]
    return Slice(delta, kept, float(np.sqrt(radius**2 - delta @ delta / 4)), -delta / 2)


def slice_within(delta: Array, radius: float, S: Array) -> Slice:
    """All q on the sphere that lie in the subspace S (D, p), for a delta that need not, though it must not be far."""
    inside = S.T @ delta
    length = float(np.linalg.norm(inside))
    away = -float(delta @ delta) / 2 / length
    E = S @ np.linalg.qr(np.column_stack([inside, np.eye(len(inside))]))[0][:, 1 : len(inside)]
    return Slice(delta, E, float(np.sqrt(radius**2 - away**2)), away / length * (S @ inside))


def turned(delta: Array, towards: Array, angle: float) -> Array:
    """delta (D,) turned by an angle towards a unit vector across it."""
    return np.asarray(np.cos(angle) * delta + np.sin(angle) * np.linalg.norm(delta) * towards)
