"""A whole attention layer from vector answers: every head's W, c and P, and what stands around them.

Theory: docs/theory/attention-layer.md, "A real layer", method.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from unsoftmax.errors import DomainError, InvalidArgument, ModelMismatch, NotIdentifiable
from unsoftmax.inversion import rounding_unit
from unsoftmax.learners.block.infinity import require_digits
from unsoftmax.learners.block.whole import block
from unsoftmax.learners.core.acceptance import check
from unsoftmax.learners.core.base import Forecast, Program
from unsoftmax.learners.core.reductions import overheard
from unsoftmax.learners.layer.ball import Ball, read_ball
from unsoftmax.learners.layer.norms import find_norm
from unsoftmax.learners.layer.plain import plain
from unsoftmax.learners.layer.post_norm import post_norm
from unsoftmax.learners.layer.pre_norm import SharedValuesError, in_ball
from unsoftmax.learners.layer.presets import Preset, chosen, preset_named
from unsoftmax.learners.rotary.centred import CentredScene
from unsoftmax.learners.rotary.kind import Kind, find_kind, ordered
from unsoftmax.learners.rotary.llama import needs_ball, require_readable, rotary
from unsoftmax.learners.rotary.scene import Scene, read_scene, writing
from unsoftmax.probes.base import Array
from unsoftmax.spec import OracleSpec

_SHORTEST = 33
"""Tokens that heads choose among where order does not matter."""

_SHORTEST_ORDERED = 16
"""Tokens of a sequence where it does: a block of a dozen, an empty one on either side, and the last."""

_SMALLEST_RANK = 4
"""Rank of the heads that the upper end supposes at least."""

_SEARCH = 300
"""Queries for a norm, the noise and the tokens that heads pick, at most; 20 to 80 are seen."""

_SUPPOSING = (
    f"a layer alone, without a network, and heads of rank {_SMALLEST_RANK} or more (or dim) whose ranks add up to dim"
)
"""What the upper end supposes, in words."""


@dataclass(frozen=True)
class AttentionLayer:
    """Learn y(X) = constant + sum_h P_h sum_i softmax_i(x_i . (W_h x_N + c_h)) x_i [+ x_N], with a LayerNorm or none.

    H, the ranks, the biases, the residual and the norm are found, and so are rotary positions, heads that share keys
    and values, RMSNorm and a window. Of a whole pre-norm block or one-layer language model, network, final norm and
    unembedding behind it, the attention is learned (`models.LayerBehind`). preset: "lean" stays near the unknowns,
    "robust" spends about twice as much on conditioning; None takes "balanced" for answers in float64 and "robust" for
    coarser ones, which have no digits to lose. norm: "auto" looks, or None, "pre", "post", "rms". positions: "auto"
    looks, None takes the order of the tokens for irrelevant.
    """

    preset: Literal["lean", "balanced", "robust"] | None = None
    norm: Literal["auto", "pre", "post", "rms"] | None = "auto"
    positions: Literal["auto"] | None = "auto"

    accepts = ("vectors",)

    def forecast(self, spec: OracleSpec) -> Forecast:
        check(self, spec)
        preset_named(chosen(self.preset, coarse=True))
        if self.norm not in ("auto", None, "pre", "post", "rms"):
            raise InvalidArgument(f"`norm` must be 'auto', None, 'pre', 'post' or 'rms' (got {self.norm!r}).")
        if spec.dtype == "float16":
            raise InvalidArgument("AttentionLayer needs the digits of float32 at least (got float16).")
        ordered = self.positions == "auto" and self.norm in ("auto", "rms", None)
        _require_tokens(spec, _SHORTEST_ORDERED if ordered else _SHORTEST)
        return Forecast({"values": spec.dim + 1}, ranges={"heads": self._range(spec.dim)}, supposing=_SUPPOSING)

    def _range(self, d: int) -> tuple[int, int]:
        """Key directions at d query tokens, two queries each at least; at most half as much again as the closed form
        says for heads of the least favourable rank, and what looking for a norm and for the heads takes."""
        ranks = range(min(_SMALLEST_RANK, d), d + 1)
        preset = preset_named(chosen(self.preset, coarse=True))
        most = max(preset.for_directions().main_queries(d, -(-d // s), s) for s in ranks)
        most = max(most, *(preset.main_queries(d, -(-d // s), s) for s in ranks))
        return 2 * d, int(1.5 * most) + 4 * d + _SEARCH

    def program(self, spec: OracleSpec, seed: int) -> Program:
        self.forecast(spec)
        return self._program(spec, np.random.default_rng(seed))

    def _program(self, spec: OracleSpec, rng: np.random.Generator) -> Program:
        seen: list[Array] = []
        norm = (yield from overheard(find_norm(spec, rng), seen)) if self.norm == "auto" else self.norm
        # An answer of zeros fits into every format: all of them together are looked at.
        rounded = bool(seen) and rounding_unit(np.vstack(seen)) > spec.eps
        coarse = spec.dtype != "float64" or spec.tolerance > 0 or rounded
        if norm == "rms" or (norm is None and self.positions == "auto" and (yield from ordered(spec, rng))):
            kind = yield from find_kind(spec, rng)
            require_readable(kind)
            scene = yield from read_scene(spec, norm, kind.sinks, rng)
            if needs_ball(scene, kind):
                _require_tokens(spec, _SHORTEST)
                return (yield from _rms_norm(scene, spec, preset_named(chosen(self.preset, coarse)), rng))
            return (yield from rotary(scene, spec, kind, chosen(self.preset, coarse), rng))
        if norm in ("block", "final"):
            require_digits(seen[0], spec)
            return (yield from block(spec, norm == "final", chosen(self.preset, coarse), rng))
        _require_tokens(spec, _SHORTEST)
        preset = preset_named(chosen(self.preset, coarse))
        if norm == "pre":
            return (yield from _pre_norm(chosen(self.preset, coarse), spec, preset, rng))
        return (yield from (post_norm if norm == "post" else plain)(spec, preset, rng))


def _pre_norm(name: str, spec: OracleSpec, preset: Preset, rng: np.random.Generator) -> Program:
    """Behind a LayerNorm: by small differences of answers; heads that share values by tokens that write nothing."""
    ball = yield from read_ball(spec, rng)
    try:
        return (yield from in_ball(ball, spec, preset, rng, norm="pre", eps=ball.eps))
    except SharedValuesError as refusal:
        shared = refusal
    written, empty = yield from writing(ball.M, ball.noise)
    seen = ball.eps, ball.M, ball.constant, ball.residual, ball.noise, ball.dtype, written, empty
    scene = CentredScene(len(ball.U), *seen, longest=spec.domain.length_limit, basis=ball.U)
    try:
        return (yield from rotary(scene, spec, Kind("none", sinks=False, window=None), name, rng))
    except (ModelMismatch, NotIdentifiable) as error:
        sizes = np.linalg.svd(ball.M @ written.T, compute_uv=False)
        raise type(error)(
            f"{shared} Behind a LayerNorm they are told apart by tokens that write nothing, which did not do here "
            f"(what is written differs by a factor of {sizes[0] / sizes[-1]:.0e} between directions): {error}"
        ) from error


def _rms_norm(scene: Scene, spec: OracleSpec, preset: Preset, rng: np.random.Generator) -> Program:
    """Behind an RMSNorm all d dimensions of a token are seen; else its ball is that of a LayerNorm."""
    eps = scene.eps or 0.0
    ball = Ball(np.eye(spec.dim), eps, scene.M, scene.constant, scene.residual, scene.noise, scene.dtype)
    return (yield from in_ball(ball, spec, preset, rng, norm="rms", eps=eps))


def _require_tokens(spec: OracleSpec, least: int) -> None:
    if spec.domain.length_limit < least:
        raise DomainError(
            f"AttentionLayer needs sequences of {least} tokens for heads to choose among and max_length is "
            f"{spec.domain.max_length}."
        )
