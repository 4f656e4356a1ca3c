"""Large arrays: a change by few entries or of low rank, from far fewer answers than an array has numbers.

Entries are picked one after the other by what they explain of the residual to first order (orthogonal matching pursuit;
Pati, Rezaiifar and Krishnaprasad 1993), factors U M found by Gauss-Newton from the largest singular vectors of the
gradient. Derivatives are those at the reference; residuals are of the changed model itself, so that both end exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from unsoftmax.comparing.references import Reference
from unsoftmax.comparing.stored_fit import Fitted, Fitting
from unsoftmax.comparing.stored_words import ENTRIES, as_matrix
from unsoftmax.models.base import Array
from unsoftmax.solvers.gauss_newton import STEPS

NUMBERS = 4096
"""Numbers of an array at most: its derivatives take as many evaluations of the reference, some ten seconds."""
ALL = 5 * NUMBERS
"""Numbers of all such arrays at most."""
RANK = 4
"""Largest rank that is tried."""

_MORE = 4.0
"""Numbers asked for over the unknowns of the largest rank: factors are found from three times as many, not from two."""
_TELLING = 0.6
"""Part of the numbers of a vector answer that differ from each other's: weights of all heads are fewer than outputs."""

_STUCK = 0.7
"""Part of the residual that two steps must not leave: then these unknowns do not explain the answers."""
_REACHED = 0.5
"""Standard deviations at which nothing is left to fit: below what rounding leaves, so that steps end where they stop
helping. At 3 a right change still left 1,000 on fresh sequences."""
GOOD = 30.0
"""Standard deviations at which a fit is handed on to verification; more unknowns are not tried then."""
_CUT = 1e-9
"""Squared singular values over the largest below which a direction is the freedom of factors: U G, G^-1 M."""


def lean_arrays(reference: Reference, above: int) -> list[str]:
    """Arrays of more than `above` numbers that are searched so; none if they are too many or too large."""
    sizes = {name: a.size for name, a in reference.weights.items() if a.ndim > 1 and a.size > above}
    few = sizes and max(sizes.values()) <= NUMBERS and sum(sizes.values()) <= ALL
    return sorted(sizes, key=lambda name: -sizes[name]) if few else []


def lean_sequences(reference: Reference, names: list[str], width: int) -> int:
    """Sequences that such a search asks for."""
    rows = max(sum(as_matrix(name, reference.weights[name]).shape) for name in names)
    return math.ceil(_MORE * RANK * rows / max(_TELLING * width, 1.0))


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
        for _ in range(ENTRIES):
            chosen.append(int(np.argmax(np.abs(r @ flat) / sizes)))
            if len(set(chosen)) < len(chosen):
                return None
            A = flat[:, chosen]
            for _ in range(STEPS):
                moved = change.copy()
                moved[chosen] += np.linalg.lstsq(A, r, rcond=None)[0]
                rest = self.left(moved.reshape(self.index.shape))
                better = _rms(rest) < _STUCK * _rms(r)
                if _rms(rest) < _rms(r):
                    change, r = moved, rest
                if not better or _rms(r) <= _REACHED:
                    break
            if _rms(r) <= GOOD:
                error = float(np.linalg.norm(np.linalg.pinv(A)))
                return self._fitted(change.reshape(self.index.shape), r, error)
        return None

    def low_rank(self) -> Fitted | None:
        """The lowest rank that reaches the answers, each from the one before and what it leaves."""
        rows, columns = self.index.shape
        U, M, r = np.zeros((rows, 0)), np.zeros((0, columns)), self.r
        for _ in range(min(RANK, min(rows, columns) // 2)):
            left, _, right = np.linalg.svd(np.einsum("n,nij->ij", r, self.J))
            along = np.einsum("nij,i,j->n", self.J, left[:, 0], right[0])
            step = float(along @ r) / max(float(along @ along), 1e-300)
            size = math.sqrt(abs(step))
            U = np.column_stack([U, size * left[:, 0]])
            M = np.vstack([M, math.copysign(size, step) * right[:1]])
            U, M, r, error = self._polished(U, M)
            if _rms(r) <= GOOD:
                return self._fitted(U @ M, r, error)
        return None

    def _polished(self, U: Array, M: Array) -> tuple[Array, Array, Array, float]:
        """Factors, their residual, and the norm that rounding alone would give their product."""
        k, rows = U.shape[1], len(U)
        r = self.left(U @ M)
        slow = 0
        for _ in range(STEPS):
            D = np.concatenate(
                [np.einsum("nij,kj->nik", self.J, M).reshape(len(r), -1),
                 np.einsum("nij,ik->nkj", self.J, U).reshape(len(r), -1)], axis=1)  # fmt: skip
            squares, directions = np.linalg.eigh(D.T @ D)
            seen = squares > _CUT * squares[-1]
            squares, directions = squares[seen], directions[:, seen]
            step = directions @ ((directions.T @ (D.T @ r)) / squares)
            dU, dM = step[: rows * k].reshape(rows, k), step[rows * k :].reshape(k, -1)
            tried = ((U + t * dU, M + t * dM) for t in (1.0, 0.5, 0.25, 0.1))
            best = next(((a, b, rest) for a, b in tried if _rms(rest := self.left(a @ b)) < _rms(r)), None)
            if best is None:
                break
            slow = slow + 1 if _rms(best[2]) > _STUCK * _rms(r) else 0
            U, M, r = best
            if slow > 1 or _rms(r) <= _REACHED:
                break
        parts = np.split(directions, [rows * k])
        moved = np.einsum("ikp,kj->pij", parts[0].reshape(rows, k, -1), M)
        moved += np.einsum("ik,kjp->pij", U, parts[1].reshape(k, M.shape[1], -1))
        return U, M, r, math.sqrt(float(((moved**2).sum(axis=(1, 2)) / squares).sum()))


def _rms(r: Array) -> float:
    return float(np.sqrt(np.mean(r**2)))
