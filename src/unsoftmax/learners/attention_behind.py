"""W of attention in front of an unknown network, by rays: no assumption on the network but its growth at infinity.

Theory: docs/theory/transformer.md, "Rays".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.errors import DomainError, InvalidArgument
from unsoftmax.learners.behind.rays import Scores, read_scores
from unsoftmax.learners.behind.rows import read_heads_behind
from unsoftmax.learners.core.acceptance import SCALARS, check
from unsoftmax.learners.core.base import RELATIVE_ERROR, Allowance, Forecast, Outcome, Program
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.core.costs import SCORES, SEVERAL, doubled, heads_range, scores_range
from unsoftmax.models.attention_behind import AttentionBehind as Behind
from unsoftmax.models.heads_behind import HeadsBehind
from unsoftmax.probes.scales import require_pairs
from unsoftmax.results.recovery import Claim
from unsoftmax.spec import OracleSpec


@dataclass(frozen=True)
class AttentionBehind:
    """Learn W (full or low rank, the rank is found) of TF(X) = g(z, x_N), z = sum_i softmax_i(x_i'W x_N) x_i.

    The unknown g must be homogeneous of some degree p >= 1 in a long z beside a short x_N: ReLU networks of any depth
    with or without biases, GELU (p = 1), SwiGLU (p = 2). What it does with x_N (a residual, a network or a form of the
    query token beside attention) is free; that answers hang on z and x_N alone is verified. Costs r(2d - r) queries and
    about d + 40 for calibration.

    heads=None: several heads z_h enter the network, g(z_1, ..., z_H, x_N); H and every W_h are found from corners where
    all heads are off (about 2^H draws) and their faces. g must then vanish to leading order where its input does.
    """

    heads: int | None = 1

    accepts = SCALARS

    def forecast(self, spec: OracleSpec) -> Forecast:
        check(self, spec)
        if self.heads not in (1, None):
            raise InvalidArgument(f"`heads` must be 1, or None to find them (got {self.heads!r}).")
        require_rays(spec, "AttentionBehind")
        if self.heads is None:
            require_several(spec, "AttentionBehind(heads=None)")
            return Forecast(
                ranges={"heads": doubled(heads_range(spec.dim, None))},
                supposing=SEVERAL,
                model=HeadsBehind,
                heads=(0, CORE.heads_supposed),
            )
        ranges = {"scores": scores_range(spec.dim)}
        return Forecast({"values": spec.dim}, ranges=ranges, supposing=SCORES, model=Behind)

    def program(self, spec: OracleSpec, seed: int) -> Program:
        self.forecast(spec)
        return self._program(spec, seed)

    def _program(self, spec: OracleSpec, seed: int) -> Program:
        if self.heads is None:
            W, far, error = yield from read_heads_behind(spec, np.random.default_rng(seed))
            note = f"{len(W)} heads; the network behind them is homogeneous of degree {far.degree} at infinity."
            claim = Claim(RELATIVE_ERROR, error, statement="of every W, what rounding leaves in the rows read")
            return Outcome(HeadsBehind(W, far.degree, far.length), (note,), allows=Allowance(claim))
        scores = yield from read_scores(spec, np.random.default_rng(seed))
        model = Behind(scores.W, scores.degree, scores.length)
        grows = f"the network behind attention is homogeneous of degree {scores.degree} at infinity"
        return Outcome(model, (f"{grows}; rank of W: {scores.rank}.",), allows=Allowance(score_claim(scores)))


def score_claim(scores: Scores) -> Claim:
    """What the gap by which answers fail to scale leaves in W: three digits for the conditioning of the cross."""
    return Claim(RELATIVE_ERROR, CORE.loud * scores.noise, statement="of W, from how exactly answers scale")


def require_several(spec: OracleSpec, learner: str) -> None:
    """Heads are told apart by directions."""
    require_rays(spec, learner)
    if spec.dim == 1:
        raise InvalidArgument(f"{learner}: in one dimension heads cannot be told apart; pass heads=1.")


def require_rays(spec: OracleSpec, learner: str) -> None:
    """Rays need long tokens and pairs of them."""
    if spec.dtype == "float16":
        raise InvalidArgument(f"{learner} follows rays further than float16 can count; use float32 or float64.")
    require_pairs(spec, learner)
    if spec.domain.max_norm is not None:
        raise DomainError(
            f"{learner} follows rays to infinity and max_norm is {spec.domain.max_norm}. Lift the limit; with bounded "
            "tokens, Transformer reads W inside the ball if the network is bias-free or given."
        )
