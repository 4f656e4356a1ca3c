"""What is known while a difference is being explained, and the one way to ask further."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from unsoftmax.comparing.constants_explaining import EXPLAINING
from unsoftmax.comparing.detection import Plan
from unsoftmax.comparing.heads import Heads
from unsoftmax.comparing.noise import Group, group
from unsoftmax.comparing.references import Answers
from unsoftmax.comparing.scales import Sample
from unsoftmax.learners.core.base import Asking
from unsoftmax.models.base import Array
from unsoftmax.probes.base import Probes
from unsoftmax.results.comparison import Finding

VERIFY = "verify"


@dataclass
class Evidence:
    """The plan, the answers so far, the finding to complete, and a generator for further questions."""

    plan: Plan
    samples: list[Sample]
    base: Finding
    alpha: float
    rng: np.random.Generator
    asked: dict[str, int] = field(default_factory=dict)
    left: float | None = None
    """What the explanation leaves of fresh answers, in standard deviations (root mean square); None before one did."""

    @property
    def heads(self) -> Heads:
        """The structure of the reference; only asked for where it is known."""
        found = self.plan.noise.reference.heads
        assert found is not None
        return found

    def ask(self, X: Array, phase: str, *, measured: bool = False) -> Asking[tuple[Group, Array]]:
        """Ask further questions; they join the samples. Returns what was expected, and the answers.

        `measured`: their rounding is measured on themselves, where it is unlike that of the plan's near ties.
        """
        constant = self.plan.constant
        if measured:
            constant = max(constant, self.plan.noise.constant(lambda: X, self.rng))
        made = group(phase, X, self.plan.noise, constant, self.rng)
        y = yield Probes(X, phase=phase)
        self.samples.append((X, y, made.sd))
        self.asked[phase] = self.asked.get(phase, 0) + len(X)
        return made, y

    def borne_out(self, explained: Answers, X: Array, as_likely: Sequence[Answers] = ()) -> Asking[bool]:
        """Whether a changed model answers fresh sequences X as the target does: to rounding, and to what the errors of
        its numbers do to answers, as those of models show that are `as_likely`."""
        inherited = [np.asarray(other(X) - explained(X)) ** 2 for other in as_likely]
        allowed = np.sqrt(np.mean(inherited, axis=0)) if inherited else None
        return bool((yield from self.all_borne_out([explained], X, allowed)))

    def all_borne_out(self, models: Sequence[Answers], X: Array, allowed: Array | None = None) -> Asking[list[int]]:
        """Which of these do; `allowed` joins the rounding of each answer."""
        made, y = yield from self.ask(X, VERIFY)
        sd = np.maximum(made.sd if allowed is None else np.hypot(made.sd, allowed), 1e-300)
        limit = min(
            EXPLAINING.left_on_fresh,
            EXPLAINING.left_of_residual * float(np.sqrt(np.mean((made.residual(y) / sd) ** 2))),
        )
        left = [float(np.sqrt(np.mean(((y - model(X)) / sd) ** 2))) for model in models]
        right = [i for i, rest in enumerate(left) if rest <= limit]
        rounding = np.maximum(made.sd, 1e-300)
        self.left = min((float(np.sqrt(np.mean(((y - models[i](X)) / rounding) ** 2))) for i in right), default=None)
        return right
