"""Findings: what was observed, with its evidence and confidence; a Diagnosis reads as sentences and as data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any

from unsoftmax.diagnosis.confidence import earned
from unsoftmax.errors import Code
from unsoftmax.results.recovery import Usage

CODES = (
    Code.NOISE, Code.ZERO, Code.CONSTANT, Code.LABELS, Code.ORDER, Code.FIRST_POSITION, Code.POOLED, Code.NO_ATTENTION,
    Code.ROW, Code.NETWORK, Code.LAW, Code.BOUNDED_SCORES, Code.HEADS, Code.TOKENS, Code.OUTPUTS, Code.NORM_BEHIND,
)  # fmt: skip
"""Why no learner was chosen: the trait that no class has, or that could not be seen."""


@dataclass(frozen=True)
class Finding:
    """One trait of the target: its value, the sentence for people, the figures behind it, how sure (0 to 1).

    The sentence says what was seen, not what might cause it. The confidence is `EARNED` unless given.
    """

    name: str
    value: Any
    sentence: str
    confidence: float | None = None
    evidence: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.confidence is None:
            object.__setattr__(self, "confidence", earned(self.name, self.value))


@dataclass(frozen=True)
class Suggestion:
    """What to try where no learner was chosen: a learner by name, or options of the oracle that were not declared."""

    because: str
    learner: Any = None
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def flags(self) -> str:
        """The same on the command line."""
        words = [f"--{name.replace('_', '-')} {value}" for name, value in self.options.items()]
        if self.learner is not None:
            words.append(f"--learner {type(self.learner).__name__}")
            words += [f"--set {name}={_toml(value)}" for name, value in _changed(self.learner)]
        return " ".join(words)

    def __str__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        made = f"{given} of the oracle" if given else ""
        if self.learner is not None:
            changed = ", ".join(f"{name}={value!r}" for name, value in _changed(self.learner))
            made = f"us.learners.{type(self.learner).__name__}({changed})"
        return f"Try {made} ({self.flags}): {self.because}."


@dataclass(frozen=True)
class Diagnosis:
    """What the target is. `family` is "outside" if no learner was found to fit; `learner` is then None.

    `code` names the assumption that failed, one of CODES; `suggestions` are what may fit all the same.
    """

    family: str
    learner: Any
    findings: tuple[Finding, ...]
    reasons: tuple[str, ...] = ()
    usage: Usage = field(default_factory=Usage)
    code: str = ""
    suggestions: tuple[Suggestion, ...] = ()

    def __getitem__(self, name: str) -> Any:
        """Value of a finding by name; KeyError if it was not looked for."""
        for finding in self.findings:
            if finding.name == name:
                return finding.value
        raise KeyError(name)

    def __contains__(self, name: str) -> bool:
        return any(finding.name == name for finding in self.findings)

    def sentences(self) -> Iterator[str]:
        """The diagnosis for people: what it is and why, what to do, then what was seen."""
        yield f"The target is {describe(self.family)}."
        yield from self.reasons
        yield from map(str, self.suggestions)
        if self.learner is not None:
            yield f"Learner: {self.learner}."
        yield from (f"{f.sentence} (confidence {f.confidence:.0%})" for f in self.findings)

    def __str__(self) -> str:
        return "\n".join(self.sentences())

    def to_dict(self) -> dict[str, Any]:
        """The diagnosis as plain data."""
        return {
            "family": self.family,
            "learner": None if self.learner is None else repr(self.learner),
            "findings": [
                {
                    "name": f.name,
                    "value": f.value,
                    "sentence": f.sentence,
                    "confidence": f.confidence,
                    "evidence": f.evidence,
                }
                for f in self.findings
            ],
            "reasons": list(self.reasons),
            "code": self.code,
            "suggestions": [
                {"because": s.because, "learner": None if s.learner is None else repr(s.learner), "options": s.options}
                for s in self.suggestions
            ],
            "queries": self.usage.billed,
        }


def outside(found: tuple[Finding, ...], code: str, because: str, *suggestions: Suggestion) -> Diagnosis:
    """No learner fits."""
    return Diagnosis("outside", None, found, (f"No learner is chosen: {because}.",), code=code, suggestions=suggestions)


def describe(family: str) -> str:
    """A family with its article."""
    if family == "zero":
        return "zero wherever it was asked"
    if family == "outside":
        return "not of a class that was found to fit"
    return f"{'an' if family[0] in 'aeiou' else 'a'} {family}"


def _changed(learner: Any) -> list[tuple[str, Any]]:
    """Parameters of a learner that are not as by default."""
    return [(f.name, getattr(learner, f.name)) for f in fields(learner) if getattr(learner, f.name) != f.default]


def _toml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
