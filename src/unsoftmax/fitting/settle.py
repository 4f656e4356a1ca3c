"""The end of a fit: rows weighted by their noise, down to the floor, with unseen directions at 0."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from unsoftmax.fitting.constants import FITTING
from unsoftmax.fitting.directions import Directions, Seen, directions
from unsoftmax.fitting.heads import Heads, HeadsAt
from unsoftmax.fitting.noise import Noise, rounding
from unsoftmax.fitting.sampled import sampled
from unsoftmax.fitting.search import Found, Search, Watch
from unsoftmax.fitting.spans import Spans
from unsoftmax.probes.base import Array
from unsoftmax.solvers.gauss_newton import STEPS, Descent, descend

_DOWN = Descent(damping=1e-3, down=10.0, iterations=60, patience=4)
"""Near a minimum damping only slows down."""

_AT_ONCE = Descent(damping=1e-3, down=10.0, iterations=30, patience=1)
"""The same where a step is expensive: one that gains nothing is the last."""


@dataclass(frozen=True, eq=False)
class Weighted:
    """A problem with constant weights (rows,)."""

    problem: Heads
    weights: Array

    def at(self, x: Array) -> HeadsAt:
        """The linearisation with weighted rows."""
        return self.problem.at(x).weighted(self.weights)


def settled(search: Search, x: Array, deviations: Array, span: Spans, seed: int) -> tuple[Array, Seen]:
    """Unknowns at the floor of residuals over their deviations (rows,), and what the records say about them."""
    problem = search.problem
    x = descend(Weighted(problem, 1 / deviations), x, _AT_ONCE if search.large else _DOWN, steps=search.steps).x
    x = _balanced(problem, x)
    if problem.shape.unknowns > FITTING.most_directions:
        x = _kept(problem, x, _inside(problem, x, span), deviations)
        return x, sampled(problem, x, deviations, span, seed)
    x, shown = _newton(problem, x, deviations)
    if problem.shape.rank is None and shown.rank < problem.shape.freedom:
        # What no token varies is known exactly; singular directions that show little are turned into it a little.
        x, shown = _quiet(problem, (x, shown), _inside(problem, x, span), deviations)
        unseen = shown.unseen_steps()
        if unseen is not None and unseen.shape[1] > problem.shape.freedom - span.unknowns(problem.shape):
            x, shown = _quiet(problem, (x, shown), x - unseen @ (unseen.T @ x), deviations)
    return x, shown


def _quiet(problem: Heads, loud: tuple[Array, Directions], x: Array, deviations: Array) -> tuple[Array, Directions]:
    """The same at x, if the records do not tell the two apart once steps have undone the rounding of x."""
    there = _newton(problem, x, deviations)
    return there if _kept(problem, loud[0], there[0], deviations) is there[0] else loud


def _newton(problem: Heads, x: Array, deviations: Array) -> tuple[Array, Directions]:
    """The last steps, through singular values, as long as they gain.

    Normal equations hold the square of the condition: a direction that shows 10^8 times less than another (a token of
    hardly any weight in every record) is rounding to them, and a descent by them stops short along it.
    """
    cost, shown = _cost(problem, x, deviations), _directions(problem, x, deviations)
    for _ in range(STEPS):
        step = shown.step(problem.at(x).residual / deviations)
        trials = (_balanced(problem, x + step / 2.0**k) for k in range(FITTING.halvings))
        new, trial = next(((c, t) for t in trials if (c := _cost(problem, t, deviations)) < cost), (cost, x))
        if not new < cost:
            break
        gained, x, cost, shown = cost - new, trial, new, _directions(problem, trial, deviations)
        if gained < FITTING.least_gain:
            break
    return x, shown


def _directions(problem: Heads, x: Array, deviations: Array) -> Directions:
    return directions(problem.blocks, problem.shape, x, problem.at(x), deviations)


def _balanced(problem: Heads, x: Array) -> Array:
    W, factors, P = problem.shape.split(x)
    return x if factors is None else problem.shape.joined(W, P)


def _inside(problem: Heads, x: Array, span: Spans) -> Array:
    """W and P without what no token of the log varies."""
    W, _, P = problem.shape.split(x)
    keys, queries, values = (b @ b.T for b in (span.difference_basis, span.query_basis, span.token_basis))
    return problem.shape.joined(keys @ W @ queries, P @ values)


def _kept(problem: Heads, x: Array, quiet: Array, deviations: Array) -> Array:
    """The quieter unknowns, if the records do not tell them from x."""
    unchanged = _cost(problem, quiet, deviations) <= _cost(problem, x, deviations) + len(deviations)
    return quiet if unchanged else x


def _cost(problem: Heads, x: Array, deviations: Array) -> float:
    r = problem.at(x).residual / deviations
    return float(r @ r)


def confirmed(best: Found, noise: Noise, span: Spans, starts: int, seed: int, watch: Watch | None) -> Found:
    """The same, or where answers may be exact a later attempt that fits every record to rounding.

    Weights of 1e-9 and below hardly show in a residual that has arrived, and may be wrong then: of ids that one record
    in a thousand shows, attempts end beside them.
    """
    search, number = best.search, 0
    problem, kept, least = search.problem, best.x, np.inf
    if noise.source != "none" or problem.shape.unknowns > FITTING.most_directions:
        return best
    again = replace(best, search=replace(search, arrived=FITTING.nearly_arrived * search.arrived))
    while best.arrived and again.arrived and number < FITTING.most_settled:
        x, _ = settled(search, again.x, rounding(problem.blocks, problem.shape, again.x), span, seed)
        worst = float(np.abs(problem.at(x).residual / rounding(problem.blocks, problem.shape, x)).max())
        if worst < least:
            kept, least = again.x, worst
        if worst <= FITTING.roundings:
            break
        number, again.cost = number + 1, np.inf
        again.pull(starts, watch)
    return replace(best, x=kept)
