"""Peel and polish: great circles until nothing is left, then least squares over all cells at once.

All kinks of a homogeneous piecewise linear function along a half great circle, about six queries each.

Between kinks the function is a sinusoid. Neighbouring pieces are intersected; a crossing is accepted only if a point
just left of it lies on the left piece and one just right of it on the right piece. What lies on neither is a point of
a new piece. All open gaps advance together, so rounds grow with the depth of the search, not with the kinks.

Theory: docs/theory/relu-network.md, "Method", peel.
Theory: docs/theory/relu-network.md, "Method", kinks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.errors import ModelMismatch
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.reductions import residual
from unsoftmax.learners.relu.chain import Chain, Gap
from unsoftmax.learners.relu.gradients import Gradients, read_gradients
from unsoftmax.learners.relu.noise import Answers, Rounding, directions, size_and_noise
from unsoftmax.learners.relu.search import NARROWEST, Search
from unsoftmax.probes.base import Array, one_row
from unsoftmax.probes.circle import Circle, closed_circle, upper_circle
from unsoftmax.solvers.cells import (
    CellNetwork,
    away_from_kinks,
    corrected,
    informative,
    moved_away,
    no_cells,
    with_chain,
)
from unsoftmax.solvers.sinusoids import meeting

_CIRCLES = 6
"""Great circles at most. A circle misses a neuron only where its kink lies too close to another, so a few suffice; what
six leave is refused by the fresh answers."""

_POLISHES = 4
"""Rounds of circles and polish at most; each polish makes answers sharper, and so shows neurons that were hidden."""

_FRACTION = 0.08
"""Polish queries for each unknown: enough to determine the narrowest cells anew."""

_SPARE = 40
"""Candidates beyond the polish queries due. Where few are due, for one narrow cell, half of all would not show it."""

_ITERATIONS = 50
"""Steps of the iterative solve of one correction at most: it trades digits of that correction for time, and the next
polish starts from what it left."""

_AT_NOISE = 2e4
"""Error of the net over the noise of one answer up to which no polish is asked for: at the 1e-16 of float64 that is
2e-12 of the answers."""

_SURPRISE = 10.0
"""Gap of a fresh answer over its expected error from which on it shows a neuron that is missing. Ten deviations never
happen by noise alone, and leave room for an error that is an estimate."""

_HOPELESS = 1e-2
"""Gap of a fresh answer, over the typical answer, beyond which cells are missing and a polish, linear in the error,
would not converge."""

_MARGIN = 1e-5
"""Angle, in radians, that a half circle keeps from its two ends, where the line it stands for is at infinity: it ends
at 10^5 times the unit, beyond the kinks of networks of usual size."""

_FRESH = 2, 16
"""Fresh answers after a circle: two of exact answers, where a missing neuron shows at almost every vector, and more of
rounded ones, whose noise hides all but a wedge between two hyperplanes."""

_EXACT = 1e-9
"""Noise, as a share of the answers, up to which they are exact: below the rounding of float32 and of nine digits."""

_COARSEST = 1e-3
"""Shortest step in units of sqrt(noise): 3e-11 in float64, a gradient of five digits, which the polish sharpens."""

_MOST_LEVELS = 120
"""Levels of the search; kinks at half the distance take one more, so two or three dozen are usual."""

_LOST = 24, 0.02
"""Gaps too narrow for another query, and more of them as a share of all, from which on answers contradict each other:
of 4096 random kinks one pair in a thousand circles lies so close together."""


@dataclass(frozen=True, eq=False)
class Peeled:
    """The function found, and how far from the target it is: relative `gaps` (n,) at fresh unit vectors x (n, d) with
    answers y, and the error that the noise of answers lets one expect there (`expected`, relative too)."""

    net: CellNetwork
    sigma: float
    scale: float
    x: Array
    y: Array
    expected: float
    circles: int

    @property
    def gaps(self) -> Array:
        return (self.y - self.net.of(self.x)) / self.scale

    @property
    def residual(self) -> float:
        """Largest gap relative to the root mean square of the function."""
        return float(np.abs(self.gaps).max())


def learn_homogeneous(dim: int, upper: bool, rounding: Rounding, seed: int) -> Asking[Peeled]:
    """lin . x + sum s_k ReLU(U_k . x) on R^dim, or on the half space where the last coordinate is positive."""
    rng = np.random.default_rng(seed)
    answers = yield from size_and_noise(dim, upper, rounding, rng)
    if dim == 1:
        return _two_rays(answers)
    peeling = _Peeling(dim, upper, rounding()[1], answers, rng, no_cells(dim))
    for _ in range(_POLISHES):
        yield from peeling.circles_until_quiet()
        if not peeling.quiet(_HOPELESS * answers.scale):
            break
        yield from peeling.polish()
        if peeling.quiet(3 * _SURPRISE * peeling.limit()):
            break
    expected = min(peeling.net.error, peeling.limit()) if peeling.polished else peeling.net.error
    net, x, y = peeling.net, peeling.x, peeling.y
    scale = float(np.sqrt(np.mean(y**2))) or answers.scale
    return Peeled(net, peeling.sigma, scale, x, y, expected / scale, peeling.count)


def _two_rays(answers: Answers) -> Peeled:
    """One dimension: g is linear on either side of 0, and the pilot has asked both sides."""
    x, y = answers.x[:, 0], answers.y
    cells = np.array([[-y[x < 0][0]], [y[x > 0][0]]])
    noise, good = np.full(2, answers.sigma), np.ones(2, dtype=bool)
    net = with_chain(no_cells(1), cells, noise, good, np.ones(1, dtype=bool), np.array([[-1.0], [1.0]]))
    return Peeled(net, answers.sigma, answers.scale, answers.x, y, net.error / answers.scale, 1)


@dataclass
class _Peeling:
    dim: int
    upper: bool
    eps: float
    answers: Answers
    rng: np.random.Generator
    net: CellNetwork
    count: int = 0
    repairs: int = 0
    polished: bool = False

    def __post_init__(self) -> None:
        self.x, self.y = self.answers.x, self.answers.y
        self.sigma = self.answers.sigma

    def quiet(self, allowed: float) -> bool:
        """Whether the net explains every fresh answer up to `allowed`."""
        return bool(np.abs(self.y - self.net.of(self.x)).max() <= allowed)

    def limit(self) -> float:
        """Error that the better nine tenths of the cells leave: what a polish cannot be expected to undercut."""
        noise = np.sort(self.net.noise)
        kept = noise[: max(1, int(np.ceil(0.9 * len(noise))))]
        return self.sigma + float(np.sqrt((kept**2).sum()))

    def fresh(self, count: int) -> Asking[None]:
        x = directions(count, self.dim, self.upper, self.rng)
        y = yield one_row(x, phase="residual")
        self.x, self.y = np.vstack([self.x, x]), np.concatenate([self.y, y])

    def circles_until_quiet(self) -> Asking[None]:
        while self.count < _CIRCLES:
            sigma = self.sigma + self.net.error
            added = yield from residual(self.circle(sigma), self.net.of)
            self.count += 1
            if self.count > 1 and len(added.s) == len(self.net.s):
                return
            self.net = added
            yield from self.fresh(_FRESH[self.sigma > _EXACT * self.answers.scale])
            if self.quiet(_SURPRISE * (self.sigma + self.net.error)):
                return

    def circle(self, sigma: float) -> Asking[CellNetwork]:
        """One great circle: kinks, then gradients, then the net with what they add."""
        circle = upper_circle(self.dim, self.rng, _MARGIN) if self.upper else closed_circle(self.dim, self.rng)
        chain: Chain = yield from find_kinks(circle, sigma, self.answers.scale, self.eps, self.rng)
        if not len(self.net.noise):
            self.sigma = chain.sigma
        shortest = _COARSEST * np.sqrt(self.sigma / self.answers.scale)
        found: Gradients = yield from read_gradients(circle, chain, shortest, self.rng)
        self.repairs += found.repairs
        return with_chain(self.net, found.G, found.noise, found.good, chain.resolved, found.base)

    def polish_queries(self) -> int:
        """None where noise is reached already; at least enough to determine the one or two narrowest cells anew."""
        if not len(self.net.s) or self.net.error <= _AT_NOISE * self.sigma:
            return 0
        unknowns = len(self.net.s) * self.dim
        count = int(max(_FRACTION * unknowns - self.repairs, 0.5 * _FRACTION * unknowns))
        narrow = int((self.net.noise > 0.3 * self.net.error).sum())
        return max(count, min(narrow, 2) * (self.dim + 2))

    def polish(self) -> Asking[None]:
        """Random answers correct all cells together: far less noise than a short step inside a narrow cell."""
        m = len(self.net.s)
        count = self.polish_queries()
        if count:
            x = directions(int(1.05 * count) + _SPARE, self.dim, self.upper, self.rng)
            moved = moved_away(self.net, x)
            x = np.where(moved[:, -1:] > 0, moved, x) if self.upper else moved
            x = x[away_from_kinks(self.net, x)]
            x = x[np.argsort(-informative(self.net, x), kind="stable")[:count]]
            if len(x):
                self.polished = True
                y = yield one_row(x, phase="polish")
                self.net = corrected(self.net, x, y - self.net.of(x), self.sigma, _ITERATIONS)
        yield from self.fresh(min(64, 6 + m * self.dim // 150))


def refuse_if_unexplained(found: Peeled) -> None:
    """A residual far above noise after all circles: the target is not of the class."""
    allowed = max(1e-6, 1e5 * found.sigma / found.scale)
    if not found.residual <= allowed:
        raise ModelMismatch(
            f"after {found.circles} great circles and {len(found.net.s)} neurons the network still misses fresh "
            f"answers by {found.residual:.2g} of their size (noise explains {allowed:.1g}): the target is not a "
            "two-layer ReLU network, or has more close pairs of neurons than could be separated."
        )


def find_kinks(circle: Circle, sigma: float, scale: float, eps: float, rng: np.random.Generator) -> Asking[Chain]:
    """Kinks and pieces along the circle; `sigma` is the noise of an answer, `scale` the size of answers."""
    search = Search(circle, sigma, scale, eps, rng)
    yield from search.seeds()
    looked = False
    for _ in range(_MOST_LEVELS):
        search.settle()
        _refuse_contradictions(search.gaps)
        if not looked and len(search.pieces) > search.many:
            looked = True
            yield from search.look_for_curvature()
        if not any(gap.open for gap in search.gaps) and not search.reopen() and not (yield from search.inspect()):
            break
        plans = [search.plan(index) for index, gap in enumerate(search.gaps) if gap.open]
        y = (yield from search.ask([angle for plan in plans for angle in plan.angles])).tolist()
        found = []
        for plan in plans:
            plan.values, y = y[: len(plan.angles)], y[len(plan.angles) :]
            strange = search.read(plan)
            if strange:
                found.append((plan.gap, strange))
        if found:
            yield from search.grow(found)
    search.settle()
    yield from search.extend()
    resolved = np.array([not (gap.lost or gap.open) for gap in search.gaps], dtype=bool)
    angles = [meeting(a, b) for a, b in zip(search.pieces, search.pieces[1:], strict=False)]
    return Chain(search.pieces, np.array(angles), resolved, search.sigma)


def _refuse_contradictions(gaps: list[Gap]) -> None:
    """Noise that neighbours do not show looks like kinks within kinks, without end."""
    lost = sum(gap.lost for gap in gaps)
    if lost > _LOST[0] + _LOST[1] * len(gaps):
        raise ModelMismatch(
            f"along a great circle {lost} of {len(gaps)} neighbouring pieces contradict each other within angles of "
            f"{NARROWEST:g}: the answers carry more noise than those of neighbouring vectors show. Declare it "
            "(tolerance, dtype), or ask a target that rounds less."
        )
