"""What can be read: the scale at which answers show scores, and entries that are asked again until they do.

Attention shows a score through a sigmoid: too large it is saturated, too small it is invisible. Readers that look for
a token length are instances of `find_scale`, those that ask saturated entries again with shorter tokens of
`until_readable`.

Apart stay readers for which shorter is not the remedy: labels are bisected (labels/), circles are followed from jump to
jump (heads/discovery), token ids have no length and are asked beside other ids (tokens/gaps), and pairs under noise are
brought back by copies, which costs no precision (pair_logits). And those in which two lengths hang together: a block
and the query tokens before which it is read (rotary/turns), tokens whose answers must settle as they are shortened
(rotary/apart).

Theory: docs/theory/reading.md, "The scale".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from unsoftmax.learners.core.base import Asking
from unsoftmax.probes.base import Array

SATURATED = math.inf
"""What a look says where most scores are too large to tell their size."""

INVISIBLE = 0.0
"""Defined: what a look says where scores cannot be told from rounding or noise."""

Look = Callable[[float], Asking[float]]
"""Asks at a scale and tells the typical size of what it saw, as a multiple of the size wished for."""


@dataclass(frozen=True)
class Steps:
    """How a scale is looked for.

    least, most    sizes with which the search ends, as multiples of the one wished for; others are approached
    shorter        factor on the scale where all is saturated and nothing shorter was seen
    longer         largest factor where little or nothing shows and nothing longer was saturated
    limit, floor   the longest scale allowed, and the shortest that makes sense
    narrow         ratio of scales with too much and too little to see between which nothing is looked for; 1 is never
    looks          scales that are tried at most
    """

    least: float = 0.0
    most: float = math.inf
    shorter: float = 2.0**-12
    longer: float = 2.0**12
    limit: float = math.inf
    floor: float = 0.0
    narrow: float = 1.0
    looks: int = 60


@dataclass(frozen=True)
class Found:
    """The scale last looked at, the size seen there (SATURATED if none was found), and what encloses it.

    `low` is the longest scale at which too little showed, `high` the shortest that was saturated.
    """

    scale: float
    size: float
    low: float = 0.0
    high: float = math.inf

    @property
    def wished(self) -> float:
        """The scale at which the size is as wished for, if sizes are proportional to scales."""
        return self.scale / self.size


def find_scale(look: Look, first: float, steps: Steps) -> Asking[Found]:
    """Look at scales until the size of what shows is one to end with.

    Saturated above and invisible below enclose the scale and halve its logarithm; a size that shows tells the next
    scale itself, between those that showed too little and too much. At the limit whatever shows is the end.
    """
    low, high, strong, scale = 0.0, math.inf, math.inf, min(first, steps.limit)
    for _ in range(steps.looks):
        size = yield from look(scale)
        closed = low > 0 and min(high, strong) < steps.narrow * low
        if size == SATURATED:
            if closed:
                return Found(low, INVISIBLE, low, high)
            high = min(high, scale)
            scale = math.sqrt(low * high) if low else scale * steps.shorter
            if scale < steps.floor:
                break
        elif size > steps.most and not closed:
            strong = min(strong, scale)
            scale = scale / size if scale / size > low else math.sqrt(low * scale)
        elif INVISIBLE < size >= steps.least or scale >= steps.limit or closed:
            return Found(scale, size, low, high)
        else:
            low = max(low, scale)
            longest = min(steps.limit, math.sqrt(scale * min(high, strong)))
            scale = min(scale / max(size, 1 / steps.longer), longest)
    return Found(scale, SATURATED, low, high)


@dataclass(frozen=True)
class Repair:
    """How entries are asked again.

    readable   largest |t| that is taken as it comes
    telling    largest |t| that still tells its own size
    near, far  factors on the scale of an entry: where |t| tells its size, and where it does not
    tries      rounds at most, the first included
    """

    readable: float
    telling: float = 0.0
    near: float = 2.0**-2
    far: float = 2.0**-4
    tries: int = 40


Ask = Callable[[Array, Array, str], Asking[Array]]
"""ask(index, scale, phase): t of the entries at `index`, each at its scale, NaN where saturated; axes may follow."""


def until_readable(
    ask: Ask, scale: Array, repair: Repair, phase: str = "main", most: float = math.inf
) -> Asking[tuple[Array, Array]]:
    """t (n, ...) of n entries as they are seen, saturated ones asked again at smaller scales as phase "repair".

    `scale` (n,) becomes the scale at which each was read. Also returned are the entries that stay unreadable, after all
    tries or if more than `most` repairs would be needed.
    """
    left, repairs = np.arange(len(scale)), 0
    t = np.empty(0)
    for attempt in range(repair.tries):
        seen = yield from ask(left, scale[left], "repair" if attempt else phase)
        if attempt == 0:
            t = seen
        else:
            t[left] = seen
        sizes = np.abs(seen).reshape(len(seen), -1)
        bad = ~(sizes <= repair.readable).all(axis=1)
        left = left[bad]
        repairs += len(left)
        if len(left) == 0 or repairs > most or attempt == repair.tries - 1:
            break
        scale[left] *= np.where((sizes[bad] < repair.telling).all(axis=1), repair.near, repair.far)
    return t, left
