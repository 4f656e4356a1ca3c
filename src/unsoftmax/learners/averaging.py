"""Noise that differs from sequence to sequence, averaged: K blocks of d + d^2 queries, no two sequences alike.

Every block turns its tokens at random (a dense design), so that rounding errors differ too, and a ledger, which answers
the same sequence with the same number, does not defeat the averaging.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from unsoftmax import theory
from unsoftmax.errors import InvalidArgument
from unsoftmax.inversion import Noise
from unsoftmax.learners.base import Asking, Outcome, Precision
from unsoftmax.learners.noise import FREEDOM
from unsoftmax.learners.pair_logits import Values
from unsoftmax.learners.token_pairs import distinguishable
from unsoftmax.models.single_head import SingleHead as Head
from unsoftmax.probes.base import Array, one_row
from unsoftmax.probes.norm_budget import representable, token_pairs
from unsoftmax.solvers.blocks import Block, deviation_at_most, error_quantile, saturation, solve_blocks
from unsoftmax.spec import OracleSpec

_MOST_QUERIES = 10**9
_SATURATED = 0.06
"""Mean of (alpha - 1/2)^2 above which logits are too large on the whole (their root mean square is then about 1.3)."""

_TOP_UPS = 4
_LEAST_REDUNDANCY = 16
"""Residuals of pair answers that must witness the noise inside: two blocks of few tokens would agree by chance."""


def planned_blocks(spec: OracleSpec, accuracy: float | None, value_norm: float) -> int:
    """Blocks for a declared tolerance under a norm limit; 1 where there is nothing to average."""
    limit = spec.domain.norm_limit
    if accuracy is None or spec.tolerance == 0 or spec.link is not None or math.isinf(limit):
        return 1
    blocks = theory.averaging_blocks(spec.dim, spec.tolerance, limit, value_norm, accuracy)
    return _affordable(blocks, spec.dim, accuracy)


def _affordable(blocks: float, d: int, accuracy: float) -> int:
    """The number of blocks as an integer, or a refusal that says what it would cost."""
    if not blocks * theory.approximate_queries(d) <= _MOST_QUERIES:
        raise InvalidArgument(
            f"accuracy={accuracy:g} would take {blocks:.2g} blocks of {d + d * d} queries at this noise and length; "
            "ask for less accuracy, or allow longer tokens (the error falls with the cube of max_norm)."
        )
    return int(blocks)


@dataclass
class Averaging:
    """State of one averaged run: blocks asked so far, and where the next ones are billed.

    `planned` blocks are billed as "values" and "main", what the target turns out to need beyond them as "repair".
    `prior` is the deviation of an answer as declared or measured before, and is worth `prior_freedom` residuals.
    """

    spec: OracleSpec
    rng: np.random.Generator
    accuracy: float
    planned: int
    length: float
    prior: float
    prior_freedom: int = FREEDOM
    unexplained: float = 0.0
    shorter: float = 0.0
    values: list[Array] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    billed: int = 0

    def learn(self) -> Asking[Outcome]:
        """Ask what was planned, then as much more as the answers say is needed; solve; state what is left."""
        self.shorter = self.length
        yield from self._ask_values(max(self.planned, 1))
        v = self._mean()
        while v.norm <= 2 * v.radius and len(self.values) < 256 * max(self.planned, 1):
            yield from self._ask_values(3 * len(self.values))
            v = self._mean()
        distinguishable(v, self.length)
        yield from self._settle(v.v)
        # What blocks disagree by is the only witness of the noise inside.
        least = 1 + math.ceil(_LEAST_REDUNDANCY / self.spec.dim**2)
        wanted = max(self.planned if self.planned > 1 else self._needed(v.norm), least)
        for _ in range(_TOP_UPS):
            yield from self._ask_values(wanted - len(self.values))
            v = self._mean()
            yield from self._ask_blocks(wanted - len(self.blocks), v.v)
            W, self.unexplained = solve_blocks(self.blocks, v.v)
            v = self._mean()
            deviation = self.deviation
            bound = error_quantile(
                self.blocks, v.v, W, deviation, deviation / math.sqrt(len(self.values)) / self.length
            )
            if bound <= self.accuracy:
                break
            wanted = _affordable(
                math.ceil(len(self.blocks) * (1.05 * bound / self.accuracy) ** 2), self.spec.dim, self.accuracy
            )
        noise = Noise(3 * self.deviation, 4 * self.spec.eps, measured=True)
        precision = Precision(bound, v.radius, noise, "measured")
        note = (
            f"{len(self.blocks)} blocks averaged, a single answer deviates by at most {self.deviation:.2g}; the bounds "
            "suppose that errors of different sequences are independent."
        )
        return Outcome(Head(W, v.v), (note,), precision.claims(), precision)

    def _needed(self, value_norm: float) -> int:
        """Blocks at the current lengths; the error grows as x2 is shortened."""
        d, accuracy = self.spec.dim, self.accuracy * self.shorter / self.length
        blocks = theory.averaging_blocks(d, self.deviation, self.length, value_norm, accuracy)
        return _affordable(blocks, d, self.accuracy)

    def _ask_values(self, count: int) -> Asking[None]:
        """More blocks of d orthogonal one-row queries; the first is along the unit vectors."""
        d = self.spec.dim
        for _ in range(count):
            Q = np.eye(d) if not self.values else np.linalg.qr(self.rng.standard_normal((d, d)))[0]
            x = representable(Q * self.length, self.spec.dtype)
            y = yield one_row(x, phase="values" if len(self.values) < self.planned else "repair")
            self.values.append(np.linalg.solve(x, y))

    @property
    def deviation(self) -> float:
        """Deviation of an answer, from everything that was seen more often than needed, and not likely below it."""
        d = self.spec.dim
        among_values = d * (len(self.values) - 1)
        among_blocks = d * d * (len(self.blocks) - 1) if self.unexplained else 0
        squares = self.prior_freedom * self.prior**2 + among_blocks * self.unexplained**2
        if among_values > 0:
            left = np.array(self.values) - np.mean(self.values, axis=0)
            squares += float((left**2).sum()) * self.length**2
        freedom = self.prior_freedom + max(among_values, 0) + among_blocks
        return deviation_at_most(math.sqrt(squares / freedom), freedom)

    def _mean(self) -> Values:
        """v and a radius its error rarely leaves."""
        d = self.spec.dim
        expected = math.sqrt(d / len(self.values)) * self.deviation / self.length
        return Values(np.mean(self.values, axis=0), (1 + 3 / math.sqrt(d)) * expected)

    def _settle(self, v: Array) -> Asking[None]:
        """Shorten x2 until the logits are not saturated on the whole; costs nothing where they are not."""
        d = self.spec.dim
        span = 2 * self.length * float(np.linalg.norm(v)) / math.sqrt(3)
        # The noise of alpha must not hide its spread: the mean over a block is off by this share of it.
        unsure = (self.deviation / span) ** 2 * math.sqrt(2) / d
        count = max(1, math.ceil((unsure / 0.02) ** 2))
        for _ in range(60):
            yield from self._ask_blocks(count, v)
            if saturation(self.blocks, v, self.deviation) <= _SATURATED:
                return
            self.blocks.clear()
            self.shorter /= 4

    def _ask_blocks(self, count: int, v: Array) -> Asking[None]:
        d = self.spec.dim
        for _ in range(count):
            design = token_pairs(v, self.length, self.shorter, self.spec.dtype, rng=self.rng)
            y = yield design.columns(0, d, "main" if self.billed < self.planned else "repair")
            self.billed += 1
            self.blocks.append(Block(design, design.matrix(y)))
