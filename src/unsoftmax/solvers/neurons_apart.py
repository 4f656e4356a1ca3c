"""Neurons of a network from its Jacobians at several points: J_k = sum_i s_ik a_i w_i', m terms of rank one.

The Jacobians span the m terms. An element of the span with coefficients c has rank one where all its 2 x 2 minors are
0: linear in cc', so the terms span the solutions and two random elements of that space have the c_i as their common
eigenvectors, as heads do. s_ik = a factor times act'(scale w_i.q_k + b_i) then gives each neuron by itself.

Smooth activations of feed-forward networks and their derivatives, for fits.

Theory: docs/theory/stacks.md, "The networks between the heads".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares
from scipy.special import expit, ndtr

from unsoftmax.probes.base import Array
from unsoftmax.solvers.head_separation import eigenvectors, null_space, symmetric
from unsoftmax.solvers.singular import svd
from unsoftmax.solvers.subspace import LEAST_GAP, widest_gap

_MINORS = 3
"""Random minors over the unknowns cc': twice as many as are needed, and some are alike."""

_NONE = 1e-4
"""Relative singular value below which a direction of Jacobians may be noise: four to six digits of them are known."""

_SCALES = np.geomspace(0.02, 8.0, 14)
"""Lengths of a neuron's argument over the points that are tried first."""

_OFFSETS = np.linspace(-3.0, 3.0, 13)
"""Offsets of that argument that are tried first."""

_STARTS = 6
"""Of those the best few are refined: the nearest is not always in the right valley."""


def _gelu_slope(x: Array) -> Array:
    return np.asarray(ndtr(x) + x * np.exp(-x * x / 2) / np.sqrt(2 * np.pi))


def _silu_slope(x: Array) -> Array:
    s = expit(x)
    return np.asarray(s * (1 + x * (1 - s)))


ACTIVATIONS: dict[str, tuple[Callable[[Array], Array], Callable[[Array], Array]]] = {
    "gelu": (lambda x: np.asarray(x * ndtr(x)), _gelu_slope),
    "silu": (lambda x: np.asarray(x * expit(x)), _silu_slope),
}
"""Name -> activation and its derivative. Slopes of a ReLU are 0 or 1 and tell no scale: it is not among them."""


@dataclass(frozen=True, eq=False)
class Neurons:
    """x -> C act(A x + b): A (m, D), b (m,), C (d, m), and the worst misfit of a neuron's slopes, relative."""

    A: Array
    b: Array
    C: Array
    misfit: float

    @property
    def flat(self) -> Array:
        """All numbers."""
        return np.concatenate([self.A.ravel(), self.b, self.C.ravel()])

    def like(self, flat: Array) -> Neurons:
        """Neurons of the same shapes from `flat`."""
        A, b, C = np.split(flat, np.cumsum([self.A.size, self.b.size]))
        return Neurons(A.reshape(self.A.shape), b, C.reshape(self.C.shape), 0.0)

    def at_work(self, own: Array, activation: str) -> NeuronsAtWork:
        """The network at tokens `own` (B, D)."""
        x = own @ self.A.T + self.b
        act, slope = (function(x) for function in ACTIVATIONS[activation])
        return NeuronsAtWork(self, own, act, slope, act @ self.C.T)


@dataclass(frozen=True, eq=False)
class NeuronsAtWork:
    """A network at work: what it sees (B, D), activations and their slopes (B, m), out (B, d)."""

    net: Neurons
    own: Array
    active: Array
    slope: Array
    out: Array

    def by_parameters(self) -> Array:
        """(B, d, parameters) in the order of Neurons.flat."""
        B, d = self.out.shape
        by_x = self.net.C * self.slope[:, None]
        blocks = [
            np.einsum("bei,bz->beiz", by_x, self.own).reshape(B, d, -1),
            by_x,
            np.einsum("ef,bi->befi", np.eye(d), self.active).reshape(B, d, -1),
        ]
        return np.concatenate(blocks, axis=2)

    def by_own(self) -> Array:
        """(B, d, D)."""
        return np.asarray((self.net.C * self.slope[:, None]) @ self.net.A)


