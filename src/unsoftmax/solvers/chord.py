"""Gauss-Newton that keeps its normal equations while they serve (the chord method).

To form and to factor J'J is nearly all the work of a large fit, and near the solution it hardly changes: a step with an
older one and the gradient of today still gains digits. It is formed anew where a step gained less than one.

Theory: docs/theory/stacks.md, "A deep pre-norm stack", polish.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from unsoftmax.probes.base import Array

_DIGIT = 0.9
"""Share of the misfit that a step with kept equations must take away for them to be kept on: one digit."""

NEAR = 1e-6
"""Relative misfit below which steps converge quadratically: a small gain is then the end and not a detour."""

_STILL = 0.01
"""Relative change of the misfit by a step with kept equations that says that it has arrived: rounding changes less."""


class Curved(Protocol):
    """A least-squares problem in a vector of unknowns."""

    def cost(self, x: Array) -> float:
        """Norm of the misfit; infinite where it is no number."""

    def normal(self, x: Array) -> tuple[Array, Array]:
        """J'J, its lower triangle at least, and J'(data - model)."""

    def gradient(self, x: Array) -> Array:
        """J'(data - model) alone."""


@dataclass(frozen=True)
class Descent:
    """How to descend: damping of J'J with a unit diagonal, and where to stop.

    damping: at first; it is divided by `factor` after a step that lowers the misfit and multiplied by it after one that
    does not, `tries` times at one point, and is `least` where the misfit is below `near`: steps converge quadratically
    there. A run ends at a misfit of `enough`, where a step gains less than `arrived` of a misfit below `near` or
    `stalled` of a larger one, where none helps, or when J'J was formed `steps` times.
    """

    damping: float
    factor: float
    least: float
    tries: int
    steps: int
    near: float
    arrived: float
    stalled: float
    enough: float = 0.0

    def ended(self, gain: float, cost: float) -> bool:
        """Whether the step that led here was the last one; gain is the share of the misfit that it took away."""
        return cost <= self.enough or gain < (self.arrived if cost < self.near else self.stalled)


@dataclass(frozen=True, eq=False)
class Settled:
    """Where steps ended, the misfit there, and the last J'J that was formed (lower triangle) with the point where it
    was; None without a step."""

    x: Array
    cost: float
    formed: tuple[Array, Array] | None


def settle(problem: Curved, x: Array, how: Descent) -> Settled:
    """Descend from x (unknowns,)."""
    cost, damping, formed = problem.cost(x), how.damping, None
    for _ in range(how.steps if cost > how.enough else 0):
        G, b = problem.normal(x)
        formed = G, x
        near = cost < how.near
        damping = how.least if near else damping
        for _ in range(how.tries):
            solve = factored(G, damping)
            trial = x + solve(b)
            new = problem.cost(trial)
            # Near the solution, where such a step changed nothing, a shorter one, which is what damping makes of it,
            # would change less.
            if new < cost or (near and new < (1 + how.stalled) * cost):
                break
            damping *= how.factor
        else:
            break
        if new >= cost:
            break
        gain, x, cost = 1 - new / cost, trial, new
        damping = max(damping / how.factor, how.least)
        if how.ended(gain, cost):
            break
        if gain >= _DIGIT:
            gain, x, cost = _kept(problem, x, cost, solve)
            # With damping at work a direction of little information may still be on its way, and a step to a larger
            # misfit only says that the equations are too old.
            if near and abs(gain) < _STILL:
                break
    return Settled(x, cost, formed)


def _kept(problem: Curved, x: Array, cost: float, solve: Callable[[Array], Array]) -> tuple[float, Array, float]:
    """Further steps with the same equations, while each gains a digit: the last gain, the point and its misfit."""
    gain = 1.0
    while gain >= _DIGIT:
        trial = x + solve(problem.gradient(x))
        new = problem.cost(trial)
        gain = 1 - new / cost
        if new < cost:
            x, cost = trial, new
    return gain, x, cost


def factored(G: Array, damping: float) -> Callable[[Array], Array]:
    """b (unknowns,) -> solution of (G + damping diag G) x = b; G is positive but for rounding."""
    scale = np.sqrt(np.diag(G)) + 1e-300

    def damped() -> Array:
        A = G / scale[:, None]
        A /= scale
        A[np.diag_indices_from(A)] += damping
        return A

    try:
        # Its lower triangle is the upper one of its transpose, which LAPACK takes without a copy.
        factor = cho_factor(damped().T, overwrite_a=True, check_finite=False)
    except np.linalg.LinAlgError:
        A = damped()
        whole = np.tril(A) + np.tril(A, -1).T
        return lambda b: np.asarray(np.linalg.lstsq(whole, b / scale, rcond=damping)[0] / scale)
    return lambda b: np.asarray(cho_solve(factor, b / scale, check_finite=False) / scale)
