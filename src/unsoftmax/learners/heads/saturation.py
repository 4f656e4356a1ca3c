"""Heads by saturation: values from the jumps of several planes, W through probes that see one head, values once more.

Where one head alone is on, F = z.v_h, and d such z give v_h to the last digits. The scores found before say where that
is, so nothing is searched. The largest value follows from the sum V.

Between two jumps F is linear in z: F = z . C with C the sum of the values of the heads that are on.

Steps out of the plane read C on every arc; neighbouring arcs differ by one head's v.

Theory: docs/theory/multi-head.md, "Generic heads", values.
Theory: docs/theory/multi-head.md, "Generic heads", arcs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from unsoftmax import theory
from unsoftmax.errors import Code, ModelMismatch, NotIdentifiable, UnsoftmaxError
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.core.driver import together
from unsoftmax.learners.core.reductions import relabelled
from unsoftmax.learners.core.settling import settle
from unsoftmax.learners.heads.circle import (
    Circle,
    Entangled,
    Faint,
    Unresolved,
    compass,
    read_flat_value,
    saturated_circle,
)
from unsoftmax.learners.heads.constants import HEADS
from unsoftmax.learners.heads.constants_fits import FITS
from unsoftmax.learners.heads.discovery import Jump, Piece, find_jumps
from unsoftmax.learners.heads.ground import Ground
from unsoftmax.learners.heads.isolation import independence
from unsoftmax.learners.heads.reading import read_heads, settled
from unsoftmax.precision import ARITHMETIC, SHORT_FORMAT
from unsoftmax.probes.base import Array
from unsoftmax.probes.scales import power_of_two


@dataclass(frozen=True, eq=False)
class Turn:
    """One jump with its vectors: `v` (d,) is what turns on (for one head its value), `error` relative to |v|."""

    v: Array
    error: float


def saturated_heads(ground: Ground, rank: int | None, rng: np.random.Generator) -> Asking[tuple[Array, Array]]:
    """W (H, d, d), v (H, d): values by jumps, W through isolated probes, then values once more."""
    circle, ground, v, error_of_v = yield from _values(ground, rng)
    heads = len(v) + (ground.zero is not None)
    try:
        reading = yield from read_heads(ground, v, rank, rng, error_of_v)
        ground = reading.ground
        w = reading.W @ circle.b0
        if separable(w) and ground.noise <= SHORT_FORMAT:
            v = _confirmed(v, (yield from read_values_alone(ground, circle.b0, w, v)), error_of_v)
            reading = yield from settled(v, reading.with_values(v))
    except ModelMismatch as error:
        if ground.noise > ARITHMETIC or theory.multi_head_unknowns(ground.dim, heads) > HEADS.small_fit:
            raise
        raise Entangled(str(error).rstrip("."), circle, heads, tried=True) from error
    return _with_zero(ground, reading.W, v)


def _values(ground: Ground, rng: np.random.Generator) -> Asking[tuple[Circle, Ground, Array, float]]:
    """The circle, the ground to go on with, values (H, d) and their relative error.

    Jumps of coarse answers leave errors of the values beside which faint parts of W are none, and may hide a head. So
    these values are read again first, from W b0 alone; where that contradicts them, other planes are tried.
    """
    for left in reversed(range(HEADS.discoveries)):
        circle, v, error = yield from discover(ground, rng)
        here = circle.ground
        values = v if here.zero is None else np.vstack([v, here.zero])
        if independence(values) < HEADS.dependent or 1 < len(values) == here.dim:
            raise Entangled("the heads' values are (nearly) dependent or fill the space", circle, len(values))
        if here.noise <= SHORT_FORMAT:
            break
        try:
            here, v, error = yield from relabelled(_again(here, circle.b0, v, error, rng), "discovery")
            break
        except ModelMismatch:
            if not left:
                raise
    return circle, here, v, error


def _again(
    ground: Ground, b0: Array, v: Array, error: float, rng: np.random.Generator
) -> Asking[tuple[Ground, Array, float]]:
    """Values (H, d) and their relative `error` once more, by the scores at b0 (d,)."""
    reading = yield from read_heads(ground, v, 1, rng, error, b0[None])
    w = reading.W @ b0
    if not separable(w):
        return reading.ground, v, error
    again = _confirmed(v, (yield from read_values_alone(reading.ground, b0, w, v)), error * np.sqrt(ground.dim))
    return reading.ground, again, ground.noise


def _confirmed(v: Array, again: Array, error: float) -> Array:
    """Values (H, d) read again with the scores found: what is far from the first reading, a wrong score read."""
    change = float((np.linalg.norm(again - v, axis=1) / np.linalg.norm(v, axis=1)).max(initial=0.0))
    if not change <= max(HEADS.confirmed, HEADS.confirmed_errors * error):
        raise ModelMismatch(
            f"values read again where one head alone should answer differ by {change:.2g} from those the jumps showed: "
            "the scores found are wrong. The target is outside the class, or some heads have nearly equal W."
        )
    return again


def _with_zero(ground: Ground, W: Array, v: Array) -> tuple[Array, Array]:
    """W (H, d, d) in units of the target and v (H, d), a head with W = 0 added if there is one."""
    W = W / ground.unit
    if ground.zero is None:
        return W, v
    return np.concatenate([W, np.zeros((1, ground.dim, ground.dim))]), np.vstack([v, ground.zero])


def discover(ground: Ground, rng: np.random.Generator) -> Asking[tuple[Circle, Array, float]]:
    """The values v (H, d) of all heads, in a plane that separates them, and their largest relative error."""
    reason, faint, best = "", 0, None
    for draw in range(HEADS.faint_draws * CORE.draws):
        # Planes whose jumps noise hides say nothing against the class, and cost little.
        if draw - faint >= CORE.draws:
            break
        circle, flat = yield from saturated_circle(ground, rng)
        ground = circle.ground
        try:
            if flat:
                ground = ground.with_zero((yield from read_flat_value(circle, rng)))
                circle, flat = yield from saturated_circle(ground, rng)
                if flat:
                    raise Unresolved("a dependence on copies remains that no head explains")
            pieces, jumps = yield from find_jumps(circle, rng)
            if any(jump.several for jump in jumps):
                raise Entangled("some heads turn on one and the same hyperplane (proportional W)", circle)
            turns = yield from read_turns(circle, pieces, jumps, rng)
            # Tokens will be orthogonal to these to the last digit.
            (values,) = yield from settle("values", np.array([turn.v for turn in turns]).reshape(-1, ground.dim))
            turns = [replace(turn, v=v) for turn, v in zip(turns, values, strict=True)]
        except Unresolved as error:
            reason, faint = str(error), faint + isinstance(error, Faint)
            continue
        # The answers to these tokens tell; to tokens with other last digits they may not.
        (whole,) = yield from settle("no head is missing", (yield from complete(circle, turns, rng)))
        if whole:
            off = max((turn.error for turn in turns), default=0.0)
            if best is None or off < best[2]:
                best = circle, values, off
            if ground.noise <= SHORT_FORMAT or off * np.sqrt(ground.dim) <= HEADS.first_values:
                return best
        reason = "something answers where no head found has a value"
    if best is not None:
        return best
    if faint >= CORE.draws:
        raise _faint(circle, reason)
    raise ModelMismatch(
        f"{CORE.draws} random planes did not separate the heads ({reason}); the target may not be a sum of softmax "
        "heads, "
        "or two of its heads have opposite W and one and the same v, which saturation does not part."
    )


def _faint(circle: Circle, reason: str) -> UnsoftmaxError:
    """Heads that answer beside others like their noise are fitted together if they are small, and hidden if not."""
    if theory.multi_head_unknowns(circle.ground.dim, 2) <= FITS.largest_fit:
        return Entangled(f"some heads are too weak beside the others to be told apart: {reason}", circle)
    return NotIdentifiable(
        f"in random planes {reason} or several heads': some values are too small beside the others for answers that "
        f"are off by {circle.ground.noise:.1g} of their size",
        advice="give answers with more digits (float64).",
        code=Code.UNDETERMINED,
    )


def separable(w: Array) -> bool:
    """Can saturation switch the heads with key directions w (H, d) one by one?"""
    if not 0 < len(w) <= w.shape[1]:
        return False
    units = w / np.linalg.norm(w, axis=1, keepdims=True)
    return bool(np.linalg.svd(units, compute_uv=False)[-1] > HEADS.parallel)


def read_values_alone(ground: Ground, b0: Array, w: Array, v: Array) -> Asking[Array]:
    """v (H, d) again from (H - 1) d queries at b0, w = W b0 (H, d) being separable and v (H, d) approximate."""
    H, d = v.shape
    if H == 0:
        return v
    sizes = np.linalg.norm(v, axis=1)
    order = np.argsort(sizes, kind="stable")
    # What a head that is off still answers must vanish beside the weakest.
    off = HEADS.saturated + float(np.log(sizes.max() / sizes.min()))
    Z = [_only(w, h, off) for h in order[:-1]]
    new = np.empty_like(v)
    if Z:
        F = yield from ground.pairs(np.concatenate(Z), b0, phase="main")
        for h, z, f in zip(order[:-1], Z, F.reshape(H - 1, d), strict=True):
            new[h] = np.linalg.solve(z, f)
    total = ground.V if ground.zero is None else ground.V - ground.zero
    new[order[-1]] = total - new[order[:-1]].sum(axis=0)
    return new


def _only(w: Array, h: int, off: float) -> Array:
    """d independent z (d, d) at which head h is on and all others are off, by at least `off` in the scores."""
    norms = np.linalg.norm(w, axis=1)
    units = w / norms[:, None]
    dual = np.linalg.pinv(units)
    signs = -np.ones(len(w))
    signs[h] = 1.0
    centre = dual @ signs * (off / norms.min())
    length = np.linalg.norm(centre)
    null = np.linalg.qr(units.T, mode="complete")[0][:, len(w) :].T
    pushes = (dual / np.linalg.norm(dual, axis=0) * signs).T
    return np.asarray(centre + length * np.vstack([null, pushes]))


def read_turns(circle: Circle, pieces: list[Piece], jumps: list[Jump], rng: np.random.Generator) -> Asking[list[Turn]]:
    """The values that turn at every jump; the last arc is the antipode of the first and costs nothing."""
    if not jumps:
        return []
    angles = [jump.angle for jump in jumps]
    starts = [angles[-1] - np.pi, *angles[:-1]]
    arcs = [
        _linear_part(circle, piece, (low + high) / 2, (high - low) / 2, rng)
        for piece, low, high in zip(pieces, starts, angles, strict=False)
    ]
    read = yield from together(arcs)
    C = [c for c, _ in read]
    errors = [error for _, error in read]
    ground = circle.ground
    C.append((ground.V if ground.zero is None else ground.V - ground.zero) - C[0])
    errors.append(errors[0])
    turns = []
    for k, jump in enumerate(jumps):
        v = (jump.sign or 1) * (C[k + 1] - C[k])
        size = float(np.linalg.norm(v))
        if size == 0:
            raise Unresolved("a jump shows no value: the answers are too coarse to tell")
        error = max(errors[k], errors[k + 1]) / size
        turns.append(Turn(v, error))
    return turns


def complete(circle: Circle, turns: list[Turn], rng: np.random.Generator) -> Asking[bool]:
    """Is no head missing or merged? Where z is orthogonal to all values, nothing may answer beyond their errors."""
    ground = circle.ground
    v = np.array([turn.v for turn in turns]).reshape(-1, ground.dim)
    error = max((turn.error * float(np.linalg.norm(turn.v)) for turn in turns), default=0.0)
    allowed = CORE.loud * max(error, ground.noise * circle.scale * np.sqrt(ground.dim))
    rank = len(v)
    if rank >= ground.dim:
        return True
    null = np.linalg.qr(v.T, mode="complete")[0][:, rank:] if rank else np.eye(ground.dim)
    z = rng.standard_normal((HEADS.silent_pairs, null.shape[1])) @ null.T
    z *= circle.typical / np.linalg.norm(z, axis=1, keepdims=True) * np.array([[1.0], [4.0], [16.0]])
    b = rng.standard_normal((HEADS.silent_pairs, ground.dim)) / np.sqrt(ground.dim)
    F = yield from ground.pairs(z, b, phase="discovery")
    return bool((np.abs(F) <= allowed * np.linalg.norm(z, axis=1)).all())


def _linear_part(
    circle: Circle, piece: Piece, middle: float, half: float, rng: np.random.Generator
) -> Asking[tuple[Array, float]]:
    """C (d,) on the arc around `middle`, and its error.

    Two points far apart in the plane, d - 2 steps out of it, and one check of all at once.
    """
    d = circle.ground.dim
    plane, out = circle.basis[:, :2], circle.basis[:, 2:]
    radius = max(circle.radius * HEADS.deeper, power_of_two(HEADS.arc_clear * circle.typical / half))
    z0 = radius * circle.point(middle)
    sides = [middle - HEADS.arc_points * half, middle + HEADS.arc_points * half]
    y = yield from circle.at(sides, radius)
    known = plane @ np.linalg.solve(compass(np.array(sides)), y)
    if np.abs(known - plane @ piece.c).max() > 1e3 * circle.tolerance:
        raise Unresolved("an arc is too narrow")
    step = HEADS.step_off_plane * half * radius
    for _ in range(8):
        signs = rng.choice([-1.0, 1.0], size=d - 2) * (1.5 / np.sqrt(max(d - 2, 1)))
        z = np.vstack([z0 + step * out.T, z0 + step * (out @ signs)])
        F = yield from circle.ground.pairs(z, circle.b0, phase="discovery")
        C = known + out @ ((F[:-1] - z0 @ known) / step)
        if abs(F[-1] - z[-1] @ C) <= circle.tolerance * radius:
            return C, circle.ground.noise * circle.scale * radius / step
        step /= 8
    raise Unresolved("an arc is too narrow to step out of the plane")
