"""From gaps between tokens to W on the span of their known embeddings.

Theory: docs/theory/token-access.md, "Token access", known embeddings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from unsoftmax.probes.base import Array
from unsoftmax.solvers.cross import NO_DIRECTION, pivot_rows

_ROOM = 64.0
"""How far beyond the stated errors a fit may lie before the embeddings are said not to explain the scores."""


@dataclass(frozen=True, eq=False)
class Span:
    """What the embeddings span: dimension of the span, and of the differences between tokens."""

    dimension: int
    differences: int


def span_of(E: Array) -> Span:
    """Dimensions that can be seen with embeddings E (V, d)."""
    return Span(_rank(E), _rank(E - E.mean(axis=0)))


def _rank(E: Array) -> int:
    sizes = np.linalg.svd(E, compute_uv=False)
    return int((sizes > NO_DIRECTION * sizes[0]).sum()) if len(sizes) and sizes[0] > 0 else 0


def spanning_tokens(E: Array, spare: int) -> Array:
    """Few tokens that span what all span, with an affine part and some to spare: pivoted QR of [E, 1]."""
    size = float(np.linalg.norm(E, axis=1).mean()) or 1.0
    extended = np.hstack([E, np.full((len(E), 1), size)])
    wanted = min(len(E), _rank(extended) + spare)
    return np.sort(pivot_rows(extended)[:wanted])


@dataclass(frozen=True, eq=False)
class Solution:
    """W (d, d), c (d,) or None, and the largest gap left unexplained in units of its stated error."""

    W: Array
    c: Array | None
    excess: float


def fit_scores(E: Array, G: Array, errors: Array) -> Solution:
    """W (and c, only if needed) with G_ij = (e_i - e_j) . (W e_j + c); minimal on the span. E (m, d), G (m, m)."""
    U = np.stack([_key_direction(E - E[j], G[:, j], errors[:, j]) for j in range(len(E))])
    W, c, excess = _fitted(E, U, lambda fitted: _excess(E, U, fitted, errors), 1.0)
    return Solution(W.T, c, excess)


def fit_values(E: Array, values: Array) -> tuple[Array, float, float]:
    """v, constant (0 unless needed) and the largest residual: values_i = e_i . v + constant."""
    size = float(np.abs(values).max()) or 1.0
    v, constant, residual = _fitted(E, values, lambda fitted: float(np.abs(fitted - values).max()), 1e-9 * size)
    return v, 0.0 if constant is None else float(constant), residual


def _fitted(
    E: Array, values: Array, misfit: Callable[[Array], float], enough: float
) -> tuple[Array, Array | None, float]:
    """Coefficients (d, ...) of values (m, ...) in E (m, d), an offset where it leaves less than a quarter of a misfit
    that is not `enough`, and the misfit."""
    plain = _pinv(E) @ values
    left = misfit(E @ plain)
    if left <= enough:
        return plain, None, left
    both = _pinv(np.hstack([E, np.ones((len(E), 1))])) @ values
    affine = misfit(E @ both[:-1] + both[-1])
    return (both[:-1], both[-1], affine) if affine < left / 4 else (plain, None, left)


def _key_direction(differences: Array, gaps: Array, errors: Array) -> Array:
    """u with differences u = gaps, least squares in units of the errors, minimal."""
    size = np.maximum(errors, max(float(np.median(errors)) / 1024, 1e-300))
    return np.asarray(np.linalg.lstsq(differences / size[:, None], gaps / size, rcond=NO_DIRECTION)[0])


def _excess(E: Array, U: Array, fitted: Array, errors: Array) -> float:
    """Largest misfit of the gaps in units of the stated errors (with room for the error of U itself)."""
    misfit = E @ (U - fitted).T
    misfit = np.abs(misfit - np.diag(misfit))
    return float((misfit / (_ROOM * np.sqrt(len(E)) * (errors + np.median(errors)) + 1e-300)).max())


def _pinv(A: Array) -> Array:
    return np.asarray(np.linalg.pinv(A, rcond=NO_DIRECTION))
