"""A half circle of z so long that every head is off or on along it; and the head that never is, W = 0.

Heads that are not saturated show by the copies of the query token: doubling them moves the answer.

Theory: docs/theory/multi-head.md, "Generic heads", discovery.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from unsoftmax.errors import Code, ModelMismatch
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.heads.constants import HEADS
from unsoftmax.learners.heads.ground import Ground
from unsoftmax.probes.base import Array


class Unresolved(Exception):
    """This plane does not separate the heads; another may."""


class Faint(Unresolved):
    """Noise of the answers hides whether a jump of this plane is one head's or several."""


class Entangled(ModelMismatch):
    """Some heads turn on one hyperplane, or their values are dependent: saturation and isolation cannot part them.

    `heads`: how many were counted all the same; two that are nearly one may have passed as one. `tried`: isolation did
    not come out, so that a fit is a last resort.
    """

    code = Code.ENTANGLED

    def __init__(self, message: str, circle: Circle, heads: int | None = None, tried: bool = False) -> None:
        super().__init__(message)
        self.heads, self.tried = heads, tried
        # Tokens of this length give the weakest head scores of about 1.
        self.radius = 4 * float(np.sqrt(circle.typical * circle.ground.unit))


@dataclass(frozen=True, eq=False)
class Circle:
    """A query token b0 (d,), an orthonormal basis (d, d) whose first two columns span the plane, a radius."""

    ground: Ground
    b0: Array
    basis: Array
    radius: float
    scale: float
    """Size of F(z)/|z|, what noise is relative to."""

    @property
    def typical(self) -> float:
        """Length of z at which the weakest head's score is about 1."""
        return self.radius / (HEADS.sharpened * 27.0)

    @property
    def tolerance(self) -> float:
        return HEADS.on_a_line * self.ground.noise * self.scale

    def point(self, angle: float | Array) -> Array:
        """Unit vectors (..., d) at the angles."""
        return np.asarray(compass(angle) @ self.basis[:, :2].T)

    def at(self, angles: list[float], radius: float, copies: int = 1) -> Asking[Array]:
        """F(R u) / R at the angles."""
        z = radius * self.point(np.array(angles))
        F = yield from self.ground.pairs(z, self.b0, np.tile([1, copies], (len(z), 1)), phase="discovery")
        return F / radius


def compass(angle: float | Array) -> Array:
    """(cos, sin) along the last axis."""
    return np.stack([np.cos(angle), np.sin(angle)], axis=-1)


def saturated_circle(ground: Ground, rng: np.random.Generator) -> Asking[tuple[Circle, bool]]:
    """Grow z until k no longer matters at angle 0. The flag: a dependence on k that no size removes (a W = 0)."""
    d = ground.dim
    b0 = rng.standard_normal(d)
    b0 /= np.linalg.norm(b0)
    basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
    start = Circle(ground, b0, basis, 8.0, float(np.linalg.norm(ground.V)) / np.sqrt(d))
    if not ground.V.any():
        # Values that cancel show their size only where some heads are on and others off.
        z = start.radius * np.linalg.qr(rng.standard_normal((d, d)))[0][: HEADS.size_directions]
        F = yield from ground.pairs(z, b0, phase="discovery")
        start = replace(start, scale=float(np.abs(F).max()) / start.radius)
    circle, gap = yield from _shown_by_copies(start)
    for _ in range(HEADS.most_shortenings if ground.axis is None else 1):
        if abs(gap) > circle.tolerance:
            break
        # Saturated from the start: strong heads, or none.
        shorter = replace(circle.ground, unit=circle.ground.unit * HEADS.query_shortened)
        circle, gap = yield from _shown_by_copies(replace(circle, ground=shorter))
    else:
        return replace(start, radius=start.radius * HEADS.sharpened, scale=circle.scale), False
    for _ in range(45):
        before = gap
        circle, gap = yield from _shown_by_copies(replace(circle, radius=circle.radius * HEADS.growth))
        if abs(gap) <= circle.tolerance:
            return replace(circle, radius=circle.radius * HEADS.sharpened), False
        if abs(gap - before) <= circle.tolerance:
            deep, last = yield from _shown_by_copies(replace(circle, radius=circle.radius * HEADS.deepest))
            if abs(last - gap) <= deep.tolerance:
                return circle, True
    raise ModelMismatch(
        "the answers keep changing with the size of the tokens: no sum of softmax heads does that at this size."
    )


def _shown_by_copies(circle: Circle) -> Asking[tuple[Circle, float]]:
    """The circle with its scale as seen now, and by how much doubling the copies of b moves F / R at angle 0."""
    z = circle.radius * np.repeat(circle.basis[None, :, 0], 2, axis=0)
    F = yield from circle.ground.pairs(z, circle.b0, np.array([[1, 1], [1, 2]]), phase="discovery")
    F = F / circle.radius
    return replace(circle, scale=max(circle.scale, float(np.abs(F).max()))), float(F[0] - F[1])


def read_flat_value(circle: Circle, rng: np.random.Generator) -> Asking[Array]:
    """v (d,) of the head with W = 0: F(k = 1/2) - F(k = 2) = z.v / 3 once every other head is saturated."""
    d = circle.ground.dim
    radius = circle.radius * HEADS.deeper
    z = np.linalg.qr(rng.standard_normal((d, d)))[0] * radius
    value = np.full(d, np.nan)
    for _ in range(CORE.repairs):
        left = np.flatnonzero(np.isnan(value))
        if len(left) == 0:
            return np.asarray(np.linalg.solve(z, value))
        asked = np.repeat(z[left], 3, axis=0)
        copies = np.tile([[2, 1], [1, 1], [1, 2]], (len(left), 1))
        F = (yield from circle.ground.pairs(asked, circle.b0, copies, phase="discovery")).reshape(-1, 3)
        # 2/3, 1/2, 1/3 of z.v: any other ratio is a head in transition, asked again elsewhere.
        straight = np.abs((F[:, 0] - F[:, 1]) - (F[:, 1] - F[:, 2])) <= circle.tolerance * radius
        value[left[straight]] = 3 * (F[straight, 0] - F[straight, 2])
        turn = rng.standard_normal((int((~straight).sum()), d))
        z[left[~straight]] += 0.2 * radius * turn / np.linalg.norm(turn, axis=1, keepdims=True)
    raise Unresolved("the dependence on copies does not settle for large tokens")
