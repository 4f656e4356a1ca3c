"""Is the kernel 0 at a score of 0? Two sequences tell, whatever the kernel, none of them divides 0 by 0.

Theory: docs/theory/kernels.md, "First look".
"""

from __future__ import annotations

import numpy as np

from unsoftmax.errors import NotIdentifiable
from unsoftmax.learners.core.base import Asking
from unsoftmax.probes.base import Array, Probes
from unsoftmax.probes.sphere import sphere
from unsoftmax.spec import OracleSpec

FOLDS = (3.0, 0.5)
"""k of [x ; -k x ; q]: of the two tokens beside q one has a positive score, so weights never add up to 0; positive
kernels answer 1 - k, which differ by -4, and no power of the score does."""

LOOKS = 4
"""Queries of the first look, at most: two with short tokens, and two with long ones where these do not show a positive
kernel."""

_NEAR = 0.1
"""Gap from the ratio of both answers of positive kernels that noise or scores may leave: the nearest power, the square
of the score, is 0.29 away."""

_SHORT = 2.0**-20
"""Length of x, for scores below 2^-52 |W|: positive kernels are flat there; squares of scores stay within float32."""

_SHORTER = 2.0**-44
"""Length of q, 2^-24 of x: what q.v adds to x.v moves the ratio by `_NEAR` where x is that close to orthogonal to v, in
one draw of 10^5; at 2^-12 it was one in sixty. Scores of 2^-64 have squares within float32, or answers of 0."""


_LONG = 2.0**30
"""Factor of x where short tokens show no positive kernel: answers of a few decimals are 0 or steps there. The query
token is shortened by as much, so that scores stay as they are."""


def zero_at_zero(spec: OracleSpec, rng: np.random.Generator, phase: str = "pilot") -> Asking[bool]:
    """Whether the kernel vanishes at a score of 0: such weights are powers of the score, if anything."""
    x, q = sphere(rng, (2, spec.dim))
    shorten = min(1.0, 0.3 * spec.domain.norm_limit)
    short, shorter = _SHORT * shorten, _SHORTER * shorten
    y = yield Probes(folded(short * x[None], shorter * q), phase=phase)
    if _positive(y, spec):
        return False
    longer = min(_LONG, 0.1 * spec.domain.norm_limit / short)
    y = yield Probes(folded(short * longer * x[None], shorter / longer * q), phase=phase)
    if y.any() and float(np.abs(y).max()) <= spec.tolerance:
        raise NotIdentifiable(
            f"tokens of length {short * longer:.2g} are answered within the tolerance of {spec.tolerance:g}: the "
            "kernel at 0 does not show."
        )
    # Sums of powers of tiny scores may end below the smallest number; positive kernels show v.
    return not _positive(y, spec)


def _positive(y: Array, spec: OracleSpec) -> bool:
    """Whether two answers, beyond the tolerance, are as 1 - k."""
    if y[1] == 0 or float(np.abs(y).max()) <= spec.tolerance:
        return False
    return abs(float(y[0] / y[1]) - (1 - FOLDS[0]) / (1 - FOLDS[1])) <= _NEAR


def folded(x: Array, q: Array) -> Array:
    """Sequences [x ; -k x ; q] (folds n, 3, d) for rows x (n, d), all k for the first row, then for the next."""
    rows = [np.stack([row, -k * row, q]) for row in x for k in FOLDS]
    return np.stack(rows)
