"""Multi-head attention: H and all (W_h, v_h) up to order, at little more than one query per unknown.

Theory: docs/theory/multi-head.md, "Generic heads".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeVar

import numpy as np

from unsoftmax import theory
from unsoftmax.errors import DomainError, ModelMismatch
from unsoftmax.learners.core.acceptance import EXPLAINING, check
from unsoftmax.learners.core.base import RELATIVE_ERROR, Allowance, Asking, Forecast, Outcome, Program
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.core.costs import SEVERAL, heads_range
from unsoftmax.learners.core.reductions import as_values, only_values
from unsoftmax.learners.explained import attention
from unsoftmax.learners.explained.heads import Unparted, heads
from unsoftmax.learners.explained.served import gradient_heads_forecast, heads_forecast
from unsoftmax.learners.heads.bounded import fit_entangled, fit_heads
from unsoftmax.learners.heads.circle import Entangled
from unsoftmax.learners.heads.constants import HEADS
from unsoftmax.learners.heads.constants_fits import FITS
from unsoftmax.learners.heads.ground import Ground, Silent, read_ground, require_no_order
from unsoftmax.learners.heads.lifted import Lift, with_offsets
from unsoftmax.learners.heads.polish import polished
from unsoftmax.learners.heads.rational import rational_heads, tokens_needed
from unsoftmax.learners.heads.records import Records
from unsoftmax.learners.heads.saturation import saturated_heads
from unsoftmax.learners.heads.units import Fitting, Room
from unsoftmax.models.multi_head import MultiHead as Heads
from unsoftmax.precision import ARITHMETIC, HALF_DIGITS
from unsoftmax.probes.base import Array
from unsoftmax.results.recovery import Claim
from unsoftmax.solvers.heads_fit import left_over, relative_errors
from unsoftmax.spec import EXPLAINED, INSIDE, OracleSpec

T = TypeVar("T")

_VERDICT = (
    "heads up to order; equal W show only the sum of their values and v = 0 nothing, so the model has each W once."
)


@dataclass(frozen=True)
class MultiHead:
    """Learn f(X) = sum_h softmax(x_i'W_h x_N) . (X v_h); the number of heads and their rank are found.

    heads    None finds H; a number is a promise that is checked.
    rank     None finds the rank of every W_h; a number is taken as given.
    method   "saturation": heads appear as jumps of the answer for large tokens, then every entry of W_h costs one
             query that sees head h alone. Where tokens are bounded (max_norm), a fit takes the place of saturation.
             "rational": poles in the repetition ratio, for few heads; the comparison with arXiv 2608.03294.
    polish   ask some more queries where they say most and fit everything in extended precision.
    affine   learn the wider class with a key offset c_h per head and an output constant.
    """

    heads: int | None = None
    rank: int | None = None
    method: Literal["saturation", "rational"] = "saturation"
    polish: bool = False
    affine: bool = False

    accepts = EXPLAINING

    def forecast(self, spec: OracleSpec) -> Forecast:
        check(self, spec)
        if spec.kind in EXPLAINED:
            if self._maps(spec):
                return heads_forecast(spec, self.heads)
            by_values = self.forecast(as_values(spec))
            return gradient_heads_forecast(spec, by_values) if self._parts(spec) else by_values
        if spec.domain.length_limit < 3:
            raise DomainError(
                f"MultiHead needs sequences of three tokens and max_length is {spec.domain.max_length}; "
                "sequences of two do not tell all heads apart (docs/theory/multi-head.md has the counterexample)."
            )
        if self.method == "rational" and spec.domain.length_limit < (needed := tokens_needed(self.heads)):
            raise DomainError(
                f'method="rational" needs sequences of {needed} tokens for enough repetition ratios and max_length is '
                f'{spec.domain.max_length}; pass `heads` if it is known, or use method="saturation".'
            )
        if self.affine and spec.domain.max_norm is not None:
            raise DomainError(
                f"MultiHead(affine=True) sets its own token lengths and max_norm is {spec.domain.max_norm:g}; omit the "
                "limit if the target allows longer tokens."
            )
        return self._forecast(spec)

    def _forecast(self, spec: OracleSpec) -> Forecast:
        d, most = spec.dim + self.affine, CORE.heads_supposed if self.heads is None else self.heads
        low, high = heads_range(d, self.heads)
        if self.method == "rational":
            low = 2 * (spec.dim**2 + spec.dim - 1)
            high = 3 * most * (spec.dim**2 + spec.dim) + 400
        if self.heads == 0:
            low = 0
        return Forecast(
            {"values": d},
            ranges={"heads": (low, 2 * high if self.polish else high)},
            supposing="at least one head that scores" + ("" if self.heads is not None else f", {SEVERAL}"),
            model=Heads,
            heads=(0, most),
        )

    def program(self, spec: OracleSpec, seed: int) -> Program:
        self.forecast(spec)
        if self._maps(spec):
            return attention.heads(spec, seed, single=False, promised=self.heads)
        if self._parts(spec):
            return self._parted(spec, seed)
        if spec.kind in EXPLAINED:
            return only_values(self.program(as_values(spec), seed))
        if self.affine:
            return with_offsets(lambda lifted, lift: self._learn(lifted, seed, lift), spec, seed)
        return self._learn(spec, seed)

    def _maps(self, spec: OracleSpec) -> bool:
        """Whether every head shows its attention, which is all that plain heads take."""
        return spec.kind == "attention" and not self.affine

    def _parts(self, spec: OracleSpec) -> bool:
        """Whether gradients are used: by the default method, which takes over where they do not part heads."""
        return spec.kind == "gradient" and self.method == "saturation" and not (self.affine or self.polish)

    def _parted(self, spec: OracleSpec, seed: int) -> Program:
        try:
            outcome = yield from heads(spec, seed, self.heads)
        except Unparted as why:
            noise = max(spec.tolerance, why.noise)
            by_values = yield from only_values(self.program(as_values(replace(spec, tolerance=noise)), seed))
            note = f"gradients do not part these heads ({why}); they were learned from the values alone."
            return replace(by_values, notes=(*by_values.notes, note), allows=replace(by_values.allows, noise=why.noise))
        return replace(outcome, notes=(*outcome.notes, _VERDICT))

    def _learn(self, spec: OracleSpec, seed: int, lift: Lift | None = None) -> Program:
        rng = np.random.default_rng(seed)
        records, earlier = Records(), 0
        # In one dimension there is no circle: the fit that serves bounded tokens serves there too.
        bounded = spec.domain.max_norm is not None or spec.dim == 1
        rational = self.method == "rational"
        keep = records.watching if self.polish or bounded or rational else _unwatched
        notes: tuple[str, ...] = ()
        try:
            ground = yield from keep(read_ground(spec, rng))
            if lift is not None:
                ground = replace(ground, axis=lift.axis, noise=max(ground.noise, lift.noise))
        except Silent as silence:
            return Outcome(Heads(np.zeros((0, spec.dim, spec.dim)), np.zeros((0, spec.dim))), (str(silence), _VERDICT))
        room = Room(np.inf, int(min(spec.domain.length_limit, 64)), spec.tolerance)
        if bounded:
            # Rounding must not carry a token over the norm limit.
            radius = (1 - 64 * spec.eps) * min(
                spec.domain.norm_limit, HEADS.longest_on_a_line if spec.dim == 1 else np.inf
            )
            room = replace(room, radius=radius, noise=max(spec.tolerance, _rounding(ground, radius)))
            yield from keep(require_no_order(ground, INSIDE * radius, rng))
            W, v = yield from fit_heads(Fitting(ground, room, self.heads, records, rng))
        elif rational:
            W, v = yield from rational_heads(ground, self.heads, records, room.longest, rng)
            _require_sum(v, ground)
        else:
            try:
                W, v = yield from keep(saturated_heads(ground, self.rank, rng))
            except Entangled as error:
                noise = max(spec.tolerance, _rounding(ground, error.radius))
                room = replace(room, radius=error.radius, noise=noise)
                # Saturated probes lie far outside the room in which everything is fitted.
                records, earlier = Records(), records.asked
                W, v = yield from fit_entangled(Fitting(ground, room, self.heads, records, rng), error)
                notes = (f"{error}; all heads were fitted together instead.",)
        if len(v) and (self.polish or (bounded and spec.tolerance > 0)):
            spare = _spare(len(v), spec, earlier + records.asked)
            W, v = yield from polished(W, v, records, spare, room, spec, rng)
        if np.isfinite(room.radius) and np.isinf(spec.domain.norm_limit) and len(v):
            W = _without_noise(W, v, records, room)
        model = canonical(W, v, room)
        stated = _stated(model, records, room) if np.isfinite(room.radius) and len(v) else ()
        if self.heads is not None and model.heads > self.heads:
            raise ModelMismatch(
                f"{model.heads} different heads were found where heads={self.heads} was promised; pass heads=None."
            )
        if self.heads is not None and model.heads < self.heads:
            promised = f"{self.heads} were promised: the others write nothing or share the W of one of these"
            notes = (*notes, f"{model.heads} heads explain every answer where {promised}.")
        # Of exact answers verification grants nothing, of others what their noise leaves in the fit.
        allows = Allowance(parameters=stated[0]) if stated and spec.tolerance > 0 else Allowance()
        return Outcome(model, (*notes, _VERDICT), stated, allows)


def _without_noise(W: Array, v: Array, records: Records, room: Room) -> Array:
    """W (H, d, d) with 0 where a fit says no more than that: as small as its own error, and nothing beside the others.

    Tokens long enough to show the noise of a fit as scores are allowed, and would contradict it.
    """
    size = np.linalg.norm(W, axis=(1, 2))
    off = FITS.stated * relative_errors(W, v, records.data(), 0.6 * room.noise)[0]
    nothing = (off >= 1) & (size <= HALF_DIGITS * size.max())
    return np.where(nothing[:, None, None], 0.0, W)


def _stated(model: Heads, records: Records, room: Room) -> tuple[Claim, ...]:
    """How far the weights of a fit of everything may be off, by the conditioning of all that was asked."""
    data, noise = records.data(), 0.6 * room.noise
    left = max(1.0, left_over(model.W, model.v, data, noise))
    off = FITS.stated * left * float(relative_errors(model.W, model.v, data, noise).max(initial=0.0))
    words = f"of every parameter, {FITS.stated:g} times what the noise of {len(data)} answers leaves in their joint fit"
    return (Claim(RELATIVE_ERROR, off, statement=words),)


def _require_sum(v: Array, ground: Ground) -> None:
    """Single tokens answer with the sum of all values, read before any fit; nearly equal heads spoil it first."""
    misfit = float(np.linalg.norm(v.sum(axis=0) - ground.V))
    largest = float(np.abs(v).max(initial=0.0)) + float(np.abs(ground.V).max())
    if misfit > max(1e-10, 1e3 * ground.noise) * largest + 1e2 * np.sqrt(ground.dim) * ground.spec.tolerance:
        raise ModelMismatch(
            f"the heads' values add up to what single tokens answer only within {misfit / largest:.1g}: heads with "
            'nearly equal W are not told apart by rational interpolation; method="saturation" goes further.'
        )


def _spare(H: int, spec: OracleSpec, asked: int) -> int:
    """Queries for the polish; exact targets stay below the published count, verification included."""
    d = spec.dim
    if spec.tolerance > 0:
        return int(HEADS.polish_per_unknown * theory.multi_head_unknowns(d, H))
    room = theory.rational_queries(d, H) - asked - (HEADS.verification_reserve + 6 * H)
    wanted = int(HEADS.polish_per_pair * H * (H - 1) * d) + d
    # What a search in several planes cost beyond the usual is saved here, up to half.
    late = max(asked - theory.multi_head_queries(d, H) - 2 * H * (d + 20), 0)
    return max(min(max(wanted - late, wanted // 2), room), d)


def canonical(W: Array, v: Array, room: Room) -> Heads:
    """Equal W merged, v = 0 dropped; a fitted W that no token allowed shows is 0."""
    if np.isfinite(room.radius):
        sizes = np.linalg.norm(W, axis=(1, 2)) * room.radius**2
        seen = room.noise / np.maximum(room.radius * np.linalg.norm(v, axis=1), 1e-300)
        W = np.where((sizes <= np.maximum(HEADS.vanishing_score, seen))[:, None, None], 0.0, W)
    return Heads(W, v).canonical(HALF_DIGITS)


def _rounding(ground: Ground, radius: float) -> float:
    """Noise of an answer to tokens of this length, where it is coarser than float64."""
    return ground.noise * radius * float(np.linalg.norm(ground.V)) if ground.noise > ARITHMETIC else 0.0


def _unwatched(program: Asking[T]) -> Asking[T]:
    return program
