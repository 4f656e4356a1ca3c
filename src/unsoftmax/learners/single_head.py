"""Theorem 4.1: a single softmax head, exactly, from d + d^2 value queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from unsoftmax import theory
from unsoftmax.errors import InvalidArgument, NotIdentifiable
from unsoftmax.inversion import logits
from unsoftmax.learners.affine import with_affine_terms
from unsoftmax.learners.base import Forecast, Outcome, Program
from unsoftmax.learners.measure import TYPICAL_LOGIT, read_logits, read_values, size_of_scores
from unsoftmax.models.single_head import SingleHead as Head
from unsoftmax.probes.bases import coordinate_basis, householder_basis
from unsoftmax.probes.pairs import Pairs
from unsoftmax.probes.scales import lengths_for, on_grid, require_pairs
from unsoftmax.spec import OracleSpec


@dataclass(frozen=True)
class SingleHead:
    """Learn f(X) = softmax(x_i'W x_N) . (X v) with d one-row queries for v and one pair query per entry of W.

    probes: "householder" asks along an orthogonal basis in which all a.v are equal, so no entry of v needs a margin,
    at scales set by a small pilot. "coordinate" is the paper's own construction, unscaled: the baseline.
    affine: learn the wider class with a key offset c and an output constant, d + 1 queries more.
    """

    probes: Literal["householder", "coordinate"] = "householder"
    affine: bool = False

    def forecast(self, spec: OracleSpec) -> Forecast:
        if self.probes not in ("householder", "coordinate"):
            raise InvalidArgument(f"`probes` must be 'householder' or 'coordinate' (got {self.probes!r}).")
        if spec.outputs is not None or spec.kind == "membership" or spec.vocabulary is not None:
            raise InvalidArgument(
                "SingleHead learns from one real number per sequence of vectors; use AttentionLayer for vector "
                "answers, Membership for labels, TokenHead for token ids."
            )
        require_pairs(spec, "SingleHead")
        d = spec.dim
        phases = {"values": d, "main": theory.single_head_queries(d) - d}
        if self.affine:
            if self.probes == "coordinate":
                raise InvalidArgument(
                    '`affine` needs probes="householder"; the paper\'s construction has no affine terms.'
                )
            phases = {"values": d + 1, "main": theory.affine_head_queries(d) - (d + 1)}
        return Forecast(phases, extra=0 if self.probes == "coordinate" else 64 + phases["main"] // 100)

    def program(self, spec: OracleSpec, seed: int) -> Program:
        self.forecast(spec)
        if self.affine:
            return with_affine_terms(lambda small: self._householder(small, seed), spec, seed)
        return self._coordinate(spec) if self.probes == "coordinate" else self._householder(spec, seed)

    def _householder(self, spec: OracleSpec, seed: int) -> Program:
        d = spec.dim
        v = yield from read_values(spec)
        size = yield from size_of_scores(v, spec, np.random.default_rng(seed))
        length_a, length_b = lengths_for(TYPICAL_LOGIT * d / size, spec.domain)
        A = on_grid(householder_basis(v) * length_a, length_a + length_b, spec.dtype)
        T = yield from read_logits(Pairs(A, np.eye(d) * length_b), v)
        return Outcome(Head(np.linalg.solve(A, T) / length_b, v))

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
