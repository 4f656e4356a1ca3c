"""Scope: what a result is about. Which part of the target was asked, where, and with which inputs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from unsoftmax.probes.base import Array

Range = tuple[float, float]
"""Smallest and largest."""


@dataclass(frozen=True)
class Scope:
    """`part` None: the target as it is; `position` None: where the target itself takes the answer.

    `norms` and `lengths` are those of the tokens and sequences of fresh queries; None if none was asked, or ids were.
    """

    target: str
    part: str | None = None
    position: int | None = None
    link: str | None = None
    norms: Range | None = None
    lengths: tuple[int, int] | None = None

    def with_probes(self, tokens: Array, lengths: Array) -> Scope:
        """The scope that also covers these sequences: tokens (batch, N, d) or ids (batch, N), lengths (batch,)."""
        if not len(tokens):
            return self
        norms = self.norms
        if tokens.ndim == 3:
            seen = np.linalg.norm(tokens, axis=2)
            norms = _wider(norms, float(seen.min()), float(seen.max()))
        low, high = _wider(self.lengths, int(lengths.min()), int(lengths.max()))
        return replace(self, norms=norms, lengths=(int(low), int(high)))

    @property
    def what(self) -> str:
        """The part and the position, for people."""
        words = f"{self.target}, the whole of it" if self.part is None else f"{self.target}, its part {self.part!r}"
        return words if self.position is None else f"{words}, at {_place(self.position)}"

    def __str__(self) -> str:
        words = self.what
        if self.link is not None:
            words += f", before the link {self.link!r}"
        if self.norms is not None:
            words += f"; token norms {_span(*self.norms)}"
        if self.lengths is not None:
            low, high = self.lengths
            words += f"; sequences of {low} token{'s' * (low > 1)}" if low == high else f"; {low} to {high} tokens"
        return words


def scope_from(data: dict[str, Any] | None) -> Scope | None:
    """Inverse of dataclasses.asdict; TypeError or ValueError if the data are something else."""
    if data is None:
        return None
    norms, lengths = (None if data[name] is None else _pair(data[name]) for name in ("norms", "lengths"))
    position = data["position"]
    texts = {name: data[name] for name in ("part", "link")}
    if not all(text is None or isinstance(text, str) for text in texts.values()):
        raise TypeError("a scope names its part and link in words")
    return Scope(
        target=str(data["target"]),
        position=None if position is None else int(position),
        norms=norms,
        lengths=None if lengths is None else (int(lengths[0]), int(lengths[1])),
        **texts,
    )


def _pair(values: Any) -> Range:
    low, high = (float(value) for value in values)
    return low, high


def _wider(known: Range | None, low: float, high: float) -> Range:
    return (low, high) if known is None else (min(low, known[0]), max(high, known[1]))


def _place(position: int) -> str:
    return {0: "the first position", -1: "the last position"}.get(position, f"position {position}")


def _span(low: float, high: float) -> str:
    same = np.isclose(low, high, rtol=1e-3)
    return f"{high:.3g}" if same else f"{low:.3g} to {high:.3g}"
