"""What a comparison says, before the bill is added."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from unsoftmax.models.base import Array
from unsoftmax.results.comparison import Verdict


@dataclass(frozen=True, eq=False)
class Finding:
    """The fields of a Comparison that the program itself knows."""

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

    def said(self, verdict: Verdict, sentence: str, **more: Any) -> Finding:
        """The same evidence with a verdict; `evidence` in `more` is added to what there is."""
        evidence = self.evidence | more.pop("evidence", {})
        return replace(self, verdict=verdict, sentence=sentence, evidence=evidence, **more)
