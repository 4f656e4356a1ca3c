"""Split a sum of maps with known ranges: sum_h O_h Z_h = M, also where the ranges nearly depend on each other.

Theory: docs/theory/attention-layer.md, "A real layer", ranges.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

from unsoftmax.errors import NotIdentifiable
from unsoftmax.probes.base import Array
from unsoftmax.solvers.singular import svd

_WEAK = 3e-3
"""Singular value, over the largest, below which it is a near dependence of the ranges and solved for apart: beyond it
the plain solve loses two and a half digits at most."""

_MOST_WEAK = 4
"""Near dependences that are solved for apart; more than a few are not chance but heads that share a range."""


_SPARE_MOVES = 8
"""Spare moves where there are too few, as a part of the unknowns: a square random system has a condition like d, one
with an eighth more a condition of about 30."""


@dataclass(frozen=True, eq=False)
class Split:
    """Z_h (s_h, d); how much of M lies outside all ranges, relative to M; by what errors of O and M are multiplied."""

    Z: list[Array]
    missing: float
    gain: float


def split_rows(rows: Array, bases: list[Array]) -> list[Array]:
    """Cut stacked coordinates into the heads' parts."""
    return np.split(rows, np.cumsum([o.shape[1] for o in bases])[:-1])


def split_values(O: list[Array], M: Array, moves: list[Array], responses: list[Array]) -> Split:
    """Z_h from O_h (outputs, s_h) and M (outputs, d).

    Combinations of the bases that nearly cancel leave Z unknown along as many directions; the responses
    O_h Z_h a (outputs, n) to moves a of one head at a time, rows of moves[h] (n, d), determine it there.
    """
    basis = np.hstack(O)
    if basis.shape[1] > basis.shape[0]:
        raise NotIdentifiable(
            f"the heads' ranges have {basis.shape[1]} dimensions in all and the answers {basis.shape[0]}; the sum of "
            "the value maps does not determine them."
        )
    inverse, N, gain = _inverted(basis)
    Z = inverse(M)
    if len(N):
        C, weak_gain = _along_weak(N, O, Z, moves, responses)
        Z, gain = Z + N.T @ C, max(gain, weak_gain)
    missing = float(np.linalg.norm(basis @ Z - M)) / max(float(np.linalg.norm(M)), 1e-300)
    return Split(split_rows(Z, O), missing, gain)


def independent(O: list[Array], most: int = _MOST_WEAK) -> bool:
    """Whether the ranges O_h (outputs, s_h) fit side by side, but for `most` near dependences."""
    basis = np.hstack(O)
    sizes = np.linalg.svd(basis, compute_uv=False)
    return basis.shape[1] <= basis.shape[0] and int((sizes < _WEAK * sizes[0]).sum()) <= most


