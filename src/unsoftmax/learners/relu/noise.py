"""The size and the noise of a target's answers on the unit sphere, and whether it is homogeneous there.

Smooth functions are no ReLU networks: between kinks second differences are noise, which no shorter step lessens.

Theory: docs/theory/relu-network.md, "Method".
Theory: docs/theory/relu-network.md, "A tool in its own right".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from unsoftmax.errors import ModelMismatch, OracleError
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.relu.constants import RELU
from unsoftmax.probes.base import Array, one_row
from unsoftmax.probes.sphere import unit

Rounding = Callable[[], tuple[float, float]]
"""Error of an answer, absolute and as a share of it, as declared or as the format of the answers so far shows it."""

_RATIOS = (0.75 * RELU.finer**2, 1.3 * RELU.finer**2)
"""What counts as that division. The ratio of two noises lies there once in 350 times, that of a kink's differences
(1 to `RELU.finer`, or infinite) only where the kink is at the end of the shorter step."""


@dataclass(frozen=True, eq=False)
class Answers:
    """`sigma` noise and `scale` root mean square of answers at unit vectors; x (n, d), y (n,) what was asked."""

    sigma: float
    scale: float
    x: Array
    y: Array


def directions(count: int, dim: int, upper: bool, rng: np.random.Generator) -> Array:
    """Random unit vectors (count, dim); in the upper half space if the last coordinate has to be positive."""
    x = rng.standard_normal((count, dim))
    if upper:
        x[:, -1] = np.abs(x[:, -1]) + 1e-3
    return unit(x)


def queries(upper: bool) -> int:
    """How many queries `size_and_noise` asks of a target that is not zero."""
    return RELU.directions * (3 if upper else 2)


def size_and_noise(dim: int, upper: bool, rounding: Rounding, rng: np.random.Generator) -> Asking[Answers]:
    """Noise from stretched copies of a few vectors, or where a stretch changes nothing, from second differences."""
    if upper:
        x = directions(RELU.directions, dim, upper, rng)
        step = _level_steps(x, rng)
        y = yield one_row(np.vstack([x, x + step, x - step]), phase="pilot")
        values, ahead, behind = y.reshape(3, -1)
        _require_size(values)
        second = ahead + behind - 2 * values
        # The median: a kink inside one of the steps must not count as noise.
        gap = float(np.median(np.abs(second))) / 1.65
        floor, eps = rounding()
        if gap > max(CORE.audible * eps * float(np.abs(values).max()), floor):
            yield from _look_for_curvature(x, step, values, second, rng)
    else:
        half = directions(RELU.directions // 2, dim, upper, rng)
        # Both signs: no neuron is off at a vector and at its antipode.
        x = np.vstack([half, -half])
        y = yield one_row(np.vstack([x, x * RELU.stretch]), phase="pilot")
        values, stretched = y.reshape(2, -1)
        _require_size(values)
        gap = float(np.sqrt(np.mean((stretched / RELU.stretch - values) ** 2)))
    scale = float(np.sqrt(np.mean(values**2)))
    if scale == 0:
        more = directions(RELU.more_vectors, dim, upper, rng)
        y = yield one_row(more, phase="residual")
        _require_size(y)
        x, values = np.vstack([x, more]), np.concatenate([values, y])
        scale = float(np.sqrt(np.mean(values**2))) or 1.0
    floor, eps = rounding()
    if not upper and gap > max(1e-3 * scale, 10 * floor):
        raise ModelMismatch(
            f"the target is not positively homogeneous: stretching a vector by {RELU.stretch:.4g} changes its answer "
            "by "
            f"{RELU.stretch:.4g} times only up to {gap / scale:.1g} of its size. A bias-free ReLU network is "
            "homogeneous; "
            "try bias=True."
        )
    return Answers(max(1.5 * max(gap, eps * scale), floor), scale, x, values)


def _look_for_curvature(x: Array, step: Array, values: Array, second: Array, rng: np.random.Generator) -> Asking[None]:
    """Refuse a smooth target: answers `values` (n,) at x (n, d) had second differences `second` over `step` (n, d)."""
    y = yield one_row(np.vstack([x + step / RELU.finer, x - step / RELU.finer]), phase="curvature")
    bent = bending(second, y.reshape(2, -1).sum(axis=0) - 2 * values)
    if 0 < bent.sum() < RELU.directions:
        # Sharp activations bend beside their kinks only.
        x = directions(RELU.doubtful, x.shape[1], True, rng)
        step = _level_steps(x, rng)
        shorter = step / RELU.finer
        y = yield one_row(np.vstack([x, x + step, x - step, x + shorter, x - shorter]), phase="curvature")
        values, *around = y.reshape(5, -1)
        bent = np.concatenate([bent, bending(*(np.reshape(around, (2, 2, -1)).sum(axis=1) - 2 * values))])
    refuse_if_smooth(bent)


def _level_steps(x: Array, rng: np.random.Generator) -> Array:
    """Short random steps (n, d) from x that leave the last coordinate alone."""
    n, dim = x.shape
    return RELU.step * unit(rng.standard_normal((n, dim)) * (np.arange(dim) < dim - 1))


def _require_size(values: Array) -> None:
    size = float(np.abs(values).max())
    if size and not CORE.smallest_answer <= size <= 1 / CORE.smallest_answer:
        raise OracleError(
            f"the target answers unit vectors with numbers of size {size:.1g}; sizes between {CORE.smallest_answer:g} "
            "and "
            f"{1 / CORE.smallest_answer:g} are required, for their squares must be float64. Multiply the answers by a "
            "constant."
        )


def bending(second: Array, finer: Array) -> Array:
    """Where (n,) second differences over long steps and over shorter ones tell of a smooth function."""
    size, small = np.abs(second), np.abs(finer)
    return (second * finer > 0) & (size > _RATIOS[0] * small) & (size < _RATIOS[1] * small)


def refuse_if_smooth(bent: Array) -> None:
    """Refuse a target that bends at a quarter of the places (n,) looked at, or more."""
    count = int(bent.sum())
    if count >= max(RELU.least_bent, RELU.bent_share * len(bent)):
        raise ModelMismatch(
            f"at {count} of {len(bent)} places the answers bend as a smooth function's do (steps {RELU.finer} times "
            "shorter "
            f"divide second differences by about {RELU.finer**2}); a two-layer ReLU network is linear between kinks. "
            "AttentionBehind reads W without knowing the network."
        )
