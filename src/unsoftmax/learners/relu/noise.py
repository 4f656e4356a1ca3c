"""The size and the noise of a target's answers on the unit sphere, and whether it is homogeneous there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.errors import ModelMismatch
from unsoftmax.learners.base import Asking
from unsoftmax.probes.base import Array, one_row

DIRECTIONS = 4
_STRETCH = 1.2345678
_STEP = 1e-4
_MORE = 32


@dataclass(frozen=True, eq=False)
class Answers:
    """`sigma` noise and `scale` root mean square of answers at unit vectors; x (n, d), y (n,) what was asked."""

    sigma: float
    scale: float
    x: Array
    y: Array


def unit(x: Array) -> Array:
    return np.asarray(x / np.linalg.norm(x, axis=1, keepdims=True))


def directions(count: int, dim: int, upper: bool, rng: np.random.Generator) -> Array:
    """Random unit vectors (count, dim); in the upper half space if the last coordinate has to be positive."""
    x = rng.standard_normal((count, dim))
    if upper:
        x[:, -1] = np.abs(x[:, -1]) + 1e-3
    return unit(x)


def queries(upper: bool) -> int:
    """How many queries `size_and_noise` asks of a target that is not zero."""
    return DIRECTIONS * (3 if upper else 2)


def size_and_noise(dim: int, upper: bool, floor: float, eps: float, rng: np.random.Generator) -> Asking[Answers]:
    """Noise from stretched copies of a few vectors, or where a stretch changes nothing, from second differences.

    `floor` is the declared tolerance of an answer, `eps` the unit of rounding of the target's number format.
    """
    if upper:
        x = directions(DIRECTIONS, dim, upper, rng)
        step = _STEP * unit(rng.standard_normal((DIRECTIONS, dim)) * (np.arange(dim) < dim - 1))
        y = yield one_row(np.vstack([x, x + step, x - step]), phase="pilot")
        values, ahead, behind = y.reshape(3, -1)
        # The median: a kink inside one of the steps must not count as noise.
        gap = float(np.median(np.abs(ahead + behind - 2 * values))) / 1.65
    else:
        half = directions(DIRECTIONS // 2, dim, upper, rng)
        # Both signs: no neuron is off at a vector and at its antipode.
        x = np.vstack([half, -half])
        y = yield one_row(np.vstack([x, x * _STRETCH]), phase="pilot")
        values, stretched = y.reshape(2, -1)
        gap = float(np.sqrt(np.mean((stretched / _STRETCH - values) ** 2)))
    scale = float(np.sqrt(np.mean(values**2)))
    if scale == 0:
        more = directions(_MORE, dim, upper, rng)
        y = yield one_row(more, phase="residual")
        x, values = np.vstack([x, more]), np.concatenate([values, y])
        scale = float(np.sqrt(np.mean(values**2))) or 1.0
    if not upper and gap > max(1e-3 * scale, 10 * floor):
        raise ModelMismatch(
            f"the target is not positively homogeneous: stretching a vector by {_STRETCH:.4g} changes its answer by "
            f"{_STRETCH:.4g} times only up to {gap / scale:.1g} of its size. A bias-free ReLU network is homogeneous; "
            "try bias=True."
        )
    return Answers(max(1.5 * max(gap, eps * scale), floor), scale, x, values)
