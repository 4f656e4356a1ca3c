"""Findings: what was observed, with its evidence and confidence; a Diagnosis reads as sentences and as data.

How sure a finding is: how often one of its kind was right on targets kept apart, on which it was partly mended.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any

from unsoftmax.errors import Code
from unsoftmax.results.recovery import Usage

EARNED: dict[tuple[str, Any], tuple[int, int]] = {
    ("affine scores", False): (5, 5),
    ("affine scores", True): (5, 5),
    ("answering position", "all"): (10, 10),
    ("answering position", "first"): (10, 10),
    ("answering position", "last"): (160, 160),
    ("answering position", None): (5, 5),
    ("attention behind a network", False): (10, 10),
    ("attention behind a network", True): (10, 10),
    ("copies", False): (15, 15),
    ("deterministic", False): (5, 5),
    ("deterministic", True): (35, 35),
    ("frozen contexts", True): (25, 25),
    ("heads", None): (59, 59),
    ("kernel", "1 + elu"): (10, 10),
    ("kernel", "none"): (0, 2),
    ("kernel", "relu^2"): (5, 5),
    ("kernel", "sigmoid"): (10, 10),
    ("kernel", "softplus"): (10, 10),
    ("kernel", None): (18, 18),
    ("key groups", None): (25, 25),
    ("mixing law", False): (10, 10),
    ("mixing law", True): (10, 10),
    ("networks", False): (10, 10),
    ("networks", True): (15, 15),
    ("norm before", "layer"): (10, 10),
    ("norm before", "none"): (10, 10),
    ("norm before", "rms"): (10, 10),
    ("norm last", False): (10, 10),
    ("norm", "none"): (15, 15),
    ("norm", "post"): (10, 10),
    ("norm", "pre"): (10, 10),
    ("norm", "rms"): (45, 45),
    ("normalised", False): (25, 25),
    ("normalised", True): (28, 28),
    ("one row", "affine"): (5, 5),
    ("one row", "bounded"): (10, 10),
    ("one row", "homogeneous"): (10, 10),
    ("one row", "linear"): (70, 70),
    ("one row", "normalised"): (5, 5),
    ("one row", "piecewise linear"): (10, 10),
    ("one row", "smooth"): (15, 15),
    ("order", False): (170, 170),
    ("order", True): (55, 55),
    ("other tokens", False): (10, 10),
    ("other tokens", True): (180, 180),
    ("positions", "alibi"): (5, 5),
    ("positions", "rotary with a query bias"): (5, 5),
    ("positions", "rotary"): (30, 30),
    ("precision", "float64"): (35, 35),
    ("rank", None): (5, 5),
    ("score law", "capped"): (5, 5),
    ("score law", "linear"): (30, 30),
    ("score law", "normed"): (4, 4),
    ("scores", "bounded"): (14, 14),
    ("scores", "free"): (10, 10),
    ("several heads", False): (15, 15),
    ("short tokens", True): (10, 10),
    ("single head", False): (20, 20),
    ("sinks", False): (35, 35),
    ("sinks", True): (5, 5),
    ("token head", False): (10, 10),
    ("token head", True): (10, 10),
    ("value groups", None): (39, 39),
    ("window", None): (40, 40),
}
"""(finding, value) -> (right, tried), counted by `tests/diagnosis/test_confidence.py` on `tests/diagnosis/held_out.py`;
a value of None stands for all others of the finding."""

_CERTAIN = frozenset(
    {"outputs", "answers", "access", "link", "padding", "limit on token norm", "limit on sequence length"}
)
"""Findings that repeat what was declared, or state a figure as it was measured."""


def earned(name: str, value: Any) -> float:
    """Laplace's rule: (right + 1) / (tried + 2), so that a finding never tried is worth a half."""
    if name in _CERTAIN:
        return 1.0
    key = (name, value if isinstance(value, (str, bool)) else None)
    right, tried = EARNED.get(key, EARNED.get((name, None), (0, 0)))
    return (right + 1) / (tried + 2)


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
