"""Comparison: whether a target is its reference, what changed, what that cost, and what would not have been seen."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Self, get_args

import numpy as np

from unsoftmax.errors import FileFormatError
from unsoftmax.models.base import Array, write_safetensors
from unsoftmax.models.files import read_safetensors
from unsoftmax.results.recovery import Usage, as_json, usage_from

COMPARISON_FORMAT = "unsoftmax-comparison/1"

Verdict = Literal[
    "same",
    "scale",
    "format",
    "arithmetic",
    "values",
    "sparse",
    "low rank",
    "dense",
    "different",
    "unexplained",
    "stochastic",
    "undecided",
]

_OPEN = ("stochastic", "undecided")


@dataclass(frozen=True, eq=False)
class Finding:
    """What a comparison says, before the bill is added.

    p_value     of the hypothesis that answers differ from the reference's by rounding alone, corrected for all tests
    e_value     the same evidence as a bet: at most 1 on average where nothing changed
    detectable  smallest relative change of the weights that would have been seen with 99 %; of the answers where the
                reference's weights are out of reach
    format      name of the number format the weights are in, if that explains the answers
    heads       indices of the changed heads, or None
    delta       change of W, (d, d) or (H, d, d), or None
    rank        largest rank of the change of a head
    changes     changed weights by name, where their change is known: v (H, d), or K, Q, V, O of a layer
    evidence    numbers behind the verdict, and what was not looked at
    """

    verdict: Verdict
    sentence: str
    p_value: float
    e_value: float
    detectable: float
    format: str | None = None
    heads: tuple[int, ...] | None = None
    delta: Array | None = None
    rank: int | None = None
    changes: dict[str, Array] = field(default_factory=dict)
    evidence: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def said(self, verdict: Verdict, sentence: str, **more: Any) -> Self:
        """The same evidence with a verdict; `evidence` in `more` is added to what there is."""
        evidence = self.evidence | more.pop("evidence", {})
        return replace(self, verdict=verdict, sentence=sentence, evidence=evidence, **more)


@dataclass(frozen=True, eq=False)
class Comparison(Finding):
    """Result of `compare`: what was found, what it cost, and how it came about."""

    usage: Usage = field(kw_only=True)
    provenance: dict[str, Any] = field(default_factory=dict, kw_only=True)

    @property
    def differs(self) -> bool | None:
        """False for "same", None where nothing can be said, else True."""
        return None if self.verdict in _OPEN else self.verdict != "same"

    def __repr__(self) -> str:
        phases = ", ".join(f"{name} {n}" for name, n in self.usage.phases.items())
        lines = [
            f"Comparison: {self.verdict}: {self.sentence}",
            f"  queries: {self.usage.billed} billed ({phases or 'none'}), p = {self.p_value:.2g}, "
            f"detectable change {self.detectable:.2g}",
            *(f"  note: {note}" for note in self.notes),
        ]
        return "\n".join(lines)

    def facts(self) -> dict[str, Any]:
        """Everything but the arrays, as plain data."""
        return {
            "verdict": self.verdict,
            "differs": self.differs,
            "sentence": self.sentence,
            "p_value": self.p_value,
            "e_value": finite(self.e_value),
            "detectable": finite(self.detectable),
            "format": self.format,
            "heads": None if self.heads is None else list(self.heads),
            "rank": self.rank,
            "evidence": self.evidence,
            "notes": list(self.notes),
            "usage": asdict(self.usage),
            "provenance": self.provenance,
        }

    def to_json(self) -> str:
        """The facts as JSON; `report.COMPARISON_SCHEMA` describes them."""
        return json.dumps({"format_version": COMPARISON_FORMAT, **self.facts()}, default=as_json, indent=1) + "\n"

    def save(self, path: str | Path) -> None:
        """Write a safetensors file with a JSON header; `us.load` reads it."""
        tensors = {} if self.delta is None else {"delta": self.delta}
        tensors |= {f"changes.{name}": change for name, change in self.changes.items()}
        header = json.dumps(self.facts(), default=as_json)
        write_safetensors(path, tensors or {"_": np.zeros(0)}, {"format": COMPARISON_FORMAT, "comparison": header})


def finite(value: float) -> float | None:
    """The number, None where JSON has no word for it."""
    return value if np.isfinite(value) else None


def load_comparison(path: str | Path) -> Comparison:
    """Read a Comparison written by `Comparison.save`."""
    tensors, metadata = read_safetensors(path)
    if metadata.get("format") != COMPARISON_FORMAT:
        raise FileFormatError(f"{path} has the format {metadata.get('format')!r}, not {COMPARISON_FORMAT!r}.")
    try:
        header = json.loads(metadata["comparison"])
        if header["verdict"] not in get_args(Verdict):
            raise ValueError(f"the verdict {header['verdict']!r} is unknown")
        heads = header["heads"]
        return Comparison(
            verdict=header["verdict"],
            sentence=str(header["sentence"]),
            p_value=float(header["p_value"]),
            e_value=_number(header["e_value"]),
            detectable=_number(header["detectable"]),
            usage=usage_from(header["usage"]),
            format=None if header["format"] is None else str(header["format"]),
            heads=None if heads is None else tuple(int(h) for h in heads),
            delta=tensors.get("delta"),
            rank=None if header["rank"] is None else int(header["rank"]),
            changes={k.removeprefix("changes."): a for k, a in tensors.items() if k.startswith("changes.")},
            evidence=dict(header["evidence"]),
            notes=tuple(str(note) for note in header["notes"]),
            provenance=dict(header["provenance"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FileFormatError(f"{path} has a damaged comparison header ({error}).") from error


def _number(value: Any) -> float:
    return float("inf") if value is None else float(value)
