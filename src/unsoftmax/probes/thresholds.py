"""Families of sequences whose label tells on which side of a chosen level one number lies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from unsoftmax.probes.base import Array, LazyProbes, Probes, one_row
from unsoftmax.probes.bases import householder_basis
from unsoftmax.probes.pairs import paired
from unsoftmax.probes.scales import held

LARGEST_SHARE_LOGIT = 2.0
"""Levels are asked at |t| up to this: beyond it an error of v is amplified by 1 + e^t, and a grows long."""
_TILT = 0.025
"""Radians: a skew W shows through bases tilted by this, and no product with v becomes small."""


def coordinate_ratio(signs: Array, largest: int, index: Array, levels: Array, scale: Array) -> Probes:
    """One-token sequences, positive iff |v_i| > level |v_p|: scale (sign_i e_i - level sign_p e_p), p = largest."""
    x = np.zeros((len(index), len(signs)))
    x[:, largest] = -levels * signs[largest]
    x[np.arange(len(index)), index] += signs[index]
    return one_row(x * scale[:, None], phase="values")


def random_bases(v: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Random orthogonal A, B (d, d) with A v = |v| / sqrt d (1, ..., 1) = -B v.

    Random, so that the entries of A W B' have one size whatever W is; equal products with v, so that none is small.
    """
    return _level(v, rng), -_level(v, rng)


def _level(v: Array, rng: np.random.Generator) -> Array:
    d = len(v)
    turn = np.linalg.qr(rng.standard_normal((d, d)))[0]
    basis = householder_basis(turn @ v) @ turn
    if d == 2:
        # In the plane only two bases have equal products with v, and a skew W shows in none of their entries.
        tilt = rng.uniform(-_TILT, _TILT)
        basis = np.array([[np.cos(tilt), -np.sin(tilt)], [np.sin(tilt), np.cos(tilt)]]) @ basis
    return basis if basis[0] @ v > 0 else -basis


@dataclass(frozen=True, eq=False)
class EntryThresholds:
    """Two-token families for the entries of M = A W B': A (m, d) with A v > 0, B (n, d) with B v < 0.

    [alpha a + beta b ; beta b] answers beta b.v + sigma(alpha beta a'Wb) alpha a.v. With alpha beta fixed the logit is
    fixed, and alpha / beta moves the share sigma(t) at which the sign flips: any level can be asked.
    """

    A: Array
    B: Array
    v: Array
    dtype: str = "float64"

    def above(self, rows: Array, columns: Array, levels: Array, product: Array, phase: str) -> LazyProbes:
        """Sequences positive iff M[row, column] > level; |a| |b| = product (n,) sets the logit level * product."""
        share = expit(levels * product)
        ratio = -(self.B @ self.v)[columns] / (self.A @ self.v)[rows]
        alpha, beta = np.sqrt(product * ratio / share), np.sqrt(product * share / ratio)

        def build(start: int, stop: int) -> Probes:
            k = slice(start, stop)
            made = paired(self.A[rows[k]] * alpha[k, None], self.B[columns[k]] * beta[k, None])
            return Probes(held(made.tokens, self.dtype))

        return LazyProbes(len(rows), 2 * self.A.shape[1] * 8, build, phase)


def largest_product(norm_limit: float, dtype: str = "float64") -> float:
    """The largest |a| |b| whose tokens stay inside the norm limit at every level with |t| <= LARGEST_SHARE_LOGIT.

    Scores are products of tokens: in a short number format these must not overflow either.
    """
    if dtype != "float64":
        norm_limit = min(norm_limit, float(np.finfo(dtype).max) ** 0.4)
    share = float(expit(-LARGEST_SHARE_LOGIT))
    # 1.06: a.v and -b.v are equal only as far as v is known, and up to the tilt.
    return (norm_limit / (1.06 * (share**-0.5 + share**0.5))) ** 2
