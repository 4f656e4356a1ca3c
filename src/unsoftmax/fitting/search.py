"""One search: descents of a problem from one attempt after the other, until one arrives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from unsoftmax.fitting.constants import FITTING
from unsoftmax.fitting.heads import Heads, HeadsAt
from unsoftmax.fitting.shape import Shape
from unsoftmax.probes.base import Array
from unsoftmax.solvers.gauss_newton import Descent, Linearised, Steps, cholesky, conjugate, descend

SLOW = Descent(damping=10.0, down=2.0, iterations=120, patience=12)
"""From scores 0: small steps first, because most of the way is curved."""

BOLD = Descent(damping=1.0, down=3.0, iterations=80, patience=10)
"""From random scores, and from scores 0 where a step is expensive."""

FAST = Descent(damping=0.1, down=3.0, iterations=60, patience=10)
"""From a start that should be near."""

Attempt = tuple[str, Array, float]
"""What was tried, the unknowns it ended at, their squared residual."""

Watch = Callable[[str, int, float], None]
"""Progress: what is tried, the number of attempts so far, the best relative residual so far."""


@dataclass(frozen=True, eq=False)
class Search:
    """Descents of `problem`; one has arrived when its squared residual is at most `arrived`."""

    problem: Heads
    arrived: float

    @property
    def large(self) -> bool:
        """Whether there are too many unknowns for matrices."""
        return self.problem.shape.unknowns > FITTING.most_dense

    @property
    def steps(self) -> Steps:
        """The solver of damped equations for this many unknowns."""
        return conjugate() if self.large else cholesky

    def descend(self, x: Array, how: Descent, cap: float | None = None) -> tuple[Array, float]:
        """Unknowns and cost after a descent; `cap` measures residuals in scores, each pull at most `cap` of them."""
        weigh = None if cap is None else _in_scores(self.problem, cap)
        end = descend(self.problem, x, replace(how, arrived=self.arrived), steps=self.steps, weigh=weigh)
        return end.x, end.cost

    def like(self, shape: Shape) -> Search:
        """A search on the same records for heads of another shape."""
        return Search(Heads(self.problem.blocks, shape), self.arrived)

    def token_square(self) -> float:
        """Mean square of a token's entries: what makes sizes of scores comparable between logs."""
        return float((self.problem.blocks.q**2).mean()) or 1.0


@dataclass(eq=False)
class Found:
    """The best of a stream of attempts, pulled a few at a time."""

    search: Search
    attempts: Iterator[Attempt]
    x: Array
    cost: float = np.inf
    tried: int = 0

    @property
    def arrived(self) -> bool:
        return self.cost <= self.search.arrived

    def pull(self, most: int, watch: Watch | None = None) -> bool:
        """Try until `most` attempts were made in all; whether one has arrived."""
        size = float((self.search.problem.blocks.y**2).sum()) or 1.0
        while not self.arrived and self.tried < most:
            attempt = next(self.attempts, None)
            if attempt is None:
                break
            name, x, cost = attempt
            self.tried += 1
            if cost < self.cost:
                self.x, self.cost = x, cost
            if watch is not None:
                watch(name, self.tried, float(np.sqrt(self.cost / size)))
        return self.arrived


def found(search: Search, attempts: Iterator[Attempt]) -> Found:
    """Nothing tried yet."""
    return Found(search, attempts, np.zeros(search.problem.shape.unknowns))


def _in_scores(problem: Heads, cap: float) -> Callable[[Linearised], Array]:
    """Row weights 1 / sqrt(slope^2 + (r / cap)^2): saturated records count like ties, wrong winners cannot dominate."""
    dim = problem.shape.dim
    floor = 1e-13 * float(np.sqrt((problem.blocks.y**2).mean()) or 1.0)

    def weigh(linear: Linearised) -> Array:
        assert isinstance(linear, HeadsAt)
        return np.asarray(1 / np.sqrt((linear.slopes / dim) ** 2 + (linear.residual / cap) ** 2 + floor**2))

    return weigh
