"""Between two jumps F is linear in z: F = z . C with C the sum of the values of the heads that are on.

Steps out of the plane read C on every arc; neighbouring arcs differ by one head's v.

Theory: docs/theory/multi-head.md, "Generic heads", arcs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.lockstep import together
from unsoftmax.learners.heads.circle import DEEPER, Circle, Unresolved, compass
from unsoftmax.learners.heads.discovery import Jump, Piece
from unsoftmax.probes.base import Array
from unsoftmax.probes.scales import power_of_two

_STEP = 0.04
"""Length of a step out of the plane next to the distance of the nearest jump: long steps may cross a hyperplane."""

_SILENT = 3
"""Pairs asked where z is orthogonal to all values found: one at the typical length, one 4 and one 16 times as long, for
heads that are weaker."""

_ERRORS = 1e3
"""What may answer there, per length of z, in units of the values' largest error or of rounding, whichever is larger:
the errors of all heads add up. A louder answer is taken for a missing head."""

_WIDE = 0.7
"""Place of the two points that read the arc's line in the plane, in halves of the arc from its middle: far apart for a
well-posed line, and off the tails of the jumps at its ends."""

_CLEAR = 4e3
"""Score by which an arc's middle is away from its ends, however narrow it is: tails of a jump are no part of a line."""


@dataclass(frozen=True, eq=False)
class Turn:
    """One jump with its vectors: `v` (d,) is what turns on (for one head its value), `error` relative to |v|."""

    v: Array
    error: float


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
    allowed = _ERRORS * max(error, ground.noise * circle.scale * np.sqrt(ground.dim))
    rank = len(v)
    if rank >= ground.dim:
        return True
    null = np.linalg.qr(v.T, mode="complete")[0][:, rank:] if rank else np.eye(ground.dim)
    z = rng.standard_normal((_SILENT, null.shape[1])) @ null.T
    z *= circle.typical / np.linalg.norm(z, axis=1, keepdims=True) * np.array([[1.0], [4.0], [16.0]])
    b = rng.standard_normal((_SILENT, ground.dim)) / np.sqrt(ground.dim)
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
    radius = max(circle.radius * DEEPER, power_of_two(_CLEAR * circle.typical / half))
    z0 = radius * circle.point(middle)
    sides = [middle - _WIDE * half, middle + _WIDE * half]
    y = yield from circle.at(sides, radius)
    known = plane @ np.linalg.solve(compass(np.array(sides)), y)
    if np.abs(known - plane @ piece.c).max() > 1e3 * circle.tolerance:
        raise Unresolved("an arc is too narrow")
    step = _STEP * half * radius
    for _ in range(8):
        signs = rng.choice([-1.0, 1.0], size=d - 2) * (1.5 / np.sqrt(max(d - 2, 1)))
        z = np.vstack([z0 + step * out.T, z0 + step * (out @ signs)])
        F = yield from circle.ground.pairs(z, circle.b0, phase="discovery")
        C = known + out @ ((F[:-1] - z0 @ known) / step)
        if abs(F[-1] - z[-1] @ C) <= circle.tolerance * radius:
            return C, circle.ground.noise * circle.scale * radius / step
        step /= 8
    raise Unresolved("an arc is too narrow to step out of the plane")
