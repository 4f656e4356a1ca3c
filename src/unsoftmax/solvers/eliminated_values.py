"""Heads before a few query tokens, value maps eliminated: scores by Gauss-Newton, what they write by least squares.

Above query token q_k, [q_k + e, q_k] is answered by Y = sum_h sigma(u_kh . (e, 1)) P_h e. Given the weights the P_h are
linear, whatever their ranks and ranges; with sum_h P_h known, H - 1 of them are free. What of the answers lies outside
all they can write hangs on the u alone (Kaufman's variable projection), so that a step in u is a small fit and is
followed by the P_h that go with it.

Theory: docs/theory/attention-layer.md, "Layers of language models", heads that overlap.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, solve_triangular
from scipy.special import expit

from unsoftmax.probes.base import Array
from unsoftmax.solvers.gauss_newton import least_squares

_MOST = 10
"""Steps at most: from values known to 1e-4 three end at rounding."""

_SETTLED = 1e-12
"""Step in u, relative, that leaves nothing for the next one, convergence being quadratic."""

_OPEN = 1e-5
"""Least pivot of the normal equations of scores, columns of unit length, up to which some direction of them is open:
1e-2 and more where they are told, rounding (1e-8) where two heads score alike."""

_CLIPPED = 1e-4
"""Weights nearer to 0 or 1 than this tell no score to start from."""


@dataclass(frozen=True, eq=False)
class Fitted:
    """P (H, outputs, d); u (queries, H, d + 1): scores before every query token; residual: root mean square of what is
    left of the answers, relative to them; rise: by how much noise of the answers, as relative, rises to the P_h;
    determined: whether these answers leave no direction of scores open."""

    P: Array
    u: Array
    residual: float
    rise: float
    determined: bool


@dataclass(frozen=True, eq=False)
class Above:
    """Displacements E (n, d), answers Y (n, outputs) above query token `index` (n,), and M = sum_h P_h (outputs, d);
    size: length of displacements by which the constant part of a score is measured."""

    E: Array
    Y: Array
    index: Array
    M: Array
    size: float

    @property
    def wide(self) -> Array:
        """(n, d + 1)."""
        return np.column_stack([self.E, np.full(len(self.E), self.size)])


def eliminate(P: Array, data: Above) -> Fitted | None:
    """From values P (H, outputs, d) that are nearly right; None where no scores explain the answers."""
    H, u = len(P), first_scores(P, data)
    for step in range(_MOST):
        weights = _weights(u, data)
        Phi, right = _free(weights, data)
        Q, R = np.linalg.qr(Phi, mode="complete")
        p = Phi.shape[1]
        size = np.sort(np.abs(np.diag(R[:p])))
        if len(Phi) <= p or size[0] <= np.finfo(float).eps * size[-1]:
            return None
        free = solve_triangular(R[:p], Q[:, :p].T @ right).reshape(H - 1, -1, P.shape[1]).transpose(0, 2, 1)
        # The first weights are off by as much as the values they were read with, and their own values by more.
        P = np.concatenate([free, (data.M - free.sum(axis=0))[None]]) if step else P
        N = Q[:, p:].T
        J = _jacobian(P, weights, N, u, data)
        try:
            du = least_squares(J, (N @ right).ravel()).reshape(u.shape)
        except (LinAlgError, np.linalg.LinAlgError):
            return None
        u = u + du
        moved = float(np.linalg.norm(du)) / max(float(np.linalg.norm(u)), 1e-300)
        if not np.isfinite(moved) or moved > 1e3:
            return None
        if moved < _SETTLED and step:
            break
    missed = data.Y - np.einsum("nh,hij,nj->ni", _weights(u, data), P, data.E, optimize=True)
    scale = float(np.sqrt((data.Y**2).mean()))
    inverse = solve_triangular(R[:p], np.eye(p))
    rise = float(np.linalg.norm(inverse) / np.sqrt(p)) * scale / float(np.sqrt((P**2).mean()))
    return Fitted(P, u, float(np.sqrt((missed**2).mean())) / scale, rise, _determined(J))


def _determined(J: Array) -> bool:
    """Whether no direction of scores is left open: pivots of the normal equations, columns of unit length."""
    J = J / np.maximum(np.linalg.norm(J, axis=0), 1e-300)
    try:
        return bool(np.diag(cho_factor(J.T @ J)[0]).min() > _OPEN)
    except LinAlgError:
        return False


def first_scores(P: Array, data: Above) -> Array:
    """u (queries, H, d + 1) by least squares from the weights that values P (H, outputs, d) read."""
    alpha = np.clip(read_weights(P, data), _CLIPPED, 1 - _CLIPPED)
    # Logs show scores as well as weights are far from 0 and 1.
    told, logs = alpha * (1 - alpha), np.log(alpha / (1 - alpha))
    u = np.zeros((int(data.index.max()) + 1, len(P), data.E.shape[1] + 1))
    for k in range(len(u)):
        rows = data.index == k
        wide = data.wide[rows]
        for h in range(len(P)):
            w = told[rows, h]
            u[k, h] = np.linalg.lstsq(wide * w[:, None], logs[rows, h] * w, rcond=None)[0]
    return u


def read_weights(P: Array, data: Above) -> Array:
    """Weights (n, H) of the displaced tokens, each answer by itself."""
    written = np.einsum("hij,nj->nih", P, data.E)
    return np.array([np.linalg.lstsq(A, y, rcond=None)[0] for A, y in zip(written, data.Y, strict=True)])


def _weights(u: Array, data: Above) -> Array:
    return np.asarray(expit(np.einsum("nhj,nj->nh", u[data.index], data.wide)))


def _free(weights: Array, data: Above) -> tuple[Array, Array]:
    """Rows (n, (H - 1) d) of all but the last head's values, and what they are to explain (n, outputs)."""
    last = weights[:, -1:]
    rows = (weights[:, :-1] - last)[:, :, None] * data.E[:, None, :]
    return rows.reshape(len(rows), -1), data.Y - last * (data.E @ data.M.T)


def _jacobian(P: Array, weights: Array, N: Array, u: Array, data: Above) -> Array:
    """(rows of N x outputs, u.size): what scores change of the answers where no values reach."""
    slope, wide, outputs = weights * (1 - weights), data.wide, data.Y.shape[1]
    J = np.zeros((len(N), outputs, *u.shape))
    for k in range(len(u)):
        rows = data.index == k
        for h in range(len(P)):
            written = ((data.E[rows] @ P[h].T) * slope[rows, h, None]).T
            for r, free in enumerate(N[:, rows]):
                J[r, :, k, h] = (written * free) @ wide[rows]
    return J.reshape(len(N) * outputs, -1)
