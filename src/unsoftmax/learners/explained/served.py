"""Which queries a head takes where answers explain themselves, and which program asks them.

Theory: docs/theory/explanations.md, "Explanations", statement.
"""

from __future__ import annotations

from unsoftmax import theory
from unsoftmax.learners.core.base import Forecast, Program
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.core.costs import SEVERAL
from unsoftmax.learners.explained import attention, gradient
from unsoftmax.learners.explained.constants import EXPLAIN
from unsoftmax.learners.explained.maps import tokens_per_sequence
from unsoftmax.models.multi_head import MultiHead
from unsoftmax.spec import OracleSpec


def single_forecast(spec: OracleSpec) -> Forecast:
    """A full head."""
    if spec.kind == "gradient":
        pilot = 6 * EXPLAIN.most_pilots + spec.dim // 4
        return Forecast({"values": 1, "main": theory.gradient_head_queries(spec.dim) - 1}, extra=pilot, least_extra=1)
    N = tokens_per_sequence(spec)
    return Forecast({"main": theory.attention_map_queries(spec.dim, 1, N)}, extra=EXPLAIN.most_pilots, least_extra=1)


def single_program(spec: OracleSpec, seed: int) -> Program:
    return gradient.single_head(spec, seed) if spec.kind == "gradient" else attention.heads(spec, seed, single=True)


def low_rank_forecast(spec: OracleSpec, rank: int | None) -> Forecast:
    """A head of rank r, known or not."""
    if spec.kind == "gradient":
        pilot = 6 * EXPLAIN.most_pilots + spec.dim // 4
        if rank is None:
            return Forecast({"values": 1}, extra=pilot, least_extra=1, ranges={"main": (1, spec.dim)})
        main = theory.gradient_low_rank_queries(spec.dim, rank) - 1
        return Forecast({"values": 1, "main": main}, extra=pilot, least_extra=1)
    N = tokens_per_sequence(spec)
    if rank is None:
        # A column takes all directions, and every column may be new; shorter tokens are asked where weights are 0.
        most = (spec.dim + EXPLAIN.most_pilots) * -(-spec.dim // (N - 1))
        return Forecast(extra=EXPLAIN.most_pilots, least_extra=1, ranges={"main": (spec.dim, max(most, spec.dim))})
    return Forecast(
        {"main": theory.attention_map_low_rank_queries(spec.dim, rank, N)}, extra=EXPLAIN.most_pilots, least_extra=1
    )


def low_rank_program(spec: OracleSpec, seed: int, rank: int | None) -> Program:
    return gradient.low_rank(spec, seed, rank) if spec.kind == "gradient" else attention.low_rank(spec, seed, rank)


def heads_forecast(spec: OracleSpec, heads: int | None) -> Forecast:
    """Several heads, each of which shows its attention."""
    N = tokens_per_sequence(spec)
    if heads is None:
        least, most = (theory.attention_map_queries(spec.dim, H, N) for H in (1, CORE.heads_supposed))
        ranges = {"main": (least, most)}
        return Forecast(
            extra=EXPLAIN.most_pilots,
            least_extra=0,
            ranges=ranges,
            supposing=SEVERAL,
            model=MultiHead,
            heads=(0, CORE.heads_supposed),
        )
    main = theory.attention_map_queries(spec.dim, heads, N)
    return Forecast({"main": main}, extra=EXPLAIN.most_pilots, least_extra=1, model=MultiHead, heads=(0, heads))


def gradient_heads_forecast(spec: OracleSpec, by_values: Forecast) -> Forecast:
    """Several heads that gradients part; at most the pilot, all main queries twice, and the values after all."""
    main = theory.gradient_heads_queries(spec.dim)
    low, high = min(main + 2, by_values.minimum), by_values.maximum
    assert high is not None
    return Forecast(
        ranges={"heads": (low, 2 * main + 2 * EXPLAIN.most_pilots + high)},
        supposing=by_values.supposing,
        model=MultiHead,
        heads=by_values.heads,
    )
