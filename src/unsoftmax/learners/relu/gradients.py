"""Gradients of the cells that a great circle passes: d - 2 steps off the plane and one check for each cell.

Inside a cell the function is G . x; neighbouring cells differ by one neuron, G_right - G_left = s U.

Theory: docs/theory/relu-network.md, "Method", gradients.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.relu.chain import Chain
from unsoftmax.learners.relu.constants import RELU
from unsoftmax.probes.base import Array, LazyProbes, Probes
from unsoftmax.probes.circle import Circle


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
    """The cells of a chain: the middle angle of each, with value and slope from its piece, its step h, what is known.

    theta (cells - 1,): the kinks; flatness: the change of slope at each next to the median one, at most 1; `resolved`:
    which are a single neuron. Gradients G (cells, d); answers Y (cells, d - 1) to signed steps of the same shape along
    the d - 2 off-plane directions and one combination `signs` of them; which cells are asked and which good.
    """

    circle: Circle
    sigma: float
    theta: Array
    resolved: Array
    middle: Array
    h: Array
    value: Array
    slope: Array
    error: Array
    flatness: Array
    signs: Array

    def __post_init__(self) -> None:
        count, d = len(self.middle), len(self.circle.P)
        self.G, self.Y = np.zeros((count, d)), np.zeros((count, d - 1))
        self.step = np.repeat(self.h[:, None], d - 1, axis=1)
        self.asked, self.good = np.zeros((2, count), dtype=bool)

    @property
    def base(self) -> Array:
        return self.circle.points(self.middle)


def _cells(circle: Circle, chain: Chain, rng: np.random.Generator) -> _Cells:
    theta, count, d = chain.kinks, len(chain), len(circle.P)
    if circle.open or not count:
        ends = (0.0, np.pi)
    else:
        # The first and last cell are antipodal, so each ends where the other does.
        ends = (theta[-1] - np.pi, theta[0] + np.pi)
    bounds = np.concatenate([[ends[0]], theta, [ends[1]]])
    middle = 0.5 * (bounds[:-1] + bounds[1:])
    h, flatness = np.full(count + 1, RELU.longest_step), np.ones(count)
    if count:
        pieces = chain.pieces
        jumps = np.array([abs(b.slope(t) - a.slope(t)) for a, b, t in zip(pieces, pieces[1:], theta, strict=False)])
        flatness = np.minimum(jumps / np.median(jumps), 1)
        distance = np.abs(np.sin(middle[:, None] - theta)) * np.sqrt(np.maximum(flatness, 0.03))
        h = np.minimum(h, distance.min(axis=1) / RELU.caution)
    h = np.minimum(h, circle.room(middle))
    seen = [(p.value(t), p.slope(t), p.error(t, chain.sigma)) for p, t in zip(chain.pieces, middle, strict=True)]
    value, slope, error = np.array(seen).T
    # In three dimensions there is one direction off the plane, and only the other side of it checks a step.
    signs = rng.choice([-1.0, 1.0] if d > 3 else [-1.0], size=(count + 1, d - 2)) / np.sqrt(max(d - 2, 1))
    return _Cells(circle, chain.sigma, theta, chain.resolved, middle, h, value, slope, error, flatness, signs)


def read_gradients(circle: Circle, chain: Chain, shortest: float, rng: np.random.Generator) -> Asking[Gradients]:
    """Gradient of every cell of the chain; cells whose step would fall below `shortest` are left out."""
    cells, d = _cells(circle, chain, rng), len(circle.P)
    alive, repairs = cells.h > shortest, 0
    for wave in _waves(cells):
        repairs += yield from _measured(cells, wave[alive[wave]], "gradients")
    for attempt in range(RELU.tries):
        bad = np.flatnonzero(alive & ~cells.good)
        if not len(bad):
            break
        todo = _culprits(cells, bad, attempt)
        alive[todo] = cells.h[todo] > shortest
        todo = todo[alive[todo]]
        repairs += len(todo) * (d - 1) + (yield from _measured(cells, todo, "repair"))
    span = np.array([np.sin(min(piece.right[0] - piece.left[0], 0.5 * np.pi)) for piece in chain.pieces])
    # A value extrapolated from a short piece blurs every step from it.
    blur = np.maximum(cells.sigma, 0.5 * cells.error)
    noise = np.sqrt((blur**2 * (cells.step**-2.0).sum(axis=1) + 2 * (cells.sigma / span) ** 2) / d)
    return Gradients(cells.G, cells.base, np.where(cells.good, noise, np.inf), cells.good, repairs)


def _waves(cells: _Cells) -> list[Array]:
    """Cells (indices) in the order of asking: those beside the flattest hyperplanes first.

    A hyperplane nearly parallel to the circle's plane is crossed from many cells; once it is known, the steps of all
    later cells avoid it.
    """
    padded = np.concatenate([[np.inf], cells.flatness, [np.inf]])
    wave = np.searchsorted(RELU.flat, np.minimum(padded[:-1], padded[1:]), side="right")
    return [np.flatnonzero(wave == k) for k in range(len(RELU.flat) + 1)]


def _measured(cells: _Cells, todo: Array, phase: str) -> Asking[int]:
    """Ask all steps of the given cells, clear of what is known, and repair what left its cell; how many repairs."""
    if not len(todo):
        return 0
    cells.step[todo] = cells.h[todo, None]
    cells.step[todo] = _crossings(cells, todo)[1]
    width = cells.step.shape[1]
    y = yield _steps(cells, np.repeat(todo, width), np.tile(np.arange(width), len(todo)), phase)
    cells.Y[todo], cells.asked[todo] = y.reshape(len(todo), width), True
    _judge(cells, todo)
    repairs = 0
    # Cells saved now may be the neighbour that saves another.
    for _ in range(RELU.passes):
        bad = np.flatnonzero(cells.asked & ~cells.good)
        asked = yield from _recovered(cells, bad)
        repairs += asked
        if not asked:
            break
        _judge(cells, bad)
    return repairs


def _culprits(cells: _Cells, bad: Array, attempt: int) -> Array:
    """Bad cells to measure again, with shorter steps: those beside the flattest hyperplanes.

    One hyperplane nearly parallel to the circle's plane is crossed from many cells; once it is known, all of these are
    saved without a query. Near the end of the tries every bad cell is measured again.
    """
    count, sides = len(cells.middle), np.concatenate([bad - 1, bad])
    sides = np.unique(sides[(sides >= 0) & (sides < count - 1)])
    chosen = sides[np.argsort(cells.flatness[sides], kind="stable")][: -(-len(bad) // 8)]
    # Of the two cells beside it the wider one is enough: the other one's stray steps lie on that cell's function.
    width = np.abs(np.sin(cells.middle[[chosen, chosen + 1]] - cells.theta[chosen])) * np.isin(
        [chosen, chosen + 1], bad
    )
    redo = np.unique(chosen + width.argmax(axis=0)) if attempt < RELU.tries - 3 else bad
    reach = np.full(count, np.inf)
    for k in chosen:
        reach[[k, k + 1]] = np.abs(np.sin(cells.middle[[k, k + 1]] - cells.theta[k])) * cells.flatness[k] / RELU.caution
    # A slight kink may also be that of a small neuron, which needs no shorter step: approach it gradually.
    h = cells.h[redo]
    cells.h[redo] = np.clip(reach[redo], h / RELU.caution**2, h / RELU.caution)
    return redo


def _judge(cells: _Cells, index: Array) -> None:
    """Put gradients together; good if the step in a random combination of all directions is what they predict."""
    Y, step, value = cells.Y[index], cells.step[index], cells.value[index, None]
    offplane = (Y[:, :-1] - value) / step[:, :-1]
    tangent = cells.circle.tangents(cells.middle[index])
    inplane = value * cells.base[index] + cells.slope[index, None] * tangent
    cells.G[index] = inplane + offplane @ cells.circle.E
    weights = cells.signs[index] * step[:, -1:] / step[:, :-1]
    predicted = value[:, 0] + ((Y[:, :-1] - value) * weights).sum(axis=1)
    allowed = cells.sigma * (1 + np.sqrt((weights**2).sum(axis=1)))
    allowed += cells.error[index] * (1 + np.abs(1 - weights.sum(axis=1)))
    cells.good[index] = np.abs(Y[:, -1] - predicted) < RELU.sigmas * allowed


def _recovered(cells: _Cells, bad: Array) -> Asking[int]:
    """Ask the steps that left their cell again, the other way or shorter; how many were known to have left."""
    if not len(bad):
        return 0
    crossed, step = _crossings(cells, bad)
    foreign = _foreign(cells, bad) & ~crossed
    # The other way; back again only by a shorter step, where that left the cell too.
    step = np.where(foreign, np.where(cells.step[bad] > 0, -1.0, -0.25) * cells.step[bad], step)
    rows, columns = np.nonzero(crossed | foreign)
    if not len(rows):
        return 0
    cells.step[bad[rows], columns] = step[rows, columns]
    y = yield _steps(cells, bad[rows], columns, "repair")
    cells.Y[bad[rows], columns] = y
    return len(rows)


def _foreign(cells: _Cells, bad: Array) -> Array:
    """Which steps of bad cells crossed into a neighbouring cell: they lie on that cell's linear function.

    The neighbour need not be good. In the plane its function is known from its piece, and of the two steps along a
    direction only one can cross the hyperplane between: the other one's rate is right, and the test is as sharp.
    """
    E = cells.circle.E
    crossed = np.zeros((len(bad), len(E) + 1), dtype=bool)
    for shift in (-1, 1):
        neighbour = bad + shift
        inside = (neighbour >= 0) & (neighbour < len(cells.good))
        known = np.flatnonzero(inside)[cells.asked[neighbour[inside]]]
        there, cell = cells.G[neighbour[known]], bad[known]
        rates = np.hstack([there @ E.T, (cells.signs[cell] * (there @ E.T)).sum(axis=1)[:, None]])
        predicted = (there * cells.base[cell]).sum(axis=1)[:, None] + cells.step[cell] * rates
        blur = cells.sigma * np.abs(cells.step[cell] / cells.step[neighbour[known]])
        crossed[known] |= np.abs(cells.Y[cell] - predicted) < RELU.sigmas * (10 * cells.error[cell, None] + blur)
    return crossed


def _crossings(cells: _Cells, bad: Array) -> tuple[Array, Array]:
    """Which steps of bad cells cross a neuron known from two good cells, and steps that do not (cells, d - 1)."""
    known = np.flatnonzero(cells.good[:-1] & cells.good[1:] & cells.resolved)
    D = cells.G[known + 1] - cells.G[known]
    rates, base, step = D @ cells.circle.E.T, cells.base[bad], cells.step[bad].copy()
    crossed = np.zeros(step.shape, dtype=bool)
    for row, cell in enumerate(bad):
        along = np.column_stack([rates, rates @ cells.signs[cell]])
        with np.errstate(divide="ignore", invalid="ignore"):
            reach = -(D @ base[row])[:, None] / along
        ahead = np.where(reach > 0, reach, np.inf).min(axis=0, initial=np.inf)
        behind = np.where(reach < 0, -reach, np.inf).min(axis=0, initial=np.inf)
        room = np.where(step[row] > 0, ahead, behind)
        crossed[row] = np.abs(step[row]) > 0.9 * room
        longest = np.minimum(cells.h[cell], 0.5 * np.maximum(ahead, behind))
        step[row] = np.where(crossed[row], np.where(ahead >= behind, longest, -longest), step[row])
    return crossed, step


def _steps(cells: _Cells, cell: Array, direction: Array, phase: str) -> LazyProbes:
    """Steps of the given cells (n,) in the given directions (n,): E_j, or the check's combination for j = d - 2."""
    E, d = cells.circle.E, len(cells.circle.P)

    def build(start: int, stop: int) -> Probes:
        i, j = cell[start:stop], direction[start:stop]
        check = j == len(E)
        along = E[np.where(check, 0, j)] if len(E) else np.zeros((len(i), d))
        along[check] = cells.signs[i[check]] @ E
        return Probes((cells.circle.points(cells.middle[i]) + cells.step[i, j, None] * along)[:, None, :])

    return LazyProbes(len(cell), d * 8, build, phase)
