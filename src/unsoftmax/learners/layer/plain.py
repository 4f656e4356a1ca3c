"""A layer without LayerNorm: affine one-token answers, heads told apart by hard attention, then their scores.

A layer without LayerNorm under a norm limit at which no head settles on one token: it is asked inside a ball, as a
layer behind a LayerNorm is.

One-token queries: the affine map x -> M x + constant, M = sum_h P_h [+ identity], and the noise of the answers.

Theory: docs/theory/attention-layer.md, "A real layer", method.
Theory: docs/theory/attention-layer.md, "A real layer", one_row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.errors import Code, ModelMismatch, NotIdentifiable
from unsoftmax.inversion import rounding_unit
from unsoftmax.learners.core.base import Asking, Program
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.core.readable import SATURATED, Steps, find_scale
from unsoftmax.learners.layer.assembly import ALWAYS_SHARED, outcome
from unsoftmax.learners.layer.ball import Ball
from unsoftmax.learners.layer.blurred import refusal
from unsoftmax.learners.layer.constants import LAYER
from unsoftmax.learners.layer.keys import read_keys
from unsoftmax.learners.layer.picks import Picks
from unsoftmax.learners.layer.polish import dual_picks
from unsoftmax.learners.layer.pre_norm import in_ball
from unsoftmax.learners.layer.presets import PRESETS, Preset
from unsoftmax.learners.layer.ranges import Heads, Shared, read_ranges, read_values
from unsoftmax.learners.layer.scan import ample, scan
from unsoftmax.learners.layer.scores import Reader, Scales, find_scales
from unsoftmax.precision import SHORT_FORMAT
from unsoftmax.probes.around import orthonormal
from unsoftmax.probes.base import Array, Probes, one_row
from unsoftmax.probes.scales import held, on_grid, power_of_two
from unsoftmax.solvers.subspace import column_range, solve_orthogonal
from unsoftmax.spec import OracleSpec


@dataclass(frozen=True, eq=False)
class Affine:
    """One-token answers M x + constant: M (outputs, d), constant (outputs,); `noise` relative to the answers."""

    M: Array
    constant: Array
    noise: float

    def of(self, x: Array) -> Array:
        """Answers for the rows of x (n, d)."""
        return np.asarray(x @ self.M.T + self.constant)


@dataclass(frozen=True, eq=False)
class Limited(Ball):
    """Tokens as they are, |w| < `reach`; `moved`: how far scores move answers there, relative to even weights."""

    reach: float = 1.0
    moved: float = 1.0

    @property
    def radius(self) -> float:
        return self.reach

    def tokens(self, w: Array) -> Array:
        return held(w, self.dtype)


def settles(affine: Affine, spec: OracleSpec, rng: np.random.Generator) -> Asking[bool]:
    """Whether heads settle on single tokens below the norm limit: then answers scale with the tokens, and are not what
    attention to all alike gives, with a residual or without. Two queries."""
    k = int(min(LAYER.settling_tokens, spec.domain.length_limit))
    X = rng.standard_normal((k, spec.dim))
    X *= 0.4 * spec.domain.norm_limit / np.linalg.norm(X, axis=1, keepdims=True)
    y = yield Probes(_kept(np.stack([X, X / 2]), affine), phase="pilot")
    whole, half = y - affine.constant
    if np.linalg.norm(whole - 2 * half) > LAYER.same_answer * np.linalg.norm(whole):
        return False
    even = affine.M @ X.mean(axis=0)
    follows = even + X[-1] - X.mean(axis=0) if len(whole) == spec.dim else even
    return bool(
        min(np.linalg.norm(whole - even), np.linalg.norm(whole - follows)) > LAYER.off_even * np.linalg.norm(whole)
    )


def limited(affine: Affine, spec: OracleSpec, preset: Preset, rng: np.random.Generator) -> Program:
    """The whole program after the one-token answers."""
    ball = yield from _read_ball(affine, spec, rng)
    try:
        return (yield from in_ball(ball, spec, preset, rng))
    except ModelMismatch as error:
        if ball.moved < LAYER.told_apart * np.sqrt(ball.noise):
            raise NotIdentifiable(
                "the scores are too small to tell heads from each other: below max_norm = "
                f"{spec.domain.max_norm:g} they move answers by {ball.moved:.1g} of their size, and heads are told "
                f"apart by differences of answers, good to {np.sqrt(ball.noise):.1g}",
                advice="allow longer tokens (max_norm).",
                code=Code.UNDETERMINED,
            ) from error
        raise ModelMismatch(
            f"below max_norm = {spec.domain.max_norm:g} no head settles on single tokens, so heads must be told apart "
            f"inside the ball, and {error} Raise max_norm if the target allows longer tokens."
        ) from error


def _read_ball(affine: Affine, spec: OracleSpec, rng: np.random.Generator) -> Asking[Limited]:
    """What of the one-token answers is the residual's, and how long tokens may be before heads saturate."""
    d, limit = spec.dim, LAYER.inside_limit * spec.domain.norm_limit
    x, q = (w / np.linalg.norm(w) for w in rng.standard_normal((2, d)))
    short = LAYER.query_over_tokens * limit
    y = yield Probes(_kept(short * np.stack([[x, q], [q, x]]), affine), phase="pilot")
    exchanged, turned = y[0] - y[1], short * (q - x)
    follows = len(exchanged) == d and np.linalg.norm(exchanged - turned) < LAYER.exchange_off_residual * np.linalg.norm(
        turned
    )
    if not follows and np.linalg.norm(exchanged) > LAYER.exchange_off_residual * np.linalg.norm(
        turned
    ) * np.linalg.norm(affine.M, 2):
        raise ModelMismatch("an exchange of two short tokens changes the answer, and not as a residual does.")
    M = affine.M - np.eye(d) if follows else affine.M
    even, moved = (y[0] - affine.of(short * q[None])[0]) / short, 1.0

    def look(reach: float) -> Asking[float]:
        nonlocal moved
        y = yield Probes(_kept(reach * np.stack([[x, q], [-x, q]]), affine), phase="pilot")
        shown = (y - affine.of(reach * q[None])) / reach
        # Without scores [x, q] and [-x, q] move the answer by half of P (x - q) and of P (-x - q).
        moved = float(np.linalg.norm(shown[0] - even) / np.linalg.norm(even))
        return 1.0 if moved < LAYER.answer_due_to_scores else SATURATED

    reach = (yield from find_scale(look, limit, Steps(shorter=LAYER.ball_shrunk_by, looks=40))).scale
    kind = spec.dtype if affine.noise < SHORT_FORMAT else "float32"
    return Limited(np.eye(d), 0.0, M, affine.constant, bool(follows), affine.noise, kind, reach, moved)


