"""Multi-head attention: H and all (W_h, v_h) up to order, at little more than one query per unknown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from unsoftmax.errors import DomainError, InvalidArgument, ModelMismatch
from unsoftmax.learners.base import Asking, Forecast, Outcome, Program
from unsoftmax.learners.heads.arcs import read_turns
from unsoftmax.learners.heads.assembly import fixed_point, read_heads
from unsoftmax.learners.heads.discovery import Circle, Unresolved, find_jumps, saturated_circle
from unsoftmax.learners.heads.ground import Ground, read_ground
from unsoftmax.learners.heads.values import read_values_alone, separable
from unsoftmax.models.multi_head import MultiHead as Heads
from unsoftmax.probes.base import Array
from unsoftmax.spec import OracleSpec

_PLANES = 6


@dataclass(frozen=True)
class MultiHead:
    """Learn f(X) = sum_h softmax(x_i'W_h x_N) . (X v_h); the number of heads and their rank are found.

    heads    None finds H; a number is a promise that is checked.
    rank     None finds the rank of every W_h, "full" entries otherwise; a number is taken as given.
    method   "saturation": heads appear as jumps of the answer for large tokens, then every entry of W_h costs one
             query that sees head h alone.
    """

    heads: int | None = None
    rank: int | None = None
    method: Literal["saturation", "rational"] = "saturation"

    def forecast(self, spec: OracleSpec) -> Forecast:
        if self.method not in ("saturation", "rational"):
            raise InvalidArgument(f"`method` must be 'saturation' or 'rational' (got {self.method!r}).")
        if self.heads is not None and self.heads < 0:
            raise InvalidArgument(f"`heads` must not be negative (got {self.heads}); pass heads=None to find them.")
        if self.rank is not None and not 1 <= self.rank <= spec.dim:
            raise InvalidArgument(
                f"`rank` must be between 1 and dim (got {self.rank} for dim {spec.dim}); pass rank=None to discover it."
            )
        if spec.outputs is not None or spec.kind == "membership" or spec.vocabulary is not None:
            raise InvalidArgument(
                "MultiHead learns from one real number per sequence of vectors; use AttentionLayer for vector answers."
            )
        if spec.domain.length_limit < 3:
            raise DomainError(
                f"MultiHead needs sequences of three tokens and max_length is {spec.domain.max_length}; "
                "sequences of two do not tell all heads apart (docs/theory/multi-head.md has the counterexample)."
            )
        return Forecast({"values": spec.dim}, tokens_per_query=1, verification=0)

    def program(self, spec: OracleSpec, seed: int) -> Program:
        self.forecast(spec)
        return self._saturation(spec, seed)

    def _saturation(self, spec: OracleSpec, seed: int) -> Program:
        rng = np.random.default_rng(seed)
        ground = yield from read_ground(spec, rng)
        circle, v = yield from discover(ground, rng)
        W, measured = yield from read_heads(circle.ground, v, self.rank, rng)
        w = W @ circle.b0
        if separable(w):
            v = yield from read_values_alone(circle.ground, circle.b0, w, v)
            W, _ = fixed_point(circle.ground, v, [m.with_value(x) for m, x in zip(measured, v, strict=True)])
        model = Heads(W, v).canonical()
        return Outcome(model)


def discover(ground: Ground, rng: np.random.Generator) -> Asking[tuple[Circle, Array]]:
    """The values v (H, d) of all heads, in a plane that separates them."""
    reason = ""
    for _ in range(_PLANES):
        circle, _ = yield from saturated_circle(ground, rng)
        try:
            pieces, jumps = yield from find_jumps(circle, rng)
            turns = yield from read_turns(circle, pieces, jumps, rng)
        except Unresolved as error:
            reason = str(error)
            continue
        return circle, np.array([turn.v for turn in turns]).reshape(-1, ground.dim)
    raise ModelMismatch(
        f"{_PLANES} random planes did not separate the heads ({reason}); the target may not be a sum of softmax heads."
    )
