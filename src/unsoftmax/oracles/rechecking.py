"""Does the target answer the same question twice the same? A sample of answered sequences is asked again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from unsoftmax.errors import BudgetExceeded, InvalidArgument, OracleError
from unsoftmax.oracles.base import Stage
from unsoftmax.oracles.metering import Meter
from unsoftmax.probes.base import Array, Probes
from unsoftmax.spec import OracleSpec

PHASE = "recheck"
_REMEMBERED = 64
_PER_CHUNK = 2
_ROUNDINGS = 64.0
"""Units of rounding by which an answer may differ between batches and still count as the same."""


@dataclass(frozen=True)
class Recheck:
    """Ask `sample` answered sequences again after every `every` billed ones, and once at the end.

    then   what a changed answer leads to. "stop": OracleError with the measure. "approximate": the run starts over
           with the answers it has and treats the target as approximate, with a tolerance from the measured gaps.
           "report": the result says so and nothing else happens.
    """

    every: int = 1024
    sample: int = 4
    then: Literal["stop", "approximate", "report"] = "stop"

    def __post_init__(self) -> None:
        if self.every < 1 or self.sample < 1:
            raise InvalidArgument(
                f"`every` and `sample` must be at least 1 (got {self.every} and {self.sample}); "
                "pass recheck=None for none."
            )
        if self.then not in ("stop", "approximate", "report"):
            raise InvalidArgument(f"`then` must be 'stop', 'approximate' or 'report' (got {self.then!r}).")


class Unrepeatable(OracleError):
    """The target answered the same sequence differently; `gap` is the largest change seen."""

    def __init__(self, message: str, gap: float = 0.0) -> None:
        super().__init__(message)
        self.gap = gap


@dataclass
class Rechecker:
    """Remembers a sample of sequences with their answers, asks them again, and measures what changed."""

    stage: Stage
    spec: OracleSpec
    meter: Meter
    rule: Recheck | None = None
    repeated: int = 0
    changed: int = 0
    gap: float = 0.0
    shift: float = 0.0
    """Sum of the signed changes: drift has one sign, randomness has both."""
    _asked: list[tuple[Probes, Array]] = field(default_factory=list)
    _seen: int = 0
    _last: int = 0
    _rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def watch(self, chunks: Iterable[Probes], outer: Stage) -> Iterator[Array]:
        """The answers of `outer`, with repetitions whenever they are due."""
        passing: list[tuple[Array, Probes]] = []

        def noting() -> Iterator[Probes]:
            for probes in chunks:
                rows = self._rng.integers(len(probes), size=min(_PER_CHUNK, len(probes)))
                passing.append((rows, probes.take(rows)))
                yield probes

        for answer in outer.ask(noting()):
            rows, some = passing.pop(0)
            for i, row in enumerate(rows):
                self._remember(some[i : i + 1], answer[row : row + 1])
            yield answer
            if self.rule is not None and self.meter.billed - self._last >= self.rule.every:
                self.check(self.rule.sample)

    def check(self, sample: int) -> None:
        """Ask some again now; raises Unrepeatable if that is the rule. A budget that cannot pay is respected."""
        chosen = self._rng.permutation(len(self._asked))[:sample]
        gap = self.gap
        try:
            for i in chosen:
                probes, before = self._asked[i]
                again = Probes(probes.tokens, probes.counts, PHASE, probes.offset)
                for answer in self.stage.ask(iter([again])):
                    self._compare(before, answer)
        except BudgetExceeded:
            return
        finally:
            self._last = self.meter.billed
        if self.gap > gap and self.rule is not None and self.rule.then != "report":
            raise Unrepeatable(
                f"the target is not deterministic: {self}. Declare tolerance=, pass "
                "recheck=Recheck(then='approximate'), or mend the target; paid answers are kept.",
                self.gap,
            )

    def __str__(self) -> str:
        if self.changed == 0:
            return f"{self.repeated} sequences were asked again and answered the same"
        return (
            f"{self.changed} of {self.repeated} sequences asked again were answered differently, "
            f"by up to {self.gap:.2g} (mean change {self.shift / self.repeated:+.2g})"
        )

    def _remember(self, probes: Probes, answer: Array) -> None:
        self._seen += 1
        if len(self._asked) < _REMEMBERED:
            self._asked.append((probes, answer))
        elif (place := int(self._rng.integers(self._seen))) < _REMEMBERED:
            self._asked[place] = probes, answer

    def _compare(self, before: Array, after: Array) -> None:
        # Saturated answers are infinite, and whether one saturates can hang on the noise: these do not compare.
        finite = np.isfinite(before) & np.isfinite(after)
        before, after = before[finite], after[finite]
        change = after - before
        size = float(np.abs(before).max(initial=0.0))
        allowed = 2 * self.spec.tolerance + _ROUNDINGS * self.spec.eps * max(
            size, float(np.abs(after).max(initial=0.0))
        )
        self.repeated += 1
        if np.abs(change).max(initial=0.0) > allowed:
            self.changed += 1
            self.shift += float(change.mean())
            self.gap = max(self.gap, float(np.abs(change).max()))
