"""The search along a great circle: which angles to ask next, and what the answers say about pieces and gaps.

Theory: docs/theory/relu-network.md, "Method", kinks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from unsoftmax.errors import ModelMismatch
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.relu.chain import Gap, Plan
from unsoftmax.learners.relu.constants import RELU
from unsoftmax.learners.relu.noise import bending, refuse_if_smooth
from unsoftmax.precision import ARITHMETIC
from unsoftmax.probes.base import Array, one_row
from unsoftmax.probes.circle import Circle
from unsoftmax.solvers.sinusoids import Piece, agree, crossing, meeting, merged

_NOT_SINUSOIDAL = (
    "along a great circle {} of {} short arcs are not sinusoids: the target is not piecewise linear and homogeneous, "
    "as a two-layer ReLU network is (smooth activations are not). AttentionBehind reads W without knowing the network."
)


@dataclass
class Search:
    """Pieces in order of angle and the gaps between them; `sigma` is the noise, `scale` the size of answers."""

    circle: Circle
    sigma: float
    scale: float
    eps: float
    rng: np.random.Generator
    pieces: list[Piece] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    curved: int = 0

    def __post_init__(self) -> None:
        # Wide enough to tell a direction from noise, narrow enough that hardly any kink falls inside.
        self.widest = min(0.05, max(1e-6, 30 * math.sqrt(self.sigma / self.scale)))

    def ask(self, angles: list[float]) -> Asking[Array]:
        y = yield one_row(self.circle.points(np.array(angles)), phase="kinks")
        # The pilot saw few answers; where they are larger, so is their rounding.
        self.sigma = max(self.sigma, 0.5 * self.eps * float(np.abs(y).max(initial=0.0)))
        return y

    @property
    def tolerance(self) -> float:
        return RELU.sigmas * self.sigma

    def seeds(self) -> Asking[None]:
        """Three short pieces: both ends and the middle."""
        ends, step = (self.circle.start, self.circle.stop), self.widest
        middle = ends[0] + (ends[1] - ends[0]) * (0.45 + 0.1 * self.rng.random())
        for _ in range(8):
            starts = [ends[0], middle - step, ends[1] - 2 * step]
            angles = [start + k * step for start in starts for k in range(3)]
            y = yield from self.ask(angles)
            points = list(zip(angles, y.tolist(), strict=True))
            self.pieces = [Piece(points[k : k + 3]) for k in (0, 3, 6)]
            if all(piece.consistent(self.tolerance) for piece in self.pieces):
                self.gaps = [Gap(), Gap()]
                return
            step /= 16
        raise ModelMismatch(_NOT_SINUSOIDAL.format(8, 8))

    def settle(self) -> None:
        """Merge pieces that agree, and give up gaps too narrow to hold another query."""
        pieces, gaps = [self.pieces[0]], []
        for gap, piece in zip(self.gaps, self.pieces[1:], strict=True):
            if not gap.lost and agree(pieces[-1], piece, self.tolerance):
                pieces[-1] = merged(pieces[-1], piece)
                continue
            if gap.open and piece.left[0] - pieces[-1].right[0] < RELU.narrowest:
                gap.lost = True
            gaps.append(gap)
            pieces.append(piece)
        self.pieces, self.gaps = pieces, gaps

    def plan(self, index: int) -> Plan:
        left, right, gap = self.pieces[index], self.pieces[index + 1], self.gaps[index]
        low, high = left.right[0], right.left[0]
        meeting = None if gap.blind else crossing(left, right)
        if meeting is None:
            share = self.rng.uniform(0.05, 0.95) if gap.blind else self.rng.uniform(0.45, 0.55)
            return Plan(index, [low + share * (high - low)])
        t, jump = meeting.angle, max(meeting.jump, 1e-300)
        eta = self.closest(left, right, t, jump)
        before, after = 0.5 * (t - low), 0.5 * (high - t)
        if 20 * left.error(t, self.sigma) / jump > before and left.span < before:
            # Too slight a kink for so short a piece: lengthen the piece first.
            return Plan(index, [low + min(8 * left.span, 0.8 * before)])
        if 20 * right.error(t, self.sigma) / jump > after and right.span < after:
            return Plan(index, [high - min(8 * right.span, 0.8 * after)])
        return Plan(index, [t - min(eta, before), t + min(eta, after)], t)

    def closest(self, left: Piece, right: Piece, t: float, jump: float) -> float:
        """How near to a crossing two points can be and still be told to lie on different pieces."""
        uncertain = (left.error(t, self.sigma) + right.error(t, self.sigma)) / jump
        # Ten of the narrowest gaps still leave one.
        return max(10 * RELU.narrowest, 20 * uncertain, 200 * self.sigma / jump)

    def read(self, plan: Plan) -> list[tuple[float, float]]:
        """Use a plan's answers; returns points that lie on neither piece (the start of a new one)."""
        left, right, gap = self.pieces[plan.gap], self.pieces[plan.gap + 1], self.gaps[plan.gap]
        gap.blind = False
        points = list(zip(plan.angles, plan.values, strict=True))
        fits = [self.sides(left, right, p) for p in points]
        on_left, on_right = [a for a, _ in fits], [b for _, b in fits]
        strange = [p for p, a, b in zip(points, on_left, on_right, strict=True) if not (a or b)]
        if plan.crossing is not None and on_left[0] and on_right[1] and not (on_right[0] and on_left[1]):
            gap.kink = plan.crossing
        ends_left, ends_right = left.right[0], right.left[0]
        for p, a, b in zip(points, on_left, on_right, strict=True):
            if a and not b and p[0] > ends_left:
                left.add(*p)
            elif b and not a and p[0] < ends_right:
                right.add(*p)
            elif a and b and gap.kink is None:
                # The point cannot be told from either: the pieces meet here as far as noise shows so far.
                gap.kink, gap.vague = p[0], True
        return strange

    def sides(self, left: Piece, right: Piece, point: tuple[float, float]) -> tuple[bool, bool]:
        """Which of the two pieces a point lies on; a short piece fits too easily to speak against a long one."""
        a, b = left.fits(*point, self.tolerance), right.fits(*point, self.tolerance)
        if a and b:
            blur = left.error(point[0], 1.0) / right.error(point[0], 1.0)
            return blur < RELU.blurred, blur > 1 / RELU.blurred
        return a, b

    def grow(self, found: list[tuple[int, list[tuple[float, float]]]]) -> Asking[None]:
        """Make new pieces of strange points, each with enough further points to check that it is a sinusoid."""
        angles: list[float] = []
        for index, points in found:
            low, high = self.pieces[index].right[0], self.pieces[index + 1].left[0]
            centre = points[0][0] if len(points) == 1 else 0.5 * (points[0][0] + points[1][0])
            near = min(centre - low, high - centre)
            step = min(max(0.02 * near, min(0.3 * near, 0.01 * self.widest)), self.widest) * self.gaps[index].reach
            step = max(step, ARITHMETIC)
            if len(points) == 1:
                angles += [centre - step, centre + step]
            else:
                far = points[0][0] - step if centre - low > high - centre else points[1][0] + step
                angles.append(far)
        y = (yield from self.ask(angles)).tolist()
        new: dict[int, Piece] = {}
        for index, points in found:
            count = 2 if len(points) == 1 else 1
            extra, angles, y = list(zip(angles[:count], y[:count], strict=True)), angles[count:], y[count:]
            candidate = Piece(points + extra)
            if candidate.consistent(self.tolerance):
                new[index] = candidate
            else:
                gap = self.gaps[index]
                gap.reach *= 0.01
                gap.blind, gap.lost = gap.reach < 1e-5, gap.reach < 1e-9
                self.curved += 1
        self.insert(new)
        found_kinks = sum(gap.kink is not None for gap in self.gaps)
        if self.curved > RELU.curved_arcs + 2 * found_kinks + 0.5 * len(self.pieces):
            raise ModelMismatch(_NOT_SINUSOIDAL.format(self.curved, self.curved + len(self.pieces)))

    def reopen(self) -> bool:
        """Look once more at kinks seen from afar: their pieces have grown longer since, so they are sharper now."""
        again = [gap for k, gap in enumerate(self.gaps) if gap.looks < RELU.looks and (gap.vague or self.far(k))]
        for gap in again:
            gap.kink, gap.vague, gap.looks = None, False, gap.looks + 1
        return bool(again)

    def far(self, index: int) -> bool:
        """Whether a kink was confirmed from much farther away than its pieces now allow: it may hide another."""
        left, right = self.pieces[index], self.pieces[index + 1]
        found = crossing(left, right)
        if found is None or self.gaps[index].lost:
            return False
        reach = min(found.angle - left.right[0], right.left[0] - found.angle)
        return reach > 50 * self.closest(left, right, found.angle, max(found.jump, 1e-300))

    def inspect(self) -> Asking[bool]:
        """Make sure that no slight kink hides inside a piece: every piece has a point well inside, and it fits.

        A piece seen only in a small part of its cell, beside a slight kink, gets a point towards the far end.
        """
        hollow = []
        for piece, start, stop in zip(self.pieces, *self.bounds(), strict=True):
            low, high = piece.left[0], piece.right[0]
            inner = [t for t, _ in piece.points if 0.05 * (high - low) < t - low < 0.95 * (high - low)]
            if high - low < RELU.short_piece * (stop - start):
                share = 0.1 if low + high > start + stop else 0.9
                hollow.append((piece, start + share * (stop - start)))
            elif not inner and high - low > self.widest:
                hollow.append((piece, 0.5 * (low + high)))
        if hollow:
            y = yield from self.ask([angle for _, angle in hollow])
            for (piece, angle), value in zip(hollow, y.tolist(), strict=True):
                piece.add(angle, value)
        broken = [i for i, piece in enumerate(self.pieces) if not piece.consistent(self.tolerance)]
        for index in reversed(broken):
            yield from self.split(index)
        return bool(broken) or (bool(hollow) and self.reopen())

    def bounds(self) -> tuple[list[float], list[float]]:
        """Where the cell of each piece starts and where it stops."""
        kinks = [meeting(a, b) for a, b in zip(self.pieces, self.pieces[1:], strict=False)]
        return [self.circle.start, *kinks], [*kinks, self.circle.stop]

    def split(self, index: int) -> Asking[None]:
        """Replace a piece that is not one sinusoid by short ones: at its ends, and at the point that fits least."""
        piece = self.pieces[index]
        worst = max(piece.points[1:-1], key=lambda p: abs(p[1] - piece.value(p[0])))
        step = min(self.widest, 0.02 * min(worst[0] - piece.left[0], piece.right[0] - worst[0]))
        if step < ARITHMETIC:
            raise ModelMismatch(
                f"answers to vectors {piece.span:.1g} apart on the circle contradict each other: they carry more noise "
                "than repeated ones show, or depend on what else is in the batch. No network does that."
            )
        places = [(piece.left, (1, 2)), (worst, (-1, 1)), (piece.right, (-2, -1))]
        angles = [point[0] + k * step for point, steps in places for k in steps]
        y = (yield from self.ask(angles)).tolist()
        points = list(zip(angles, y, strict=True))
        self.pieces[index : index + 1] = [Piece([p, *points[2 * k : 2 * k + 2]]) for k, (p, _) in enumerate(places)]
        self.gaps[index:index] = [Gap(), Gap()]

    def extend(self) -> Asking[None]:
        """On a closed circle the first and last cell go on beyond the ends: one more point far inside each."""
        if self.circle.open or not self.gaps:
            return
        first, last = self.pieces[0], self.pieces[-1]
        width = first.right[0] + np.pi - last.left[0]
        angles = [first.right[0] - 0.9 * width, last.left[0] + 0.9 * width]
        y = yield from self.ask(angles)
        for piece, angle, value in zip((first, last), angles, y.tolist(), strict=True):
            piece.add(angle, value)

    @property
    def many(self) -> float:
        """More pieces than this may be those of a smooth function; d queries are spent on each of a network's."""
        return max(RELU.many_pieces, 5 * RELU.looked_at / (RELU.look_share * len(self.circle.P)))

    def look_for_curvature(self) -> Asking[None]:
        """So many pieces may be those of a smooth function, which would never end: look between some of them."""
        places = self.rng.choice(np.arange(1, len(self.pieces) - 1), RELU.looked_at, replace=False)
        t = np.array([0.5 * (self.pieces[k].left[0] + self.pieces[k].right[0]) for k in places])
        low, high = (np.array([self.pieces[k + side].left[0] for k in places]) for side in (-1, 1))
        h = 0.5 * np.minimum(t - low, high - t)
        angles = np.concatenate([t, t + h, t - h, t + h / RELU.finer, t - h / RELU.finer])
        y, ahead, behind, near_ahead, near_behind = (yield from self.ask(angles.tolist())).reshape(5, -1)
        # A sinusoid of the circle has f(t + h) + f(t - h) = 2 cos(h) f(t).
        long, short = ahead + behind - 2 * np.cos(h) * y, near_ahead + near_behind - 2 * np.cos(h / RELU.finer) * y
        refuse_if_smooth(bending(long, short))

    def insert(self, new: dict[int, Piece]) -> None:
        """New pieces in gaps, by the gap's index, each with a new gap behind it."""
        for index in sorted(new, reverse=True):
            self.pieces.insert(index + 1, new[index])
            self.gaps.insert(index + 1, Gap())
