"""`estimate`: what a recovery will cost, step by step, before anything is asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from unsoftmax import verify as verification
from unsoftmax.diagnosis.automatic import Automatic
from unsoftmax.learners.core.base import Learner
from unsoftmax.oracles.base import Oracle
from unsoftmax.run.attempt import EXPLAINING
from unsoftmax.run.recovery import require_run


@dataclass(frozen=True)
class Step:
    """One step of a run and how many queries it takes, at least and at most (None: nobody can say)."""

    name: str
    lower: int
    upper: int | None


@dataclass(frozen=True)
class Estimate:
    """Steps in order; their sums bound what is billed for targets as `supposing` says. Retries are not counted, nor is
    `recheck` where it is asked for.

    choices    where the learner is still to be chosen: what each takes beside the diagnosis. The interval of the run is
               as wide as they differ, and narrow once the learner is named.
    """

    learner: str
    steps: tuple[Step, ...]
    supposing: str = ""
    choices: tuple[Step, ...] = ()

    @property
    def lower(self) -> int:
        """What a run that succeeds takes at least: a smaller budget is refused before the first query. A refusal may
        come earlier."""
        return sum(step.lower for step in self.steps)

    @property
    def upper(self) -> int | None:
        """A budget that suffices, None if nothing is said."""
        uppers = [step.upper for step in self.steps]
        return None if None in uppers else sum(upper for upper in uppers if upper is not None)

    def __str__(self) -> str:
        lines = _table([*self.steps, Step("in all", self.lower, self.upper)])
        return "\n".join([f"Queries, by {self.learner}:", *lines, *self._supposing(), *self._choices()])

    def _choices(self) -> list[str]:
        if not self.choices:
            return []
        return ["Which learner it is decides most of that; without the diagnosis, by name:", *_table(self.choices)]

    def _supposing(self) -> list[str]:
        return [f"Supposing {self.supposing}."] if self.supposing else []

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        steps, choices = (
            [{"step": step.name, "lower": step.lower, "upper": step.upper} for step in every]
            for every in (self.steps, self.choices)
        )
        return {
            "learner": self.learner,
            "lower": self.lower,
            "upper": self.upper,
            "supposing": self.supposing,
            "steps": steps,
            "choices": choices,
        }


def estimate(oracle: Oracle, learner: Learner | None = None, *, verify: bool = True) -> Estimate:
    """What `recover` with the same arguments will bill, as an interval for every step; nothing is asked.

    learner    None: the diagnosis, and the cheapest and the dearest learner that it may choose.
    """
    require_run(oracle, learner, 0)
    learner = Automatic() if learner is None else learner
    forecast = learner.forecast(oracle.spec)
    steps = [Step(name, queries, queries) for name, queries in forecast.phases.items()]
    steps += [Step(name, low, high) for name, (low, high) in forecast.ranges.items()]
    if forecast.extra is None and not forecast.ranges:
        steps.append(Step("what depends on the target", forecast.least_extra, None))
    elif forecast.extra or forecast.least_extra:
        steps.append(Step("pilot and repair", forecast.least_extra, forecast.extra))
    fresh = verification.interval(forecast, oracle.spec)
    if verify and fresh != (0, 0):
        steps.append(Step("verify", *fresh))
    steps.append(Step("recheck, if refused", 0, 2 * EXPLAINING))
    name = "diagnosis and the learner it chooses" if isinstance(learner, Automatic) else type(learner).__name__
    choices = learner.choices(oracle.spec) if isinstance(learner, Automatic) else {}
    return Estimate(name, tuple(steps), forecast.supposing, tuple(Step(n, *cost) for n, cost in choices.items()))


def _table(rows: Sequence[Step]) -> list[str]:
    width = max(len(row.name) for row in rows)
    return [f"{row.name:<{width}}  {_words(row)}" for row in rows]


def _words(step: Step) -> str:
    if step.upper is None:
        return f"at least {step.lower:,}"
    return f"{step.lower:,}" if step.lower == step.upper else f"{step.lower:,} to {step.upper:,}"
