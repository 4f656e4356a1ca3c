"""What steps that depend on the target cost: (fewest, most) queries, for the forecasts of several learners.

Lower ends are what any target of the class takes. Upper ends are closed forms with the room that runs were seen to need
(benchmarks/forecasts.py), about twice: a budget or a default must not end an ordinary run.

Theory: docs/concepts.md, "Queries are the currency".
"""

from __future__ import annotations

from unsoftmax import theory
from unsoftmax.learners.core.constants import CORE

SEVERAL = f"at most {CORE.heads_supposed} heads"
"""What the upper end of a search for heads supposes, in words."""

WIDE = f"at most {CORE.neurons_per_dimension} dim neurons ({CORE.fewest_neurons} where that is fewer)"
"""What the upper end of a network supposes, in words."""

SCORES = "W not 0"
"""What the lower end of scores supposes, in words."""


def widest(d: int) -> int:
    """Neurons that the upper end supposes."""
    return max(CORE.fewest_neurons, CORE.neurons_per_dimension * d)


def network_range(d: int, neurons: int | None = None) -> tuple[int, int]:
    """A ReLU network: three short pieces and one gradient at least beside its pilot; at most, per neuron (`widest` if
    None), two gradients and 24 queries to find its kink (6 to 8 are seen). The learner keeps to it (`relu/purse`)."""
    return 8 + d, 200 + (widest(d) if neurons is None else neurons) * (2 * d + 24)


def scores_range(d: int, *, noisy: bool = False) -> tuple[int, int]:
    """W of unknown rank with its pilot and repairs: rank 1 at least, all d^2 entries and as many again at most; noise
    takes probes of its own (half of d^2 are seen)."""
    rank_one = theory.low_rank_queries(d, 1) - d
    return rank_one, (3 if noisy else 2) * d * d + 20 * d + 200


def heads_range(d: int, H: int | None) -> tuple[int, int]:
    """Finding H heads (1 to 16 if None) and reading every W_h: of rank 1 at least; at most half as much again as the
    closed form, and 100 queries per head for the search (about d + 25 are seen)."""
    most = CORE.heads_supposed if H is None else H
    rank_one = theory.low_rank_queries(d, 1) - d
    return d + rank_one * (1 if H is None else H), 300 + int(1.5 * most * (d * d + 3 * d + 100))


def doubled(interval: tuple[int, int]) -> tuple[int, int]:
    """The most is twice as much: a step that may be done once more."""
    return interval[0], 2 * interval[1]
