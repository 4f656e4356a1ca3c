"""DESIGN: which sequences to ask. Pure: no oracle, no randomness that is not passed in. In reading order.

base         the sequences of one round, eager or lazy
pairs        [a + b ; b], whose score gap is a'Wb
bases        directions a that v sees
rows         families of vectors that are stored by what generates them
scales       how long tokens may be, and grids on which their sums are exact
sphere       directions at random
norm_budget  pairs that make the most of a norm limit
thresholds   sequences whose label tells on which side of a level a number lies
rays         [lam a ; b / lam], where all but the score vanishes
circle       half great circles
slices       q and q + delta on one sphere
around       blocks of rows around query tokens
tokens       sequences of ids that read one gap
"""

from unsoftmax.probes.base import LazyProbes, Probes, one_row
from unsoftmax.probes.pairs import Matched, Pairs, paired

__all__ = ["LazyProbes", "Matched", "Pairs", "Probes", "one_row", "paired"]
