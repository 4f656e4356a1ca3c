"""Approximate answers: Theorem 6.1 as published (method "paper"), and the best a noise level allows ("optimal").

The theorem asks [b u + a e_j ; a e_j], a = 1/2, b = 1/Wbar, one clipped logit per entry of W. The published proof
clips every logit to +-1/2. In the branch v_i = 0 the logit is ab (W_ij + W_pj), which reaches sqrt(2)/2 for
||W||_F <= Wbar, so that clip cuts true values off. Here that branch clips at +-sqrt(2)/2: the logit is 4.52-Lipschitz
there, still below the 5 of Lemma A.1, and the theorem's constants hold as they stand.

Theory: docs/theory/approximate.md, "The default".
Theory: docs/theory/approximate.md, "The published method".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import expit

from unsoftmax import theory
from unsoftmax.errors import DomainError, InvalidArgument, NotIdentifiable
from unsoftmax.inversion import Noise
from unsoftmax.learners.core.acceptance import SCALARS, check
from unsoftmax.learners.core.base import Allowance, Forecast, Outcome, Precision, Program
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.core.links import asking_both_signs
from unsoftmax.learners.core.noise import MEASURING, known_noise, noise_beside
from unsoftmax.learners.core.pair_logits import read_pairs
from unsoftmax.learners.single.averaging import Averaging
from unsoftmax.learners.single.averaging_cost import averageable, most_queries, planned_blocks
from unsoftmax.learners.single.constants import SINGLE
from unsoftmax.learners.single.measure import refuse_unknown
from unsoftmax.learners.single.token_pairs import ask_pairs, confirmed, read_values, working_lengths
from unsoftmax.models.single_head import SingleHead as Head
from unsoftmax.probes.base import one_row
from unsoftmax.probes.pairs import Pairs
from unsoftmax.probes.scales import require_pairs
from unsoftmax.solvers.bilinear import TokenPairSystem
from unsoftmax.spec import OracleSpec

_TYPICAL = "a W whose scores the longest tokens do not saturate; pass W_bound= for a bound that holds"
"""What the upper end of averaging supposes, in words."""

_A = 0.5
"""Defined: length a of the second token in Theorem 6.1, b = 1 / Wbar being that of the first."""

PUBLISHED_CLIP = _A
"""Largest |logit| kept by the published proof of Theorem 6.1: ab |W_ij| <= a."""

ZERO_BRANCH_CLIP = math.sqrt(2) * _A
"""Largest |logit| kept where v_i = 0: ab |W_ij + W_pj| <= a sqrt(2) for ||W||_F <= Wbar. The published 1/2 cuts true
values off there."""


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
            _require_theorem(spec, self.W_bound, self.margin, self.accuracy)
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
            return published(spec, self.W_bound, self.margin)
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


def _require_theorem(spec: OracleSpec, W_bound: float | None, margin: float | None, accuracy: float | None) -> None:
    """Refuse before the first query what the theorem does not cover."""
    if W_bound is None or margin is None:
        raise InvalidArgument(
            "method='paper' needs `W_bound` (||W||_F is at most this, at least 2) and `margin` (every nonzero |v_i| is "
            "at least this); method='optimal' needs neither."
        )
    if W_bound < 2:
        raise InvalidArgument(f"`W_bound` must be at least 2 (got {W_bound}); a larger bound than needed is allowed.")
    if margin > 1:
        raise InvalidArgument(
            f"`margin` must be at most 1 (got {margin}): Theorem 6.1 supposes |v| <= 1, so no |v_i| is larger."
        )
    if spec.link is not None:
        raise InvalidArgument("method='paper' knows no output link; method='optimal' carries noise through it.")
    if spec.domain.norm_limit < 1:
        raise DomainError(f"method='paper' sends unit vectors and max_norm is {spec.domain.max_norm}; use 'optimal'.")
    if accuracy is not None:
        allowed = theory.approximate_tolerance(spec.dim, W_bound, margin, accuracy, zeros=False)
        if spec.tolerance > allowed:
            raise InvalidArgument(
                f"accuracy={accuracy} needs a tolerance of at most {allowed:.3g} (Theorem 6.1) and the oracle's is "
                f"{spec.tolerance:.3g}; ask for less accuracy, or use method='optimal'."
            )


def published(spec: OracleSpec, W_bound: float, margin: float, zero_clip: float = ZERO_BRANCH_CLIP) -> Program:
    """v entry by entry, then W entry by entry. `zero_clip` is the clip where v_i = 0 (the published one is 1/2)."""
    d = spec.dim
    v = yield one_row(np.eye(d), phase="values")
    zero = np.abs(v) <= margin / 2
    if zero.all():
        raise NotIdentifiable(f"no |v_i| is above margin/2 = {margin / 2:g}: v = 0 and no query shows W.")
    p = int(np.argmax(np.abs(v)))
    b = 1 / W_bound
    U = np.eye(d)
    U[zero, p] += 1
    longest = math.hypot(_A + b, b) if zero.any() else _A + b
    if longest > spec.domain.norm_limit:
        raise DomainError(
            f"the probes of Theorem 6.1 reach token norm {longest:.3g} where v has zeros and max_norm is "
            f"{spec.domain.max_norm}; pass a larger W_bound, or use method='optimal'."
        )
    design = Pairs(b * U, _A * np.eye(d))
    y = yield design.probes("main")
    share = (design.matrix(y) - _A * v[None, :]) / (b * np.where(zero, v[p], v))[:, None]
    clip = np.where(zero, zero_clip, PUBLISHED_CLIP)[:, None]
    share = np.clip(share, expit(-clip), expit(clip))
    W = (np.log(share) - np.log1p(-share)) / (_A * b)
    W[zero] -= W[p]

    tau = spec.tolerance + 4 * spec.eps
    precision = None
    if tau <= margin / 2:
        bound = theory.approximate_accuracy(d, W_bound, margin, tau, zeros=bool(zero.any()))
        precision = Precision(bound, math.sqrt(d) * tau, Noise(spec.tolerance, 4 * spec.eps), "proved", "Theorem 6.1")
    notes = () if precision else (f"tolerance {tau:.2g} is above margin/2: Theorem 6.1 promises nothing here.",)
    return Outcome(Head(W, v), notes, precision.claims() if precision else (), Allowance(precision=precision))
