"""One bit per bit: a single head from labels f > 0 alone, by bisection of every number in lockstep.

Theory: docs/theory/membership.md, "One bit per bit".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from unsoftmax import theory
from unsoftmax.errors import InvalidArgument
from unsoftmax.learners.core.acceptance import check
from unsoftmax.learners.core.base import Allowance, Forecast, Outcome, Program
from unsoftmax.learners.core.costs import SCORES
from unsoftmax.learners.labels.asking import (
    FLIPS,
    SCORE_ERROR,
    VALUE_ERROR,
    Direction,
    Labels,
    find_direction,
    refine_direction,
)
from unsoftmax.learners.labels.consistency import refuse_fixed_flips, refuse_wrong_labels
from unsoftmax.learners.labels.constants import LABELS
from unsoftmax.learners.labels.cross import cross_of_any_rank, cross_of_rank, sparing_rounds
from unsoftmax.learners.labels.entries import Entries, Known, hidden_below, visible_size
from unsoftmax.learners.labels.flips import Heads
from unsoftmax.learners.labels.heads import learn_heads, most_of_starts, require_copies
from unsoftmax.learners.labels.paper import SignFlips
from unsoftmax.learners.labels.values import bisected, left_in_all
from unsoftmax.models.multi_head import MultiHead
from unsoftmax.models.single_head import LowRankHead
from unsoftmax.models.single_head import SingleHead as Head
from unsoftmax.probes.scales import require_pairs
from unsoftmax.results.recovery import Basis, Claim
from unsoftmax.solvers.cross import factors
from unsoftmax.spec import OracleSpec


@dataclass(frozen=True)
class Membership:
    """Learn the direction of v and W from labels; the norm of v is not observable, so the model has unit v.

    accuracy           relative Frobenius error of W, and error of the unit v ("paper": absolute error of W).
    rank               "full" bisects d^2 entries; r or None (discovered) only the r(2d - r) of a cross design.
    method             "bisection", or "paper" for Theorem B.1, which needs `W_bound` and `margin`.
    flip_probability   each answer is wrong with this probability, independently; the result then fails with
                       probability at most `delta`.
    fixed_flips        the same sequence always gets the same answer, wrong or not, and different sequences flip
                       independently. Without it such flips are refused: asking again averages nothing.
    eps_v              "paper": error at which the estimate of v stops, where the theorem's own is out of reach.
    heads              1, another number, or None to find it. Of several heads the common scale of all v_h is not
                       observable: the model has |v| = 1 over all heads, and `accuracy` is of every W_h.
    """

    accuracy: float = 1e-9
    rank: int | Literal["full"] | None = "full"
    method: Literal["bisection", "paper"] = "bisection"
    flip_probability: float = 0.0
    delta: float = 0.01
    W_bound: float | None = None
    margin: float | None = None
    eps_v: float | None = None
    fixed_flips: bool = False
    heads: int | None = 1

    accepts = ("labels",)

    def forecast(self, spec: OracleSpec) -> Forecast:
        check(self, spec)
        self._check(spec)
        if self.method == "paper":
            return self._paper(spec.dim).forecast(spec)
        d = spec.dim
        if self.heads != 1:
            return self._several(d)
        bits = theory.membership_bits(self.accuracy)
        entries = d * d if self.rank == "full" else (self.rank or 1) * (2 * d - (self.rank or 1))
        if self.flip_probability:
            most = 2 * theory.membership_noisy_queries(d, self.accuracy, self.flip_probability, self.delta)
            return Forecast(ranges={"labels": (entries, most + 2 * self._most(d, bits))}, supposing=SCORES)
        if self.rank is None:
            # Numbers up to their bracket are asked below the accuracy in bits.
            return Forecast(ranges={"labels": (entries * bits // 2, self._most(d, bits))}, supposing=SCORES)
        ranges = {"values, pilot and repair": (d - 1, self._most(d, bits) - d * d * bits)}
        return Forecast({"main": entries * bits}, ranges=ranges, supposing=SCORES)

    def _several(self, d: int) -> Forecast:
        """Flips of known number are bisected to known bits; what comes before depends on the target."""
        least, most = (1, d) if self.heads is None else (self.heads, self.heads)
        bits = theory.membership_flip_bits(self.accuracy)
        ranges = {"values, pilot and repair": (d - 1, most_of_starts(d, most, self.accuracy))}
        if self.heads is None:
            ranges["labels"] = (d * d, max(theory.membership_flips(d, d) * bits, self._most(d, bits)))
            return Forecast(ranges=ranges, supposing=SCORES, heads=(least, most))
        main = theory.membership_flips(d, least) * bits
        return Forecast({"main": main}, ranges=ranges, supposing=SCORES, heads=(least, most))

    @staticmethod
    def _most(d: int, bits: int) -> int:
        """All entries of W and v at twice their bits, and 24 labels each to bracket them."""
        return 2 * (bits + 12) * (d * d + 2 * d + 6) + 300

    def program(self, spec: OracleSpec, seed: int) -> Program:
        self.forecast(spec)
        if self.method == "paper":
            return self._paper(spec.dim).program(spec, seed)
        return self._bisection(spec, seed)

    def _paper(self, d: int) -> SignFlips:
        return SignFlips.of(d, self.accuracy, self.W_bound, self.margin, self.delta, self.eps_v)

    def _bisection(self, spec: OracleSpec, seed: int) -> Program:
        rng = np.random.default_rng(seed)
        labels = Labels(spec, rng, self.flip_probability, self.delta, self.accuracy)
        if not self.flip_probability or self.fixed_flips:
            return (yield from self._read(labels))
        notes = yield from refuse_fixed_flips(labels)
        outcome = yield from self._read(labels)
        return replace(outcome, notes=(*notes, *outcome.notes))

    def _read(self, labels: Labels) -> Program:
        direction = yield from find_direction(labels)
        # Of low rank v is a large part of few numbers, and looking for pivots takes rounds that it can spare.
        cuts = 1 if labels.flip or self.rank == "full" else sparing_rounds(self.accuracy) if self.rank is None else 2
        direction = yield from refine_direction(direction, LABELS.value_error * self.accuracy, labels, cuts)
        if self.heads != 1:
            found = yield from learn_heads(labels, direction, self.heads, self.accuracy)
            if found is not None:
                return self._outcome(found)
        direction, family, size = yield from visible_size(direction, self.accuracy, labels)
        if size == 0:
            return self._without_scores(direction, labels)
        none = np.zeros(0, dtype=np.int64)
        known = Known(labels, direction, family, Entries.of(none, none, size, labels))
        return (yield from (self._all_entries if self.rank == "full" else self._cross)(known))

    def _all_entries(self, known: Known) -> Program:
        d = known.labels.spec.dim
        rows, columns = (index.ravel() for index in np.indices((d, d)))
        known = yield from known.holding(rows, columns).bracketed()

        def shape(now: Entries) -> tuple[float, float, None]:
            return self.accuracy * float(np.linalg.norm(now.search.center)), 1.0, None

        every = np.arange(d * d)
        known = yield from bisected(known, shape, every)
        yield from refuse_wrong_labels(known, every, 2 * shape(known.entries)[0] / d)
        M = known.entries.search.center.reshape(d, d)
        error = float(np.linalg.norm(known.entries.search.radius)) + left_in_all(known)
        allows = self._allows(known.direction.error, error, float(np.linalg.norm(M)))
        return Outcome(Head(known.family.A.T @ M @ known.family.B, known.direction.v), allows=allows)

    def _outcome(self, found: Heads) -> Outcome:
        size = float(np.linalg.norm(found.v))
        how = "of all heads together: three standard errors of a fit to flips, evenly spread in their brackets"
        v = Claim(VALUE_ERROR, self.accuracy, found.v_error / size, "assumed", statement=f"of the unit v, {how}")
        W = Claim(SCORE_ERROR, self.accuracy * float(np.linalg.norm(found.W)), found.W_error, "assumed", statement=how)
        return Outcome(MultiHead(found.W, found.v / size), allows=Allowance(values=v, scores=W))

    def _cross(self, known: Known) -> Program:
        if self.rank is None:
            cross = yield from cross_of_any_rank(self.accuracy, known)
        else:
            cross = yield from cross_of_rank(int(self.rank), self.accuracy, known)
        direction, family = cross.known.direction, cross.known.family
        U, T = np.linalg.qr(family.A.T @ cross.skeleton.left)
        K, Q = factors(U, T @ cross.skeleton.R @ family.B, 0.0)
        allows = self._allows(direction.error, cross.error, float(np.linalg.norm(cross.skeleton.matrix)))
        return Outcome(LowRankHead(K, Q, direction.v), allows=allows)

    def _allows(self, value_error: float, score_error: float, norm: float) -> Allowance:
        """What the brackets say of the model; only those of v, without flips, follow from labels alone."""
        how = "of v bounded to leading order, of rounding as the dtype declares"
        if self.rank != "full":
            how = "through the cross to first order, entries erring independently; rounding as the dtype declares"
        statement = f"Frobenius: brackets, and errors {how}{self._sure}"
        scores = Claim(SCORE_ERROR, self.accuracy * norm, score_error, "assumed", statement=statement)
        return Allowance(values=self._value_claim(value_error), scores=scores, flips=self._declared)

    @property
    def _sure(self) -> str:
        return f"; with probability {1 - self.delta:g}" if self.flip_probability else ""

    def _value_claim(self, error: float) -> Claim:
        basis: Basis = "assumed" if self.flip_probability else "proved"
        return Claim(VALUE_ERROR, self.accuracy, error, basis, statement=f"of the unit direction{self._sure}")

    @property
    def _declared(self) -> Claim | None:
        """What verification must allow for."""
        if not self.flip_probability:
            return None
        return Claim(FLIPS, self.flip_probability, None, "assumed", statement="of each answer, as declared")

    def _without_scores(self, direction: Direction, labels: Labels) -> Outcome:
        d = labels.spec.dim
        unseen = 0.0 if labels.spec.domain.max_norm is None else 2 * d * hidden_below(direction.error, labels)
        note = (
            "no score is visible: W = 0."
            if unseen == 0
            else f"no score is visible inside the domain: W is 0 or its norm is below about {unseen:.1g}."
        )
        scores = Claim(SCORE_ERROR, unseen, None, "assumed", statement="Frobenius; nothing larger is visible")
        allows = Allowance(values=self._value_claim(direction.error), scores=scores, flips=self._declared)
        return Outcome(Head(np.zeros((d, d)), direction.v), (note,), allows=allows)

    def _check(self, spec: OracleSpec) -> None:
        if not 0 <= self.flip_probability < 0.5:
            raise InvalidArgument(
                f"`flip_probability` must be at least 0 and below 1/2 (got {self.flip_probability}); at 1/2 a label "
                "carries no information."
            )
        if not 0 < self.delta < 1:
            raise InvalidArgument(f"`delta` must be between 0 and 1 (got {self.delta}).")
        self._refuse_unused()
        if self.heads != 1:
            require_copies(spec)
        if self.method == "paper":
            if self.flip_probability or self.rank != "full":
                raise InvalidArgument(
                    'Theorem B.1 has neither flips nor ranks: `flip_probability` and `rank` need method="bisection".'
                )
            return require_pairs(spec, "Membership")
        finest = theory.membership_finest_accuracy(spec.dim, spec.eps)
        if not (finest <= self.accuracy < 1):
            raise InvalidArgument(
                f"`accuracy` must be at least {finest:.1g} for labels computed in {spec.dtype} at dim {spec.dim}, and "
                f"below 1 (got {self.accuracy:g}); rounding hides finer digits."
            )
        self._refuse_endless(spec.dim)
        return require_pairs(spec, "Membership")

    def _refuse_unused(self) -> None:
        """Arguments without effect are refused by name."""
        for name in ("W_bound", "margin", "eps_v"):
            if self.method == "bisection" and getattr(self, name) is not None:
                raise InvalidArgument(f"`{name}` belongs to method='paper'; bisection needs no such number. Omit it.")
        several = {
            "rank": self.rank != "full",
            "flip_probability": self.flip_probability,
            "method": self.method == "paper",
        }
        for name in (name for name, given in several.items() if given and self.heads != 1):
            raise InvalidArgument(f"`{name}` is for one head; pass heads=1, or omit `{name}` to learn several heads.")
        if self.fixed_flips and not self.flip_probability:
            raise InvalidArgument("`fixed_flips` says how labels flip, and `flip_probability` is 0; pass it as well.")

    def _refuse_endless(self, d: int) -> None:
        """Flips so frequent that a number takes thousands of answers are refused with the cost."""
        given = (d, self.accuracy, self.flip_probability, self.delta)
        if self.flip_probability and (rounds := theory.membership_noisy_rounds(*given)) > LABELS.most_rounds // 2:
            raise InvalidArgument(
                f"`flip_probability` {self.flip_probability:g} leaves so little in a label that one number takes "
                f"{rounds} answers (at most {LABELS.most_rounds // 2} are asked) and everything about "
                f"{theory.membership_noisy_queries(*given):.1e} queries; pass a larger `accuracy` or `delta`, or have "
                "every answer be the majority of several of the target's."
            )
