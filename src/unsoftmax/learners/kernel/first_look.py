"""Is the kernel 0 at a score of 0? Two sequences tell, whatever the kernel, none of them divides 0 by 0.

Theory: docs/theory/kernels.md, "First look".
"""

from __future__ import annotations

import numpy as np

from unsoftmax.errors import NotIdentifiable
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.kernel.constants import KERNEL
from unsoftmax.probes.base import Array, Probes
from unsoftmax.probes.sphere import sphere
from unsoftmax.spec import OracleSpec


def zero_at_zero(spec: OracleSpec, rng: np.random.Generator, phase: str = "pilot") -> Asking[bool]:
    """Whether the kernel vanishes at a score of 0: such weights are powers of the score, if anything."""
    x, q = sphere(rng, (2, spec.dim))
    shorten = min(1.0, 0.3 * spec.domain.norm_limit)
    short, shorter = KERNEL.short_token * shorten, KERNEL.short_query * shorten
    y = yield Probes(folded(short * x[None], shorter * q), phase=phase)
    if _positive(y, spec):
        return False
    longer = min(KERNEL.long_token, 0.1 * spec.domain.norm_limit / short)
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
    return abs(float(y[0] / y[1]) - (1 - KERNEL.folds[0]) / (1 - KERNEL.folds[1])) <= KERNEL.ratio_off


def folded(x: Array, q: Array) -> Array:
    """Sequences [x ; -k x ; q] (folds n, 3, d) for rows x (n, d), all k for the first row, then for the next."""
    rows = [np.stack([row, -k * row, q]) for row in x for k in KERNEL.folds]
    return np.stack(rows)