def lacking(O: list[Array], moves: list[Array]) -> tuple[int, int]:
    """Which head's moves tell most of the combinations that nearly cancel, and how many more of them it takes.

    0 where the moves (n, d) of all heads suffice: each gives as many equations as its head takes part in combinations.
    """
    _, N, _ = _inverted(np.hstack(O))
    k, d = len(N), moves[0].shape[1]
    if k == 0:
        return 0, 0
    parts = split_rows(N.T, O)
    seen = [min(n.shape) for n in parts]
    short = k * d - sum(r * len(a) for r, a in zip(seen, moves, strict=True))
    if short <= 0:
        return 0, 0
    # The weakest of the k combinations inside a head; a head of smaller rank does not see them all.
    told = [float(np.linalg.svd(n, compute_uv=False)[-1]) * (r == k) for n, r in zip(parts, seen, strict=True)]
    head = int(np.argmax(told))
    return head, -(-short // seen[head]) + d // _SPARE_MOVES


def _inverted(basis: Array) -> tuple[Callable[[Array], Array], Array, float]:
    """Product with the pseudo-inverse of the stacked bases but for combinations N (k, sum s) that nearly cancel, these,
    and by what it multiplies errors."""
    if basis.shape[1] == 0:
        raise NotIdentifiable("no head moves the answers: nothing that attention writes shows above rounding.")
    U, sizes, Vt = svd(basis, full_matrices=False)
    strong = len(sizes) - min(int((sizes < _WEAK * sizes[0]).sum()), _MOST_WEAK)
    gain = float(sizes[0] / max(sizes[strong - 1], 1e-300))
    if gain > 1e12:
        raise NotIdentifiable(
            f"more than {_MOST_WEAK} combinations of the heads' ranges cancel: heads write into each other's ranges, "
            "and what they write together does not tell their value maps."
        )
    left, right = Vt[:strong].T / sizes[:strong], U[:, :strong].T
    return lambda M: np.asarray(left @ (right @ M)), Vt[strong:], gain


def _along_weak(N: Array, O: list[Array], Z: Array, moves: list[Array], responses: list[Array]) -> tuple[Array, float]:
    """C (k, d) such that (Z_h + N_h'C) a matches the responses' coordinates O_h'R, N (k, sum s); its conditioning."""
    rows, values = [], []
    parts = zip(split_rows(N.T, O), split_rows(Z, O), O, moves, responses, strict=True)
    for n, z, o, a, R in parts:
        # The k directions n (s, k) inside this head, compressed to k equations per move.
        Q, T = np.linalg.qr(n)
        left = Q.T @ (o.T @ R - z @ a.T)
        rows.append(np.einsum("ij,nd->injd", T, a).reshape(len(T) * len(a), -1))
        values.append(left.reshape(-1))
    Q, R = np.linalg.qr(np.vstack(rows))
    solution = solve_triangular(R, Q.T @ np.concatenate(values))
    gain = np.linalg.norm(R, 2) * np.linalg.norm(solve_triangular(R, np.eye(len(R))), 2)
    return np.asarray(solution.reshape(len(N), -1)), float(gain)


def split_with_identity(
    O: list[Array], S: Array, moves: list[Array], responses: list[Array]
) -> tuple[list[Array], float, float, float]:
    """Z_h, c, kappa, conditioning: sum_h O_h Z_h = S - c Pi (Pi: off the mean), O_h Z_h a = kappa times the responses.

    S (d, d), the bases and the responses are off the mean; S and the responses have units of their own. The bases
    span at most d - 1 dimensions, so some combinations cancel: these are the weak ones.
    """
    d = len(S)
    inverse, N, gain = _inverted(np.hstack(O))
    ZS, ZI = inverse(S), inverse(np.eye(d) - 1 / d)
    # c and kappa from the components of the moves' responses that no weak combination touches.
    rows, values = [], []
    parts = zip(split_rows(N.T, O), split_rows(ZS, O), split_rows(ZI, O), O, moves, responses, strict=True)
    for n, zs, zi, o, a, R in parts:
        free = _complement(n)
        rows.append(np.stack([(free.T @ (zi @ a.T)).ravel(), (free.T @ (o.T @ R)).ravel()], axis=1))
        values.append((free.T @ (zs @ a.T)).ravel())
    M = np.vstack(rows)
    scale = np.linalg.norm(M, axis=0)
    c, kappa = np.linalg.lstsq(M / scale, np.concatenate(values), rcond=None)[0] / scale
    Z = ZS - c * ZI
    if len(N):
        C, weak_gain = _along_weak(N, O, Z, moves, [kappa * R for R in responses])
        Z, gain = Z + N.T @ C, max(gain, weak_gain)
    return split_rows(Z, O), float(c), float(kappa), gain


def _complement(n: Array) -> Array:
    """Orthonormal basis (s, s - k) of what is orthogonal to the columns of n (s, k)."""
    Q, _ = np.linalg.qr(n, mode="complete")
    return np.asarray(Q[:, n.shape[1] :])
