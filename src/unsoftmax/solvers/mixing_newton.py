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
from scipy.linalg import LinAlgError, solve_triangular

from unsoftmax.probes.base import Array
from unsoftmax.solvers.circuit_newton import attend
from unsoftmax.solvers.gauss_newton import least_squares
from unsoftmax.solvers.singular import svd

Data = list[tuple[Array, Array]]
"""Blocks (e (B, m, D), Y (B, n)): sequences of m displaced tokens and q, with their answers above q's own."""

_MEET = 1e-2
"""Singular value of all annihilators, orthonormal by heads, below which ranges nearly meet: noise is a hundred
times as large in what single heads write there."""

_MOST_MEET = 8
"""Outputs corrected at once, the weakest: two heads that nearly meet in one direction leave up to four."""

_SHRINKING = 0.95
"""A step over the one before, from which on steps of more than a hundredth do not come closer: a trained layer's were
0.8 to 0.9 of each other until they were small enough for the last four."""

_NOTHING = 0.5
"""Share of the answers that a fit to a part of them leaves, from which on there is nothing for all of them to improve:
wrong heads leave 1 and more, right ones behind much noise 0.05."""


@dataclass(frozen=True, eq=False)
class Mixing:
    """O (n, n) with orthonormal blocks of s columns, u (H, D), Z (H, s, D) = O^-1 P; `residual`: of the answers."""

    O: Array
    u: Array
    Z: Array
    residual: float
    change: float


