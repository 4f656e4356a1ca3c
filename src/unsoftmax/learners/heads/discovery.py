"""Heads appear as jumps: along a half circle of large z every head is off or on, and each turns once.

F(R u(theta)) / R is c . (cos, sin) between jumps; doubling k inside a jump moves its logit by exactly log 2, down for
a head that turns on and up for one that turns off. Any other shift is several heads at once.

Theory: docs/theory/multi-head.md, "Generic heads", discovery.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from unsoftmax.errors import ModelMismatch
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.driver import together
from unsoftmax.learners.heads.circle import Circle, Faint, Unresolved, compass
from unsoftmax.learners.heads.constants import HEADS
from unsoftmax.probes.base import Array

LOG2 = float(np.log(2.0))


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
        side = _side(circle, left, right, middle, y)
        if not side:
            doubled = float((yield from circle.at([middle], radius, 2))[0])
            if abs(doubled - y) <= circle.tolerance:
                new = yield from _piece(circle, middle, radius, min(0.05, gap / 8), y)
                if new is not None:
                    return (yield from _around(circle, left, new, right, radius, rng, known))
            side, sign = _turned(circle, left, right, middle, y, doubled)
            if sign:
                return [Jump(middle, sign, radius)]
        if side:
            low, high = (middle, high) if side < 0 else (low, middle)
            continue
        mixed += 1
        if mixed == HEADS.mixed_points:
            if sharpened == HEADS.most_sharpenings:
                return [Jump(middle, 0, radius, several=True)]
            # Heads that are not parallel come apart when z grows; the lines at both ends stay.
            mixed, sharpened, radius = 0, sharpened + 1, radius * HEADS.sharpened
            low, high = left.last, right.first
    raise Unresolved("a jump could not be bracketed")


def _side(circle: Circle, left: Piece, right: Piece, angle: float, y: float) -> int:
    """-1 or +1 if the answer y is on the line of the left or right piece, which is then extended; else 0.

    So is the last of a jump's tail: copies change it by less than the tolerance, and it is no arc of its own.
    """
    for factor in (1.0, HEADS.tail_end):
        for side, piece in ((-1, left), (1, right)):
            if abs(y - piece.value(angle)) <= factor * circle.tolerance:
                if factor == 1.0:
                    piece.extend(angle, y)
                return side
    return 0


def _around(
    circle: Circle, left: Piece, new: Piece, right: Piece, radius: float, rng: np.random.Generator, known: list[Piece]
) -> Asking[list[Piece | Jump]]:
    """What lies between two pieces with a new one in the middle."""
    known.append(new)
    if len(known) > HEADS.most_pieces:
        raise ModelMismatch("the answers bend everywhere where a sum of softmax heads is linear in pieces.")
    sides = [_between(circle, a, b, radius, rng, known) for a, b in ((left, new), (new, right))]
    before, after = yield from together(sides)
    # Without a jump on one side it is the arc on that side once more.
    return [*before, new, *after] if before and after else [*before, *after]


def _turned(circle: Circle, left: Piece, right: Piece, angle: float, y: float, doubled: float) -> tuple[int, int]:
    """The side whose tail the answer belongs to (0: neither), and the sign of the head that turns here (0: not one)."""
    jump = right.value(angle) - left.value(angle)
    # Where the lines cross, an answer off them is no single turn.
    if abs(jump) <= circle.tolerance:
        return 0, 0
    share, shifted = (y - left.value(angle)) / jump, (doubled - left.value(angle)) / jump
    side = -1 if abs(share) < HEADS.tail else 1 if abs(1 - share) < HEADS.tail else 0
    error = circle.tolerance / abs(jump)
    if not side and HEADS.clear * error > HEADS.tellable:
        raise Faint(f"noise hides whether a jump of {abs(jump) / circle.scale:.1g} of the answers is one head's")
    return side, _turn(share, shifted, error)


def _turn(share: float, shifted: float, error: float) -> int:
    """+1 or -1 if doubling k moved the logit by -log 2 or +log 2, 0 if this is not one head's jump."""
    ends = (share, 1 - share, shifted, 1 - shifted)
    if min(ends) < max(HEADS.tail, HEADS.clear * error):
        return 0
    shift = np.log(shifted / (1 - shifted)) - np.log(share / (1 - share))
    allowed = HEADS.shift_gap + 4 * error / min(ends)
    return -1 if abs(shift - LOG2) < allowed else (1 if abs(shift + LOG2) < allowed else 0)
