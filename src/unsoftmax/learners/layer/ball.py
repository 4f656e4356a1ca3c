"""LayerNorm before attention: what its tokens can be made to be, and one-token answers in those terms.

Off the mean a token x is seen as z = x / sqrt(var(x) + eps): long tokens lie on the sphere |z|^2 = d, and because of
eps short ones fill the ball. So the heads can be asked as a plain layer in d - 1 dimensions with tokens in a ball.

Theory: docs/theory/attention-layer.md, "LayerNorm before".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.errors import DomainError, ModelMismatch
from unsoftmax.inversion import rounding_unit
from unsoftmax.learners.core.base import Asking
from unsoftmax.precision import SHORT_FORMAT
from unsoftmax.probes.around import orthonormal
from unsoftmax.probes.base import Array, one_row
from unsoftmax.probes.scales import held, power_of_two
from unsoftmax.solvers.subspace import solve_orthogonal
from unsoftmax.spec import OracleSpec

_SHRUNK = 2.0 ** -np.array([3, 6, 9, 12, 16, 20, 23])
"""Powers of two: a shrunk token is exactly the same direction in every number format."""


@dataclass(frozen=True, eq=False)
class Ball:
    """Coordinates w (..., D) in the basis U (D, d) of the zero-mean tokens, D = d - 1, |w| < radius = sqrt d.

    M (outputs, D), constant (outputs,): one token at w answers M w + constant, x_N aside if there is a residual.
    """

    U: Array
    eps: float
    M: Array
    constant: Array
    residual: bool
    noise: float
    dtype: str

    @property
    def radius(self) -> float:
        return float(np.sqrt(self.U.shape[1]))

    def tokens(self, w: Array) -> Array:
        """Tokens (..., d) that the LayerNorm turns into w."""
        share = (w * w).sum(axis=-1, keepdims=True) / self.U.shape[1]
        x = (w @ self.U) * np.sqrt(self.eps / (1 - share))
        return held(x, self.dtype)

    def alone(self, w: Array) -> Array:
        """One-token answers at the rows of w (n, D)."""
        y = w @ self.M.T + self.constant
        return np.asarray(y + self.tokens(w) if self.residual else y)


def read_ball(spec: OracleSpec, rng: np.random.Generator) -> Asking[Ball]:
    """d + 9 one-token queries: D orthogonal ones with two opposite, one shifted by its mean, seven shrunk."""
    d, D = spec.dim, spec.dim - 1
    if D < 2:
        raise ModelMismatch("a LayerNorm leaves nothing of tokens with fewer than three coordinates.")
    U = np.linalg.qr(np.column_stack([np.ones(d), rng.standard_normal((d, D))]))[0][:, 1:].T
    size = min(np.sqrt(d), 0.5 * spec.domain.norm_limit)
    X = held(orthonormal(rng, D) @ U * size)
    shifted = X[:1] + power_of_two(size / np.sqrt(d))
    asked = np.vstack([X, -X[:2]])
    y = yield one_row(asked, phase="values")
    rest = held(np.vstack([shifted, _SHRUNK[:, None] * X[:1]]))
    more = yield one_row(rest, phase="pilot")
    residual = _follows(more[0] - y[0], rest[0] - asked[0], y)
    if residual:
        y, more = y - asked, more - rest
    constant = (y[0] + y[D] + y[1] + y[D + 1]) / 4
    noise = max(spec.eps, rounding_unit(np.vstack([y + asked, more + rest]) if residual else np.vstack([y, more])))
    eps = _eps(y[0] - constant, more[1:] - constant, asked[0], rest[1:])
    w = X @ U.T
    seen = w / np.sqrt((w * w).sum(axis=1, keepdims=True) / d + eps)
    M = solve_orthogonal(seen, y[:D] - constant).T
    return Ball(U, eps, M, constant, residual, noise, spec.dtype if noise < SHORT_FORMAT else "float32")


def _follows(change: Array, step: Array, y: Array) -> bool:
    """Whether the answer follows a shift of all coordinates, which the LayerNorm does not see."""
    limit = 1e-3 * float(np.abs(y).max())
    if np.abs(change).max() < limit and np.abs(step).max() > 2 * limit:
        return False
    if len(change) == len(step) and np.abs(change - step).max() < limit:
        return True
    if np.abs(change).max() < limit:
        return False
    raise ModelMismatch("one-token answers depend on the tokens' mean, which a LayerNorm before attention removes.")


def _eps(whole: Array, shrunk: Array, x: Array, small: Array) -> float:
    """eps from how one token's answer fades as it is shrunk: its share is s sqrt((v + eps) / (s^2 v + eps))."""
    v, s2v = float(x.var()), ((small - small.mean(axis=1, keepdims=True)) ** 2).mean(axis=1)
    share = (shrunk @ whole) / (whole @ whole)
    usable = (share > 0.02) & (share < 0.98)
    if not usable.any():
        raise DomainError(
            "the LayerNorm's eps is too small to show: tokens cannot be brought inside its sphere, which this learner "
            "needs. LayerNorms with eps of 1e-12 and more are served."
        )
    best = np.flatnonzero(usable)[np.argmin(np.abs(share[usable] - 0.6))]
    # share^2 (s2v + eps) v = s2v (v + eps)
    r = float(share[best] ** 2)
    return float(s2v[best] * v * (1 - r) / (r * v - s2v[best]))
