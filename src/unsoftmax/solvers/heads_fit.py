"""Multi-head models as a least-squares problem: answers, Jacobian, rounding, and steps that use them.

Unknowns in one vector: W (H, d, d) then v (H, d), raveled. Data: tokens (n, L, d), last row the query token, and
copies (n, L); copies 0 mark rows that pad shorter sequences.

Theory: docs/theory/multi-head.md, "Generic heads", bounded tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import softmax

from unsoftmax.precision import UNIT
from unsoftmax.probes.base import Array
from unsoftmax.solvers.gauss_newton import Dense, Descent, descend


@dataclass(frozen=True, eq=False)
class Data:
    """Sequences and their answers."""

    tokens: Array
    copies: Array
    y: Array

    def __len__(self) -> int:
        return len(self.y)

    def joined(self, other: Data) -> Data:
        """Both, padded to one length by repeating the query token with 0 copies."""
        length = max(self.tokens.shape[1], other.tokens.shape[1])
        a, b = _padded(self, length), _padded(other, length)
        return Data(
            np.concatenate([a.tokens, b.tokens]), np.concatenate([a.copies, b.copies]), np.concatenate([a.y, b.y])
        )


def _padded(data: Data, length: int) -> Data:
    missing = length - data.tokens.shape[1]
    if missing == 0:
        return data
    tokens = np.concatenate([np.repeat(data.tokens[:, -1:], missing, axis=1), data.tokens], axis=1)
    return Data(tokens, np.pad(data.copies, ((0, 0), (missing, 0))), data.y)


def answers(W: Array, v: Array, tokens: Array, copies: Array) -> Array:
    """f (n,) in the precision of W."""
    y = np.zeros(len(tokens), dtype=W.dtype)
    for _, _, shown in _heads(W, v, tokens.astype(W.dtype), copies):
        y = y + shown
    return y


def linearised(W: Array, v: Array, tokens: Array, copies: Array) -> tuple[Array, Array, Array]:
    """f (n,), its Jacobian (n, unknowns), and the standard deviation (n,) of a float64 target's rounding."""
    n, _, d = tokens.shape
    H = len(v)
    y = np.zeros(n)
    J_W, J_v = np.empty((n, H, d, d)), np.empty((n, H, d))
    variance = np.zeros(n)
    q = tokens[:, -1]
    for h, (alpha, values, shown) in enumerate(_heads(W, v, tokens, copies)):
        y += shown
        J_v[:, h] = np.einsum("nl,nld->nd", alpha, tokens)
        slope = alpha * (values - shown[:, None])
        J_W[:, h] = np.einsum("nl,nld->nd", slope, tokens)[:, :, None] * q[:, None, :]
        size = np.einsum("nld,nd->nl", np.abs(tokens), np.abs(q) @ np.abs(W[h]).T)
        variance += ((slope * size) ** 2).sum(axis=1) + np.abs(slope).sum(axis=1) ** 2
        # Values that cancel keep the rounding of their summands: all that an isolated sequence shows of other heads.
        variance += (alpha * np.sqrt(tokens**2 @ v[h] ** 2)).sum(axis=1) ** 2
    J = np.concatenate([J_W.reshape(n, -1), J_v.reshape(n, -1)], axis=1)
    return y, J, UNIT * np.sqrt(variance) + 1e-300


def _heads(W: Array, v: Array, tokens: Array, copies: Array) -> list[tuple[Array, Array, Array]]:
    """Per head: weights (n, L), token values (n, L), answer (n,)."""
    with np.errstate(divide="ignore"):
        shift = np.log(copies.astype(W.dtype))
    found = []
    for Wh, vh in zip(W, v, strict=True):
        scores = (tokens * (tokens[:, -1] @ Wh.T)[:, None, :]).sum(axis=2) + shift
        weights, values = softmax(scores, axis=1), tokens @ vh
        found.append((weights, values, (weights * values).sum(axis=1)))
    return found