def _kept(tokens: Array, affine: Affine) -> Array:
    """Tokens that a target of this noise sees as they are."""
    return tokens if affine.noise < SHORT_FORMAT else held(tokens)


def plain(spec: OracleSpec, preset: Preset, rng: np.random.Generator) -> Program:
    """The whole program."""
    affine = yield from read_affine(spec, rng)
    if ample(spec):
        return (yield from _settled(affine, spec, preset, rng))
    try:
        return (yield from limited(affine, spec, preset, rng))
    except (ModelMismatch, NotIdentifiable):
        # Heads of unequal rank do not fall apart there; some limits are wide enough for hard attention all the same.
        if not (yield from settles(affine, spec, rng)):
            raise
    return (yield from _settled(affine, spec, preset, rng))


def _settled(affine: Affine, spec: OracleSpec, preset: Preset, rng: np.random.Generator) -> Program:
    """Heads told apart by the tokens they settle on."""
    coarse = PRESETS["lean"] if preset.polish else preset
    heads, picks = yield from _told_apart(affine, coarse, spec, rng)
    reader = Reader(heads, affine.of, affine.noise)
    units = orthonormal(rng, spec.dim, min(reader.tokens(preset.tokens(heads.slots)), 16))
    scales = yield from find_scales(reader, units, rng, spec.domain.norm_limit)
    if preset.polish:
        heads = yield from _polished(reader, scales, picks, affine, preset, spec, rng)
        reader = Reader(heads, affine.of, affine.noise)
    keys = yield from read_keys(reader, scales, preset, spec, rng)
    return outcome(keys, reader, affine.constant, spec, residual=picks.residual)


