"""Gauss-Newton on the exact model at one query token: ranges of all heads and their key directions together.

Answers above q's own are Y = sum_h P_h m_h, m_h = sum_i alpha_hi e_i, alpha_h = softmax of e_i . u_h (q scores 0), with
P_h = O E_h O^-1 P for square O = [O_1 ... O_H] and P = sum_h P_h known. To first order in O -> O (I + X), u -> u + du,

    block k of O^-1 Y - Z_k m_k  =  sum_{i != k} X_ki Z_i (m_i - m_k) + Z_k C_k du_k,   Z = O^-1 P,

so the heads decouple: X_k. is eliminated by projecting over the data, du_k is a small least-squares problem.

Theory: docs/theory/attention-layer.md, "LayerNorm before".
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, solve_triangular

from unsoftmax.probes.base import Array

Data = list[tuple[Array, Array]]
"""Blocks (e (B, m, D), Y (B, n)): sequences of m displaced tokens and q, with their answers above q's own."""

_TALL = 4
"""Rows per column from which the normal equations are several times cheaper than QR."""

_CONDITIONED = 1e-6
"""Smallest pivot of their factor, against the largest, at which one correction still gives all digits."""


@dataclass(frozen=True, eq=False)
class Mixing:
    """O (n, n) with orthonormal blocks of s columns, u (H, D); `residual` relative to the answers."""

    O: Array
    u: Array
    residual: float
    change: float


