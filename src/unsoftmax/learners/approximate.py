"""Approximate answers: Theorem 6.1 as published (method "paper"), and the best a noise level allows ("optimal")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from unsoftmax import theory
from unsoftmax.errors import InvalidArgument
from unsoftmax.inversion import Noise
from unsoftmax.learners import approximate_paper
from unsoftmax.learners.base import Forecast, Outcome, Precision, Program
from unsoftmax.learners.token_pairs import Lengths, ask_pairs, longest, read_pairs, read_values
from unsoftmax.models.single_head import SingleHead as Head
from unsoftmax.probes.scales import require_pairs
from unsoftmax.solvers.token_pairs import TokenPairSystem
from unsoftmax.spec import OracleSpec

ROUNDINGS = 4.0
"""Units of rounding granted to a target beside its declared tolerance."""


@dataclass(frozen=True)
class Approximate:
    """Learn a single head from answers within +-tau, d + d^2 queries, with a bound on what is wrong in the result.

    method    "optimal": both tokens at the norm limit (or as long as rounding allows where there is none), no margin
              on v, no norm bound on W. "paper": Theorem 6.1 as published but for the wider clip its proof needs.
    W_bound   "paper": the known bound on ||W||_F, at least 2.
    margin    "paper": every nonzero |v_i| is at least this.
    accuracy  the wanted bound on ||W^ - W||_F. "paper": refused up front if the tolerance is above the theorem's.
    """

    method: Literal["optimal", "paper"] = "optimal"
    W_bound: float | None = None
    margin: float | None = None
    accuracy: float | None = None

    def forecast(self, spec: OracleSpec) -> Forecast:
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
        phases = {"values": d, "main": theory.approximate_queries(d) - d}
        if self.method == "paper":
            approximate_paper.check(spec, self.W_bound, self.margin, self.accuracy)
            return Forecast(phases, extra=0)
        return Forecast(phases, extra=None)

    def program(self, spec: OracleSpec, seed: int) -> Program:
        self.forecast(spec)
        if self.method == "paper":
            assert self.W_bound is not None
            assert self.margin is not None
            return approximate_paper.program(spec, self.W_bound, self.margin)
        return self._optimal(spec, seed)

    def _optimal(self, spec: OracleSpec, seed: int) -> Program:
        rng = np.random.default_rng(seed)
        noise = Noise(spec.tolerance, ROUNDINGS * spec.eps, spec.link)
        values = yield from read_values(spec, noise, longest(spec, noise))
        limit = longest(spec, noise, values.norm)
        lengths = Lengths(limit, min(spec.domain.norm_limit, 2.0**40) if spec.link is None else limit)
        design, y = yield from ask_pairs(values, spec, noise, lengths, rng)
        reading = yield from read_pairs(design, y, values, spec, noise)
        system = TokenPairSystem(design.X1, design.X2)
        W = system.solve(reading.T)
        bound = system.noise_bound(reading.noise) + system.value_gain(reading.P, reading.Q) * values.radius
        precision = Precision(bound, values.radius, noise, "proved")
        return Outcome(Head(W, values.v), claims=precision.claims(), precision=precision)