def count_terms(J: Array) -> int | None:
    """Number m of rank-one terms that Jacobians (K, d, p) span off their mean; None if K are too few to tell."""
    sizes = np.linalg.svd((J - J.mean(axis=0)).reshape(len(J), -1), compute_uv=False)
    # Off their mean the last is none.
    rank, gap = widest_gap(sizes[:-1], _NONE)
    return rank if gap > LEAST_GAP else None


def rank_one_terms(J: Array, m: int, rng: np.random.Generator) -> tuple[Array, Array] | None:
    """Unit vectors a (m, d) and u (m, p) with J_k in the span of the a_i u_i'; None if these do not come apart."""
    K, d, p = J.shape
    span = svd((J - J.mean(axis=0)).reshape(K, -1), full_matrices=False)[2][:m].reshape(m, d, p)
    first, second = np.triu_indices(m)
    n = _MINORS * len(first) + 100
    i, k = rng.integers(0, d, n), rng.integers(0, d - 1, n)
    j, n_ = rng.integers(0, p, n), rng.integers(0, p - 1, n)
    k, n_ = k + (k >= i), n_ + (n_ >= j)
    A, B, E, F = span[:, i, j], span[:, k, n_], span[:, i, n_], span[:, k, j]
    minors = A[first] * B[second] + A[second] * B[first] - E[first] * F[second] - E[second] * F[first]
    minors = minors.T * np.where(first == second, 0.5, 1.0)
    C = eigenvectors(symmetric(null_space(minors, m)[0]), rng)
    if C is None:
        return None
    U, _, Vt = svd(np.einsum("im,ide->mde", C, span))
    return U[:, :, 0], Vt[:, 0]


def fit_neurons(J: Array, tangents: Array, q: Array, a: Array, u: Array, activation: str) -> Neurons:
    """Neurons with Jacobians J (K, d, D - 1) along `tangents` (K, D, D - 1) at q (K, D).

    a (m, d), u (m, p): terms of what J is along the first p tangents, which all points share.
    """
    K, m, D = len(J), len(a), q.shape[1]
    terms = np.einsum("id,ie->ide", a, u).reshape(m, -1)
    slopes = np.linalg.lstsq(terms.T, J[:, :, : u.shape[1]].reshape(K, -1).T, rcond=None)[0]
    G = np.einsum("ik,ie,kfj->kejif", slopes, a, tangents, optimize=True).reshape(-1, m * D)
    w = np.linalg.lstsq(G, J.ravel(), rcond=None)[0].reshape(m, D)
    fits = [_one(slopes[i], q @ w[i], activation) for i in range(m)]
    factor, scale, b, misfit = np.array(fits).T
    return Neurons(scale[:, None] * w, b, (a * (factor / scale)[:, None]).T, float(misfit.max()))


def _one(slopes: Array, x: Array, activation: str) -> tuple[float, float, float, float]:
    """factor, scale, b and the relative misfit of slopes (K,) = factor act'(scale x + b)."""
    slope = ACTIVATIONS[activation][1]
    size = float(np.linalg.norm(slopes))
    sides = np.concatenate([-_SCALES, _SCALES]) * 2 / np.abs(x).max()
    scale, b = (grid.ravel() for grid in np.meshgrid(sides, _OFFSETS))
    tried = slope(scale[:, None] * x + b[:, None])
    factor = tried @ slopes / np.maximum((tried * tried).sum(axis=1), 1e-300)
    left = np.linalg.norm(slopes - factor[:, None] * tried, axis=1)
    best: tuple[float, float, float, float] = (0.0, 1.0, 0.0, np.inf)
    for i in np.argsort(left, kind="stable")[:_STARTS]:
        start = [factor[i], scale[i], b[i]]
        end = least_squares(lambda v: (v[0] * slope(v[1] * x + v[2]) - slopes) / size, start, xtol=1e-14, ftol=1e-14)
        misfit = float(np.sqrt(2 * end.cost))
        if misfit < best[3]:
            best = (float(end.x[0]), float(end.x[1]), float(end.x[2]), misfit)
    return best
