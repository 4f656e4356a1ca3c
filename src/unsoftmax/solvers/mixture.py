"""Split a sum of maps with known ranges: sum_h O_h Z_h = M, also where the ranges nearly depend on each other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.errors import NotIdentifiable
from unsoftmax.probes.base import Array

_WEAK = 3e-3
_MOST_WEAK = 16


@dataclass(frozen=True, eq=False)
class Split:
    """Z_h (s_h, d); how much of M lies outside all ranges, relative to M; by what errors of O and M are multiplied."""

    Z: list[Array]
    missing: float
    gain: float


def split_rows(rows: Array, bases: list[Array]) -> list[Array]:
    """Cut stacked coordinates into the heads' parts."""
    return np.split(rows, np.cumsum([o.shape[1] for o in bases])[:-1])


def split_values(O: list[Array], M: Array, moves: list[Array], responses: list[Array], noise: float) -> Split:
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
    U, sizes, Vt = np.linalg.svd(basis, full_matrices=False)
    weak = int((sizes < _WEAK * sizes[0]).sum())
    strong = len(sizes) - weak
    Z = (Vt[:strong].T / sizes[:strong]) @ (U[:, :strong].T @ M)
    if weak:
        if weak > _MOST_WEAK:
            raise NotIdentifiable(
                f"{weak} combinations of the heads' ranges cancel: heads write into each other's ranges. Their value "
                'maps cannot be read off the sum; use preset="robust", which measures them one by one.'
            )
        Z = Z + Vt[strong:].T @ _along_weak(Vt[strong:], O, Z, moves, responses)
    missing = float(np.linalg.norm(basis @ Z - M)) / max(float(np.linalg.norm(M)), 1e-300)
    return Split(split_rows(Z, O), missing, float(sizes[0] / sizes[strong - 1]))


def _along_weak(N: Array, O: list[Array], Z: Array, moves: list[Array], responses: list[Array]) -> Array:
    """C (k, d) such that (Z_h + N_h'C) a matches the responses' coordinates O_h'R, N (k, sum s)."""
    rows, values = [], []
    parts = zip(split_rows(N.T, O), split_rows(Z, O), O, moves, responses, strict=True)
    for n, z, o, a, R in parts:
        # The k directions n (s, k) inside this head, compressed to k equations per move.
        Q, T = np.linalg.qr(n)
        left = Q.T @ (o.T @ R - z @ a.T)
        rows.append(np.einsum("ij,nd->injd", T, a).reshape(len(T) * len(a), -1))
        values.append(left.reshape(-1))
    solution = np.linalg.lstsq(np.vstack(rows), np.concatenate(values), rcond=None)[0]
    return np.asarray(solution.reshape(len(N), -1))
