"""Constants of the fits that were measured or chosen, in the reading order of the map.

Theory: docs/theory/multi-head.md, "Generic heads", bounded tokens.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Constants:
    """Heads that are fitted instead: sizes and starts of the fits, and what they may leave."""

    # units
    query_tokens: int = 3
    """Query tokens tried for a fit, each a quarter as long as the one before: heads that are saturated at the first are
    not at the third."""
    most_heads: int = 12
    """Most heads that a fit begins with: it bounds the time of a search that tries every number of heads up to it."""
    more_heads: int = 2
    """Heads beyond those counted that a fit may begin with."""
    starts: int = 10
    """Random starts of a fit of two heads or more; one head takes three."""
    patient_steps: int = 30_000
    """Steps of a search, over all starts and numbers of heads, after which paths get no more patience than those of
    large scores have: three seconds at d = 6, where two heads behind tokens 1 to 0.001 long took up to 2.8."""
    failed_before_law: int = 2
    """Numbers of heads that fail before copies of every token are asked: most targets are one head or two and pay
    nothing for it, and the two fits take below a second where those of all twelve take thirty."""
    floor_heads: int = 3
    """Heads added without an effect after which a search ends: what is left then is noise, or another class."""
    no_less: float = 0.95
    """What a search leaves, relative to what `floor_heads` heads fewer left, that shows a floor: of 11 equal heads
    still missing three take at least 1 - sqrt(8 / 11) = 0.15 off, and noise stays within a few hundredths."""
    explained: float = 2e-13
    """Root mean square that a fit may leave, relative to the largest answer: about 1000 units of float64 rounding.
    Declared noise raises it."""
    last_share: float = 1e-3
    """The last fit aims at this share of what it may leave: it has a good start, and goes on until rounding ends it."""
    first_dimensions: int = 8
    """Dimensions the fit begins with where there are more than `small_dimensions`; the others are added one by one."""
    small_dimensions: int = 12
    """Dimensions up to which the fit is done in all of them at once."""
    rounded_attention: float = 64.0
    """Rounding units of an answer, below which what eight of them show of attention is their own rounding: sums of a
    few dozen terms round to a dozen units."""

    # bounded
    isolated_logit: float = 1.0
    """Root mean square of the logits aimed at when one head is read alone: near 1 a step in the logit still moves the
    answer most, and few entries saturate."""
    rounds: int = 2
    """Rounds of random three-token queries, each half as many again as the entries that isolation did not see; the
    second is for a fit that the first left ambiguous."""
    completions: int = 30
    """Most random completions of the unseen entries that a fit is started from: each costs time, none a query."""
    completion_entries: int = 3000
    """Entries of W in all completions together: heads of many entries get fewer starts."""
    alike: float = 1e-3
    """Heads whose W b differ by less than this share of their size are not parted by a fit."""
    largest_fit: int = 2200
    """Unknowns up to which all heads are fitted together where nothing else parts them: a matter of time, which grows
    with their cube."""
    last_starts: int = 6
    """Starts of a fit that is a last resort."""
    faint: float = 1e-5
    """Typical score of the longest tokens allowed, below which a fit that does not arrive says nothing against the
    class: only squares of scores tell heads apart, 1e-10 beside a rounding of 2e-16 that a fit of all entries amplifies
    a thousandfold. Of six pairs of heads at 3e-6 four are learned, to 1e-4 and worse, at 3e-7 none."""
    hidden_by_noise: float = 0.1
    """Gap elsewhere, over what the longest token is answered, up to which noise may have hidden heads at one query
    token: three heads within 1e-4 and max_norm 1, of which one shows, left 4e-3 to 2e-2; beyond a tenth it is not
    digits that are missing."""
    finished: int = 500
    """Unknowns up to which a fit is finished by whole steps: each takes half a second for so many."""
    last_steps: int = 12
    """Whole steps at most: five bring scores of 1e-4 to rounding, eight those of 1e-5."""
    at_rest: float = 1.5
    """Residual over its noise at which a fit is finished: of rounding as it is reckoned, fits leave 0.7 to 1.1."""
    stated: float = 6.0
    """Stated over estimated error: of 33 fits with max_norm 1 to 0.01, exact and within a tolerance, the worst was 1.5
    times its estimate."""

    # polish
    candidates: int = 2000
    """Candidate sequences kept per generation, of three times as many drawn: time for the placement, not queries."""
    generations: int = 5
    """Rounds in which the better half of the candidates is varied and the best of all are kept."""
    most_copies: int = 12
    """Most copies of a token in a new candidate; varied ones may have twice as many tokens in all."""


FITS = Constants()
