"""Constants of this room that were measured or chosen, side by side, in the reading order of its map.

Theory: docs/theory/transformer.md, "Rays".
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Constants:
    """What is asked in front of a network nobody knows, and what of its answers counts."""

    # transformer
    vectors_of_wirings: int = 3
    """Random vectors at which the wirings are compared; all of them must agree, so that a coincidence at one decides
    nothing."""

    # infinity
    growth_per_round: float = 64.0
    """Factor by which tokens grow per round. A power of two, so that growth itself rounds nothing; large, since all
    rounds cost the same and what is not homogeneous falls by it every time."""
    rays_asked_together: int = 4
    """Random rays asked together; the median of their growth is the degree."""
    draws_of_rays: int = 8
    """Sets of rays drawn before the network is called constant at infinity: 8 of 4 rays each."""
    dead_ray: float = 1e-6
    """Share of the largest answer below which a ray counts as one along which the network has died out."""
    exact_growth: float = 32.0
    """Gap between grown answers and the power of the growth, in units of rounding, that is none: the sums of a network
    round more than once."""
    noisy_growth: float = 2.0**16
    """Gap to homogeneity, in units of rounding, that is taken for the target's own noise once it has stopped
    shrinking."""
    tilt_of_rows: float = 0.9
    """Angle of the rows to the best direction: far enough to be independent, and most networks are still large
    there."""
    large_row: float = 0.15
    """A row at which the network answers less than this share of what it does along the best direction is drawn again:
    it would lose most of a digit."""
    usable_row: float = 1e-3
    """A row that still answers less than this share of the best after all draws reads nothing: three digits would be
    lost; and a corner must be as loud with all heads on or half on, which are in proportion to this accuracy."""

    # rays
    least_visible_logit: float = 1e-4
    """Typical |t| that is more than rounding along rays."""
    block_growth: float = 1.25
    """The block grows by this factor until its rank stops growing: half of it at most is beyond what the rank needs."""

    # bounded
    row_over_query: float = 2.0**10
    """Rows are at most this much longer than the query token: on a grid of 22 bits it then keeps eleven of them. Large
    norm limits would round it to 0, and the columns of W with it."""

    # far
    second_copies: int = 4
    """Copies of the second token in the second reading; the ratio of both readings tells the logit."""

    # corner
    directions_at_once: int = 16
    """Random directions asked at once while a corner is looked for: one round costs at most 15 queries more than were
    needed."""
    most_directions: int = 4096
    """Random directions in all. One in 2^H leaves all heads off: 2^12 are enough for ten heads."""
    reach_over_corner: float = 1e3
    """How far along a direction heads are looked for, in units of the corner."""
    misses_in_a_row: int = 3
    """Directions in a row along which no new head turns on."""
    gap_of_one_head_alone: float = 1e-6
    """Relative gap by which a third number of copies may be off what one head alone answers; a wider one is taken for
    two heads that turn together."""

    # rows
    corners_tried: int = 4
    """Corners tried before the target is refused: a network of few neurons is silent in some corners where heads are
    on, and another corner is then drawn."""
    query_pushed_by: float = 100.0
    """Factor on the query token at which every score has decided."""
    draws_of_row_scores: int = 16
    """Draws of the scores of all rows, of which the best is taken: one in ten has twice the condition of the median,
    one in a thousand a thousand times, and among sixteen one is about as good as any. They cost no query."""
    copies_of_both_tokens: tuple[tuple[int, int], ...] = ((1, 1), (1, 64), (64, 1))
    """Copies of the two tokens: first as they come, then with 64 of one or of the other, which shifts a far logit by
    log 64 = 4.2 to either side."""

    # split
    regions_over_unknowns: float = 1.05
    """Linear regions read, over the m + 1 unknowns of a network of m neurons: the twentieth to spare checks the
    solution."""
    roomy_regions: tuple[float, ...] = (1 / 6, 1 / 2, 1.0)
    """Shares of the regions, the roomiest first, among which independent ones are looked for: pairs in a roomy region
    show most, and two kinks that are close leave none of these between them."""
    queries_to_spare: int = 3
    """Queries beyond the unknowns: they check the solution."""
    logit_of_pairs: float = 1.3
    """Typical logit of the pairs; near 1 a step in the logit moves the answer most."""
    spare_gap: float = 1e-7
    """Relative gap within which the spare equations must hold, and relative error of the answers that the parts
    leave."""


BEHIND = Constants()
