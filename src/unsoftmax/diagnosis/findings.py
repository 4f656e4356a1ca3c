"""Findings: what was observed, with its evidence and confidence; a Diagnosis reads as sentences and as data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from unsoftmax.results.recovery import Usage


@dataclass(frozen=True)
class Finding:
    """One trait of the target: its value, the sentence for people, the figures behind it, how sure (0 to 1)."""

    name: str
    value: Any
    sentence: str
    confidence: float = 1.0
    evidence: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Diagnosis:
    """What the target is. `family` is "outside" if it is in no class a learner here learns; `learner` is then None."""

    family: str
    learner: Any
    findings: tuple[Finding, ...]
    reasons: tuple[str, ...] = ()
    usage: Usage = field(default_factory=Usage)

    def __getitem__(self, name: str) -> Any:
        """Value of a finding by name; KeyError if it was not looked for."""
        for finding in self.findings:
            if finding.name == name:
                return finding.value
        raise KeyError(name)

    def __contains__(self, name: str) -> bool:
        return any(finding.name == name for finding in self.findings)

    def sentences(self) -> Iterator[str]:
        """The diagnosis for people."""
        yield f"The target is {describe(self.family)}."
        yield from (f"{f.sentence} (confidence {f.confidence:.0%})" for f in self.findings)
        yield from self.reasons
        if self.learner is not None:
            yield f"Learner: {self.learner}."

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
            "queries": self.usage.billed,
        }


def describe(family: str) -> str:
    """A family with its article."""
    if family == "zero":
        return "zero wherever it was asked"
    if family == "outside":
        return "outside every class this version learns"
    return f"{'an' if family[0] in 'aeiou' else 'a'} {family}"
