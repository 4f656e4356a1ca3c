"""DESIGN: which sequences to ask. Pure: no oracle, no randomness that is not passed in."""

from unsoftmax.probes.base import LazyProbes, Probes, one_row
from unsoftmax.probes.pairs import Matched, Pairs, paired

__all__ = ["LazyProbes", "Matched", "Pairs", "Probes", "one_row", "paired"]
