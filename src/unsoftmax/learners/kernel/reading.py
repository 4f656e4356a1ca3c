"""One pair of tokens reads log kappa(a'Wb) / kappa(0): [a/e + e b ; e b] with a tiny e, so the second score is 0.

Theory: docs/theory/kernels.md, "Other kernels than the exponential", method.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from unsoftmax.errors import DomainError, ModelMismatch, NotIdentifiable
from unsoftmax.inversion import rounding_unit
from unsoftmax.learners.core.base import Asking
from unsoftmax.probes.base import Array, Probes, one_row
from unsoftmax.spec import OracleSpec

_TINY = 2.0**-26
"""e: its square, the score of the second token over b'Wb, is below the rounding of float64."""

_LEAST_ROOM = 1e4
"""Least norm limit: e = 1e-3 then leaves a score of 1e-6 to the second token, which is taken into account."""

_LINEAR = 1e-6
"""Part of an answer by which one token of twice the length may miss twice the answer before a kernel is said to act."""


@dataclass(frozen=True, eq=False)
class Reader:
    """v (as kappa(0) v where weights are not normalised), the rounding of the answers, and e."""

    spec: OracleSpec
    v: Array
    normalised: bool
    unit: float
    noise: float
    e: float

    def ask(self, a: Array, b: Array, phase: str) -> Asking[tuple[Array, Array]]:
        """log kappa(a'Wb) / kappa(0) (n,) for rows a, b (n, d), and the error of each; NaN where it cannot be read."""
        X = np.stack([a / self.e + self.e * b, self.e * b], axis=1)
        y = yield Probes(X, phase=phase)
        av = (X[:, 0] - X[:, 1]) @ self.v
        second = X[:, 1] @ self.v
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            if self.normalised:
                low, high = (y - second) / av, (av + second - y) / av
                value = np.where((low > 0) & (high > 0), np.log(low) - np.log(high), np.nan)
                gain = 1 / (low * high)
            else:
                ratio = (y - second) / (X[:, 0] @ self.v)
                value, gain = np.where(ratio > 0, np.log(ratio), np.nan), 1 / np.abs(ratio)
            size = np.abs(av) * self.unit * np.sqrt(self.spec.dim) + self.noise
            return np.asarray(value), np.asarray(np.where(np.isnan(value), np.inf, gain * size / np.abs(av)))


def start(spec: OracleSpec) -> Asking[Reader]:
    """Are weights normalised? And v, from tokens alone."""
    room = spec.domain.norm_limit
    if room < _LEAST_ROOM:
        raise DomainError(
            f"KernelHead needs tokens up to a norm of {_LEAST_ROOM:g} to hold one score at 0 while it reads another, "
            f"and max_norm is {room:g}; with a known exponential kernel use SingleHead."
        )
    d = spec.dim
    # An error of the answer is an error of v over e.
    e = max(_TINY, 30.0 / room, min(math.sqrt(spec.tolerance), 0.1))
    tokens = np.eye(d) * e
    y = yield one_row(tokens)
    twice = np.concatenate([np.stack([tokens[0], tokens[0]])[None], np.stack([tokens[-1], tokens[-1]])[None]])
    both = yield Probes(twice, phase="pilot")
    size = float(np.abs(y).max())
    if size == 0 or not np.isfinite(y).all():
        raise NotIdentifiable(
            "short tokens are answered with 0: v = 0, or a kernel that is 0 at a score of 0 (linear, quadratic, ReLU "
            "and its powers), which is not learned."
        )
    unit = max(spec.eps, rounding_unit(np.concatenate([y, both])))
    noise = spec.tolerance
    parts = both / np.where(np.abs(y[[0, -1]]) > 0, y[[0, -1]], np.nan)
    share = float(np.nanmedian(parts)) if np.isfinite(parts).any() else 1.0
    allowed = _LINEAR + 1e3 * (unit + noise / size)
    if abs(share - 1) > allowed and abs(share - 2) > allowed:
        raise ModelMismatch(
            f"a token asked twice is answered {share:.4g} times as large: neither normalised weights (1) nor their "
            "plain sum (2); a sink, a network or a constant stands beside."
        )
    return Reader(spec, y / e, abs(share - 1) <= allowed, unit, noise, e)
