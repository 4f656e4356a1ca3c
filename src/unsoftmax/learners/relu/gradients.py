"""Gradients of the cells that a great circle passes: d - 2 steps off the plane and one check for each cell.

Inside a cell the function is G . x; neighbouring cells differ by one neuron, G_right - G_left = s U.

Theory: docs/theory/relu-network.md, "Method", gradients.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.relu.chain import Chain
from unsoftmax.learners.relu.search import SIGMAS
from unsoftmax.probes.base import Array, LazyProbes, Probes
from unsoftmax.probes.circle import Circle

_LONGEST = 0.3
"""Longest step off the plane, in radians of the unit sphere, where no kink is near: a longer one leaves the cell by
kinks that the circle does not show."""

_CAUTION = 6.0
"""A step is this many times shorter than the distance to the nearest kink, weighted by the size of that kink."""

_FLAT = (0.1, 0.4)
"""Change of slope, relative to the median one, that parts cells into waves."""

_SHRINK = 6.0
"""A step that left its cell is shortened by this factor at least, and by its square at most."""

_TRIES = 9
"""Rounds of repairs; in the last three every cell that failed is asked again, not only the likely culprit."""

_PASSES = 3
"""A cell saved in one pass may save its neighbour in the next."""


@dataclass(frozen=True, eq=False)
class Gradients:
    """Gradients `G` (cells, d) at `base` (cells, d), their `noise` per coordinate, and which a check confirmed;
    `repairs`: queries that it took to put right what had left its cell."""

    G: Array
    base: Array
    noise: Array
    good: Array
    repairs: int


@dataclass(eq=False)
class _Cells:
    """Base points of the cells: the middle angle of each, with value and slope from its piece, and its step h.

    theta (cells - 1,): the kinks; flatness: the change of slope at each next to the median one, at most 1.
    """

    circle: Circle
    theta: Array
    middle: Array
    h: Array
    value: Array
    slope: Array
    error: Array
    flatness: Array

    @property
    def base(self) -> Array:
        return self.circle.points(self.middle)


@dataclass(eq=False)
class _State:
    """What is known so far: gradients G (cells, d); answers Y (cells, d - 1) to signed steps of the same shape along
    the d - 2 off-plane directions and one combination `signs` of them; which cells are asked and which good, which
    boundaries are a single neuron."""

    G: Array
    Y: Array
    step: Array
    signs: Array
    asked: Array
    good: Array
    resolved: Array


def _cells(circle: Circle, chain: Chain, sigma: float) -> _Cells:
    theta, count = chain.kinks, len(chain)
    if circle.open or not count:
        ends = (0.0, np.pi)
    else:
        # The first and last cell are antipodal, so each ends where the other does.
        ends = (theta[-1] - np.pi, theta[0] + np.pi)
    bounds = np.concatenate([[ends[0]], theta, [ends[1]]])
    middle = 0.5 * (bounds[:-1] + bounds[1:])
    h, flatness = np.full(count + 1, _LONGEST), np.ones(count)
    if count:
        pieces = chain.pieces
        jumps = np.array([abs(b.slope(t) - a.slope(t)) for a, b, t in zip(pieces, pieces[1:], theta, strict=False)])
        flatness = np.minimum(jumps / np.median(jumps), 1)
        distance = np.abs(np.sin(middle[:, None] - theta)) * np.sqrt(np.maximum(flatness, 0.03))
        h = np.minimum(h, distance.min(axis=1) / _CAUTION)
    h = np.minimum(h, circle.room(middle))
    value = np.array([p.value(t) for p, t in zip(chain.pieces, middle, strict=True)])
    slope = np.array([p.slope(t) for p, t in zip(chain.pieces, middle, strict=True)])
    error = np.array([p.error(t, sigma) for p, t in zip(chain.pieces, middle, strict=True)])
    return _Cells(circle, theta, middle, h, value, slope, error, flatness)


def read_gradients(
    circle: Circle, chain: Chain, sigma: float, shortest: float, phase: str, rng: np.random.Generator
) -> Asking[Gradients]:
    """Gradient of every cell of the chain; cells whose step would fall below `shortest` are left out."""
    d = len(circle.P)
    cells = _cells(circle, chain, sigma)
    count = len(cells.middle)
    # In three dimensions there is one direction off the plane, and only the other side of it checks a step.
    choices = [-1.0, 1.0] if d > 3 else [-1.0]
    state = _State(
        np.zeros((count, d)),
        np.zeros((count, d - 1)),
        np.repeat(cells.h[:, None], d - 1, axis=1),
        rng.choice(choices, size=(count, d - 2)) / np.sqrt(max(d - 2, 1)),
        np.zeros(count, dtype=bool),
        np.zeros(count, dtype=bool),
        chain.resolved,
    )
    alive, repairs = cells.h > shortest, 0
    for wave in _waves(cells):
        repairs += yield from _measured(cells, wave[alive[wave]], state, sigma, phase)
    for attempt in range(_TRIES):
        bad = np.flatnonzero(alive & ~state.good)
        if not len(bad):
            break
        todo = _culprits(cells, bad, count, attempt)
        alive[todo] = cells.h[todo] > shortest
        todo = todo[alive[todo]]
        repairs += len(todo) * (d - 1) + (yield from _measured(cells, todo, state, sigma, "repair"))
    span = np.array([np.sin(min(piece.right[0] - piece.left[0], 0.5 * np.pi)) for piece in chain.pieces])
    # A value extrapolated from a short piece blurs every step from it.
    blur = np.maximum(sigma, 0.5 * cells.error)
    noise = np.sqrt((blur**2 * (state.step**-2.0).sum(axis=1) + 2 * (sigma / span) ** 2) / d)
    return Gradients(state.G, cells.base, np.where(state.good, noise, np.inf), state.good, repairs)


def _waves(cells: _Cells) -> list[Array]:
    """Cells (indices) in the order of asking: those beside the flattest hyperplanes first.

    A hyperplane nearly parallel to the circle's plane is crossed from many cells; once it is known, the steps of all
    later cells avoid it.
    """
    padded = np.concatenate([[np.inf], cells.flatness, [np.inf]])
    wave = np.searchsorted(_FLAT, np.minimum(padded[:-1], padded[1:]), side="right")
    return [np.flatnonzero(wave == k) for k in range(len(_FLAT) + 1)]


def _measured(cells: _Cells, todo: Array, state: _State, sigma: float, phase: str) -> Asking[int]:
    """Ask all steps of the given cells, clear of what is known, and repair what left its cell; how many repairs."""
    if not len(todo):
        return 0
    state.step[todo] = cells.h[todo, None]
    state.step[todo] = _crossings(cells, todo, state)[1]
    width = state.step.shape[1]
    y = yield _steps(cells, np.repeat(todo, width), np.tile(np.arange(width), len(todo)), state, phase)
    state.Y[todo], state.asked[todo] = y.reshape(len(todo), width), True
    _judge(cells, todo, state, sigma)
    repairs = 0
    # Cells saved now may be the neighbour that saves another.
    for _ in range(_PASSES):
        bad = np.flatnonzero(state.asked & ~state.good)
        asked = yield from _recovered(cells, bad, state, sigma)
        repairs += asked
        if not asked:
            break
        _judge(cells, bad, state, sigma)
    return repairs


def _culprits(cells: _Cells, bad: Array, count: int, attempt: int) -> Array:
    """Bad cells to measure again, with shorter steps: those beside the flattest hyperplanes.

    One hyperplane nearly parallel to the circle's plane is crossed from many cells; once it is known, all of these are
    saved without a query. Near the end of the tries every bad cell is measured again.
    """
    sides = np.concatenate([bad - 1, bad])
    sides = np.unique(sides[(sides >= 0) & (sides < count - 1)])
    chosen = sides[np.argsort(cells.flatness[sides], kind="stable")][: -(-len(bad) // 8)]
    # Of the two cells beside it the wider one is enough: the other one's stray steps lie on that cell's function.
    width = np.abs(np.sin(cells.middle[[chosen, chosen + 1]] - cells.theta[chosen])) * np.isin(
        [chosen, chosen + 1], bad
    )
    redo = np.unique(chosen + width.argmax(axis=0)) if attempt < _TRIES - 3 else bad
    reach = np.full(count, np.inf)
    for k in chosen:
        reach[[k, k + 1]] = np.abs(np.sin(cells.middle[[k, k + 1]] - cells.theta[k])) * cells.flatness[k] / _CAUTION
    # A slight kink may also be that of a small neuron, which needs no shorter step: approach it gradually.
    h = cells.h[redo]
    cells.h[redo] = np.clip(reach[redo], h / _SHRINK**2, h / _SHRINK)
    return redo


def _judge(cells: _Cells, index: Array, state: _State, sigma: float) -> None:
    """Put gradients together; good if the step in a random combination of all directions is what they predict."""
    Y, step, value = state.Y[index], state.step[index], cells.value[index, None]
    offplane = (Y[:, :-1] - value) / step[:, :-1]
    tangent = cells.circle.tangents(cells.middle[index])
    inplane = value * cells.base[index] + cells.slope[index, None] * tangent
    state.G[index] = inplane + offplane @ cells.circle.E
    weights = state.signs[index] * step[:, -1:] / step[:, :-1]
    predicted = value[:, 0] + ((Y[:, :-1] - value) * weights).sum(axis=1)
    allowed = sigma * (1 + np.sqrt((weights**2).sum(axis=1)))
    allowed += cells.error[index] * (1 + np.abs(1 - weights.sum(axis=1)))
    state.good[index] = np.abs(Y[:, -1] - predicted) < SIGMAS * allowed


def _recovered(cells: _Cells, bad: Array, state: _State, sigma: float) -> Asking[int]:
    """Ask the steps that left their cell again, the other way or shorter; how many were known to have left."""
    if not len(bad):
        return 0
    crossed, step = _crossings(cells, bad, state)
    foreign = _foreign(cells, bad, state, sigma) & ~crossed
    # The other way; back again only by a shorter step, where that left the cell too.
    step = np.where(foreign, np.where(state.step[bad] > 0, -1.0, -0.25) * state.step[bad], step)
    rows, columns = np.nonzero(crossed | foreign)
    if not len(rows):
        return 0
    state.step[bad[rows], columns] = step[rows, columns]
    y = yield _steps(cells, bad[rows], columns, state, "repair")
    state.Y[bad[rows], columns] = y
    return len(rows)


def _foreign(cells: _Cells, bad: Array, state: _State, sigma: float) -> Array:
    """Which steps of bad cells crossed into a neighbouring cell: they lie on that cell's linear function.

    The neighbour need not be good. In the plane its function is known from its piece, and of the two steps along a
    direction only one can cross the hyperplane between: the other one's rate is right, and the test is as sharp.
    """
    E = cells.circle.E
    crossed = np.zeros((len(bad), len(E) + 1), dtype=bool)
    for shift in (-1, 1):
        neighbour = bad + shift
        inside = (neighbour >= 0) & (neighbour < len(state.good))
        known = np.flatnonzero(inside)[state.asked[neighbour[inside]]]
        there, cell = state.G[neighbour[known]], bad[known]
        rates = np.hstack([there @ E.T, (state.signs[cell] * (there @ E.T)).sum(axis=1)[:, None]])
        predicted = (there * cells.base[cell]).sum(axis=1)[:, None] + state.step[cell] * rates
        blur = sigma * np.abs(state.step[cell] / state.step[neighbour[known]])
        crossed[known] |= np.abs(state.Y[cell] - predicted) < SIGMAS * (10 * cells.error[cell, None] + blur)
    return crossed


def _crossings(cells: _Cells, bad: Array, state: _State) -> tuple[Array, Array]:
    """Which steps of bad cells cross a neuron known from two good cells, and steps that do not (cells, d - 1)."""
    known = np.flatnonzero(state.good[:-1] & state.good[1:] & state.resolved)
    D = state.G[known + 1] - state.G[known]
    rates, base, step = D @ cells.circle.E.T, cells.base[bad], state.step[bad].copy()
    crossed = np.zeros(step.shape, dtype=bool)
    for row, cell in enumerate(bad):
        along = np.column_stack([rates, rates @ state.signs[cell]])
        with np.errstate(divide="ignore", invalid="ignore"):
            reach = -(D @ base[row])[:, None] / along
        ahead = np.where(reach > 0, reach, np.inf).min(axis=0, initial=np.inf)
        behind = np.where(reach < 0, -reach, np.inf).min(axis=0, initial=np.inf)
        room = np.where(step[row] > 0, ahead, behind)
        crossed[row] = np.abs(step[row]) > 0.9 * room
        longest = np.minimum(cells.h[cell], 0.5 * np.maximum(ahead, behind))
        step[row] = np.where(crossed[row], np.where(ahead >= behind, longest, -longest), step[row])
    return crossed, step


def _steps(cells: _Cells, cell: Array, direction: Array, state: _State, phase: str) -> LazyProbes:
    """Steps of the given cells (n,) in the given directions (n,): E_j, or the check's combination for j = d - 2."""
    E, d = cells.circle.E, len(cells.circle.P)

    def build(start: int, stop: int) -> Probes:
        i, j = cell[start:stop], direction[start:stop]
        check = j == len(E)
        along = E[np.where(check, 0, j)] if len(E) else np.zeros((len(i), d))
        along[check] = state.signs[i[check]] @ E
        return Probes((cells.circle.points(cells.middle[i]) + state.step[i, j, None] * along)[:, None, :])

    return LazyProbes(len(cell), d * 8, build, phase)
