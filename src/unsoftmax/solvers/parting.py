"""Heads parted by how their gradients change where every token moves by the same step.

A token x of a sequence with last token q has the gradient sum_h alpha_h (v_h + ((x - m_h).v_h) u_h) with u_h = W_h q
and m_h what head h attends to. For the token x + s of the same sequence alpha_h is exp(u_h.s) times as large. C has the
rows (alpha_h, alpha_h (x - m_h).v_h) of n tokens, B the rows v_h and u_h, J blocks exp(u_h.s) [[1, s.v_h], [0, 1]]:
then G = C B and G' = C J B, hence G' = G T, and T maps v_h to exp(u_h.s) (v_h + (s.v_h) u_h).

Theory: docs/theory/explanations.md, "Explanations", several heads.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import schur
from scipy.special import lambertw

from unsoftmax.probes.base import Array
from unsoftmax.solvers.singular import svd


@dataclass(frozen=True, eq=False)
class Moved:
    """The map T of one sequence in coordinates of its row space.

    basis    orthonormal rows (r, d) that span all v_h and W_h q
    inverse  (r, n): coordinates of a row times this are its coefficients on the n gradients G
    map      (r, r): coordinates c of a row become c @ map
    off      what of the moved gradients lies outside the rows' span, as a share of their size
    """

    basis: Array
    inverse: Array
    map: Array
    off: float


def moved(G: Array, G_moved: Array, rank: int) -> Moved:
    """T from gradients (n, d) of n tokens, and of the same tokens after the step; n >= rank."""
    left, sizes, right = svd(G, full_matrices=False)
    basis = right[:rank]
    inverse = (left[:, :rank] / sizes[:rank]).T
    inside = G_moved @ basis.T
    size = float(np.linalg.norm(G_moved))
    outside = float(np.linalg.norm(G_moved - inside @ basis))
    fitted = left[:, :rank] @ (left[:, :rank].T @ inside)
    off = max(outside, float(np.linalg.norm(inside - fitted))) / size
    return Moved(basis, inverse, inverse @ inside, off)


def values(seen: Moved, total: Array) -> Array | None:
    """v_h (H, d) as the parts of their sum in the invariant planes of T; None where eigenvalues are not in pairs."""
    H = len(seen.map) // 2
    eigenvalues = np.sort(np.linalg.eigvals(seen.map).real)
    pairs = eigenvalues.reshape(H, 2)
    edges = np.concatenate([[-np.inf], (pairs[:-1, 1] + pairs[1:, 0]) / 2, [np.inf]])
    if eigenvalues[0] <= 0 or (pairs[1:, 0] - pairs[:-1, 1] <= 0).any():
        return None
    coordinates = total @ seen.basis.T
    found = np.empty((H, seen.basis.shape[1]))
    for h in range(H):

        def chosen(re: float, _: float = 0.0, low: float = edges[h], high: float = edges[h + 1]) -> bool:
            return bool(low < re <= high)

        # Rows: the plane itself is invariant under the transpose, and its complement is dual to that of the map.
        _, plane, k = schur(seen.map.T, sort=chosen)
        _, dual, k_dual = schur(seen.map, sort=chosen)
        if k != 2 or k_dual != 2:
            return None
        P, D = plane[:, :2], dual[:, :2]
        found[h] = P @ np.linalg.solve(D.T @ P, D.T @ coordinates) @ seen.basis
    return found


def directions(seen: Moved, v: Array, step: Array, before: Array, after: Array, off: Array) -> tuple[Array, Array]:
    """W_h q (H, d) of heads with known v_h, and the error of each in norm (H,), inf where there is no solution.

    w = v_h T = exp(t) (v_h + (s.v_h) W_h q) with t = s.W_h q: along the step, exp(t) (1 + t) = s.w / s.v_h. `before`
    and `after` (n,) are the errors in norm of gradients, `off` (H,) of every v_h.
    """
    along = v @ step
    c = v @ seen.basis.T
    once = c @ seen.map
    twice = once @ seen.map
    w = once @ seen.basis
    with np.errstate(all="ignore"):
        ratio = (w @ step) / along
        both = np.stack([lambertw(np.e * ratio, k).real - 1 for k in (0, -1)])
        both = np.where(ratio >= -np.exp(-2), both, np.nan)
        # (T - exp t)^2 is 0 on the plane of a head: this tells the two solutions apart.
        off_by = [
            np.linalg.norm(twice - 2 * np.exp(t)[:, None] * once + np.exp(2 * t)[:, None] * c, axis=1) for t in both
        ]
        gaps = np.where(np.isfinite(off_by), off_by, np.inf)
        t = both[np.argmin(gaps, axis=0), np.arange(len(v))]
        u = (w * np.exp(-t)[:, None] - v) / along[:, None]
        shares = c @ seen.inverse
        error = np.linalg.norm(shares * after, axis=1)
        error += float(np.linalg.norm(seen.map, 2)) * (np.linalg.norm(shares * before, axis=1) + off)
        turn = np.linalg.norm(step) * np.linalg.norm(v + along[:, None] * u, axis=1) / np.abs(along * (2 + t))
        error = error * np.exp(-t) * (1 + turn) / np.abs(along)
    return u, np.where(np.isfinite(u).all(axis=1), error, np.inf)
