"""What is known while a difference is being explained, and the one way to ask further."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from unsoftmax.comparing.detection import Group, Plan, group
from unsoftmax.comparing.findings import Finding
from unsoftmax.comparing.heads import Heads
from unsoftmax.comparing.scales import Sample
from unsoftmax.learners.core.base import Asking
from unsoftmax.models.base import Array
from unsoftmax.probes.base import Probes


@dataclass
class Evidence:
    """The plan, the answers so far, the finding to complete, and a generator for further questions."""

    plan: Plan
    samples: list[Sample]
    base: Finding
    alpha: float
    rng: np.random.Generator
    asked: dict[str, int] = field(default_factory=dict)

    @property
    def heads(self) -> Heads:
        """The structure of the reference; only asked for where it is known."""
        found = self.plan.noise.reference.heads
        assert found is not None
        return found

    def ask(self, X: Array, phase: str) -> Asking[tuple[Group, Array]]:
        """Ask further questions; they join the samples. Returns what was expected, and the answers."""
        made = group(phase, X, self.plan.noise, self.plan.constant, self.rng)
        y = yield Probes(X, phase=phase)
        self.samples.append((X, y, made.sd))
        self.asked[phase] = self.asked.get(phase, 0) + len(X)
        return made, y
