"""A ruler for labels: a token is weighed against copies of one along V = sum_h v_h, under a query token near 0.

In [L x ; (t L / n) V, n copies ; q / L] the copies have scores t V'W_h q / n, nearly 0, so n f = L (G(x, q) + t) up to
1 / n: the label flips at t = -G, G(x, q) = sum_h exp(x'W_h q) x.v_h (in units of |V|). At the flip f is exactly 0,
whatever n is: a record with a known answer.

Theory: docs/theory/membership.md, "Several heads".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.learners.core.base import Asking
from unsoftmax.probes.base import Array, Probes
from unsoftmax.solvers.bisection import Brackets
from unsoftmax.solvers.heads_fit import Data

_DECADES = 24
"""Powers of two between the largest and the smallest weight that is told from 0."""

_EXPONENTS = 5
"""Labels that place a weight among these powers: 24 / 2^5 leaves less than one."""

_CROWD = 16
"""Share of the copies that a weight may reach: beyond n / 16 the scores of the copies themselves count."""


@dataclass(frozen=True, eq=False)
class Ruler:
    """V (d,) unit; `length` L of tokens x of length 1; `copies` n; number format of the tokens as sent."""

    V: Array
    length: float
    copies: int
    dtype: str

    @property
    def heaviest(self) -> float:
        """Largest weight |G| that is read, a power of two."""
        return float(2.0 ** np.floor(np.log2(self.copies / _CROWD)))

    def tokens(self, x: Array, q: Array, t: Array) -> Array:
        """Sequences (k, 3, d) as sent."""
        ruler = (t * (self.length / self.copies))[:, None] * self.V
        made = np.stack([x * self.length, ruler, q / self.length], axis=1)
        return made.astype(self.dtype).astype(np.float64)

    def counts(self, k: int) -> Array:
        return np.tile(np.array([1, self.copies, 1], dtype=np.int64), (k, 1))

    def probes(self, x: Array, q: Array, t: Array, phase: str) -> Probes:
        return Probes(self.tokens(x, q, t), self.counts(len(x)), phase=phase)

    def weight(self, q: Array, t: Array) -> Array:
        """G (k,) from flips at t: the query token itself has a value too."""
        return np.asarray(-t - (q @ self.V) / self.length**2)

    def record(self, x: Array, q: Array, t: Array) -> Data:
        """Flips as sequences whose answer is 0."""
        return Data(self.tokens(x, q, t), self.counts(len(x)), np.zeros(len(x)))

    def slope(self) -> float:
        """df/dt, to 1 / n."""
        return self.length / self.copies


@dataclass(frozen=True, eq=False)
class Flips:
    """Where labels flip: t (k,), its bracket's half width, and whether a flip was found in range."""

    t: Array
    radius: Array
    found: Array


def weigh(ruler: Ruler, x: Array, q: Array, bits: int, phase: str) -> Asking[Flips]:
    """Flips for tokens x (k, d) under q (k, d), to `bits` bits of each: 6 + bits labels each, 6 + bits rounds."""
    k = len(x)
    answers = yield ruler.probes(x, q, np.zeros(k), phase)
    sign = np.where(answers > 0.5, -1.0, 1.0)
    top = np.log2(ruler.heaviest)
    exponents = Brackets.between(k, top - _DECADES, top)
    for _ in range(_EXPONENTS):
        level = exponents.levels()[:, 0]
        answers = yield ruler.probes(x, q, sign * 2.0**level, phase)
        exponents = exponents.told(np.arange(k), level, (answers > 0.5) == (sign < 0))
    found = exponents.hi < top
    low = np.where(exponents.lo > top - _DECADES, 2.0**exponents.lo, 0.0)
    size = Brackets.between(k, low, 2.0**exponents.hi)
    for _ in range(bits):
        level = size.levels()[:, 0]
        answers = yield ruler.probes(x, q, sign * level, phase)
        size = size.told(np.arange(k), level, (answers > 0.5) == (sign < 0))
    return Flips(sign * size.center, size.radius, found)


def surround(ruler: Ruler, x: Array, q: Array, t: Array, width: Array, phase: str, tries: int = 4) -> Asking[Brackets]:
    """Brackets around expected flips t +- width, widened eight times where the labels say so; empty ones are open."""
    k = len(t)
    lo, hi = np.full(k, -np.inf), np.full(k, np.inf)
    for _ in range(tries):
        below, above = np.flatnonzero(np.isinf(lo)), np.flatnonzero(np.isinf(hi))
        index = np.concatenate([below, above])
        if len(index) == 0:
            break
        level = np.concatenate([(t - width)[below], (t + width)[above]])
        answers = yield ruler.probes(x[index], q[index], level, phase)
        flipped = answers > 0.5
        # f grows with t: a label of 1 says that the flip is below.
        np.maximum.at(lo, index[~flipped], level[~flipped])
        np.minimum.at(hi, index[flipped], level[flipped])
        width = np.where(np.isinf(lo) | np.isinf(hi), 8 * width, width)
    return Brackets.between(k, lo, hi)
