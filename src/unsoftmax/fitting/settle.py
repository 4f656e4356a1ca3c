"""The end of a fit: rows weighted by their noise, down to the floor, with unseen directions at 0."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.fitting.directions import Directions, directions
from unsoftmax.fitting.heads import Heads, HeadsAt
from unsoftmax.probes.base import Array
from unsoftmax.solvers.gauss_newton import Descent, Steps, descend

_DOWN = Descent(damping=1e-3, down=10.0, iterations=60, patience=4)
"""Near a minimum damping only slows down."""

_NEWTON = 3
"""Undamped steps through singular values at the end: normal equations alone leave the squared condition in the last
digits; convergence is quadratic, so that two do and the third shows it."""

VISIBLE = 1.0
"""A direction whose error exceeds one unit of the parameters does not show in the answers at all."""


@dataclass(frozen=True, eq=False)
class Weighted:
    """A problem with constant weights (rows,)."""

    problem: Heads
    weights: Array

    def at(self, x: Array) -> HeadsAt:
        """The linearisation with weighted rows."""
        return self.problem.at(x).weighted(self.weights)


def to_the_floor(problem: Heads, x: Array, deviations: Array, steps: Steps) -> Array:
    """Descend on residuals over their deviations (n m,) until nothing is gained."""
    return descend(Weighted(problem, 1 / deviations), x, _DOWN, steps=steps).x


def settled(problem: Heads, x: Array, deviations: Array) -> tuple[Array, Directions, Array]:
    """Unknowns after the last Newton steps, the directions there, and their left singular vectors (n m, k)."""
    shape, blocks = problem.shape, problem.blocks
    x = _balanced(problem, x)
    cost = _cost(problem, x, deviations)
    for _ in range(_NEWTON):
        at = problem.at(x)
        shown, left = directions(blocks, shape, x, at, deviations)
        trial = _balanced(problem, x + shown.step(at.residual / deviations, left, VISIBLE))
        new = _cost(problem, trial, deviations)
        if not new < cost:
            break
        x, cost = trial, new
    shown, left = directions(blocks, shape, x, problem.at(x), deviations)
    quiet = _without(problem, x, shown)
    if quiet is not None and _cost(problem, quiet, deviations) <= cost + len(deviations):
        x = quiet
        shown, left = directions(blocks, shape, x, problem.at(x), deviations)
    return x, shown, left


def _balanced(problem: Heads, x: Array) -> Array:
    W, factors, P = problem.shape.split(x)
    return x if factors is None else problem.shape.joined(W, P)


def _cost(problem: Heads, x: Array, deviations: Array) -> float:
    r = problem.at(x).residual / deviations
    return float(r @ r)


def _without(problem: Heads, x: Array, shown: Directions) -> Array | None:
    """x without its part along directions that do not show; None where there is none, or W is factored and curved."""
    unseen = shown.unseen(VISIBLE)
    if not unseen.any() or problem.shape.rank is not None:
        return None
    B = np.linalg.qr(shown.T @ shown.V[unseen].T)[0]
    return np.asarray(x - B @ (B.T @ x))
