"""A whole attention layer from vector answers: every head's W, c and P, and what stands around them.

Theory: docs/theory/attention-layer.md, "A real layer", method.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from unsoftmax.errors import Code, DomainError, InvalidArgument, ModelMismatch, NotIdentifiable
from unsoftmax.inversion import rounding_unit
from unsoftmax.learners.attention_stack import AttentionStack
from unsoftmax.learners.block.infinity import require_digits
from unsoftmax.learners.block.whole import block
from unsoftmax.learners.core.acceptance import check
from unsoftmax.learners.core.base import Asking, Forecast, Outcome, Program
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.core.reductions import beside_last_token, overheard, within
from unsoftmax.learners.layer.ball import Ball, read_ball
from unsoftmax.learners.layer.constants import LAYER
from unsoftmax.learners.layer.norms import find_norm
from unsoftmax.learners.layer.plain import plain
from unsoftmax.learners.layer.post_norm import post_norm
from unsoftmax.learners.layer.pre_norm import ALL_DRAWS, FIRST_DRAWS, LATER_DRAWS, SharedValuesError, in_ball, of_heads
from unsoftmax.learners.layer.presets import PRESETS, Preset, chosen
from unsoftmax.learners.layer.ranges import heads_of
from unsoftmax.learners.rotary.kind import Kind, beside_layer_norm, find_kind, ordered
from unsoftmax.learners.rotary.llama import needs_ball, require_readable, rotary
from unsoftmax.learners.rotary.scene import CentredScene, Scene, read_scene, writing
from unsoftmax.learners.stack.constants import STACK
from unsoftmax.learners.stack.far import find_far
from unsoftmax.learners.stack.frame import find_frame
from unsoftmax.learners.stack.near import Inside, confirmed, read_written
from unsoftmax.models.attention_stack import AttentionStack as Stack
from unsoftmax.precision import SHORT_FORMAT
from unsoftmax.probes.base import Array, Probes, one_row
from unsoftmax.solvers.gauss_newton import LARGEST
from unsoftmax.spec import OracleSpec

_NORMS = {"pre": "LayerNorm", "rms": "RMSNorm"}
"""Norms before the heads in words."""

_MORE = "what stands around the heads is more than a norm before and a residual."
"""Why a layer is no stack of one."""

_SUPPOSING = (
    f"a layer alone, without a network, and heads of rank {LAYER.least_rank_supposed} or more (or dim) whose ranks add "
    "up to dim and which are told apart by where they write"
)
"""What the upper end supposes, in words."""


class _RoughlyToldError(ModelMismatch):
    """Heads that overlap were told apart less sharply than the stack's own way may: `told` is what stays where that
    way does not lead on."""

    def __init__(self, refusal: ModelMismatch, told: Outcome) -> None:
        super().__init__(refusal.reason, advice=refusal.advice, code=refusal.code)
        self.told = told


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
        if spec.dtype == "float16":
            raise InvalidArgument("AttentionLayer needs the digits of float32 at least (got float16).")
        ordered = self.positions == "auto" and self.norm in ("auto", "rms", None)
        _require_tokens(spec, LAYER.fewest_ordered_tokens if ordered else LAYER.fewest_tokens)
        return Forecast({"values": spec.dim + 1}, ranges={"heads": self._range(spec.dim)}, supposing=_SUPPOSING)

    def _range(self, d: int) -> tuple[int, int]:
        """Key directions at d query tokens, two queries each at least; at most half as much again as the closed form
        says for heads of the least favourable rank, and what looking for a norm and for the heads takes."""
        ranks = range(min(LAYER.least_rank_supposed, d), d + 1)
        preset = PRESETS[chosen(self.preset, coarse=True)]
        most = max(preset.for_directions().main_queries(d, -(-d // s), s) for s in ranks)
        most = max(most, *(preset.main_queries(d, -(-d // s), s) for s in ranks))
        return 2 * d, int(1.5 * most) + 4 * d + LAYER.most_search_queries

    def program(self, spec: OracleSpec, seed: int) -> Program:
        self.forecast(spec)
        return self._program(spec, seed)

    def _program(self, spec: OracleSpec, seed: int) -> Program:
        """Heads that write into parts of their own; and where these overlap, the algebra that tells layers apart."""
        try:
            return (yield from self._told_by_range(spec, np.random.default_rng(seed)))
        except (ModelMismatch, NotIdentifiable) as refusal:
            if refusal.code is not Code.OVERLAPPING or spec.outputs != spec.dim:
                raise
            try:
                return (yield from overlapping(spec, seed))
            except (ModelMismatch, NotIdentifiable, DomainError, InvalidArgument) as told:
                if told.code is Code.LAW:
                    raise
                if isinstance(refusal, _RoughlyToldError):
                    return refusal.told
                raise refusal from None

    def _told_by_range(self, spec: OracleSpec, rng: np.random.Generator) -> Program:
        seen: list[Array] = []
        norm = (yield from overheard(find_norm(spec, rng), seen)) if self.norm == "auto" else self.norm
        # An answer of zeros fits into every format: all of them together are looked at.
        rounded = bool(seen) and rounding_unit(np.vstack(seen)) > spec.eps
        coarse = spec.dtype != "float64" or spec.tolerance > 0 or rounded
        if norm == "rms" or (norm is None and self.positions == "auto" and (yield from ordered(spec, rng))):
            kind = yield from _windowed((yield from find_kind(spec, rng)), spec)
            require_readable(kind)
            scene = yield from read_scene(spec, norm, kind.sinks, rng)
            if needs_ball(scene, kind):
                _require_tokens(spec, LAYER.fewest_tokens)
                return (yield from _rms_norm(scene, spec, PRESETS[chosen(self.preset, coarse)], rng))
            return (yield from rotary(scene, spec, kind, chosen(self.preset, coarse), rng))
        if norm in ("block", "final"):
            require_digits(seen[0], spec)
            return (yield from block(spec, norm == "final", chosen(self.preset, coarse), rng))
        _require_tokens(spec, LAYER.fewest_tokens)
        # Draws of their own: what is asked next is what is asked where nobody looks for positions.
        if norm is not None and self.positions == "auto" and (yield from ordered(spec, rng.spawn(1)[0])):
            refusal = beside_layer_norm(norm)
            raise ModelMismatch(f"the order of the tokens changes the answer, and {refusal}.", code=refusal.code)
        preset = PRESETS[chosen(self.preset, coarse)]
        if norm == "pre":
            return (yield from _pre_norm(chosen(self.preset, coarse), spec, preset, rng))
        return (yield from (post_norm if norm == "post" else plain)(spec, preset, rng))


def _windowed(kind: Kind, spec: OracleSpec) -> Asking[Kind]:
    """The kind without a window that strong scores have made up, one query: tokens without weight are not seen wherever
    they stand. Where a window ends, the order of what is before it and behind it counts."""
    if kind.order != "none" or kind.window is None or kind.far is None:
        return kind
    tokens, base = kind.far
    y = yield Probes(np.concatenate([tokens[:, -2::-1], tokens[:, -1:]], axis=1), phase="pilot")
    noise = max(spec.eps, rounding_unit(base), spec.tolerance / max(float(np.abs(base).max()), 1e-300))
    same = np.abs(y - base).max() <= CORE.loud * noise * np.abs(base).max()
    return replace(kind, window=None) if same else kind


def _pre_norm(name: str, spec: OracleSpec, preset: Preset, rng: np.random.Generator) -> Program:
    """Behind a LayerNorm: by small differences of answers; heads that share values by tokens that write nothing."""
    ball = yield from read_ball(spec, rng)
    try:
        return (yield from _behind(ball, spec, preset, rng, norm="pre", eps=ball.eps))
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
    return (yield from _behind(ball, spec, preset, rng, norm="rms", eps=eps))


def _behind(ball: Ball, spec: OracleSpec, preset: Preset, rng: np.random.Generator, **around: Any) -> Program:
    """Heads behind a norm, told apart by where they write; where these overlap, by the algebra of stacks in the ball.

    Answers that round are averaged by the draws, as the algebra cannot.
    """
    if ball.noise >= SHORT_FORMAT:
        return (yield from in_ball(ball, spec, preset, rng, ALL_DRAWS, **around))
    try:
        return (yield from in_ball(ball, spec, preset, rng, FIRST_DRAWS, **around))
    except ModelMismatch as error:
        # Scores of heads that write into each other's ranges are read wrongly, and then look bent.
        if error.code not in (Code.OVERLAPPING, Code.LAW):
            raise
        refusal = error
    # Ranks that add up to more than D are 2 D^2 parameters and more: too many for the stack's own way to fit together.
    large = 2 * len(ball.U) ** 2 > LARGEST
    # Scores of another law are seldom those of heads that overlap: one reading will do.
    tries = 1 if refusal.code is Code.LAW else STACK.readings_near
    told: Outcome | None = None
    try:
        told, misfit = yield from _by_algebra(ball, spec, preset, rng, tries, **around)
        if large or misfit <= STACK.sharp:
            return told
    except (ModelMismatch, NotIdentifiable) as error:
        if refusal.code is Code.LAW:
            raise refusal from None
        if error.code is Code.NETWORK or (large and error.code is Code.LAW):
            raise
    try:
        return (yield from in_ball(ball, spec, preset, rng, LATER_DRAWS, **around))
    except ModelMismatch as error:
        if error.code is Code.OVERLAPPING and large:
            # The algebra has had its turn, nearer to the answers than it would come with long tokens.
            error.code = Code.MISMATCH
        if error.code is Code.OVERLAPPING and told is not None:
            raise _RoughlyToldError(error, told) from error
        raise


def _by_algebra(
    ball: Ball, spec: OracleSpec, preset: Preset, rng: np.random.Generator, tries: int, **around: Any
) -> Asking[tuple[Outcome, float]]:
    """Heads told apart inside the ball, whatever they write into, and what fresh sequences are missed by; the best of
    a few readings where they are lost on the way, or miss more than is sharp, since displacements differ in how well
    they part the heads."""
    inside = Inside(ball.tokens, ball.alone, ball.U, ball.radius, ball.noise)
    best: tuple[Outcome, float] | None = None
    for again in range(tries):
        try:
            written = yield from read_written(inside, ball.dtype, rng)
            told = yield from of_heads(heads_of(written.P, written.left), ball, spec, preset, rng, **around)
            found = yield from confirmed(told, inside, STACK.confirmed, rng)
        except ModelMismatch as error:
            if error.code is Code.NETWORK or (best is None and again == tries - 1):
                raise
            continue
        best = found if best is None or found[1] < best[1] else best
        if best[1] <= STACK.sharp or 2 * len(ball.U) ** 2 > LARGEST:
            break
    assert best is not None
    return best


def overlapping(spec: OracleSpec, seed: int) -> Program:
    """A pre-norm layer whose heads write into the same directions, as a stack of one layer; with residual or none."""
    learner = AttentionStack(layers=1, final_norm=False)
    learner.forecast(spec)
    x = 2.0**LAYER.residual_exponent * np.random.default_rng([seed, LAYER.residual_exponent]).standard_normal(
        (1, spec.dim)
    )
    (y,) = yield one_row(x, phase="repair")
    kept = bool(np.abs(y).max() > 0.5 * np.abs(x).max())
    program = _one_layer(learner, spec, seed)
    # A residual that is not there is added to the answers: what heads write is read beside it all the same.
    found = yield from program if kept else beside_last_token(program)
    stack = found.model
    if not isinstance(stack, Stack) or stack.norm is None or stack.networks is not None:
        raise ModelMismatch(_MORE)
    norm: Literal["pre", "rms"] = "pre" if stack.norm == "layer" else "rms"
    layer = replace(stack.layers[0], norm=norm, eps=stack.eps, residual=kept)
    around = f"{_NORMS[norm]} before them, {'a' if kept else 'no'} residual"
    note = f"{layer.heads} heads, {around}; where they write overlaps, and algebra told them apart."
    return replace(found, model=layer, notes=(note,), claims=())


def _one_layer(learner: AttentionStack, spec: OracleSpec, seed: int) -> Program:
    """The stack, refused as soon as what stands around its heads is more than a norm before them, or costs more than
    one layer."""
    rng = np.random.default_rng(seed)
    frame = yield from find_frame(spec, rng)
    if frame.norm is None or frame.final is not None:
        raise ModelMismatch(_MORE)
    far = yield from find_far(frame, rng)
    if far.networks:
        raise ModelMismatch(_MORE)
    far.whole = True
    refusal = ModelMismatch("heads that were told apart were not confirmed within what one layer takes.")
    return (yield from within(learner.behind(far, spec, seed), learner.most_of_one_layer(spec.dim, far), refusal))


def _require_tokens(spec: OracleSpec, least: int) -> None:
    if spec.domain.length_limit < least:
        raise DomainError(
            f"AttentionLayer needs sequences of {least} tokens for heads to choose among and max_length is "
            f"{spec.domain.max_length}."
        )
