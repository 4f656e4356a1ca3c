"""Smooth functions are no ReLU networks: between kinks second differences are noise, which no shorter step lessens.

Theory: docs/theory/relu-network.md, "A tool in its own right".
"""

from __future__ import annotations

import numpy as np

from unsoftmax.errors import ModelMismatch
from unsoftmax.probes.base import Array

FINER = 8
"""How many times shorter the second step is: it divides the second difference of a smooth function by its square."""

_RATIOS = (0.75 * FINER**2, 1.3 * FINER**2)
"""What counts as that division. The ratio of two noises lies there once in 350 times, that of a kink's differences
(1 to `FINER`, or infinite) only where the kink is at the end of the shorter step."""

_SHARE = 0.25
"""Share of the places looked at that must bend before the target counts as smooth. Noise fakes it once in 350 places,
and a smooth function bends at nearly all."""

_LEAST = 3
"""Places that must bend at the least, however few are looked at: one or two may be accidents."""


def bending(second: Array, finer: Array) -> Array:
    """Where (n,) second differences over long steps and over `FINER` times shorter ones tell of a smooth function."""
    size, small = np.abs(second), np.abs(finer)
    return (second * finer > 0) & (size > _RATIOS[0] * small) & (size < _RATIOS[1] * small)


def refuse_if_smooth(bent: Array) -> None:
    """Refuse a target that bends at a quarter of the places (n,) looked at, or more."""
    count = int(bent.sum())
    if count >= max(_LEAST, _SHARE * len(bent)):
        raise ModelMismatch(
            f"at {count} of {len(bent)} places the answers bend as a smooth function's do (steps {FINER} times shorter "
            f"divide second differences by about {FINER**2}); a two-layer ReLU network is linear between kinks. "
            "AttentionBehind reads W without knowing the network."
        )
