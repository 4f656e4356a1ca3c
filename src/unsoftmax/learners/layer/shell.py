"""One-token answers behind a LayerNorm: its gamma and beta, and the sum before it up to one scale.

Theory: docs/theory/attention-layer.md, "LayerNorm after".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.errors import DomainError, ModelMismatch
from unsoftmax.inversion import rounding_unit
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.layer.constants import LAYER
from unsoftmax.precision import SHORT_FORMAT
from unsoftmax.probes.around import orthonormal
from unsoftmax.probes.base import Array, one_row
from unsoftmax.probes.scales import on_grid, power_of_two
from unsoftmax.solvers.projective import null_vector, scales_of_points
from unsoftmax.solvers.subspace import solve_orthogonal
from unsoftmax.spec import OracleSpec

_FAR = {"float64": 2.0**66, "float32": 2.0**33}
"""Coordinates of the far tokens, some ten bits beyond the digits of the format: b vanishes beside M x, so x and -x
answer beta plus and minus the same."""


@dataclass(frozen=True, eq=False)
class Shell:
    """y = gamma LN(s) + beta with s = M x + b for one token; M (d, d) and b (d,) off the mean, in units of their own.

    `inverse` is 1 / gamma. What answers show of s is its direction off the mean.
    """

    inverse: Array
    beta: Array
    M: Array
    b: Array
    noise: float

    def direction(self, y: Array) -> Array:
        """(y - beta) / gamma off the mean (..., d): s / sqrt(variance + eps)."""
        z = (y - self.beta) * self.inverse
        return np.asarray(z - z.mean(axis=-1, keepdims=True))


def read_shell(spec: OracleSpec, rng: np.random.Generator) -> Asking[Shell]:
    """About d + 13 one-token queries.

    Far away, as far as the format of near answers holds, the sum is odd, so opposite answers add to 2 beta. Every
    (y - beta) / gamma has mean zero: 1 / gamma is the null vector of the answers. Scales follow from a few more tokens,
    affine combinations of the others.
    """
    d = spec.dim
    far = _FAR[spec.dtype]
    if spec.domain.norm_limit < far * np.sqrt(d) * 4:
        raise DomainError(
            f"a LayerNorm behind attention, or an RMSNorm before it, is read off tokens of norm "
            f"{far * np.sqrt(d) * 4:.1g} and max_norm is {spec.domain.max_norm:g}; raise it, or let the target answer "
            "before its norm."
        )
    x = rng.standard_normal((LAYER.opposite_far_tokens, d))
    size = power_of_two(np.sqrt(d) / 4)
    Q = on_grid(orthonormal(rng, d) * size, size, spec.dtype)
    fresh = on_grid(rng.standard_normal((LAYER.combined_tokens, d)) * (size / np.sqrt(d)), size, spec.dtype)
    near = yield one_row(np.vstack([Q, -Q[:1]]), phase="values")
    # Answers in a shorter format than was declared show it before tokens are sent whose squares it does not hold.
    dtype = "float32" if rounding_unit(near) > SHORT_FORMAT else spec.dtype
    far = _FAR[dtype]
    away = yield one_row(on_grid(np.vstack([x, -x]) * far, 8 * far, dtype), phase="pilot")
    beta = away.mean(axis=0)
    far_answers, points = away - beta, near - beta
    more = yield one_row(np.vstack([-Q[1:2], fresh]), phase="pilot")
    rest = more - beta
    everything = np.vstack([far_answers[: LAYER.opposite_far_tokens], points, rest])
    inverse, clarity = null_vector(everything)
    if not clarity < 0.05:
        raise ModelMismatch(
            "no weighting gives all one-token answers mean zero: what stands behind attention is not a LayerNorm."
        )
    far_size = float(np.mean(((far_answers * inverse) ** 2).sum(axis=1)))
    inverse = inverse * np.sqrt(d / far_size) * (1.0 if inverse.sum() >= 0 else -1.0)
    noise = max(spec.eps, rounding_unit(np.vstack([near, away, more])))
    bare = Shell(inverse, beta, np.zeros((d, d)), np.zeros(d), noise)
    return _with_sum(bare, points, rest, Q, fresh)


def _with_sum(bare: Shell, points: Array, rest: Array, Q: Array, fresh: Array) -> Shell:
    d = len(Q)
    h, opposite = bare.direction(points[:d] + bare.beta), bare.direction(points[d] + bare.beta)
    other, combined = bare.direction(rest[0] + bare.beta), bare.direction(rest[1:] + bare.beta)
    # Points: q_1..q_d, -q_1, -q_2. Both opposite pairs add to 2 b: one relation more.
    seen = np.vstack([h, opposite, other])
    weights = solve_orthogonal(Q.T, fresh.T).T
    padded = np.hstack([weights, np.zeros((len(fresh), 2))])
    # What the weights lack to a sum of 1 stands on b = (s(q_1) + s(-q_1)) / 2.
    padded[:, [0, d]] += (1 - weights.sum(axis=1, keepdims=True)) / 2
    pair = np.zeros((1, d + 2 + len(fresh)))
    pair[0, [0, d]], pair[0, [1, d + 1]] = 1.0, -1.0
    r = scales_of_points(seen, combined, padded, pair)
    s = r[:, None] * seen
    s /= np.linalg.norm(s) / np.sqrt(len(s))
    b = ((s[0] + s[d]) + (s[1] + s[d + 1])) / 4
    return Shell(bare.inverse, bare.beta, solve_orthogonal(Q, s[:d] - b).T, b, bare.noise)
