"""How wrong may a recorded answer be? Declared, seen in the digits, seen in records that repeat, or rounding alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from unsoftmax.fitting.blocks import Blocks, attend
from unsoftmax.fitting.constants import FITTING
from unsoftmax.fitting.log import Log
from unsoftmax.fitting.shape import Shape
from unsoftmax.inversion import decimal_error, rounding_unit
from unsoftmax.precision import EPS, SHORT_FORMAT, UNIT
from unsoftmax.probes.base import Array


@dataclass(frozen=True)
class Noise:
    """`source` says where it comes from. A record's deviation is hypot(absolute, relative size), with the power of 2
    below |answer| as its size: so numbers are rounded. What is seen may be up to `allowed` times that. `freedom`:
    independent differences behind a measured deviation (inf if declared)."""

    source: Literal["declared", "format", "decimals", "repeated records", "none"]
    absolute: float = 0.0
    relative: float = 0.0
    allowed: float = FITTING.over_declared
    freedom: float = np.inf

    def deviations(self, answers: Array) -> Array:
        """Standard deviation of each answer, elementwise."""
        return np.hypot(self.absolute, self.relative * np.ldexp(0.5, np.frexp(answers)[1]))


def noise_of(log: Log) -> Noise:
    """What is known about the noise before any model is fitted."""
    y = log.answers.ravel()
    if log.tolerance:
        # Whatever is declared, an answer has a rounding of its own.
        return Noise("declared", max(log.tolerance, EPS * float(np.sqrt((y**2).mean()))))
    unit = max(rounding_unit(y), float(np.finfo(log.dtype).eps))
    step = decimal_error(y)
    # Numbers of a short format are decimals of ten digits and more: the coarser of both is what was rounded to.
    if step > (0.0 if unit <= SHORT_FORMAT else unit * float(np.median(np.abs(y)))):
        return Noise("decimals", step / np.sqrt(3.0))
    if unit > SHORT_FORMAT:
        # A rounded number is off by up to half a unit of its last place, uniformly.
        return Noise("format", 0.0, 0.5 * unit / np.sqrt(3.0), FITTING.short_arithmetic)
    found = _repeated(log)
    return Noise("none") if found is None else found


def _repeated(log: Log) -> Noise | None:
    """The spread of answers to equal sequences; None where there are too few, or where they repeat to the last bit."""
    groups: dict[bytes, list[int]] = {}
    for i, (start, length) in enumerate(zip(log.starts, log.lengths, strict=True)):
        groups.setdefault(log.tokens[start : start + length].tobytes(), []).append(i)
    several = [group for group in groups.values() if len(group) > 1]
    freedom = sum(len(group) - 1 for group in several)
    if freedom < FITTING.repetitions:
        return None
    spread = sum(float(((log.answers[g] - log.answers[g].mean(axis=0)) ** 2).sum()) for g in several)
    freedom *= log.outputs or 1
    deviation = float(np.sqrt(spread / freedom))
    size = float(np.sqrt((log.answers**2).mean()))
    return (
        Noise("repeated records", deviation, 0.0, FITTING.over_declared, freedom)
        if deviation > 1e3 * UNIT * size
        else None
    )


def computed(noise: Noise, blocks: Blocks, shape: Shape, x: Array) -> Array:
    """Deviations (n m,) of answers computed in the short format of the noise, not rounded to it at the end alone."""
    return rounding(blocks, shape, x) * (2 * np.sqrt(3.0) * noise.relative / EPS)


def rounding(blocks: Blocks, shape: Shape, x: Array) -> Array:
    """Standard deviation (n m,) of the rounding of a float64 target with these parameters.

    Scores are off by a rounding of the sum of their terms, weights and values by one of their own size.
    """
    W, _, P = shape.split(x)
    variance = np.zeros((len(blocks), shape.outputs))
    for Wh, Ph in zip(W, P, strict=True):
        u = blocks.q @ Wh.T
        size = np.abs(blocks.q) @ np.abs(Wh).T
        for block in blocks:
            rows, X = block.rows, block.tokens
            alpha = attend(block, u[rows])[1]
            values = X @ Ph.T
            slope = np.abs(alpha[:, :, None] * (values - np.matmul(alpha[:, None, :], values)))
            terms = np.matmul(np.abs(X), size[rows, :, None])
            large = np.matmul(alpha[:, None, :], np.abs(X) @ np.abs(Ph).T)[:, 0]
            variance[rows] += ((slope * terms) ** 2).sum(axis=1) + slope.sum(axis=1) ** 2 + large**2
    deviation = UNIT * np.sqrt(variance)
    least = FITTING.quiet_output * deviation.max(axis=1, keepdims=True)
    return np.asarray(np.maximum(deviation, least) + 1e-300).ravel()
