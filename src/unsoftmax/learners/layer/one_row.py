"""One-token queries: the affine map x -> M x + constant, M = sum_h P_h [+ identity], and the noise of the answers.

Theory: docs/theory/attention-layer.md, "A real layer", one_row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.errors import ModelMismatch
from unsoftmax.inversion import rounding_unit
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.noise import LOUD
from unsoftmax.learners.layer.norms import SAME
from unsoftmax.probes.around import orthonormal
from unsoftmax.probes.base import Array, one_row
from unsoftmax.probes.scales import on_grid, power_of_two
from unsoftmax.solvers.subspace import solve_orthogonal
from unsoftmax.spec import OracleSpec

_FRESH = 2
"""Fresh tokens held against the affine map: the first shows a bend or noise, the second gives its neighbour a direction
to step in."""

_BESIDE = 2.0**-4
"""Step to a neighbouring token: many times the noise of the answers, a fraction of what bends them."""


@dataclass(frozen=True, eq=False)
class Affine:
    """One-token answers M x + constant: M (outputs, d), constant (outputs,); `noise` relative to the answers."""

    M: Array
    constant: Array
    noise: float

    def of(self, x: Array) -> Array:
        """Answers for the rows of x (n, d)."""
        return np.asarray(x @ self.M.T + self.constant)


def read_affine(spec: OracleSpec, rng: np.random.Generator) -> Asking[Affine]:
    """d + 1 queries for the map, phase "values"; two fresh ones, phase "pilot", tell the noise of the answers."""
    d = spec.dim
    size = power_of_two(min(np.sqrt(d), 0.5 * spec.domain.norm_limit))
    Q = on_grid(orthonormal(rng, d) * size, size, spec.dtype)
    y = yield one_row(np.vstack([np.zeros((1, d)), Q]), phase="values")
    M = solve_orthogonal(Q, y[1:] - y[0]).T
    fresh = on_grid(orthonormal(rng, d, min(_FRESH, d)) * size, size, spec.dtype)
    seen = yield one_row(fresh, phase="pilot")
    off = seen - fresh @ M.T - y[0]
    gap = float(np.abs(off).max())
    scale = float(np.sqrt(np.mean(y**2))) or 1.0
    loud = gap > LOUD * max(spec.eps, rounding_unit(y)) * scale and gap > 2 * spec.tolerance
    if loud:
        step = on_grid(_BESIDE * fresh[::-1], 2 * size, spec.dtype)
        beside = yield one_row(np.vstack([fresh + step, fresh - step]), phase="pilot")
        _refuse_bend(off, beside[: len(fresh)] + beside[len(fresh) :] - 2 * seen, gap / scale)
    if loud and gap > max(SAME * scale, 10 * spec.tolerance):
        raise ModelMismatch(
            f"one-token answers scatter by {gap / scale:.2g} of their size about an affine map, between neighbouring "
            f"tokens too: that is noise, and telling heads apart takes answers good to {SAME:g}. Average answers, "
            "or raise max_norm if the noise does not grow with the tokens."
        )
    noise = max(spec.eps, rounding_unit(y), gap / scale / np.sqrt(d), spec.tolerance / scale)
    return Affine(M, y[0], noise)


def _refuse_bend(off: Array, second: Array, gap: float) -> None:
    """Noise is as large in second differences over short steps as in what the affine map misses; a bend is not."""
    if np.linalg.norm(second) < 0.3 * np.linalg.norm(off):
        raise ModelMismatch(
            f"one-token answers are not affine in the token: they miss by {gap:.2g} of their size, alike at close "
            "tokens, so that is no noise. Attention alone is affine there; a LayerNorm is not (norm='auto' looks for "
            "one), nor is a network behind it."
        )
