"""Pairs along rays, [lam a + b / lam ; b / lam] with copies: the answer depends on the heads that are on, and on them
alone, because everything else vanishes next to lam a.

Theory: docs/theory/multi-head.md, "Several heads behind a network", statement.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.learners.behind.constants import BEHIND
from unsoftmax.learners.core.base import Asking
from unsoftmax.probes.base import Array, Probes
from unsoftmax.probes.scales import held
from unsoftmax.spec import OracleSpec


@dataclass(frozen=True, eq=False)
class Far:
    """Rays of length `length`, where the network is homogeneous of `degree`; `scale`: size of an answer at |a| = 1."""

    spec: OracleSpec
    length: float
    degree: int
    noise: float
    scale: float

    def tokens(self, a: Array, b: Array) -> Array:
        """(batch, 2, d) for a (batch, d), b (batch, d) or (d,)."""
        query = held(np.broadcast_to(b, a.shape) / self.length, self.spec.dtype)
        return np.stack([held(a * self.length + query, self.spec.dtype), query], axis=1)

    def ask(self, a: Array, b: Array, copies: tuple[int, int] = (1, 1), *, phase: str) -> Asking[Array]:
        """Answers over length^degree: sigma(t)^p c(a) if one head is on, 0 if none is."""
        counts = None if copies == (1, 1) else np.tile(copies, (len(a), 1))
        y = yield Probes(self.tokens(a, b), counts, phase)
        return y / self.length**self.degree

    def silent(self, y: Array, a: Array, factor: float = 1e3) -> Array:
        """Is nothing on?"""
        return np.asarray(np.abs(y) <= factor * self.noise * self.scale * np.linalg.norm(a, axis=-1) ** self.degree)

    def one_head(self, a: Array, b: Array, *, phase: str) -> Asking[tuple[Array, Array]]:
        """t and y from 1 and 4 copies of b: sigma(t) / sigma(t - log 4) is between 1 and 4 if one head is on."""
        first = yield from self.ask(a, b, phase=phase)
        second = yield from self.ask(a, b, (1, BEHIND.second_copies), phase=phase)
        with np.errstate(all="ignore"):
            ratio = np.abs(first / second) ** (1 / self.degree) * np.sign(first / second)
            t = -np.log((ratio - 1) / (BEHIND.second_copies - ratio))
        return np.where(first == 0, np.nan, t), first
