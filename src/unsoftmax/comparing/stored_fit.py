"""Stored arrays fitted to answers: what must change in some of them, all others as they are, to be answered so?

Gauss-Newton on the model itself, whatever its structure: derivatives are differences of its answers, which cost no
query. Unknowns are measured in the typical entry of their array; directions that no sequence shows stay as they are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from unsoftmax.comparing.constants_stored import STORED
from unsoftmax.comparing.references import Reference
from unsoftmax.comparing.scales import Sample
from unsoftmax.models.base import Array
from unsoftmax.solvers.gauss_newton import FEW_STEPS


@dataclass(frozen=True, eq=False)
class Fitted:
    """Changes by array, the norm that rounding alone would give each of them, and the residual in units of rounding."""

    changes: dict[str, Array]
    errors: dict[str, float]
    left: float
    before: float
    unseen: dict[str, Array]
    """Directions (k, *shape) of each array that no sequence shows; the change is the smallest that explains answers."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.changes)


class Fitting:
    """Answers of the target, and the derivatives of the reference by its arrays."""

    def __init__(self, reference: Reference, samples: list[Sample]) -> None:
        assert reference.rebuilt is not None
        self.reference, self.rebuilt = reference, reference.rebuilt
        self.samples = samples
        self.y = np.concatenate([y.ravel() for _, y, _ in samples])
        sd = np.concatenate([sd.ravel() for _, _, sd in samples])
        self.weight = 1 / np.maximum(sd, max(STORED.least_deviation * float(sd.max()), 1e-150))
        self._known: dict[str, Array] = {}

    def answers(self, weights: dict[str, Array]) -> Array:
        """(numbers,) of all sequences."""
        model = self.rebuilt(weights)
        return np.concatenate([np.asarray(model(X), dtype=np.float64).ravel() for X, _, _ in self.samples])

    def unit(self, name: str) -> float:
        """A typical entry of the array; 1 where it is zero."""
        a = self.reference.weights[name]
        return float(np.linalg.norm(a)) / math.sqrt(a.size) or 1.0

    def derivatives(self, name: str, weights: dict[str, Array] | None = None) -> Array:
        """(numbers, size of the array): by entries in their unit, in units of rounding; None: at the reference."""
        if weights is None and name in self._known:
            return self._known[name]
        at = self.reference.weights if weights is None else weights
        base, unit = self.answers(at), self.unit(name)
        found = np.empty((len(self.y), at[name].size))
        for i in range(found.shape[1]):
            moved = np.array(at[name], dtype=np.float64)
            moved.flat[i] += STORED.step * unit
            found[:, i] = (self.answers(at | {name: moved}) - base) / STORED.step
        found *= self.weight[:, None]
        if weights is None:
            self._known[name] = found
        return found

    def residual(self, weights: dict[str, Array]) -> Array:
        """(numbers,) in units of rounding."""
        return np.asarray((self.y - self.answers(weights)) * self.weight)

    def linear(self, names: tuple[str, ...]) -> float:
        """Part of the residual (as amplitude) that a change of these arrays leaves to first order."""
        r = self.residual(self.reference.weights)
        J = np.hstack([self.derivatives(name) for name in names])
        G = J.T @ J
        G.flat[:: len(G) + 1] += (STORED.seen**2) * float(np.trace(G)) + 1e-300
        return float(np.linalg.norm(r - J @ np.linalg.solve(G, J.T @ r)) / max(float(np.linalg.norm(r)), 1e-300))

    @property
    def gap(self) -> float:
        """Relative difference between the answers and the reference's."""
        truth = self.answers(self.reference.weights)
        return float(np.linalg.norm(self.y - truth) / max(float(np.linalg.norm(truth)), 1e-300))

    def fit(self, names: tuple[str, ...]) -> Fitted:
        """The change of these arrays that comes nearest to the answers, as far as steps from the reference lead."""
        shapes = [self.reference.weights[name].shape for name in names]
        ends = np.cumsum([math.prod(shape) for shape in shapes])
        weights = {k: np.asarray(a, dtype=np.float64) for k, a in self.reference.weights.items()}
        r = self.residual(weights)
        before = left = _rms(r)
        inverse, fresh = _Inverse(np.hstack([self.derivatives(name) for name in names])), True
        for _ in range(FEW_STEPS):
            step = np.split(inverse.of(r), ends[:-1])
            moved = {
                n: weights[n] + self.unit(n) * part.reshape(shape)
                for n, part, shape in zip(names, step, shapes, strict=True)
            }
            trial = self.residual(weights | moved)
            size = _rms(trial)
            if not (np.isfinite(size) and size < STORED.stuck * left):
                if fresh or left <= STORED.rounding:
                    break
                inverse, fresh = _Inverse(np.hstack([self.derivatives(name, weights) for name in names])), True
                continue
            fresh = False
            weights, r = weights | moved, trial
            if size > STORED.kept_derivatives * left and size > STORED.rounding:
                inverse, fresh = _Inverse(np.hstack([self.derivatives(name, weights) for name in names])), True
            left = size
        errors = np.split(inverse.errors(), ends[:-1])
        return Fitted(
            {n: weights[n] - self.reference.weights[n] for n in names},
            {n: self.unit(n) * float(np.linalg.norm(e)) for n, e in zip(names, errors, strict=True)},
            left,
            before,
            self._unseen(names, inverse),
        )

    def _unseen(self, names: tuple[str, ...], inverse: _Inverse) -> dict[str, Array]:
        """Of an array alone; of several together the directions of each are not told apart."""
        if len(names) > 1:
            return {}
        return {names[0]: inverse.blind.T.reshape(-1, *self.reference.weights[names[0]].shape)}


class _Inverse:
    """Least squares in the directions that are seen."""

    def __init__(self, J: Array) -> None:
        self.J = J
        squares, directions = np.linalg.eigh(J.T @ J)
        seen = squares > (STORED.seen**2) * max(float(squares[-1]), 1e-300)
        self.squares, self.directions, self.blind = squares[seen], directions[:, seen], directions[:, ~seen]

    def of(self, r: Array) -> Array:
        return np.asarray(self.directions @ ((self.directions.T @ (self.J.T @ r)) / self.squares))

    def errors(self) -> Array:
        """Standard deviations of the unknowns."""
        return np.asarray(np.sqrt((self.directions**2 / self.squares).sum(axis=1)))


def _rms(r: Array) -> float:
    return float(np.sqrt(np.mean(r**2)))
