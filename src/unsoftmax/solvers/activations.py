"""Smooth activations of feed-forward networks and their derivatives, for fits.

Theory: docs/theory/stacks.md, "The networks between the heads".
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import expit, ndtr

from unsoftmax.probes.base import Array


def _gelu_slope(x: Array) -> Array:
    return np.asarray(ndtr(x) + x * np.exp(-x * x / 2) / np.sqrt(2 * np.pi))


def _silu_slope(x: Array) -> Array:
    s = expit(x)
    return np.asarray(s * (1 + x * (1 - s)))


ACTIVATIONS: dict[str, tuple[Callable[[Array], Array], Callable[[Array], Array]]] = {
    "gelu": (lambda x: np.asarray(x * ndtr(x)), _gelu_slope),
    "silu": (lambda x: np.asarray(x * expit(x)), _silu_slope),
}
"""Name -> activation and its derivative. Slopes of a ReLU are 0 or 1 and tell no scale: it is not among them."""
