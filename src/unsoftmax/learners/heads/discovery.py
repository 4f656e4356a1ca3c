"""Heads appear as jumps: along a half circle of large z every head is off or on, and each turns once.

F(R u(theta)) / R is c . (cos, sin) between jumps; doubling k inside a jump moves its logit by exactly log 2, down for
a head that turns on and up for one that turns off. Any other shift is several heads at once.

Theory: docs/theory/multi-head.md, "Generic heads", discovery.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from unsoftmax.errors import Code, ModelMismatch
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.lockstep import together
from unsoftmax.learners.heads.ground import Ground
from unsoftmax.probes.base import Array

LOG2 = float(np.log(2.0))
_LINE = 5e3
"""Answers within this many units of noise of a line lie on it; further off they are part of a jump."""

_GROW = 8.0
"""Factor by which z grows per round until all heads are saturated: a power of two, which rounds nothing."""

_DEEP = 2.0**40
"""Factor of z at which what doubling the copies shows must still be the same before it is a head with W = 0: a weak
head saturates on the way."""

_SHORTER = 2.0**-12
"""Factor by which query tokens are shortened where copies show nothing, since all heads may be saturated from the
start."""

_SHORTENINGS = 8
"""Most such shortenings, 2^-96 in all, before there is no head that scores."""

_SIZES = 12
"""Most orthogonal directions that show the size of the answers where the values cancel on single tokens."""

_PIECES = 200
"""Linear pieces on the half circle beyond which the answers are those of no sum of heads: every head adds one piece."""

_SHARPEN = 32.0
"""Factor by which z grows once the heads are saturated, and each time that several turn together: jumps are narrower by
it."""

_SHARPENINGS = 3
"""How often a jump of several heads is sharpened, 3e4 times in all, before it is one that does not come apart."""

_MIXED = 4
"""Points in the middle of a jump that are not one head's before it is sharpened: one or two may lie in the tail of
another jump."""

_SHIFT = 1e-7
"""Gap between the shift of the logit when the copies double and log 2 that is none, beside what the answers' error
makes of it: half the digits of float64."""

_TAIL = 0.02
"""A share this close to 0 or 1 is a tail: there any mixture of heads shifts by log 2, so it proves nothing."""

_TAIL_END = 4.0
"""Tolerances from a line within which doubling the copies may not show."""


class Unresolved(Exception):
    """This plane does not separate the heads; another may."""


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
        return self.radius / (_SHARPEN * 27.0)

    @property
    def tolerance(self) -> float:
        return _LINE * self.ground.noise * self.scale

    def point(self, angle: float | Array) -> Array:
        """Unit vectors (..., d) at the angles."""
        return np.asarray(compass(angle) @ self.basis[:, :2].T)

    def at(self, angles: list[float], radius: float, copies: int = 1) -> Asking[Array]:
        """F(R u) / R at the angles."""
        z = radius * self.point(np.array(angles))
        F = yield from self.ground.pairs(z, self.b0, np.tile([1, copies], (len(z), 1)), phase="discovery")
        return F / radius


@dataclass(eq=False)
class Piece:
    """An arc on which the answer is c . (cos, sin); `points` are the (angle, answer) seen on it."""

    c: Array
    points: list[tuple[float, float]] = field(default_factory=list)

    def value(self, angle: float) -> float:
        return float(self.c @ compass(angle))

    @property
    def first(self) -> float:
        return min(angle for angle, _ in self.points)

    @property
    def last(self) -> float:
        return max(angle for angle, _ in self.points)

    def extend(self, angle: float, answer: float) -> None:
        """One more point on the arc; c follows by least squares."""
        self.points.append((angle, answer))
        angles, answers = (np.array(x) for x in zip(*self.points, strict=True))
        self.c = np.linalg.lstsq(compass(angles), answers, rcond=None)[0]


@dataclass(frozen=True)
class Jump:
    """A head's turn at `angle`: sign +1 if it turns on. `several`: more than one head turns on one hyperplane here."""

    angle: float
    sign: int
    radius: float
    several: bool = False


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
        z = start.radius * np.linalg.qr(rng.standard_normal((d, d)))[0][:_SIZES]
        F = yield from ground.pairs(z, b0, phase="discovery")
        start = replace(start, scale=float(np.abs(F).max()) / start.radius)
    circle, gap = yield from _shown_by_copies(start)
    for _ in range(_SHORTENINGS if ground.axis is None else 1):
        if abs(gap) > circle.tolerance:
            break
        # Saturated from the start: strong heads, or none.
        shorter = replace(circle.ground, unit=circle.ground.unit * _SHORTER)
        circle, gap = yield from _shown_by_copies(replace(circle, ground=shorter))
    else:
        return replace(start, radius=start.radius * _SHARPEN, scale=circle.scale), False
    for _ in range(45):
        before = gap
        circle, gap = yield from _shown_by_copies(replace(circle, radius=circle.radius * _GROW))
        if abs(gap) <= circle.tolerance:
            return replace(circle, radius=circle.radius * _SHARPEN), False
        if abs(gap - before) <= circle.tolerance:
            deep, last = yield from _shown_by_copies(replace(circle, radius=circle.radius * _DEEP))
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


