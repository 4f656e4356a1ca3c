"""Approximate answers: Theorem 6.1 as published (method "paper"), and the best a noise level allows ("optimal")."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from unsoftmax import theory
from unsoftmax.errors import InvalidArgument
from unsoftmax.inversion import Noise
from unsoftmax.learners import approximate_paper
from unsoftmax.learners.averaging import Averaging, planned_blocks
from unsoftmax.learners.base import Forecast, Outcome, Precision, Program
from unsoftmax.learners.links import asking_both_signs
from unsoftmax.learners.noise import FREEDOM, confirmed, known_noise, sigmas
from unsoftmax.learners.pair_logits import read_pairs
from unsoftmax.learners.parameters import check_parameters
from unsoftmax.learners.token_pairs import ask_pairs, read_values, working_lengths
from unsoftmax.models.single_head import SingleHead as Head
from unsoftmax.probes.scales import require_pairs
from unsoftmax.solvers.blocks import deviation_at_most
from unsoftmax.solvers.token_pairs import TokenPairSystem
from unsoftmax.spec import OracleSpec


@dataclass(frozen=True)
class Approximate:
    """Learn a single head from answers within +-tau, d + d^2 queries, with a bound on what is wrong in the result.

    method    "optimal": both tokens at the norm limit (or as long as rounding allows where there is none), no margin
              on v, no norm bound on W. "paper": Theorem 6.1 as published but for the wider clip its proof needs.
    W_bound   "paper": the known bound on ||W||_F, at least 2.
    margin    "paper": every nonzero |v_i| is at least this. "optimal" with `accuracy`: |v| is (1 if None).
    accuracy  the wanted bound on ||W^ - W||_F. "paper": refused up front if the tolerance is above the theorem's.
              "optimal": where one pass does not reach it, noise is averaged over as many passes as the forecast says
              (`tolerance` is then the size of a typical error, which need not be bounded by it).

    An oracle that declares no tolerance has its noise measured first, and the bounds rest on that measurement.
    """

    method: Literal["optimal", "paper"] = "optimal"
    W_bound: float | None = None
    margin: float | None = None
    accuracy: float | None = None

    def forecast(self, spec: OracleSpec) -> Forecast:
        check_parameters(self)
        if self.method not in ("optimal", "paper"):
            raise InvalidArgument(f"`method` must be 'optimal' or 'paper' (got {self.method!r}).")
        for name in ("W_bound", "margin", "accuracy"):
            value = getattr(self, name)
            if value is not None and not 0 < value < np.inf:
                raise InvalidArgument(
                    f"`{name}` must be positive and finite (got {value}); omit it if it is not known."
                )
        if spec.outputs is not None or spec.kind == "membership" or spec.vocabulary is not None:
            raise InvalidArgument(
                "Approximate learns from one real number per sequence of vectors; use AttentionLayer for vector "
                "answers, Membership for labels, TokenHead for token ids."
            )
        require_pairs(spec, "Approximate")
        d = spec.dim
        paper = self.method == "paper"
        blocks = 1 if paper else planned_blocks(spec, self.accuracy, self.margin or 1.0)
        phases = {"values": blocks * d, "main": blocks * (theory.approximate_queries(d) - d)}
        if paper:
            approximate_paper.check(spec, self.W_bound, self.margin, self.accuracy)
        return Forecast(phases, extra=0 if paper else None)

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
        blocks = planned_blocks(spec, self.accuracy, self.margin or 1.0)
        averageable = spec.link is None and math.isfinite(spec.domain.norm_limit)
        if self.accuracy is None or not averageable:
            return (yield from self._single_pass(spec, noise, length, farthest, rng))
        if blocks == 1 and spec.tolerance > 0:
            outcome = yield from self._single_pass(spec, noise, length, farthest, rng)
            if outcome.precision is not None and self.accuracy >= outcome.precision.W:
                return outcome
            blocks = 0
        averaging = Averaging(
            spec, rng, self.accuracy, blocks, spec.domain.norm_limit, noise.absolute / sigmas(spec.dim)
        )
        return (yield from averaging.learn())

    def _single_pass(
        self, spec: OracleSpec, noise: Noise, length: float, farthest: float, rng: np.random.Generator
    ) -> Program:
        d = spec.dim
        values = yield from read_values(spec, noise, length)
        lengths = working_lengths(spec, noise, values, farthest)
        design, y = yield from ask_pairs(values, spec, noise, lengths, rng)
        reading = yield from read_pairs(design, y, values, spec, noise)
        system = TokenPairSystem(design.X1, design.X2)
        head = Head(system.solve(reading.T), values.v)
        bound = system.noise_bound(reading.noise) + system.value_gain(reading.P, reading.Q) * values.radius
        precision = Precision(bound, values.radius, noise, "measured" if noise.measured else "proved")
        if self.accuracy is not None:
            expected = system.noise_rms(reading.noise)
            expected = math.hypot(expected, system.value_rms(reading.P[1], reading.Q[1]) * values.radius / d**0.5)
            # A single pass has few answers to spread over, and a measured deviation its own error.
            unsure = deviation_at_most(1.0, FREEDOM) if spec.tolerance == 0 else 1.0
            precision = replace(precision, W=unsure * (1 + 3 / math.sqrt(d)) * expected / sigmas(d))
        elif noise.measured:
            precision = yield from confirmed(head, precision, design, spec, rng)
        return Outcome(head, claims=precision.claims(), precision=precision)