def refine(O: Array, u: Array, P: Array, data: Data, most: int = 14) -> Mixing:
    """Iterate until a step leaves nothing for the next, convergence being quadratic, or the steps do not shrink.

    With many more answers than unknowns, all but the last steps look at a part of what determines them.
    """
    enough = 3 * -(-P.shape[1] // (len(O) // len(u))) + 4
    free = sum(len(e) for e, _ in data) - len(O) + len(O) // len(u)
    part = enough if free > 2 * enough else None
    current, last, first, close, patience = Mixing(O, u, np.inf, np.inf), np.inf, 0, 1e-9, 4
    for i in range(most):
        try:
            current = _step(current.O, current.u, P, data, part)
        except (LinAlgError, np.linalg.LinAlgError):
            # A start so far off that heads fall together: no solution is near.
            return replace(current, residual=np.inf)
        stalled = i > first + 2 and current.change > 0.3 * last and current.change < 1e-3
        lost = i > first + patience and current.change > 1e-2
        if current.change < close or stalled or lost:
            if part is None:
                break
            # The next full step is right to the square of this one.
            part, first, close = None, i, 3e-5
            if lost:
                # All answers together may still average the noise out; if so, it shows at once.
                patience = 1
        last = current.change
    return Mixing(current.O, current.u, residual(current.O, current.u, P, data), current.change)


def residual(O: Array, u: Array, P: Array, data: Data) -> float:
    """Root mean square of what the model leaves of the answers, relative to them."""
    H, s = len(u), len(O) // len(u)
    Z = np.linalg.solve(O, P).reshape(H, s, -1)
    missed = sum(float(((Y - _written(O, Z, _means(u, e)[0])) ** 2).sum()) for e, Y in data)
    return float(np.sqrt(missed / sum(float((Y**2).sum()) for _, Y in data)))


def _means(u: Array, e: Array) -> tuple[Array, Array]:
    """m_h (B, H, D) and alpha (B, H, m)."""
    t = np.einsum("hd,bmd->bhm", u, e)
    top = np.maximum(t.max(axis=2, keepdims=True), 0)
    weights = np.exp(t - top)
    alpha = weights / (weights.sum(axis=2, keepdims=True) + np.exp(-top))
    return alpha @ e, alpha


def _written(O: Array, Z: Array, means: Array) -> Array:
    H, s, _ = Z.shape
    return np.einsum("nhs,bhs->bn", O.reshape(len(O), H, s), np.einsum("hsd,bhd->bhs", Z, means))


def _step(O: Array, u: Array, P: Array, data: Data, part: int | None = None) -> Mixing:
    """One step; du from `part` random combinations of the answers that X leaves alone, or from all."""
    H, s, D = len(u), len(O) // len(u), P.shape[1]
    inverse = np.linalg.inv(O)
    Z = (inverse @ P).reshape(H, s, D)
    read = [(*_means(u, e), e, Y) for e, Y in data]
    m = np.concatenate([part[0] for part in read])
    gaps = np.concatenate([(Y @ inverse.T).reshape(len(Y), H, s) for *_, Y in read]) - np.einsum("hsd,bhd->bhs", Z, m)
    X = np.zeros((H, s, H, s))
    du = np.zeros_like(u)
    for k in range(H):
        others = [i for i in range(H) if i != k]
        slope = np.concatenate([_slope(Z[k], alpha[:, k], mean[:, k], e) for mean, alpha, e, _ in read])
        r = gaps[:, k]
        if not others:
            some = slice(None) if part is None else slice(0, max(part, len(slope) // 8))
            du[k] = _least_squares(slope[some].reshape(-1, D), r[some].reshape(-1))
            continue
        F = np.concatenate([(m[:, i] - m[:, k]) @ Z[i].T for i in others], axis=1)
        p = F.shape[1]
        Q, R = np.linalg.qr(F, mode="complete" if part is None else "reduced")
        free = Q[:, p:].T if part is None else _outside(Q, part)
        A = np.tensordot(free, slope, 1).reshape(-1, D)
        du[k] = _least_squares(A, (free @ r).reshape(-1))
        x = solve_triangular(R[:p], Q[:, :p].T @ (r - slope @ du[k]))
        for position, i in enumerate(others):
            X[k, :, i] = x[position * s : (position + 1) * s].T
    n = len(O)
    turned = O @ (np.eye(n) + X.reshape(n, n))
    turned = np.hstack([np.linalg.qr(turned[:, h * s : (h + 1) * s])[0] for h in range(H)])
    return Mixing(turned, u + du, np.inf, float(np.linalg.norm(du) / np.linalg.norm(u)))


def _outside(Q: Array, n: int) -> Array:
    """n orthonormal rows orthogonal to the columns of Q."""
    rows = np.random.default_rng(n).standard_normal((len(Q), n))
    return np.asarray(np.linalg.qr(rows - Q @ (Q.T @ rows))[0].T)


def _least_squares(A: Array, b: Array) -> Array:
    """By the normal equations, corrected once, where A is tall and they keep half the digits; by QR where A has full
    rank; else the shortest solution. Steps are corrected by the next ones: only their direction must be right."""
    if len(A) >= _TALL * A.shape[1]:
        x = _by_normal_equations(A, b)
        if x is not None:
            return x
    Q, R = np.linalg.qr(A)
    diagonal = np.abs(np.diag(R))
    if len(A) < A.shape[1] or diagonal.min() < 1e-13 * diagonal.max():
        return np.asarray(np.linalg.lstsq(R, Q.T @ b, rcond=None)[0])
    return np.asarray(solve_triangular(R, Q.T @ b))


def _by_normal_equations(A: Array, b: Array) -> Array | None:
    try:
        factor = cho_factor(A.T @ A)
    except LinAlgError:
        return None
    diagonal = np.abs(np.diag(factor[0]))
    if diagonal.min() < _CONDITIONED * diagonal.max():
        return None
    x = cho_solve(factor, A.T @ b)
    return np.asarray(x + cho_solve(factor, A.T @ (b - A @ x)))


def _slope(Z: Array, alpha: Array, mean: Array, e: Array) -> Array:
    """Z_k C (B, s, D), C = sum_i alpha_i e_i e_i' - m m'."""
    Ze = (e @ Z.T).transpose(0, 2, 1) * alpha[:, None]
    return np.asarray(Ze @ e - np.einsum("bs,bd->bsd", mean @ Z.T, mean))