def _told_apart(
    affine: Affine, preset: Preset, spec: OracleSpec, rng: np.random.Generator
) -> Asking[tuple[Heads, Picks]]:
    """What every head writes; scans again whenever two heads shared a token."""
    least, shared_at = 1, 0
    for _ in range(CORE.draws):
        picks = yield from scan(spec, affine.noise, least, preset.scans, rng)
        try:
            total = column_range(_written(affine, picks), affine.noise, spare=0).rank
            unequal = picks.heads < least
            ranges = yield from read_ranges(picks, total, affine.noise, preset, spec, rng, unequal)
            heads = yield from read_values(ranges, _written(affine, picks), picks, affine.noise, preset, spec, rng)
        except Shared:
            # Once is chance; the same number of heads twice means that one more is to be expected.
            least, shared_at = picks.heads + (picks.heads == shared_at), picks.heads
            continue
        return heads, picks
    raise refusal(ALWAYS_SHARED.format(least), _written(affine, picks), affine.noise)


def _polished(
    reader: Reader,
    scales: Scales,
    picks: Picks,
    affine: Affine,
    preset: Preset,
    spec: OracleSpec,
    rng: np.random.Generator,
) -> Asking[Heads]:
    """The heads' ranges and value maps once more, at tokens with wider margins."""
    wide = yield from dual_picks(reader, scales, picks, preset, spec, rng)
    try:
        ranges = yield from read_ranges(wide, 0, affine.noise, preset, spec, rng)
        return (yield from read_values(ranges, _written(affine, picks), wide, affine.noise, preset, spec, rng))
    except Shared:
        return reader.heads


def _written(affine: Affine, picks: Picks) -> Array:
    """sum_h P_h."""
    return affine.M - np.eye(len(affine.M)) if picks.residual else affine.M


def read_affine(spec: OracleSpec, rng: np.random.Generator) -> Asking[Affine]:
    """d + 1 queries for the map, phase "values"; two fresh ones, phase "pilot", tell the noise of the answers."""
    d = spec.dim
    size = power_of_two(min(np.sqrt(d), 0.5 * spec.domain.norm_limit))
    Q = on_grid(orthonormal(rng, d) * size, size, spec.dtype)
    y = yield one_row(np.vstack([np.zeros((1, d)), Q]), phase="values")
    M = solve_orthogonal(Q, y[1:] - y[0]).T
    fresh = on_grid(orthonormal(rng, d, min(CORE.checks, d)) * size, size, spec.dtype)
    seen = yield one_row(fresh, phase="pilot")
    off = seen - fresh @ M.T - y[0]
    gap = float(np.abs(off).max())
    scale = float(np.sqrt(np.mean(y**2))) or 1.0
    loud = gap > CORE.loud * max(spec.eps, rounding_unit(y)) * scale and gap > 2 * spec.tolerance
    if loud:
        step = on_grid(LAYER.step_to_neighbour * fresh[::-1], 2 * size, spec.dtype)
        beside = yield one_row(np.vstack([fresh + step, fresh - step]), phase="pilot")
        _refuse_bend(off, beside[: len(fresh)] + beside[len(fresh) :] - 2 * seen, gap / scale)
    if loud and gap > max(LAYER.same_answer * scale, 10 * spec.tolerance):
        raise ModelMismatch(
            f"one-token answers scatter by {gap / scale:.2g} of their size about an affine map, between neighbouring "
            f"tokens too: that is noise, and telling heads apart takes answers good to {LAYER.same_answer:g}. Average "
            "answers, "
            "or raise max_norm if the noise does not grow with the tokens."
        )
    noise = max(spec.eps, rounding_unit(y), gap / scale / np.sqrt(d), spec.tolerance / scale)
    return Affine(M, y[0], noise)


def _refuse_bend(off: Array, second: Array, gap: float) -> None:
    """Noise is as large in second differences over short steps as in what the affine map misses; a bend is not."""
    if np.linalg.norm(second) < 0.3 * np.linalg.norm(off):
        raise ModelMismatch(
            f"one-token answers are not affine in the token: they miss by {gap:.2g} of their size, alike at close "
            "tokens, so that is no noise. Attention alone is affine there; a LayerNorm is not (norm='auto' looks for "
            "one), nor is a network behind it."
        )
