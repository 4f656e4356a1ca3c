"""Does the target answer the same question twice the same? A sample of answered sequences is asked again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from unsoftmax.errors import BudgetExceeded, Code, InvalidArgument, OracleError
from unsoftmax.inversion import rounding_unit
from unsoftmax.oracles.base import Stage
from unsoftmax.oracles.metering import Meter
from unsoftmax.probes.base import Array, Probes
from unsoftmax.spec import OracleSpec

WIDER = 4.0
"""Tolerance over the largest change seen in a small sample: Gaussian noise stays within it for a million answers."""

PHASE = "recheck"
_REMEMBERED = 64
"""Answered sequences that are kept to be asked again, a fair sample of all."""

_PER_CHUNK = 2
"""Sequences of a chunk that may join them."""

ROUNDINGS = 64.0
"""Units of rounding, of the terms that an answer is made of, by which it may differ between batches and still count as
the same: sums are ordered by the batch, and a dot product of a thousand terms loses up to about 30 of them."""

_BATCHED = 2.0**20
"""The same for an answer that is repeated bit by bit when asked alone: near a tie of scores rounding is multiplied by
these, and only the batch explains the gap. Arithmetic in float32 or another model differ by more."""


@dataclass(frozen=True)
class Recheck:
    """Ask `sample` answered sequences again after every `every` billed ones, and once at the end.

    then   what a changed answer leads to. "stop": OracleError with the measure. "approximate": the run starts over
           with the answers it has and treats the target as approximate, with a tolerance from the measured gaps.
           "report": the result says so and nothing else happens. "expect": nor does it say so.
    """

    every: int = 1024
    sample: int = 4
    then: Literal["stop", "approximate", "report", "expect"] = "stop"

    def __post_init__(self) -> None:
        if self.every < 1 or self.sample < 1:
            raise InvalidArgument(
                f"`every` and `sample` must be at least 1 (got {self.every} and {self.sample}); "
                "pass recheck=None for none."
            )
        if self.then not in ("stop", "approximate", "report", "expect"):
            raise InvalidArgument(f"`then` must be 'stop', 'approximate', 'report' or 'expect' (got {self.then!r}).")


class Unrepeatable(OracleError):
    """The target answered the same sequence differently; `gap` is the largest change seen."""

    code = Code.UNREPEATABLE

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
                after = self._again(probes)
                allowed = self._allowed(probes, before, after)
                if _gap(before, after) > allowed:
                    # Doubt is asked once more before anything is thrown away.
                    allowed = self._allowed_alone(probes, after, allowed)
                self._compare(before, after, allowed)
        except BudgetExceeded:
            return
        finally:
            self._last = self.meter.billed
        if self.gap > gap and self.rule is not None and self.rule.then not in ("report", "expect"):
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

    @property
    def answers(self) -> Array:
        """All numbers (n,) of the remembered answers."""
        return np.concatenate([np.zeros(0), *(answer.ravel() for _, answer in self._asked)])

    def _remember(self, probes: Probes, answer: Array) -> None:
        self._seen += 1
        if len(self._asked) < _REMEMBERED:
            self._asked.append((probes, answer))
        elif (place := int(self._rng.integers(self._seen))) < _REMEMBERED:
            self._asked[place] = probes, answer

    def _again(self, probes: Probes) -> Array:
        """The answer to a sequence asked once more, on its own."""
        (answer,) = self.stage.ask(iter([Probes(probes.tokens, probes.counts, PHASE, probes.offset)]))
        return answer

    def _allowed(self, probes: Probes, *answers: Array) -> float:
        """By what two answers may differ: rounding of the terms they are made of, which may cancel, and the tolerance.

        Terms are as large as the answers to tokens of this length are elsewhere, or to longer ones in proportion. Where
        all answers are numbers of a shorter format than was declared, theirs is the rounding.
        """
        length = _longest(probes)
        seen = [_size(y) * min(1.0, length / max(_longest(x), 1e-300)) for x, y in self._asked]
        size = max([*map(_size, answers), *seen])
        told = np.concatenate([self.answers, *(np.ravel(y) for y in answers)])
        eps = max(self.spec.eps, rounding_unit(told[np.isfinite(told)]))
        return 2 * self.spec.tolerance + ROUNDINGS * eps * size

    def _allowed_alone(self, probes: Probes, after: Array, allowed: float) -> float:
        """The same if the target repeats itself bit by bit outside a batch: then the batch explains more."""
        if not np.array_equal(after, self._again(probes)):
            return allowed
        return allowed * _BATCHED / ROUNDINGS

    def _compare(self, before: Array, after: Array, allowed: float) -> None:
        self.repeated += 1
        gap = _gap(before, after)
        if gap > allowed:
            self.changed += 1
            self.shift += float(np.mean(_change(before, after)))
            self.gap = max(self.gap, gap)


def _change(before: Array, after: Array) -> Array:
    """Saturated answers are infinite, and whether one saturates can hang on the noise: these do not compare."""
    finite = np.isfinite(before) & np.isfinite(after)
    return np.asarray(after[finite] - before[finite])


def _gap(before: Array, after: Array) -> float:
    return float(np.abs(_change(before, after)).max(initial=0.0))


def _size(answer: Array) -> float:
    return float(np.abs(answer[np.isfinite(answer)]).max(initial=0.0))


def _longest(probes: Probes) -> float:
    """Norm of the longest token; ids have length 1."""
    return float(np.linalg.norm(probes.tokens, axis=-1).max()) if probes.tokens.ndim == 3 else 1.0
