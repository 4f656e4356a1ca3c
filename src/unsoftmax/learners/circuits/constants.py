"""Constants of this room that were measured or chosen, side by side, in the reading order of its map.

Theory: docs/theory/token-layer.md, "Circuits of a one-layer language model", scores.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Constants:
    """What prompts are asked of a layer over token ids, and what of its answers counts."""

    # token_layer
    places_supposed: int = 16
    """Places that are learned where neither `length` nor the target's own limit says how many."""
    cube_places: tuple[int, ...] = (7, 7, 5, 4)
    """Places of the cubes tried in turn: heads that write into at least as many dimensions, and whose dimensions
    together are fewer than the width, are told apart by it. The second is another draw of tokens."""
    widest_supposed: int = 64
    """Width up to which the most queries are stated."""
    stated_errors: float = 10.0
    """Stated error over the root of the summed squares of standard errors."""
    prompts_for_a_place: int = 2
    """Prompts for a place: d numbers each, twice the unknowns."""

    # frame
    tokens_at_once: int = 64
    """Tokens asked at once, until the width is known; the rest in rounds of eight as many."""
    tokens_to_spare: int = 8
    """Tokens beyond the width that must be noise; a vocabulary that barely spans its hidden states shows few."""
    largest_noise: float = 1e-11
    """Largest noise beside the answers with which heads are told apart: singular values of a cube of four heads go down
    to 1e-7 of the largest, and they must stand out of it."""

    # cube
    prompts_to_spare: int = 12
    """Prompts beyond the dimensions that a cube spans: each is K + 1 equations for the K unknowns of a head."""
    prompts_at_once: int = 8
    """Prompts asked at once until the dimensions stop growing."""
    unexplained_share: float = 1e-7
    """Share of the answers that heads, the scores of a query or a place may leave unexplained: 1e-9 and less was seen,
    while minima that are none leave 1e-5 and more."""

    # values
    tokens_beyond_range: int = 3
    """Tokens asked beyond the dimensions that heads write into: they show that there are no more, and condition
    them."""
    in_range: float = 1e-6
    """Singular value, beside the largest, of a direction that a head writes into or reads by: 1e-4 was the least seen
    of those, and 1e-9 the most of others."""

    # scores
    equations: float = 1.3
    """Equations of a head for each unknown of a query about which nothing is known: one for every key."""
    equations_known: float = 1.5
    """The same where the directions of the keys are known."""
    guess_weight: float = 1e-4
    """Least weight of a key that a first guess goes by."""


CIRCUITS = Constants()