def refine(O: Array, u: Array, P: Array, data: Data, most: int = 14) -> Mixing:
    """Iterate until a step leaves nothing for the next, convergence being quadratic, or the steps do not shrink.

    With many more answers than unknowns, all but the last steps look at a part of what determines them.
    """
    enough = 3 * -(-P.shape[1] // (len(O) // len(u))) + 4
    free = sum(len(e) for e, _ in data) - len(O) + len(O) // len(u)
    part = enough if free > 2 * enough else None
    current, last, first, close, patience = Mixing(O, u, _parts(O, P, len(u)), np.inf, np.inf), np.inf, 0, 1e-9, 4
    for i in range(most):
        try:
            current = _step(current.O, current.u, P, data, part)
        except (LinAlgError, np.linalg.LinAlgError):
            # A start so far off that heads fall together: no solution is near.
            return replace(current, residual=np.inf)
        stalled = i > first + 2 and current.change > 0.3 * last and current.change < 1e-3
        lost = i > first + patience and current.change > max(1e-2, _SHRINKING * last)
        if current.change < close or stalled or lost:
            if part is None or _left(current, P, data) > _NOTHING:
                break
            # The next full step is right to the square of this one.
            part, first, close = None, i, 3e-5
            if lost:
                # All answers together may still average the noise out; if so, it shows at once.
                patience = 1
        last = current.change
    return replace(current, Z=_parts(current.O, P, len(u)), residual=_left(current, P, data))


def _left(found: Mixing, P: Array, data: Data) -> float:
    """Root mean square of what the model leaves of the answers, relative to them."""
    m, Y = _read(found.u, data)
    return _relative(Y - _written(found.O, _parts(found.O, P, len(found.u)), m), Y)


def _parts(O: Array, P: Array, H: int) -> Array:
    return np.asarray(np.linalg.solve(O, P).reshape(H, len(O) // H, -1))


def where_ranges_meet(found: Mixing, data: Data, noise: float) -> Mixing:
    """O and Z corrected along the outputs that ranges nearly share, from answers whose heads weigh tokens differently.

    The annihilators L of all heads together, orthonormal by heads, are small along such outputs b, and what they leave
    in P_h there, b w_h', is noise over their size. Its sum over heads is none, and above the model an answer shows
    sum_h m_h . w_h along b: linear in w_h, which is taken as large as the gap says and no larger. noise: of an answer.
    """
    H, s, D = found.Z.shape
    _, size, outputs = svd(_evenly_noisy(found.O, H)[1])
    shared = outputs[size < _MEET][-_MOST_MEET:]
    if len(shared) == 0:
        return found
    m, Y = _read(found.u, data)
    missed = (Y - _written(found.O, found.Z, m)) @ shared.T
    apart = (m - m.mean(axis=1, keepdims=True)).reshape(len(m), H * D)
    left, sizes, right = svd(apart, full_matrices=False)
    # As large as expected beside noise: directions that the tokens hardly show stay as they are.
    expected = np.maximum((missed**2).mean(axis=0), noise**2) / (apart**2).sum(axis=1).mean()
    gains = sizes[:, None] / (sizes[:, None] ** 2 + noise**2 / expected)
    w = (right.T @ (gains * (left.T @ missed))).reshape(H, D, -1)
    P = [o @ z for o, z in zip(np.split(found.O, H, axis=1), found.Z, strict=True)]
    parts = [svd(p + (v @ shared).T, full_matrices=False) for p, v in zip(P, w - w.mean(axis=0), strict=True)]
    O, Z = np.hstack([U[:, :s] for U, _, _ in parts]), np.stack([S[:s, None] * V[:s] for _, S, V in parts])
    better = replace(found, O=O, Z=Z, residual=_relative(Y - _written(O, Z, m), Y))
    return better if better.residual < found.residual else found


def _read(u: Array, data: Data) -> tuple[Array, Array]:
    """m_h (B, H, D) and answers (B, n) of all blocks."""
    return np.concatenate([_means(u, e)[0] for e, _ in data]), np.concatenate([Y for _, Y in data])


def _relative(missed: Array, Y: Array) -> float:
    return float(np.sqrt((missed**2).sum() / (Y**2).sum()))


def _means(u: Array, e: Array) -> tuple[Array, Array]:
    """m_h (B, H, D) and alpha (B, H, m)."""
    t = np.einsum("hd,bmd->bhm", u, e)
    alpha = attend(t)
    return alpha @ e, alpha


def _written(O: Array, Z: Array, means: Array) -> Array:
    H, s, _ = Z.shape
    return np.einsum("nhs,bhs->bn", O.reshape(len(O), H, s), np.einsum("hsd,bhd->bhs", Z, means))


def _step(O: Array, u: Array, P: Array, data: Data, part: int | None = None) -> Mixing:
    """One step; du from `part` random combinations of the answers that X leaves alone, or from all."""
    H, s, D = len(u), len(O) // len(u), P.shape[1]
    O, inverse = _evenly_noisy(O, H)
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
            du[k] = least_squares(slope[some].reshape(-1, D), r[some].reshape(-1))
            continue
        F = np.concatenate([(m[:, i] - m[:, k]) @ Z[i].T for i in others], axis=1)
        p = F.shape[1]
        Q, R = np.linalg.qr(F, mode="complete" if part is None else "reduced")
        free = Q[:, p:].T if part is None else _outside(Q, part)
        A = np.tensordot(free, slope, 1).reshape(-1, D)
        du[k] = least_squares(A, (free @ r).reshape(-1))
        x = solve_triangular(R[:p], Q[:, :p].T @ (r - slope @ du[k]))
        for position, i in enumerate(others):
            X[k, :, i] = x[position * s : (position + 1) * s].T
    n = len(O)
    turned = O @ (np.eye(n) + X.reshape(n, n))
    turned = np.hstack([np.linalg.qr(turned[:, h * s : (h + 1) * s])[0] for h in range(H)])
    return Mixing(turned, u + du, Z, np.inf, float(np.linalg.norm(du) / np.linalg.norm(u)))


def _evenly_noisy(O: Array, H: int) -> tuple[Array, Array]:
    """O with other bases of the same ranges, and its inverse, whose rows are orthonormal by heads.

    Where ranges nearly meet, O^-1 magnifies noise of the answers a thousandfold and more, in one direction of a head:
    in these bases it is the same in all of them, so that least squares weighs them as it should.
    """
    bases, rows = [], []
    for range_, row in zip(np.split(O, H, axis=1), np.split(np.linalg.inv(O), H), strict=True):
        Q, R = np.linalg.qr(row.T)
        bases.append(range_ @ R.T)
        rows.append(Q.T)
    return np.hstack(bases), np.vstack(rows)


def _outside(Q: Array, n: int) -> Array:
    """n orthonormal rows orthogonal to the columns of Q."""
    rows = np.random.default_rng(n).standard_normal((len(Q), n))
    return np.asarray(np.linalg.qr(rows - Q @ (Q.T @ rows))[0].T)


def _slope(Z: Array, alpha: Array, mean: Array, e: Array) -> Array:
    """Z_k C (B, s, D), C = sum_i alpha_i e_i e_i' - m m'."""
    Ze = (e @ Z.T).transpose(0, 2, 1) * alpha[:, None]
    return np.asarray(Ze @ e - np.einsum("bs,bd->bsd", mean @ Z.T, mean))
