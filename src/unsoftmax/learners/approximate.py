"""Approximate answers: Theorem 6.1 as published (method "paper"), and the best a noise level allows ("optimal").

Theory: docs/theory/approximate.md, "The default".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from unsoftmax.errors import InvalidArgument
from unsoftmax.inversion import Noise
from unsoftmax.learners.core.acceptance import SCALARS, check
from unsoftmax.learners.core.base import Allowance, Forecast, Outcome, Precision, Program
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.core.links import asking_both_signs
from unsoftmax.learners.core.noise import MEASURING, known_noise, noise_beside
from unsoftmax.learners.core.pair_logits import read_pairs
from unsoftmax.learners.single import approximate_paper
from unsoftmax.learners.single.averaging import Averaging
from unsoftmax.learners.single.averaging_cost import averageable, most_queries, planned_blocks
from unsoftmax.learners.single.constants import SINGLE
from unsoftmax.learners.single.measure import refuse_unknown
from unsoftmax.learners.single.token_pairs import ask_pairs, confirmed, read_values, working_lengths
from unsoftmax.models.single_head import SingleHead as Head
from unsoftmax.probes.scales import require_pairs
from unsoftmax.solvers.token_pairs import TokenPairSystem
from unsoftmax.spec import OracleSpec

_TYPICAL = "a W whose scores the longest tokens do not saturate; pass W_bound= for a bound that holds"
"""What the upper end of averaging supposes, in words."""


@dataclass(frozen=True)
class Approximate:
    """Learn a single head from answers within +-tau, d + d^2 queries, with a bound on what is wrong in the result.

    method    "optimal": both tokens at the norm limit (or as long as rounding allows where there is none), no margin
              on v, no norm bound on W. "paper": Theorem 6.1 as published but for the wider clip its proof needs.
    W_bound   "paper": the known bound on ||W||_F, at least 2. "optimal" with `accuracy`: the forecast then bounds the
              cost (`extra`), and the learner refuses to exceed it; without, the cost depends on W.
    margin    "paper": every nonzero |v_i| is at least this. "optimal" with `accuracy`: |v| is (1 if None).
    accuracy  the wanted bound on ||W^ - W||_F. "paper": refused up front if the tolerance is above the theorem's.
              "optimal": noise is averaged over as many blocks of d + d^2 queries as it takes (`tolerance` is then the
              size of a typical error, which need not be bounded by it). The forecast states what a small W takes; what
              this one takes is planned after a first look, and refused by a budget before it is spent.

    An oracle that declares no tolerance has its noise measured first, and the bounds rest on that measurement.
    """

    method: Literal["optimal", "paper"] = "optimal"
    W_bound: float | None = None
    margin: float | None = None
    accuracy: float | None = None

    accepts = SCALARS

    def forecast(self, spec: OracleSpec) -> Forecast:
        check(self, spec)
        require_pairs(spec, "Approximate")
        d = spec.dim
        if self.method == "paper":
            approximate_paper.check(spec, self.W_bound, self.margin, self.accuracy)
            return Forecast({"values": d, "main": d * d}, extra=0)
        self._refuse_unused(spec)
        blocks = 1
        if self.accuracy is not None and averageable(spec):
            blocks = planned_blocks(spec, self.accuracy, self.margin or 1.0)
        phases = {"values": blocks * d, "main": blocks * d * d}
        most = self._most(spec)
        least = MEASURING if spec.tolerance == 0 and spec.link is None else 0
        if most is not None:
            return Forecast(phases, most - sum(phases.values()), least_extra=least)
        if self.accuracy is not None and averageable(spec):
            # How often is decided by the size of W, which is the target's.
            again = SINGLE.typical_blocks * sum(phases.values()) + 1000
            return Forecast(phases, ranges={"pilot and repair": (least, again)}, supposing=_TYPICAL)
        return Forecast(phases, ranges={"pilot and repair": (least, 2 * (d + d * d) + CORE.most_pilots)})

    def _most(self, spec: OracleSpec) -> int | None:
        """Queries that averaging takes at most, None if that depends on the target."""
        if self.accuracy is None or self.W_bound is None:
            return None
        return most_queries(spec, self.accuracy, self.margin or 1.0, self.W_bound)

    def _refuse_unused(self, spec: OracleSpec) -> None:
        """Arguments without effect are refused by name."""
        if self.accuracy is not None and spec.link is not None:
            raise InvalidArgument(
                f"`accuracy` is reached by averaging, and behind the link {spec.link!r} errors do not average to 0. "
                "Omit it: one pass states the error that it leaves."
            )
        for name in ("W_bound", "margin"):
            if getattr(self, name) is None:
                continue
            if self.accuracy is None:
                raise InvalidArgument(
                    f"`{name}` has no use with method='optimal', which needs no such bound; omit it, pass `accuracy` "
                    "as well, whose cost it states, or choose method='paper'."
                )
            if spec.tolerance == 0 or not averageable(spec):
                raise InvalidArgument(
                    f"`{name}` states the cost of averaging, which needs a declared tolerance and max_norm and no "
                    f"link; this oracle has tolerance {spec.tolerance:g}, max_norm {spec.domain.max_norm} and link "
                    f"{spec.link!r}. Omit it."
                )

    def program(self, spec: OracleSpec, seed: int) -> Program:
        self.forecast(spec)
        if self.method == "paper":
            assert self.W_bound is not None
            assert self.margin is not None
            return approximate_paper.program(spec, self.W_bound, self.margin)
        return self._optimal(spec, seed)

    def _optimal(self, spec: OracleSpec, seed: int) -> Program:
        program = self._both_signs(spec, np.random.default_rng(seed))
        return asking_both_signs(program) if spec.link == "log" else program

    def _both_signs(self, spec: OracleSpec, rng: np.random.Generator) -> Program:
        noise, length, farthest = yield from known_noise(spec, rng, typical=self.accuracy is not None)
        if self.accuracy is None or not averageable(spec):
            return (yield from self._single_pass(spec, noise, length, farthest, rng))
        blocks = planned_blocks(spec, self.accuracy, self.margin or 1.0)
        averaging = Averaging(
            spec, rng.spawn(1)[0], self.accuracy, blocks, farthest, noise, self._most(spec), self.margin
        )
        return (yield from averaging.learn())

    def _single_pass(
        self, spec: OracleSpec, noise: Noise, length: float, farthest: float, rng: np.random.Generator
    ) -> Program:
        values = yield from read_values(spec, noise, length)
        lengths = working_lengths(spec, noise, values, farthest)
        noise = yield from noise_beside(values, lengths.limit, noise, spec, rng)
        design, y = yield from ask_pairs(values, spec, noise, lengths, rng)
        reading = yield from read_pairs(design, y, values, spec, noise)
        system = TokenPairSystem(design.X1, design.X2)
        head = Head(system.solve(reading.T), values.v)
        bound = system.noise_bound(reading.noise) + system.value_gain(reading.P, reading.Q) * values.radius
        precision = Precision(bound, values.radius, noise, "measured" if noise.measured else "proved")
        if spec.tolerance == 0:
            precision = yield from confirmed(head, precision, design, spec, rng)
        refuse_unknown(head, precision, spec)
        notes: tuple[str, ...] = ()
        if self.accuracy is not None and self.accuracy < precision.W:
            notes = (
                f"accuracy={self.accuracy:g} was not reached: answers are averaged only under a declared max_norm.",
            )
        return Outcome(head, notes, precision.claims(), Allowance(precision=precision))