def gauss_newton(W: Array, v: Array, data: Data, noise: Array | float = 0.0, steps: int = 4) -> tuple[Array, Array]:
    """Last digits: residuals in extended precision on the tokens as sent, rows weighted by their rounding.

    Whole steps go astray where the data leave a direction open: `left_over` tells, and is nan where numbers end.
    """
    H, d = v.shape
    W_long, v_long = W.astype(np.longdouble), v.astype(np.longdouble)
    for _ in range(steps):
        W64, v64 = W_long.astype(np.float64), v_long.astype(np.float64)
        _, J, rounding = linearised(W64, v64, data.tokens, data.copies)
        sigma = np.hypot(rounding, noise)
        residual = (data.y - answers(W_long, v_long, data.tokens, data.copies)) / sigma
        if not (np.isfinite(J).all() and np.isfinite(residual).all()):
            break
        step = scaled_solve(J / sigma[:, None], residual.astype(np.float64))
        W_long = W_long + step[: H * d * d].reshape(H, d, d)
        v_long = v_long + step[H * d * d :].reshape(H, d)
    return W_long.astype(np.float64), v_long.astype(np.float64)


def left_over(W: Array, v: Array, data: Data, noise: Array | float) -> float:
    """Root mean square of the residuals over their noise, in extended precision; nan where a step went astray."""
    with np.errstate(over="ignore", invalid="ignore"):
        sigma = np.hypot(linearised(W, v, data.tokens, data.copies)[2], noise)
        shown = answers(W.astype(np.longdouble), v.astype(np.longdouble), data.tokens, data.copies)
        return float(np.sqrt(np.mean(((data.y - shown) / sigma) ** 2)))


def relative_errors(W: Array, v: Array, data: Data, noise: Array | float) -> Array:
    """Deviations (2, H) of every W_h and v_h relative to its norm, as the noise of the answers leaves them in a fit.

    inf for what no answer shows; a W of norm 0 counts as 0.
    """
    H, d = v.shape
    _, J, rounding = linearised(W, v, data.tokens, data.copies)
    A = J / np.hypot(rounding, noise)[:, None]
    size = np.linalg.norm(A, axis=0)
    R = np.linalg.qr(A / np.where(size > 0, size, 1.0), mode="r")
    if not ((np.abs(np.diag(R)) > UNIT).all() and (size > 1e-100 * size.max()).all()):
        return np.full((2, H), np.inf)
    variance = (np.linalg.norm(solve_triangular(R, np.eye(len(R))), axis=1) / size) ** 2
    off = np.stack([variance[: H * d * d].reshape(H, -1).sum(axis=1), variance[H * d * d :].reshape(H, d).sum(axis=1)])
    norms = np.stack([np.linalg.norm(W, axis=(1, 2)), np.linalg.norm(v, axis=1)])
    return np.divide(np.sqrt(off), norms, out=np.zeros((2, H)), where=norms > 0)


def scaled_solve(A: Array, b: Array) -> Array:
    """Least squares with columns brought to unit length first."""
    size = np.linalg.norm(A, axis=0)
    size = np.where(size > 0, size, 1.0)
    return np.asarray(np.linalg.lstsq(A / size, b, rcond=1e-15)[0] / size)


@dataclass(frozen=True, eq=False)
class _Weighted:
    """All W and v as unknowns (H d d + H d,), residuals over their noise sigma (n,)."""

    data: Data
    shape: tuple[int, int]
    sigma: Array

    def split(self, x: Array) -> tuple[Array, Array]:
        H, d = self.shape
        return x[: H * d * d].reshape(H, d, d), x[H * d * d :].reshape(H, d)

    def at(self, x: Array) -> Dense:
        y, J, _ = linearised(*self.split(x), self.data.tokens, self.data.copies)
        return Dense((y - self.data.y) / self.sigma, J / self.sigma[:, None])


def levenberg(
    W: Array, v: Array, data: Data, noise: Array | float, iterations: int = 100, damping: float = 1e-2
) -> tuple[Array, Array, float]:
    """Damped steps from a rough start: W, v and the root mean square of residuals over their noise."""
    sigma = np.hypot(linearised(W, v, data.tokens, data.copies)[2], noise)
    problem = _Weighted(data, v.shape, sigma)
    how = Descent(damping, down=5.0, iterations=iterations, patience=9, arrived=len(data), gain=0.999)
    end = descend(problem, np.concatenate([W.ravel(), v.ravel()]), how)
    return *problem.split(end.x), float(np.sqrt(end.cost / len(data)))
