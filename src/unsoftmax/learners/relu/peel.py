"""Peel and polish: great circles until nothing is left, then least squares over all cells at once.

Theory: docs/theory/relu-network.md, "Method", peel.
Theory: docs/theory/relu-network.md, "Method", rounded answers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.errors import ModelMismatch
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.core.reductions import residual
from unsoftmax.learners.relu.chain import Chain
from unsoftmax.learners.relu.constants import RELU
from unsoftmax.learners.relu.gradients import Gradients, read_gradients
from unsoftmax.learners.relu.kinks import find_kinks
from unsoftmax.learners.relu.noise import Answers, Rounding, directions, size_and_noise
from unsoftmax.learners.relu.purse import Purse, Spent
from unsoftmax.probes.base import Array, one_row
from unsoftmax.probes.circle import closed_circle, upper_circle
from unsoftmax.probes.sphere import unit
from unsoftmax.solvers.cells import (
    CellNetwork,
    away_from_kinks,
    corrected,
    informative,
    moved_away,
    no_cells,
    with_chain,
)


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

    @property
    def allowed(self) -> float:
        """Largest gap that noise explains, by way of every gradient that was read: a larger one shows a missing
        neuron."""
        return RELU.surprise * (self.sigma + self.net.error) / self.scale

    @property
    def rounded(self) -> bool:
        return self.sigma > RELU.exact_noise * self.scale

    @property
    def explained(self) -> bool:
        return self.residual <= self.allowed

    @property
    def bound(self) -> float:
        """Error anywhere, relative to the function's root mean square: the largest over ten thousand inputs was up to
        25 times the root mean square over a dozen."""
        typical = float(np.sqrt(np.mean(self.gaps**2)))
        return max(CORE.stated_over_rounding * max(typical, self.expected, self.sigma / self.scale), 2 * self.residual)


def learn_homogeneous(dim: int, upper: bool, rounding: Rounding, seed: int) -> Asking[Peeled]:
    """lin . x + sum s_k ReLU(U_k . x) on R^dim, or on the half space where the last coordinate is positive."""
    rng, purse = np.random.default_rng(seed), Purse(dim)
    answers = yield from purse.paying(size_and_noise(dim, upper, rounding, rng))
    if dim == 1:
        return _two_rays(answers)
    peeling = _Peeling(dim, upper, rounding()[1], answers, rng, no_cells(dim), purse)
    best: Peeled | None = None
    for times in range(1 + RELU.rounds_anew if peeling.rounded else 1):
        if best is not None and ((best.explained and best.bound <= 1) or purse.spent * (1 + 1 / times) > purse.limit):
            break
        peeling.net, peeling.count, peeling.repairs, peeling.polished = no_cells(dim), 0, 0, False
        try:
            found = yield from purse.paying(peeling.found())
        except Spent:
            break
        best = found if best is None else min(best, found, key=lambda one: (not one.explained, one.bound))
    if best is None:
        raise _too_dear(peeling)
    return best


def _too_dear(peeling: _Peeling) -> ModelMismatch:
    """Why a network was not read within what one may cost: no circle came to an end."""
    purse, noise = peeling.purse, peeling.sigma / peeling.answers.scale
    return ModelMismatch(
        f"one great circle took {purse.spent} queries, and the next round would exceed the {purse.limit} that a "
        f"two-layer ReLU network of {purse.neurons} neurons may take: the circle shows {purse.kinks} kinks, and steps "
        "from too many of the cells between them leave the cell. The target is not such a network, or has cells too "
        "narrow to be told apart" + (f" by answers that are off by {noise:.0e} of their size" * peeling.rounded) + ".",
        advice="give answers with more digits." if peeling.rounded else "",
    )


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
    purse: Purse
    count: int = 0
    repairs: int = 0
    polished: bool = False

    def __post_init__(self) -> None:
        self.x, self.y = self.answers.x, self.answers.y
        self.sigma = self.answers.sigma

    def found(self) -> Asking[Peeled]:
        """Circles and polish in turn, until the fresh answers are explained or nothing more is found."""
        for _ in range(RELU.most_polishes):
            yield from self.circles_until_quiet()
            if not self.quiet(max(RELU.hopeless * self.answers.scale, self.surprise())):
                break
            yield from self.polish()
            if self.quiet(3 * RELU.surprise * self.limit()):
                break
        expected = min(self.net.error, self.limit()) if self.polished else self.net.error
        scale = float(np.sqrt(np.mean(self.y**2))) or self.answers.scale
        return Peeled(self.net, self.sigma, scale, self.x, self.y, expected / scale, self.count)

    @property
    def rounded(self) -> bool:
        """Whether answers are so coarse that kinks close to each other on a circle are taken for one."""
        return self.sigma > RELU.exact_noise * self.answers.scale

    def quiet(self, allowed: float) -> bool:
        """Whether the net explains every fresh answer up to `allowed`."""
        return bool(np.abs(self.y - self.net.of(self.x)).max() <= allowed)

    def surprise(self) -> float:
        """Gap of a fresh answer from which on noise does not explain it."""
        return RELU.surprise * (self.sigma + self.net.error)

    def limit(self) -> float:
        """Error that the better nine tenths of the cells leave: what a polish cannot be expected to undercut."""
        noise = np.sort(self.net.noise)
        kept = noise[: max(1, int(np.ceil(0.9 * len(noise))))]
        return self.sigma + float(np.sqrt((kept**2).sum()))

    def fresh(self, count: int) -> Asking[None]:
        x = directions(count, self.dim, self.upper, self.rng)
        if self.rounded and len(self.net.s):
            x = np.vstack([x, self.beside_kinks()])
        y = yield one_row(x, phase="residual")
        self.x, self.y = np.vstack([self.x, x]), np.concatenate([self.y, y])

    def beside_kinks(self) -> Array:
        """Random unit vectors (2 m, dim), one to either side of every neuron's hyperplane.

        Two neurons whose kinks on the circle noise does not part are taken for one, s_1 U_1 + s_2 U_2. At its
        hyperplane that is off by |U_1 . x| where s_1 = s_2; where they differ it is right there, and off by its own
        value to one side, until that is |U_1 . x|.
        """
        size = np.linalg.norm(self.net.U, axis=1, keepdims=True)
        normal = np.tile(self.net.U / size, (2, 1))
        x = directions(len(normal), self.dim, self.upper, self.rng)
        x = unit(x - (x * normal).sum(axis=1, keepdims=True) * normal)
        if self.upper:
            x *= np.where(x[:, -1:] < 0, -1.0, 1.0)
        step = np.minimum(2 * self.surprise() / size, RELU.farthest)
        x = unit(x + np.vstack([step, -step]) * normal)
        return x[x[:, -1] > 0] if self.upper else x

    def circles_until_quiet(self) -> Asking[None]:
        while self.count < RELU.most_circles[self.rounded]:
            sigma = self.sigma + self.net.error
            added = yield from residual(self.circle(sigma), self.net.of)
            self.count += 1
            if self.count > 1 and len(added.s) == len(self.net.s):
                return
            self.net = added
            yield from self.fresh(RELU.fresh[self.rounded])
            if self.quiet(self.surprise()):
                return

    def circle(self, sigma: float) -> Asking[CellNetwork]:
        """One great circle: kinks, then gradients, then the net with what they add."""
        circle = upper_circle(self.dim, self.rng, RELU.end_margin) if self.upper else closed_circle(self.dim, self.rng)
        chain: Chain = yield from find_kinks(circle, sigma, self.answers.scale, self.eps, self.rng, self.purse)
        if not len(self.net.noise):
            self.sigma = chain.sigma
        shortest = RELU.shortest_step * np.sqrt(self.sigma / self.answers.scale)
        found: Gradients = yield from read_gradients(circle, chain, shortest, self.rng)
        self.repairs += found.repairs
        return with_chain(self.net, found.G, found.noise, found.good, chain.resolved, found.base)

    def polish_queries(self) -> int:
        """None where noise is reached already; at least enough to determine the one or two narrowest cells anew."""
        if not len(self.net.s) or self.net.error <= RELU.polished_over_noise * self.sigma:
            return 0
        unknowns = len(self.net.s) * self.dim
        count = int(max(RELU.polish_per_unknown * unknowns - self.repairs, 0.5 * RELU.polish_per_unknown * unknowns))
        narrow = int((self.net.noise > 0.3 * self.net.error).sum())
        return max(count, min(narrow, 2) * (self.dim + 2))

    def polish(self) -> Asking[None]:
        """Random answers correct all cells together: far less noise than a short step inside a narrow cell."""
        m = len(self.net.s)
        count = self.polish_queries()
        if count:
            x = directions(int(1.05 * count) + RELU.spare_candidates, self.dim, self.upper, self.rng)
            moved = moved_away(self.net, x)
            x = np.where(moved[:, -1:] > 0, moved, x) if self.upper else moved
            x = x[away_from_kinks(self.net, x)]
            x = x[np.argsort(-informative(self.net, x), kind="stable")[:count]]
            if len(x):
                self.polished = True
                y = yield one_row(x, phase="polish")
                self.net = corrected(self.net, x, y - self.net.of(x), self.sigma, RELU.solve_steps)
        yield from self.fresh(min(64, 6 + m * self.dim // 150))


def refuse_if_unexplained(found: Peeled) -> None:
    """A residual far above noise after all circles: the target is not of the class, or too coarse for it."""
    if not found.explained:
        raise ModelMismatch(
            f"after {found.circles} great circles and {len(found.net.s)} neurons the network still misses fresh "
            f"answers by {found.residual:.2g} of their size (noise explains {found.allowed:.1g}): the target is not a "
            "two-layer ReLU network, or has more close pairs of neurons than could be separated"
            + (f" by answers that are off by {found.sigma / found.scale:.0e} of their size" if found.rounded else "")
            + ".",
            advice="give answers with more digits." if found.rounded else "",
        )
