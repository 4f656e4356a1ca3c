"""The state of a search along a great circle: pieces, what is known of the gaps between them, and what to ask next.

Theory: docs/theory/relu-network.md, "Method", kinks.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from unsoftmax.probes.base import Array
from unsoftmax.solvers.sinusoids import Piece


@dataclass(frozen=True)
class Chain:
    """Pieces in order of angle and the kinks between them; `resolved[k]` is False where several kinks are too close
    to be told apart (the two pieces around are then not neighbours). `sigma`: noise of an answer on this circle."""

    pieces: list[Piece]
    kinks: Array
    resolved: Array
    sigma: float

    def __len__(self) -> int:
        return len(self.kinks)


@dataclass
class Gap:
    """What lies between two pieces: nothing known, a kink, or kinks too close to separate.

    blind: the crossing misled, look anywhere; vague: the kink is so slight that a point near it fitted both pieces;
    reach: factor on the steps of a new piece, smaller where a step left the piece before.
    """

    kink: float | None = None
    lost: bool = False
    blind: bool = False
    vague: bool = False
    looks: int = 0
    reach: float = 1.0

    @property
    def open(self) -> bool:
        return self.kink is None and not self.lost


@dataclass
class Plan:
    """One gap's queries of a level: two around a crossing, or one somewhere inside."""

    gap: int
    angles: list[float]
    crossing: float | None = None
    values: list[float] = field(default_factory=list)
