"""Rotary frequencies from scores read at two distances: eigenvalues of the operator that one step of distance is.

Y0 = A Xi and Y1 = A R Xi with unknown A and Xi and R = blocks [[c, s], [-s, c]](theta_k). In coordinates of the column
space, X1 X0^+ is similar to R: eigenvalues e^(+-i theta), eigenvectors A up to one complex number per pair (any
invertible map among pairs that do not turn). Of an odd number of coordinates the last one does not turn.

Theory: docs/theory/attention-layer.md, "Layers of language models", turns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.probes.base import Array
from unsoftmax.solvers.singular import svd


@dataclass(frozen=True, eq=False)
class Turns:
    """frequencies (r // 2,) falling, unrotated pairs last as 0; A (rows, r); off_circle: worst | |eigenvalue| - 1 |.

    rise: by how much an error of every entry rises to eigenvalues at most (Bauer and Fike 1960)."""

    frequencies: Array
    A: Array
    off_circle: float
    rise: float


def rotation(theta: Array, distance: float, size: int) -> Array:
    """R^distance (size, size): blocks [[c, s], [-s, c]] of theta (size // 2,) times the distance."""
    R = np.eye(size)
    c, s, i = np.cos(theta * distance), np.sin(theta * distance), np.arange(len(theta)) * 2
    R[i, i], R[i, i + 1], R[i + 1, i], R[i + 1, i + 1] = c, s, -s, c
    return R


def shift_operator(Y0: Array, Y1: Array, rank: int, still: float) -> Turns:
    """Y0, Y1 (rows, columns); eigenvalues nearer to 1 than `still` belong to pairs that do not turn."""
    U = svd(np.hstack([Y0, Y1]), full_matrices=False)[0][:, :rank]
    X0, X1 = U.T @ Y0, U.T @ Y1
    inverse = np.linalg.pinv(X0)
    T = X1 @ inverse
    theta, basis, values = _canonical(T, still)
    A, Xi = U @ basis, np.linalg.solve(basis, X0)
    rise = float(np.linalg.norm(inverse, 2) * np.linalg.cond(np.linalg.eig(T)[1]))
    return Turns(theta, A * pair_sizes(Xi) / np.sqrt(Xi.shape[1]), float(np.abs(np.abs(values) - 1).max()), rise)


def pair_sizes(rows: Array) -> Array:
    """Root mean square (r,) of the norms of every row and its partner, for rows (r, n); a last one without is alone."""
    squares = np.linalg.norm(rows, axis=1) ** 2
    even = len(squares) // 2 * 2
    return np.asarray(
        np.sqrt(np.concatenate([np.repeat(squares[:even].reshape(-1, 2).mean(axis=1), 2), squares[even:]]))
    )


def _canonical(T: Array, still: float) -> tuple[Array, Array, Array]:
    """theta (r // 2,), basis with T basis = basis R(theta), and the eigenvalues."""
    values, vectors = np.linalg.eig(T)
    order = np.argsort(-np.abs(np.angle(values)), kind="stable")
    odd = len(values) % 2
    unrotated = max((int((np.abs(values - 1) < still).sum()) - odd) // 2, 0) * 2 + odd
    turning = [i for i in order if values[i].imag > 0][: (len(values) - unrotated) // 2]
    theta = [float(np.angle(values[i])) for i in turning]
    basis = [part for i in turning for part in (vectors[:, i].real, vectors[:, i].imag)]
    if unrotated:
        basis += list(svd(T - np.eye(len(T)))[2][-unrotated:])
    missing = len(values) - len(basis)
    if missing > 0:  # pairs that noise made real
        full = np.linalg.qr(np.column_stack([np.array(basis).reshape(-1, len(values)).T, np.eye(len(values))]))[0]
        basis += list(full[:, len(basis) : len(values)].T)
    theta += [0.0] * (len(values) // 2 - len(theta))
    return np.array(theta), np.array(basis).T, values


_BASES = (1e4, 5e5, 1e6, 1e5, 1.5e5, 2.5e5, 1e3, 1e7)
"""Bases of rotary ladders that models are served with, the commonest first."""


def on_ladder(theta: Array, tolerance: float) -> Array:
    """The usual ladder base^(-j/n) if one fits within `tolerance`, else the frequencies as they are.

    Answers show slow frequencies to an absolute error only; a ladder gives them to all digits.
    """
    n, best, found = len(theta), np.inf, theta
    for share in (1.0, 0.5, 0.25):
        k = int(n * share)
        if k < 1:
            continue
        bases = [*_BASES, float(theta[1] ** -float(k))] if k > 1 and theta[1] > 0 else list(_BASES)
        for base in bases:
            ladder = np.concatenate([base ** (-np.arange(k) / k), np.zeros(n - k)])
            gap = float(np.abs(ladder - theta).max())
            if gap < best and not (best < tolerance and gap > 0.01 * best):
                best, found = gap, ladder
    return found if best < tolerance else theta