def find_jumps(circle: Circle, rng: np.random.Generator) -> Asking[tuple[list[Piece], list[Jump]]]:
    """All jumps on [0, pi] in order, and the pieces before, between and after them (one more than jumps)."""
    ground = circle.ground
    total = circle.basis[:, :2].T @ (ground.V if ground.zero is None else ground.V - ground.zero)
    first = float((yield from circle.at([0.0], circle.radius))[0])
    start = yield from _piece(circle, 0.0, circle.radius, 0.05, first)
    if start is None:
        raise Unresolved("angle 0 lies inside a jump")
    # At the antipode every head has turned: F(-z) shows the ones that were off.
    end = Piece(
        total - start.c, [(angle + np.pi, float(total @ compass(angle + np.pi)) + y) for angle, y in start.points]
    )
    if np.abs(start.c - end.c).max() <= circle.tolerance:
        found = yield from _cancelling(circle, start, end, rng)
    else:
        found = yield from _between(circle, start, end, circle.radius, rng, [])
    pieces = [start, *(item for item in found if isinstance(item, Piece)), end]
    jumps = [item for item in found if isinstance(item, Jump)]
    return pieces, jumps


def _cancelling(circle: Circle, start: Piece, end: Piece, rng: np.random.Generator) -> Asking[list[Piece | Jump]]:
    """Nothing changes from end to end: no head at all, or heads whose values cancel and that turn one after another."""
    angles = [0.6, 1.2, 1.8, 2.4]
    y = yield from circle.at(angles, circle.radius)
    for angle, answer in zip(angles, y.tolist(), strict=True):
        if abs(answer - start.value(angle)) > circle.tolerance:
            middle = yield from _piece(circle, angle, circle.radius, 0.05, answer)
            if middle is None:
                raise Unresolved("a jump lies where heads that cancel are looked for")
            sides = [_between(circle, a, b, circle.radius, rng, [middle]) for a, b in ((start, middle), (middle, end))]
            before, after = yield from together(sides)
            return [*before, middle, *after]
    return []


def _piece(circle: Circle, angle: float, radius: float, step: float, answer: float) -> Asking[Piece | None]:
    """The line through angle - step and angle + step, if the answer at `angle` lies on it; narrower if not."""
    for _ in range(4):
        sides = np.array([angle - step, angle + step])
        y = yield from circle.at(sides.tolist(), radius)
        piece = Piece(np.linalg.solve(compass(sides), y), list(zip(sides.tolist(), y.tolist(), strict=True)))
        if abs(answer - piece.value(angle)) <= circle.tolerance:
            piece.extend(angle, answer)
            return piece
        step /= 6
    return None


def _between(
    circle: Circle, left: Piece, right: Piece, radius: float, rng: np.random.Generator, known: list[Piece]
) -> Asking[list[Piece | Jump]]:
    """Jumps and pieces strictly between two pieces, in order; `known` gathers all pieces, wherever they were found."""
    low, high = left.last, right.first
    mixed = sharpened = 0
    for _ in range(200):
        if max(abs(left.value(angle) - right.value(angle)) for angle in (low, high)) <= circle.tolerance:
            return []
        gap = high - low
        if gap < 1e-13:
            raise Unresolved("a jump is sharper than the number format can resolve")
        middle = low + gap * (0.5 if gap < 0.3 and not mixed else rng.uniform(0.2, 0.8))
        y = float((yield from circle.at([middle], radius))[0])
        if abs(y - left.value(middle)) <= circle.tolerance:
            left.extend(middle, y)
            low = middle
            continue
        if abs(y - right.value(middle)) <= circle.tolerance:
            right.extend(middle, y)
            high = middle
            continue
        # The last of a jump's tail: copies change it by less than the tolerance, and it is no arc of its own.
        if abs(y - left.value(middle)) <= _TAIL_END * circle.tolerance:
            low = middle
            continue
        if abs(y - right.value(middle)) <= _TAIL_END * circle.tolerance:
            high = middle
            continue
        doubled = float((yield from circle.at([middle], radius, 2))[0])
        if abs(doubled - y) <= circle.tolerance:
            new = yield from _piece(circle, middle, radius, min(0.05, gap / 8), y)
            if new is not None:
                known.append(new)
                if len(known) > _PIECES:
                    raise ModelMismatch("the answers bend everywhere where a sum of softmax heads is linear in pieces.")
                sides = [_between(circle, a, b, radius, rng, known) for a, b in ((left, new), (new, right))]
                before, after = yield from together(sides)
                # Without a jump on one side it is the arc on that side once more.
                return [*before, new, *after] if before and after else [*before, *after]
        jump = right.value(middle) - left.value(middle)
        # Where the lines cross, an answer off them is no single turn.
        share, sign = 0.5, 0
        if abs(jump) > circle.tolerance:
            share, shifted = (y - left.value(middle)) / jump, (doubled - left.value(middle)) / jump
            sign = _turn(share, shifted, circle.tolerance / abs(jump))
        if sign:
            return [Jump(middle, sign, radius)]
        if abs(share) < _TAIL:
            low = middle
        elif abs(1 - share) < _TAIL:
            high = middle
        else:
            mixed += 1
            if mixed == _MIXED:
                if sharpened == _SHARPENINGS:
                    return [Jump(middle, 0, radius, several=True)]
                # Heads that are not parallel come apart when z grows; the lines at both ends stay.
                mixed, sharpened, radius = 0, sharpened + 1, radius * _SHARPEN
                low, high = left.last, right.first
    raise Unresolved("a jump could not be bracketed")


def _turn(share: float, shifted: float, error: float) -> int:
    """+1 or -1 if doubling k moved the logit by -log 2 or +log 2, 0 if this is not one head's jump."""
    ends = (share, 1 - share, shifted, 1 - shifted)
    if min(ends) < max(_TAIL, 20 * error):
        return 0
    shift = np.log(shifted / (1 - shifted)) - np.log(share / (1 - share))
    allowed = _SHIFT + 4 * error / min(ends)
    return -1 if abs(shift - LOG2) < allowed else (1 if abs(shift + LOG2) < allowed else 0)
