"""Damped Gauss-Newton (Levenberg-Marquardt): residuals, Jacobian products, damping and preconditioner in one place.

A problem gives its linearisation at a point; the loop below asks it only for the residual, products with J and J',
and, for the solver of its choice, the normal matrix (few unknowns) or a preconditioner (many: no matrix is formed).
Damping follows Marquardt (1963): the diagonal of J'J, so that units of the unknowns do not matter.

Theory: docs/theory/reading.md, "Sums of learned parts", least squares.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, lstsq

from unsoftmax.probes.base import Array

LARGEST = 4500
"""Unknowns that are fitted together: their normal equations take 160 MB, and a step seconds."""

STEPS = 40
"""Steps of Gauss-Newton or Levenberg-Marquardt at most: convergence is quadratic near the solution, four to ten are
usual, and what still moves after forty is no solution."""

FEW_STEPS = 12
"""The same for a fit that begins right to a few digits: each step squares the error, so that three to five are usual;
factors of several heads, which lack at first what the others hide, took up to eight."""


_CONDITIONED = 1e-6
"""Smallest pivot of their factor, against the largest, at which one correction still gives all digits."""


class Linearised(Protocol):
    """A least-squares problem at one point: residual (rows,) and its Jacobian J (rows, unknowns) as products."""

    @property
    def residual(self) -> Array: ...

    def forward(self, step: Array) -> Array:
        """J step, (rows,)."""

    def adjoint(self, rows: Array) -> Array:
        """J' rows, (unknowns,)."""

    def gradient(self) -> Array:
        """J' residual in full precision; products may be in a shorter format."""

    def normal(self) -> Array:
        """J'J, (unknowns, unknowns)."""

    def preconditioner(self) -> tuple[Array, Callable[[Array, float], Array]]:
        """The diagonal that damping multiplies (unknowns,), and (b, damping) -> about (J'J + damping diagonal)^-1 b."""

    def weighted(self, weights: Array) -> Self:
        """The same with every row of residual and J multiplied by weights (rows,)."""


@dataclass(frozen=True, eq=False)
class Dense:
    """A linearisation that holds its Jacobian J (rows, unknowns)."""

    residual: Array
    J: Array

    def forward(self, step: Array) -> Array:
        return np.asarray(self.J @ step)

    def adjoint(self, rows: Array) -> Array:
        return np.asarray(self.J.T @ rows)

    def gradient(self) -> Array:
        return self.adjoint(self.residual)

    def normal(self) -> Array:
        return np.asarray(self.J.T @ self.J)

    def preconditioner(self) -> tuple[Array, Callable[[Array, float], Array]]:
        diagonal = (self.J**2).sum(axis=0) + 1e-300
        return diagonal, lambda b, damping: b / (diagonal * (1 + damping))

    def weighted(self, weights: Array) -> Dense:
        return Dense(self.residual * weights, self.J * weights[:, None])


class Problem(Protocol):
    """Anything that can be linearised at a vector of unknowns."""

    def at(self, x: Array) -> Linearised: ...


Steps = Callable[[Linearised], Callable[[float], Array | None]]
"""A solver of the damped equations: linearisation -> (damping -> step, or None if the matrix is not positive)."""


@dataclass(frozen=True)
class Descent:
    """How to descend: damping and its changes, patience, and where to stop.

    `damping` is divided by `down` after a step that lowers the cost and multiplied by `up` after one that does not.
    A run ends when the cost is at most `arrived`, when `patience` steps together leave more than `gain` of it, after
    `iterations` steps, or when no damping helps. The usual gain is a twentieth: local minima that starts fall into
    approach their floor by far less in a dozen steps, while paths that arrive gain more in most.
    """

    damping: float = 10.0
    down: float = 2.0
    up: float = 4.0
    iterations: int = 80
    patience: int = 12
    tries: int = 10
    arrived: float = 0.0
    gain: float = 0.95


@dataclass(frozen=True, eq=False)
class Descended:
    """Where a descent ended: the best point, its squared residual, steps taken."""

    x: Array
    cost: float
    steps: int


