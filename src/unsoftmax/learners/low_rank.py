"""Theorem 5.1: a head of rank r, by the cross scheme at the degrees of freedom or by the paper's random probes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from unsoftmax import theory
from unsoftmax.errors import InvalidArgument
from unsoftmax.learners.base import Forecast, Program
from unsoftmax.learners.cross import cross
from unsoftmax.probes.scales import require_pairs
from unsoftmax.spec import OracleSpec


@dataclass(frozen=True)
class LowRank:
    """Learn a single head whose W has rank r < d; the model keeps W as factors.

    rank     r, or None to find it ("cross" only).
    method   "cross": r(2d - r) chosen pair queries and linear algebra, the number of unknowns.
    """

    rank: int | None = None
    method: Literal["cross"] = "cross"

    def forecast(self, spec: OracleSpec) -> Forecast:
        if spec.outputs is not None or spec.kind == "membership" or spec.vocabulary is not None:
            raise InvalidArgument(
                "LowRank learns from one real number per sequence of vectors; use AttentionLayer for vector "
                "answers, Membership for labels, TokenHead for token ids."
            )
        require_pairs(spec, "LowRank")
        d = spec.dim
        if self.rank is not None and not 1 <= self.rank <= d:
            raise InvalidArgument(
                f"`rank` must be between 1 and dim (got {self.rank} for dim {d}); pass rank=None to discover it."
            )
        if self.rank is None:
            return Forecast({"values": d}, extra=None)
        main = theory.low_rank_queries(d, self.rank) - d
        return Forecast({"values": d, "main": main}, extra=64 + main // 100)

    def program(self, spec: OracleSpec, seed: int) -> Program:
        self.forecast(spec)
        return cross(spec, seed, self.rank)
