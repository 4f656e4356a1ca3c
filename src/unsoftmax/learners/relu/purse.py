"""What a network may cost and what it has cost: the upper end of its forecast, kept whatever the answers are like.

Theory: docs/theory/relu-network.md, "Method", what it costs.
"""

from __future__ import annotations

from dataclasses import dataclass

from unsoftmax.learners.core.base import Asking, T
from unsoftmax.learners.core.costs import network_range, widest
from unsoftmax.learners.core.driver import driven
from unsoftmax.learners.relu.constants import RELU
from unsoftmax.probes.base import Array, Request


class Spent(Exception):
    """The next round would cost more than is left; it was not asked."""


@dataclass
class Purse:
    """Queries `spent` on a network of `dim` dimensions, and the most `kinks` that a circle has shown of it."""

    dim: int
    spent: int = 0
    kinks: int = 0

    @property
    def neurons(self) -> int:
        """How many neurons may be paid for: as many as the forecast supposes, more where kinks leave no doubt of it."""
        return max(widest(self.dim), int(self.kinks / RELU.kinks_over_neurons))

    @property
    def limit(self) -> int:
        return network_range(self.dim, self.neurons)[1]

    def show(self, kinks: int) -> None:
        self.kinks = max(self.kinks, kinks)

    def paying(self, program: Asking[T]) -> Asking[T]:
        """The program as it is, until a round would cost more than is left: then `Spent` is raised in its place."""

        def ask(request: Request) -> Asking[Array]:
            if self.spent + len(request) > self.limit:
                raise Spent
            self.spent += len(request)
            return (yield request)

        return driven(program, ask)