def descend(
    problem: Problem,
    x: Array,
    how: Descent,
    *,
    steps: Steps | None = None,
    weigh: Callable[[Linearised], Array] | None = None,
) -> Descended:
    """Minimise the squared residual from x (unknowns,). `weigh` gives row weights afresh at every point (rows,)."""
    solve = cholesky if steps is None else steps
    here, damping = problem.at(x), how.damping
    best = Descended(x, _square(here.residual), 0)
    mark, idle = best.cost, 0
    for taken in range(1, how.iterations + 1 if best.cost < np.inf else 1):
        weights = None if weigh is None else weigh(here)
        shown = here if weights is None else here.weighted(weights)
        found = _step(problem, x, shown, weights, solve(shown), damping, how)
        if found is None:
            break
        x, here, damping = found
        damping = max(damping / how.down, 1e-15)
        cost = _square(here.residual)
        if cost < best.cost:
            best = Descended(x, cost, taken)
        mark, idle = (best.cost, 0) if best.cost < how.gain * mark else (mark, idle + 1)
        if best.cost <= how.arrived or idle >= how.patience:
            break
    return best


def _step(
    problem: Problem,
    x: Array,
    shown: Linearised,
    weights: Array | None,
    step_of: Callable[[float], Array | None],
    damping: float,
    how: Descent,
) -> tuple[Array, Linearised, float] | None:
    """The first point of lower cost as damping grows, its linearisation and the damping; None if there is none."""
    cost = _square(shown.residual)
    for _ in range(how.tries):
        step = step_of(damping)
        if step is not None and np.isfinite(step).all():
            there = problem.at(x + step)
            new = _square(there.residual if weights is None else there.residual * weights)
            if new < cost:
                return x + step, there, damping
        damping = max(damping, 1e-12) * how.up
    return None


def least_squares(A: Array, b: Array) -> Array:
    """By the normal equations, corrected once, where they keep half the digits; else the shortest solution. Steps are
    corrected by the next ones: only their direction must be right."""
    try:
        factor = cho_factor(A.T @ A)
        diagonal = np.abs(np.diag(factor[0]))
        if diagonal.min() >= _CONDITIONED * diagonal.max():
            x = cho_solve(factor, A.T @ b)
            return np.asarray(x + cho_solve(factor, A.T @ (b - A @ x)))
    except LinAlgError:
        pass
    return np.asarray(lstsq(A, b, cond=1e-13, lapack_driver="gelsy")[0])


def cholesky(linear: Linearised) -> Callable[[float], Array | None]:
    """Steps by the normal equations: one matrix per point, one factorisation per damping."""
    A, b = linear.normal(), -linear.gradient()
    diagonal = np.diag(A).copy()
    # A column that no row sees would leave the matrix singular at any damping.
    diagonal = np.maximum(diagonal, 1e-10 * diagonal.max(initial=0.0) + 1e-300)

    def step(damping: float) -> Array | None:
        damped = A.copy()
        damped[np.diag_indices(len(A))] += damping * diagonal
        try:
            factor = cho_factor(damped, overwrite_a=True, check_finite=False)
        except LinAlgError:
            return None
        return np.asarray(cho_solve(factor, b, check_finite=False))

    return step


def conjugate(most: int = 60, least: float = 1e-5, largest: float = 0.1) -> Steps:
    """Steps by preconditioned conjugate gradients, at most `most` products each: no matrix is formed.

    The relative accuracy of a step is the share of the first residual that is left, between `least` and `largest`:
    far from the minimum the linear model is not worth more.
    """
    first: list[float] = []

    def prepare(linear: Linearised) -> Callable[[float], Array | None]:
        cost = _square(linear.residual)
        first.append(cost)
        accuracy = max(least, min(largest, float(np.sqrt(cost / max(first[0], 1e-300)))))
        diagonal, precondition = linear.preconditioner()
        b = -linear.gradient()

        def step(damping: float) -> Array | None:
            def product(p: Array) -> Array:
                return np.asarray(linear.adjoint(linear.forward(p)) + damping * diagonal * p)

            return conjugate_gradients(product, b, lambda r: precondition(r, damping), most, accuracy)[0]

        return step

    return prepare


def conjugate_gradients(
    product: Callable[[Array], Array], b: Array, precondition: Callable[[Array], Array], most: int, accuracy: float
) -> tuple[Array, bool]:
    """x with A x = b for a positive A given as a product, and whether the residual fell to this share of b."""
    x, r = np.zeros_like(b), b.copy()
    p = z = precondition(r)
    size = first = float(r @ z)
    for _ in range(most):
        Ap = product(p)
        curvature = float(p @ Ap)
        if not curvature > 0:
            break
        length = size / curvature
        x, r = x + length * p, r - length * Ap
        z = precondition(r)
        new = float(r @ z)
        if new <= accuracy**2 * first:
            return x, True
        p, size = z + (new / size) * p, new
    return x, first == 0


def _square(r: Array) -> float:
    cost = float(r @ r)
    return cost if np.isfinite(cost) else np.inf
