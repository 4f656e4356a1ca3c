"""Directions at random."""

from __future__ import annotations

import numpy as np

from unsoftmax.probes.base import Array


def sphere(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Random unit vectors along the last axis of `shape`."""
    return unit(rng.standard_normal(shape))


def unit(x: Array) -> Array:
    """x (..., d) with every vector divided by its norm."""
    return np.asarray(x / np.linalg.norm(x, axis=-1, keepdims=True))
