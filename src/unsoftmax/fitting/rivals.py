"""Another W that explains the records as well: descents from scores of another size, after a fit within noise.

Error bars speak of the surroundings of one minimum. Where few records hold a hot head, or noise is large beside what
they show, there is another. With two W the truth may be either: errors reach both, and what one of them leaves open is
not determined. Numbers that alone show a direction hold nothing: these descents run without them.

How much worse may the true one fit? Answers of both are apart by a deviations in all, and noise makes the true one the
worse by t, in squared deviations, where along that line it is more than (t + a^2) / 2a, at least sqrt(t): with t the
square of the stated bars, as seldom as one parameter is outside its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import linear_sum_assignment

from unsoftmax.fitting.constants import FITTING
from unsoftmax.fitting.directions import Directions, Seen, Spread, bent, bounded, units_of
from unsoftmax.fitting.heads import Heads
from unsoftmax.fitting.search import FAST, Search
from unsoftmax.fitting.settle import Weighted, settled
from unsoftmax.fitting.shape import Shape, embedded
from unsoftmax.fitting.spans import Spans
from unsoftmax.fitting.verdict import Judged
from unsoftmax.precision import HALF_DIGITS
from unsoftmax.probes.base import Array
from unsoftmax.results.recovery import Status
from unsoftmax.solvers.gauss_newton import descend

_FAR = (
    "Another W explains these records as well, and errors that reach both are as large as the parameters: add records "
    "that differ."
)

_REACHED = (
    "Another W explains these records as well, {:.2g} of the size of W away on what is determined: the stated errors "
    "reach both, and what either leaves open is listed."
)


@dataclass(frozen=True, eq=False)
class Contest:
    """A fit, and where descents from scores of another size ended. Rows are over their deviations (rows,), infinite for
    numbers that alone show a direction; `noise`: the fit's residual is that many of them."""

    problem: Heads
    deviations: Array
    fit: Directions
    others: tuple[Directions, ...]
    noise: float

    @property
    def margin(self) -> float:
        """How much worse the true one of two W may fit."""
        return (FITTING.bars * self.noise) ** 2

    def cost(self, x: Array) -> float:
        """Squared residual."""
        r = self.problem.at(x).residual / self.deviations
        return float(r @ r)

    def stated(self, seen: Directions) -> Directions:
        """What of these directions is stated."""
        return bounded(self.problem, seen.confirmed(1.0), self.deviations, FITTING.bars * self.noise)

    def rivals(self, fit: Directions) -> Iterator[Directions]:
        """What is stated of those that explain the records as well, and are outside an error of the fit, leave more or
        less open, or are off along what is left open: such valleys bend."""
        shape, open_, alone = fit.shape, fit.hidden(1.0)[0], Reached(fit, (), (), self.noise)
        x, units = _raveled(shape, fit.x), units_of(self.problem.blocks, shape, fit.x)
        reach = alone.spread(1.0).entries * self.noise + HALF_DIGITS * np.abs(x).max()
        sizes = np.repeat(units, [x.size - shape.values, shape.values])
        for other in self.others:
            if self.cost(other.x) <= self.cost(fit.x) + self.margin:
                known, gap = self.stated(other), _raveled(shape, other.x) - x
                off = alone.off(gap, 1.0)
                along = float(np.linalg.norm((gap - off) / sizes))
                if known.hidden(1.0)[0] != open_ or (np.abs(off) > reach).any() or along > FITTING.moved:
                    yield known

    def judged(self, judged: Judged) -> tuple[Judged, Seen | Reached]:
        """The verdict with errors that reach every rival; a surrogate where they are as large as the parameters."""
        fit = self.stated(self.fit)
        rivals = tuple(self.rivals(fit))
        if not rivals:
            return judged, fit
        curved = [max(bent(self.problem, r.x, r, self.deviations, self.noise), 1.0) ** 0.5 for r in rivals]
        reached = Reached(fit, rivals, tuple(self.noise / judged.deviation * c for c in curved), judged.deviation)
        W, _, P = fit.shape.split(fit.x)
        spread, bars = reached.spread(judged.limit), FITTING.bars * judged.deviation
        past = any(bars * norm > np.linalg.norm(x) for norm, x in ((spread.norm_W, W), (spread.norm_P, P)))
        if past or reached.hidden(judged.limit)[0] == fit.shape.freedom:
            return replace(judged, status=Status.SURROGATE, claims=judged.claims[-1:], notes=(_FAR,)), fit
        far = max(float(np.linalg.norm(gap[: W.size])) for gap in reached.gaps(judged.limit))
        return replace(judged, notes=(*judged.notes, _REACHED.format(far / float(np.linalg.norm(W))))), reached


