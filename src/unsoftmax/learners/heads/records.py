"""Everything a program asked and was answered, kept for fits that use all of it at once.

Theory: docs/theory/multi-head.md, "Generic heads", polish.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.reductions import watched
from unsoftmax.probes.base import Array, Probes
from unsoftmax.solvers.heads_fit import Data

T = TypeVar("T")


@dataclass(eq=False)
class Records:
    """Rounds as they were sent; `data` joins them."""

    rounds: list[Data] = field(default_factory=list)

    def watching(self, program: Asking[T]) -> Asking[T]:
        """Run a program and keep its questions and answers."""
        return watched(program, lambda request, y: self.keep(request[0 : len(request)], y))

    def ask(self, tokens: Array, copies: Array | None, phase: str) -> Asking[Array]:
        """Ask one round and keep it."""
        probes = Probes(tokens, copies, phase)
        y = yield probes
        self.keep(probes, y)
        return y

    def keep(self, probes: Probes, y: Array) -> None:
        copies = np.ones(probes.tokens.shape[:2], dtype=np.int64) if probes.counts is None else probes.counts
        self.rounds.append(Data(probes.tokens, copies, y))

    @property
    def asked(self) -> int:
        """Number of sequences kept."""
        return sum(map(len, self.rounds))

    def data(self, longest: int = 3) -> Data:
        """All sequences of at most `longest` distinct rows."""
        kept = [part for part in self.rounds if part.tokens.shape[1] <= longest and len(part)]
        joined = kept[0]
        for part in kept[1:]:
            joined = joined.joined(part)
        return joined
