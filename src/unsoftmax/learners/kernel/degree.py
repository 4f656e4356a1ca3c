"""Which power of the score a kernel is: its degree, and what it makes of negative scores.

Theory: docs/theory/kernels.md, "Powers of the score".
"""

from __future__ import annotations

import numpy as np

from unsoftmax.errors import ModelMismatch, NotIdentifiable
from unsoftmax.inversion import few_digits
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.noise import LOUD
from unsoftmax.learners.kernel.first_look import FOLDS
from unsoftmax.learners.kernel.kernels import MISFIT
from unsoftmax.learners.kernel.ratios import Power, Sender
from unsoftmax.probes.base import Array, Probes

STEPS = np.array([-24, -12, -6, -3, 0])
"""Powers of 2 by which the query token is shortened: a kernel that is a power of its score is one over seven decades.
Longer ones would let the query token's own score count; three short steps show squares behind few decimals too."""

_SHARES = np.array([-3, -1, 0, 1, 3])
"""The same where only ratios of weights show, which saturate."""

TABLE = 2 * len(STEPS)
"""Queries of the table: the steps at a score and at its negative, or at two ratios and two sizes."""

_DEGREES = (1, 2, 3, 4)
"""Degrees that are looked for."""


def fold(power: Power, k: float) -> float:
    """Answer to [x ; -k x ; q] over x.v where weights are normalised, for a power that is odd or even."""
    weight = power.side * k**power.degree
    return (1 - k * weight) / (1 + weight)


def side_of(ratio: float, allowed: float) -> Power:
    """Odd, even or one-sided, from the ratio of the two folds; the degree of a ReLU is not in it and comes as 1."""
    one_sided = (1.0, FOLDS[0] / FOLDS[1])
    near = {Power(1, 0): min(abs(ratio / r - 1) for r in one_sided)}
    for degree in _DEGREES:
        power = Power(degree, 1 if degree % 2 == 0 else -1)
        near[power] = abs(ratio / (fold(power, FOLDS[0]) / fold(power, FOLDS[1])) - 1)
    best = min(near, key=near.__getitem__)
    if not near[best] <= allowed:
        raise ModelMismatch(
            f"the kernel is 0 at 0 and no power of the score: [x ; -3 x ; q] over [x ; -x/2 ; q] is {ratio:.4g}, where "
            "ReLU and its powers answer 1 or 6, linear weights -2 and their squares -3.7."
        )
    return best


def summed_power(sender: Sender, x: Array, q: Array) -> Asking[tuple[Power, bool]]:
    """Plain sums: the power, and whether x'Wq is positive (which only a ReLU shows)."""
    scales = np.concatenate([2.0**STEPS, -(2.0**STEPS)])
    tokens = sender.tokens([np.repeat(x[None], TABLE, axis=0)], scales[:, None] * q)
    y = yield Probes(tokens, phase="table")
    up, down = y[: len(STEPS)], y[len(STEPS) :]
    positive = bool(np.abs(up).max() >= np.abs(down).max())
    shown, other = (up, down) if positive else (down, up)
    noise = max(sender.noise, few_digits(shown[shown != 0]) * float(np.abs(shown).max()))
    read = np.abs(shown) > LOUD * noise
    if read.sum() < 3:
        raise NotIdentifiable(f"answers of {float(np.abs(shown).max()):.2g} drown in a noise of {noise:.2g}.")
    shown, other, steps = shown[read], other[read], STEPS[read]
    allowed = MISFIT * sender.unit + 2 * noise / float(np.abs(shown).min())
    degree = _slope(steps, shown, allowed)
    sides = other / shown
    side = int(np.rint(np.median(sides)))
    if side not in (-1, 0, 1) or not np.abs(sides - side).max() <= allowed:
        raise ModelMismatch(f"negative scores count {float(np.median(sides)):.4g} times positive ones, not 0, 1 or -1.")
    return _known(Power(degree, side)), positive


def shared_power(sender: Sender, kind: Power, x: Array, r: Array, q: Array, v: Array) -> Asking[Power]:
    """Normalised: the degree, from x and r of changing lengths; the length of q must not matter."""
    scales = np.concatenate([2.0**_SHARES, np.ones(len(STEPS))])
    sizes = np.concatenate([np.ones(len(_SHARES)), 2.0**STEPS])
    rows = scales[:, None] * x, np.repeat(r[None], TABLE, axis=0), sizes[:, None] * q
    u, error = yield from (sender.mirrored if kind.side == 0 else sender.against)(*rows, v, "table")
    allowed = MISFIT / 10 * float(error.max())
    degree = _slope(_SHARES, u[: len(_SHARES)], allowed)
    same = u[len(_SHARES) :] / u[-1] - 1
    if not np.abs(same).max() <= allowed:
        raise ModelMismatch(
            f"weights change by {float(np.abs(same).max()):.2g} with the length of the query token: the kernel is no "
            "power of the score."
        )
    return _known(Power(degree, kind.side))


def _slope(steps: Array, shown: Array, allowed: float) -> int:
    with np.errstate(divide="ignore", invalid="ignore"):
        slopes = np.log2(np.abs(shown[1:] / shown[:-1])) / np.diff(steps)
    degree = int(np.rint(np.median(slopes))) if np.isfinite(slopes).all() else 0
    if degree < 1 or not np.abs(slopes - degree).max() <= allowed + 1e-9 or np.any(shown[1:] * shown[:-1] <= 0):
        raise ModelMismatch("the kernel is 0 at 0 and no power of the score: doubling a score shows no whole degree.")
    return degree


def _known(power: Power) -> Power:
    if (power.side == -1 and power.degree != 1) or (power.side == 1 and power.degree != 2):
        raise ModelMismatch(
            f"the kernel is an {'odd' if power.side < 0 else 'even'} power of the score of degree {power.degree}: the "
            "catalogue has linear, quadratic, and ReLU and its powers."
        )
    return power
