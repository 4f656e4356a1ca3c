"""Large arrays: a change by few entries or of low rank, from far fewer answers than an array has numbers.

Entries are picked one after the other by what they explain of the residual to first order (orthogonal matching pursuit;
Pati, Rezaiifar and Krishnaprasad 1993), factors U M found by Gauss-Newton from the largest singular vectors of the
gradient. Derivatives are those at the reference; residuals are of the changed model itself, so that both end exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from unsoftmax.comparing.constants_explaining import EXPLAINING
from unsoftmax.comparing.constants_stored import STORED
from unsoftmax.comparing.references import Reference
from unsoftmax.comparing.stored_fit import Fitted, Fitting
from unsoftmax.comparing.stored_words import as_matrix
from unsoftmax.models.base import Array
from unsoftmax.solvers.gauss_newton import STEPS

ALL = 5 * STORED.lean_numbers
"""Numbers of all such arrays at most."""


def lean_arrays(reference: Reference, above: int) -> list[str]:
    """Arrays of more than `above` numbers that are searched so; none if they are too many or too large."""
    sizes = {name: a.size for name, a in reference.weights.items() if a.ndim > 1 and a.size > above}
    few = sizes and max(sizes.values()) <= STORED.lean_numbers and sum(sizes.values()) <= ALL
    return sorted(sizes, key=lambda name: -sizes[name]) if few else []


def lean_sequences(reference: Reference, names: list[str], width: int) -> int:
    """Sequences that such a search asks for."""
    rows = max(sum(as_matrix(name, reference.weights[name]).shape) for name in names)
    return math.ceil(STORED.lean_over_unknowns * STORED.largest_rank * rows / max(STORED.telling_numbers * width, 1.0))


def lean_fit(fitting: Fitting, name: str) -> Fitted | None:
    """The change of one array by few entries, else by the lowest rank, that reaches the answers; None if none does."""
    search = _Search.of(fitting, name)
    return search.entries() or search.low_rank()


@dataclass
class _Search:
    """J (numbers, rows, columns): derivatives by the array as a matrix, in its unit; r (numbers,): the residual."""

    fitting: Fitting
    name: str
    J: Array
    index: Array
    """Place of every entry of the matrix in the array, flat."""
    r: Array

    @classmethod
    def of(cls, fitting: Fitting, name: str) -> _Search:
        stored = fitting.reference.weights[name]
        index = as_matrix(name, np.arange(stored.size).reshape(stored.shape))
        J = fitting.derivatives(name)
        in_order = bool((np.diff(index.ravel()) == 1).all())
        J = J if in_order else J[:, index.ravel()]
        r = fitting.residual(fitting.reference.weights)
        return cls(fitting, name, J.reshape(len(J), *index.shape), index, r)

    def left(self, change: Array) -> Array:
        """Residual (numbers,) of the model changed by `change` (rows, columns), in units of the array."""
        weights = self.fitting.reference.weights
        return self.fitting.residual(weights | {self.name: weights[self.name] + self._stored(change)})

    def _stored(self, change: Array) -> Array:
        stored = np.zeros(self.index.size)
        stored[self.index.ravel()] = change.ravel() * self.fitting.unit(self.name)
        return stored.reshape(self.fitting.reference.weights[self.name].shape)

    def _fitted(self, change: Array, r: Array, error: float) -> Fitted:
        name = self.name
        return Fitted({name: self._stored(change)}, {name: self.fitting.unit(name) * error}, _rms(r), _rms(self.r), {})

    def entries(self) -> Fitted | None:
        """Few entries, the most telling first."""
        flat = self.J.reshape(len(self.J), -1)
        sizes = np.maximum(np.linalg.norm(flat, axis=0), 1e-300)
        chosen: list[int] = []
        change, r = np.zeros(flat.shape[1]), self.r
        for _ in range(STORED.sparse_entries):
            chosen.append(int(np.argmax(np.abs(r @ flat) / sizes)))
            if len(set(chosen)) < len(chosen):
                return None
            A = flat[:, chosen]
            for _ in range(STEPS):
                moved = change.copy()
                moved[chosen] += np.linalg.lstsq(A, r, rcond=None)[0]
                rest = self.left(moved.reshape(self.index.shape))
                better = _rms(rest) < STORED.lean_stuck * _rms(r)
                if _rms(rest) < _rms(r):
                    change, r = moved, rest
                if not better or _rms(r) <= STORED.reached:
                    break
            if _rms(r) <= STORED.good:
                error = float(np.linalg.norm(np.linalg.pinv(A)))
                return self._fitted(change.reshape(self.index.shape), r, error)
        return None

    def low_rank(self) -> Fitted | None:
        """The lowest rank that reaches the answers, each from the gradient's largest singular vectors.

        From the factors of one rank less it would not do: alone these move far along what is hardly seen, to make up
        for the direction they lack, and steps do not lead back. A rank may be reached from the next one only.
        """
        left, sizes, right = np.linalg.svd(np.einsum("n,nij->ij", self.r, self.J))
        for k in range(1, min(STORED.largest_rank, min(self.index.shape) // 2) + 1):
            U, M = left[:, :k] * sizes[:k], right[:k]
            along = np.einsum("nij,ij->n", self.J, U @ M)
            U = U * (float(along @ self.r) / max(float(along @ along), 1e-300))
            U, M, r = self._polished(*_factors(U @ M, k))
            if _rms(r) <= STORED.good:
                U, M, r = self._fewest(U, M, r)
                return self._fitted(U @ M, r, self._error(U, M))
        return None

    def _fewest(self, U: Array, M: Array, r: Array) -> tuple[Array, Array, Array]:
        """Factors of the lowest rank that explain the answers as well: one more may be what no answer shows."""
        while U.shape[1] > 1:
            fewer = self._polished(*_factors(U @ M, U.shape[1] - 1))
            if _rms(fewer[2]) > max(EXPLAINING.as_well * _rms(r), 1.0):
                break
            U, M, r = fewer
        return U, M, r

    def _polished(self, U: Array, M: Array) -> tuple[Array, Array, Array]:
        """Factors and their residual, first along what is well seen, then along all that is seen."""
        r = self.left(U @ M)
        for cut in STORED.cuts:
            U, M, r = self._descended(U, M, r, cut)
        return U, M, r

    def _descended(self, U: Array, M: Array, r: Array, cut: float) -> tuple[Array, Array, Array]:
        k, rows = U.shape[1], len(U)
        slow = 0
        for _ in range(STEPS):
            if slow > 1 or _rms(r) <= STORED.reached:
                break
            D = self._by_factors(U, M)
            squares, directions = _seen(D, cut)
            step = directions @ ((directions.T @ (D.T @ r)) / squares)
            dU, dM = step[: rows * k].reshape(rows, k), step[rows * k :].reshape(k, -1)
            tried = ((U + t * dU, M + t * dM) for t in (1.0, 0.5, 0.25, 0.1))
            best = next(((a, b, rest) for a, b in tried if _rms(rest := self.left(a @ b)) < _rms(r)), None)
            if best is None:
                break
            slow = slow + 1 if _rms(best[2]) > STORED.slow_factors * _rms(r) else 0
            U, M, r = best
        return U, M, r

    def _by_factors(self, U: Array, M: Array) -> Array:
        """Derivatives (numbers, k (rows + columns)) by the entries of U, then of M."""
        n = len(self.J)
        by_U = np.einsum("nij,kj->nik", self.J, M).reshape(n, -1)
        return np.concatenate([by_U, np.einsum("nij,ik->nkj", self.J, U).reshape(n, -1)], axis=1)

    def _error(self, U: Array, M: Array) -> float:
        """The norm that rounding alone would give the product of factors."""
        squares, directions = _seen(self._by_factors(U, M), STORED.cuts[-1])
        parts = np.split(directions, [U.size])
        moved = np.einsum("ikp,kj->pij", parts[0].reshape(*U.shape, -1), M)
        moved += np.einsum("ik,kjp->pij", U, parts[1].reshape(*M.shape, -1))
        return math.sqrt(float(((moved**2).sum(axis=(1, 2)) / squares).sum()))


def _factors(change: Array, k: int) -> tuple[Array, Array]:
    """U (rows, k) and M (k, columns), of one size, of the nearest change of rank k."""
    left, sizes, right = np.linalg.svd(change)
    root = np.sqrt(sizes[:k])
    return left[:, :k] * root, root[:, None] * right[:k]


def _seen(D: Array, cut: float) -> tuple[Array, Array]:
    """Squared singular values of derivatives above `cut` of the largest, and their directions in columns."""
    squares, directions = np.linalg.eigh(D.T @ D)
    seen = squares > cut * squares[-1]
    return squares[seen], directions[:, seen]


def _rms(r: Array) -> float:
    return float(np.sqrt(np.mean(r**2)))
