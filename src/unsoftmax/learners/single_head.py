"""Theorem 4.1: a single softmax head, exactly, from d + d^2 value queries.

Theory: docs/theory/single-head.md, "Theorem 4.1", statement.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from unsoftmax import theory
from unsoftmax.errors import DomainError, InvalidArgument, ModelMismatch, NotIdentifiable
from unsoftmax.inversion import logits
from unsoftmax.learners.approximate import Approximate
from unsoftmax.learners.core.acceptance import EXPLAINING, check
from unsoftmax.learners.core.base import RELATIVE_ERROR, Allowance, Forecast, Outcome, Program
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.explained.served import single_forecast, single_program
from unsoftmax.learners.single.affine import with_affine_terms
from unsoftmax.learners.single.constants import SINGLE
from unsoftmax.learners.single.measure import PILOT_QUERIES, read_logits, read_values, size_of_scores
from unsoftmax.models.single_head import SingleHead as Head
from unsoftmax.probes.base import Array
from unsoftmax.probes.bases import coordinate_basis, householder_basis
from unsoftmax.probes.pairs import Pairs
from unsoftmax.probes.scales import lengths_for, on_grid, require_pairs
from unsoftmax.results.recovery import Claim
from unsoftmax.spec import EXPLAINED, OracleSpec

_LONGEST_COORDINATE = 5**0.5
"""Derived: |e_l + e_p + e_j|, where j is one of the two."""


@dataclass(frozen=True)
class SingleHead:
    """Learn f(X) = softmax(x_i'W x_N) . (X v) with d one-row queries for v and one pair query per entry of W.

    probes: "householder" asks along an orthogonal basis in which all a.v are equal, so no entry of v needs a margin,
    at scales set by a small pilot. "coordinate" is the paper's own construction, unscaled: the baseline.
    Answers within a declared tolerance are read as by `Approximate()`, which states what they leave of W.
    affine: learn the wider class with a key offset c and an output constant, d + 1 queries more.
    W_bound: a bound on ||W||_F; it sets the scales instead of the pilot. A bound k times too large costs a factor k in
    the last digits, which the result states; one that is too small costs repairs.
    """

    probes: Literal["householder", "coordinate"] = "householder"
    affine: bool = False
    W_bound: float | None = None

    accepts = EXPLAINING

    def forecast(self, spec: OracleSpec) -> Forecast:
        check(self, spec)
        if spec.kind in EXPLAINED:
            if self.affine or self.probes == "coordinate" or self.W_bound is not None:
                raise InvalidArgument(f'kind="{spec.kind}" is learned by SingleHead() without further arguments.')
            return single_forecast(spec)
        if self.W_bound is not None and self.probes != "householder":
            raise InvalidArgument(
                f'`W_bound` needs probes="householder" (got probes={self.probes!r}); None lets a pilot find the size '
                "of W."
            )
        require_pairs(spec, "SingleHead")
        if self._noisy(spec):
            return Approximate().forecast(spec)
        d = spec.dim
        phases = {"values": d, "main": theory.single_head_queries(d) - d}
        if self.affine:
            if self.probes == "coordinate":
                raise InvalidArgument(
                    '`affine` needs probes="householder"; the paper\'s construction has no affine terms.'
                )
            phases = {"values": d + 1, "main": theory.affine_head_queries(d) - (d + 1)}
        if self.probes == "coordinate":
            if spec.domain.norm_limit < _LONGEST_COORDINATE:
                raise DomainError(
                    f"the paper's coordinate probes have tokens of norm up to sqrt 5 and max_norm is "
                    f'{spec.domain.max_norm:g}; probes="householder" stays inside any limit.'
                )
            return Forecast(phases, extra=0)
        least = 0 if spec.domain.max_norm or self.affine or self.W_bound else PILOT_QUERIES
        return Forecast(phases, extra=64 + phases["main"] // 100, least_extra=least)

    def _noisy(self, spec: OracleSpec) -> bool:
        """Whether scores are to be read from answers within a tolerance, by tokens that outscale it."""
        return spec.tolerance > 0 and self == SingleHead()

    def program(self, spec: OracleSpec, seed: int) -> Program:
        self.forecast(spec)
        if spec.kind in EXPLAINED:
            return single_program(spec, seed)
        if self._noisy(spec):
            return Approximate().program(spec, seed)
        if self.affine:
            return with_affine_terms(lambda small: self._householder(small, seed), spec, seed)
        return self._coordinate(spec) if self.probes == "coordinate" else self._householder(spec, seed)

    def _householder(self, spec: OracleSpec, seed: int) -> Program:
        d = spec.dim
        v = yield from read_values(spec)
        size = self.W_bound or (yield from size_of_scores(v, spec, np.random.default_rng(seed)))
        length_a, length_b = lengths_for(SINGLE.typical_logit * d / size, spec.domain)
        A = on_grid(householder_basis(v) * length_a, length_a + length_b, spec.dtype)
        try:
            T = yield from read_logits(Pairs(A, np.eye(d) * length_b), v)
        except ModelMismatch as mismatch:
            if self.W_bound is None:
                raise
            message = f"{mismatch} Or ||W||_F exceeds the declared W_bound={self.W_bound:g}: pass None."
            raise ModelMismatch(message) from None
        claim = _rounding_claim(T, length_a * length_b, spec)
        return Outcome(Head(np.linalg.solve(A, T) / length_b, v), allows=Allowance(claim))

    def _coordinate(self, spec: OracleSpec) -> Program:
        d = spec.dim
        v = yield from read_values(spec)
        A = coordinate_basis(v)
        design = Pairs(A, np.eye(d))
        y = yield design.probes("main")
        T = logits(design.matrix(y), (A @ v)[:, None], (design.B @ v)[None, :]).t
        lost = int(np.isnan(T).sum())
        if lost:
            raise NotIdentifiable(
                f"{lost} of {d * d} logits are saturated under the paper's unscaled coordinate probes; "
                'use probes="householder", which scales them.'
            )
        return Outcome(Head(np.linalg.solve(A, T), v))


def _rounding_claim(T: Array, product: float, spec: OracleSpec) -> Claim:
    """What rounding leaves in W: logits of the wished size lose nothing, smaller ones (a norm limit) in proportion.

    Where a norm limit leaves the logits below rounding, W is not known at all, and that is said instead.
    """
    typical = float(np.sqrt(np.mean(T**2)))
    lost = CORE.stated_over_rounding * math.sqrt(spec.dim) * spec.eps
    bound = lost * max(1.0, SINGLE.typical_logit / typical) if typical > 0 else math.inf
    smallest = lost * spec.dim / product
    if spec.domain.max_norm is not None and bound >= CORE.unknown_error and smallest > SINGLE.nothing:
        raise NotIdentifiable(
            f"with tokens of norm at most {spec.domain.max_norm:g} the scores move the answers no more than rounding "
            f"does: of W only ||W||_F < {max(smallest, typical * spec.dim / product):.1g} is known. Raise max_norm."
        )
    return Claim(RELATIVE_ERROR, min(bound, 1.0), statement="of W, from the size of the logits and rounding")
