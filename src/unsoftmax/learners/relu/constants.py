"""Constants of this room that were measured or chosen, side by side, in the reading order of its map.

Theory: docs/theory/relu-network.md, "Method".
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Constants:
    """What a network is asked for, and when its answers show a kink."""

    # noise
    directions: int = 4
    """Vectors of the pilot: two pairs of opposite ones, or four for second differences."""
    stretch: float = 1.2345678
    """No power of two: a stretch by one would show no rounding."""
    step: float = 1e-4
    """Short beside the distance of kinks, long beside the rounding of tokens in float32."""
    more_vectors: int = 32
    """Vectors asked where the first few are all answered 0, before the target is taken for zero."""
    doubtful: int = 12
    """Further vectors looked at where some of the first bend and some do not."""
    finer: int = 8
    """How many times shorter the second step is: it divides the second difference of a smooth function by its
    square."""
    bent_share: float = 0.25
    """Share of the places looked at that must bend before the target counts as smooth. Noise fakes it once in 350
    places, and a smooth function bends at nearly all."""
    least_bent: int = 3
    """Places that must bend at the least, however few are looked at: one or two may be accidents."""

    # purse
    kinks_over_neurons: float = 1.5
    """Kinks that a circle shows, over neurons, up to which rounding explains them: a piece across two kinks may be
    taken for one between them. In 1,200 runs of as many neurons as forecasts suppose, with 3 to 8 digits, 2 to 6
    decimals or float32, circles showed up to 1.4 times as many, 99 in 100 up to 1.2. Exact wide networks take two
    thirds of what they may cost, so this leaves them room."""

    # search
    sigmas: float = 8.0
    """Answers farther than this many noise levels from a piece are not on it."""
    narrowest: float = 1e-10
    """Angle of a gap too narrow for another query."""
    curved_arcs: int = 24
    """Short arcs that are no sinusoids before the target is refused; a network shows a few where kinks are close."""
    looks: int = 2
    """Times that a kink seen from afar is looked at again: pieces grow in between, and after the second look no
    more."""
    blurred: float = 30.0
    """A piece that predicts a point this many times worse than its neighbour has no say about it."""
    short_piece: float = 0.25
    """A piece seen in less than this share of its cell gets one more point."""
    many_pieces: int = 100
    """Pieces of a circle from which on they may be those of a smooth function, and curvature is looked for in
    between."""
    looked_at: int = 8
    """Pieces looked at for curvature, at five queries each: `bent_share` of them must bend, and three at least."""
    look_share: float = 0.02
    """Share of a circle's cost, d queries a piece, up to which that look may cost; circles of fewer pieces go
    without."""

    # kinks
    most_levels: int = 120
    """Levels of the search; kinks at half the distance take one more, so two or three dozen are usual."""
    lost_gaps: tuple[float, ...] = 24, 0.02
    """Gaps too narrow for another query, and more of them as a share of all, from which on answers contradict each
    other: of 4096 random kinks one pair in a thousand circles lies so close together."""
    unconfirmed_gaps: tuple[float, ...] = 1000, 0.01
    """Gaps of a circle, and kinks between neighbouring pieces as a share of them, below which the pieces are those of
    steps: of m kinks g pieces at random part g^2 / m, so that it would take 100,000 neurons. Circles of
    1,024 to 4,096 neurons had a kink in 28 to 95 of 100 gaps when there were 1,000, steps none in 57,000."""

    # gradients
    longest_step: float = 0.3
    """Longest step off the plane, in radians of the unit sphere, where no kink is near: a longer one leaves the cell by
    kinks that the circle does not show."""
    caution: float = 6.0
    """A step is this many times shorter than the distance to the nearest kink, weighted by the size of that kink; one
    that left its cell all the same is shortened by as much again at least, and by its square at most."""
    flat: tuple[float, ...] = (0.1, 0.4)
    """Change of slope, relative to the median one, that parts cells into waves."""
    tries: int = 9
    """Rounds of repairs; in the last three every cell that failed is asked again, not only the likely culprit."""
    passes: int = 3
    """A cell saved in one pass may save its neighbour in the next."""

    # peel
    most_circles: tuple[int, ...] = 6, 1
    """Great circles at most, of exact answers and of rounded ones. A circle misses a neuron only where its kink lies
    too close to another, so a few suffice. Of rounded answers a circle sees what the one before left only as sharply as
    its gradients are, so it begins anew after one: six before each beginning learned 146 of 150 networks of 24 neurons
    in float32 where one learns 141, but took up to 1,901 queries (of 40 runs) where one takes 1,220."""
    rounds_anew: int = 2
    """Times that rounded answers are asked anew along another circle, where fresh ones contradict the network or leave
    its error unknown: without it 41 of those 150 networks were refused, with it 9."""
    most_polishes: int = 4
    """Rounds of circles and polish at most; each polish makes answers sharper, and so shows neurons that were
    hidden."""
    polish_per_unknown: float = 0.08
    """Polish queries for each unknown: enough to determine the narrowest cells anew."""
    spare_candidates: int = 40
    """Candidates beyond the polish queries due. Where few are due, for one narrow cell, half of all would not show
    it."""
    solve_steps: int = 50
    """Steps of the iterative solve of one correction at most: it trades digits of that correction for time, and the
    next polish starts from what it left."""
    polished_over_noise: float = 2e4
    """Error of the net over the noise of one answer up to which no polish is asked for: at the 1e-16 of float64 that is
    2e-12 of the answers."""
    surprise: float = 10.0
    """Gap of a fresh answer over its expected error from which on it shows a neuron that is missing. Ten deviations
    never happen by noise alone, and leave room for an error that is an estimate."""
    hopeless: float = 1e-2
    """Gap of a fresh answer, over the typical answer, beyond which cells are missing and a polish, linear in the error,
    would not converge."""
    end_margin: float = 1e-5
    """Angle, in radians, that a half circle keeps from its two ends, where the line it stands for is at infinity: it
    ends at 10^5 times the unit, beyond the kinks of networks of usual size."""
    farthest: float = 0.1
    """Angle, in radians, beyond which a vector is no longer beside a hyperplane, however blurred that is."""
    fresh: tuple[int, ...] = 2, 4
    """Fresh answers at random vectors after a circle: two of exact answers, where a missing neuron shows at almost
    every vector. Noise hides all but a wedge between two hyperplanes, which vectors beside the hyperplanes found are
    for."""
    exact_noise: float = 1e-9
    """Noise, as a share of the answers, up to which they are exact: below the rounding of float32 and of nine
    digits."""
    shortest_step: float = 1e-3
    """Shortest step in units of sqrt(noise): 3e-11 in float64, a gradient of five digits, which the polish sharpens."""


RELU = Constants()
