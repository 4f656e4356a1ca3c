"""Eigenvalues that come in groups of equal size: how many, and where.

Theory: docs/theory/attention-layer.md, "LayerNorm before".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.probes.base import Array

_WIDTH = 1e-14
"""Least width of a group: rounding of eigenvalues between 0 and 1."""


@dataclass(frozen=True, eq=False)
class EqualGroups:
    """Groups of `size` neighbours at `centres`; contrast: smallest gap between two over the widest group."""

    size: int
    centres: Array
    contrast: float


def equal_groups(values: Array) -> EqualGroups | None:
    """The clearest split of n values into equal groups of two and more; None if n allows no split into several."""
    x, best = np.sort(values.real), None
    for size in (k for k in range(2, len(x)) if len(x) % k == 0):
        groups = x.reshape(-1, size)
        width = float((groups[:, -1] - groups[:, 0]).max()) + _WIDTH
        contrast = float((groups[1:, 0] - groups[:-1, -1]).min()) / width
        if best is None or contrast > best.contrast:
            best = EqualGroups(size, groups.mean(axis=1), contrast)
    return best