@dataclass(frozen=True, eq=False)
class Reached:
    """What a fit and its rivals determine alike. `curved`: errors of each rival over those that J says; errors are in
    units of `deviation`."""

    fit: Directions
    rivals: tuple[Directions, ...]
    curved: tuple[float, ...]
    deviation: float

    def hidden(self, limit: float) -> tuple[int, Array | None]:
        """How many directions one of them leaves open, and a basis (k, H d d + H m d)."""
        bases = [basis for seen in (self.fit, *self.rivals) if (basis := seen.hidden(limit)[1]) is not None]
        if not bases:
            return 0, None
        _, s, Vt = np.linalg.svd(np.concatenate(bases), full_matrices=False)
        basis = Vt[s > HALF_DIGITS]  # of orthonormal bases, what is below this is rounding
        return len(basis), basis

    def off(self, columns: Array, limit: float) -> Array:
        """Columns (H d d + H m d, ...) without what one of them leaves open."""
        basis = self.hidden(limit)[1]
        return columns if basis is None else columns - basis.T @ (basis @ columns)

    def gaps(self, limit: float) -> list[Array]:
        """How far the rivals' W and P are from the fit's, raveled, on what all of them determine."""
        x, *others = (_raveled(seen.shape, seen.x) for seen in (self.fit, *self.rivals))
        return [self.off(other - x, limit) for other in others]

    def spread(self, limit: float) -> Spread:
        """Twice these errors reach every rival's parameters and twice its own errors; the stated bars do of norms."""

        def errors(seen: Directions) -> Array:
            return np.linalg.norm(self.off(embedded(seen.shape, seen.x, seen.root(limit)), limit), axis=1)

        def norms(entries: Array) -> Array:
            return np.array([np.linalg.norm(entries[:scores]), np.linalg.norm(entries[scores:])])

        W, _, P = self.fit.shape.split(self.fit.x)
        scores, reach = W.size, errors(self.fit)
        far = norms(reach)
        for seen, curved, gap in zip(self.rivals, self.curved, self.gaps(limit), strict=True):
            there = curved * errors(seen)
            reach = np.maximum(reach, np.abs(gap) / (2 * self.deviation) + there)
            far = np.maximum(far, norms(gap) / (FITTING.bars * self.deviation) + norms(there))
        norm_W, norm_P = map(float, far)
        return Spread(reach[:scores].reshape(W.shape), reach[scores:].reshape(P.shape), norm_W, norm_P)


def contested(search: Search, x: Array, seen: Seen, deviations: Array, span: Spans, seed: int) -> Contest | None:
    """The fit and its rivals, around the best of them where that explains the records better by more than noise does.

    None where there are too many unknowns for directions.
    """
    if not isinstance(seen, Directions):
        return None
    contest = _around(search, seen, deviations, span, seed)
    best = min((seen, *contest.others), key=lambda end: _cost(search.problem, end.x, deviations))
    if _cost(search.problem, best.x, deviations) < _cost(search.problem, x, deviations) - contest.margin:
        seen = settled(search, best.x, deviations, span, seed)[1]
        assert isinstance(seen, Directions)
        return _around(search, seen, deviations, span, seed)
    return contest


def _around(search: Search, fit: Directions, deviations: Array, span: Spans, seed: int) -> Contest:
    rows = deviations.copy()
    rows[fit.alone(1.0)] = np.inf
    noise = (_cost(search.problem, fit.x, deviations) / max(len(rows) - fit.rank, 1)) ** 0.5
    contest = Contest(search.problem, rows, fit, (), noise)
    ends = (_again(search, contest, scale, span, seed) for scale in FITTING.other_scores)
    return replace(contest, others=tuple(end for end in ends if end is not None))


def _again(search: Search, contest: Contest, scale: float, span: Spans, seed: int) -> Directions | None:
    """The end of a descent from the fit's scores times `scale`; None where it comes back within the fit's errors."""
    shape, fit = contest.problem.shape, contest.fit
    W, _, P = shape.split(fit.x)
    weighted = Weighted(contest.problem, 1 / contest.deviations)
    near = replace(FAST, arrived=contest.cost(fit.x) + FITTING.least_gain)
    x = _aligned(shape, descend(weighted, shape.joined(scale * W, P), near, steps=search.steps).x, W)
    gap, spread = np.abs(_raveled(shape, x) - _raveled(shape, fit.x)), fit.spread(1.0)
    if (gap <= contest.noise * spread.entries).all():
        return None
    x = descend(weighted, x, FAST, steps=search.steps).x
    seen = settled(search, x, contest.deviations, span, seed)[1]
    assert isinstance(seen, Directions)
    return seen


def _aligned(shape: Shape, x: Array, W: Array) -> Array:
    """The same heads in the order in which they are nearest to those of W (H, d, d)."""
    there, _, P = shape.split(x)
    if shape.heads == 1:
        return x
    far = np.linalg.norm((W[:, None] - there[None]).reshape(shape.heads, shape.heads, -1), axis=2)
    order = linear_sum_assignment(far)[1]
    return shape.joined(there[order], P[order])


def _raveled(shape: Shape, x: Array) -> Array:
    W, _, P = shape.split(x)
    return np.concatenate([W.ravel(), P.ravel()])


def _cost(problem: Heads, x: Array, deviations: Array) -> float:
    r = problem.at(x).residual / deviations
    return float(r @ r)
