"""How the distance between two tokens enters a score: rotations of keys, or a bias per distance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from unsoftmax.errors import InvalidArgument
from unsoftmax.models.base import Array, floating

_LADDER = 1e-9
"""Relative gap up to which frequencies are a geometric ladder: float32 tables of a served model leave 1e-7, so only
frequencies made in float64 are named by their base."""


@dataclass(frozen=True, eq=False)
class Rope:
    """Rotary positions: rows 2j and 2j + 1 of a key turn by -frequencies[j] per step of distance; other rows stay.

    frequencies (n,) in radians, 2n at most the rows of K; 0 leaves a pair unrotated. The half-split convention of some
    models is a permutation of rows.
    """

    frequencies: Array

    def __post_init__(self) -> None:
        object.__setattr__(self, "frequencies", floating(self.frequencies, "frequencies", 1))

    @classmethod
    def ladder(cls, width: int, base: float = 1e4, share: float = 1.0) -> Self:
        """The usual frequencies base^(-j/n), j < n, for heads of `width` rows of which a `share` turns."""
        n = int(width * share) // 2
        if not (0 < share <= 1 and base > 0 and n > 0):
            raise InvalidArgument(
                f"a ladder needs a base above 0 and a share in (0, 1] of at least two rows (got {base}, {share}, "
                f"{width} rows)."
            )
        return cls(base ** (-np.arange(n) / n))

    @property
    def turning(self) -> Array:
        """The frequencies that are not 0, from fast to slow."""
        return np.sort(np.abs(self.frequencies[self.frequencies != 0]))[::-1]

    @property
    def base(self) -> float | None:
        """b if the turning frequencies are b^(-j/n), None if they are no such ladder or too few to tell."""
        theta = self.turning
        n = len(theta)
        if n < 2:
            return None
        base = float(theta[1] ** -float(n))
        fits = np.abs(theta - base ** (-np.arange(n) / n)) <= _LADDER * theta
        return base if fits.all() else None

    def turned(self, rows: Array, distances: Array) -> Array:
        """Keys (..., N, r) as seen from `distances` (N,) away."""
        n = 2 * len(self.frequencies)
        angle = np.asarray(distances, dtype=np.float64)[:, None] * self.frequencies.astype(np.float64)
        c, s = np.cos(angle).astype(rows.dtype), np.sin(angle).astype(rows.dtype)
        even, odd = rows[..., 0:n:2], rows[..., 1:n:2]
        out = rows.copy()
        out[..., 0:n:2], out[..., 1:n:2] = even * c + odd * s, odd * c - even * s
        return out

    def bias(self, distances: Array) -> Array | float:
        """Rotations add no bias."""
        return 0.0

    def check(self, heads: int, rows: int) -> None:
        """Refuse frequencies that the keys have no rows for."""
        if 2 * len(self.frequencies) > rows:
            raise InvalidArgument(f"{len(self.frequencies)} frequencies turn two rows each and K has {rows} rows.")


@dataclass(frozen=True, eq=False)
class Alibi:
    """Linear biases: a token `distance` away scores slopes[h] * distance less under head h. slopes (H,)."""

    slopes: Array

    def __post_init__(self) -> None:
        object.__setattr__(self, "slopes", floating(self.slopes, "slopes", 1))

    def turned(self, rows: Array, distances: Array) -> Array:
        """Keys are left as they are."""
        return rows

    def bias(self, distances: Array) -> Array | float:
        """(H, 1, N) to add to scores (H, batch, N)."""
        return -self.slopes[:, None, None] * np.asarray(distances, dtype=self.slopes.dtype)

    def check(self, heads: int, rows: int) -> None:
        """Refuse another number of slopes than heads."""
        if len(self.slopes) != heads:
            raise InvalidArgument(f"`slopes` must have shape ({heads},), one per head (got {self.slopes.shape}).")


@dataclass(frozen=True, eq=False)
class DistanceBias:
    """A bias per distance and head, table (H, n); tokens n - 1 and more away share the last entry."""

    table: Array

    def __post_init__(self) -> None:
        object.__setattr__(self, "table", floating(self.table, "table", 2))

    def turned(self, rows: Array, distances: Array) -> Array:
        """Keys are left as they are."""
        return rows

    def bias(self, distances: Array) -> Array | float:
        """(H, 1, N) to add to scores (H, batch, N)."""
        return np.asarray(self.table[:, None, np.minimum(distances, self.table.shape[1] - 1)])

    def check(self, heads: int, rows: int) -> None:
        """Refuse another number of rows than heads."""
        if len(self.table) != heads or self.table.shape[1] < 1:
            raise InvalidArgument(f"`table` must have shape ({heads}, n), one row per head (got {self.table.shape}).")


Positions = Rope | Alibi | DistanceBias
