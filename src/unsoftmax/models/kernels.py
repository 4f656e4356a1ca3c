"""Kernels of attention: what stands where softmax has the exponential."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.polynomial import chebyshev

from unsoftmax.errors import InvalidArgument
from unsoftmax.models.base import Array

_FAR = -40.0
"""Score below which log(1 + e^s) is e^s in float64: e^-40 is below half a unit of rounding."""

_LOGS: dict[str, Callable[[Array, float], Array]] = {
    "exp": lambda s, _: s,
    "softplus": lambda s, _: np.where(s < _FAR, s, np.log(np.logaddexp(0.0, np.maximum(s, _FAR)))),
    "1 + elu": lambda s, _: np.where(s > 0, np.log1p(np.maximum(s, 0.0)), s),
    "sigmoid": lambda s, _: -np.logaddexp(0.0, -s),
    "softcap": lambda s, c: c * np.tanh(s / c),
}
"""log kappa(s) of every kernel that is learned, with its parameter; all are monotone and positive at 0."""

_POWERS: dict[str, tuple[int, int]] = {"linear": (1, -1), "quadratic": (2, 1), "relu": (1, 0)}
"""Kernels that are 0 at 0, as (degree p, side): s^p for s > 0, side |s|^p for s < 0. "relu^p" is a power of ReLU."""

LEARNED = tuple(_LOGS)
"""Names of the kernels that are positive at 0, with which an unknown one is matched."""


def power_name(degree: int, side: int) -> str:
    """Name of the kernel that is the power `degree` of the score, with negative scores counted `side` times."""
    named = {value: name for name, value in _POWERS.items()}
    return named.get((degree, side), f"relu^{degree}")


def power_of(name: str) -> tuple[int, int] | None:
    """Degree and side of a kernel that is a power of the score, None for another."""
    found = re.fullmatch(r"relu\^([2-9])", name)
    return (int(found.group(1)), 0) if found else _POWERS.get(name)


@dataclass(frozen=True, eq=False)
class Kernel:
    """kappa by name; `parameter` is the cap c of exp(c tanh(s / c)).

    "tabulated": log kappa(s) / kappa(0) as a Chebyshev series `table` on |s| <= `parameter`.
    """

    name: str
    parameter: float | None = None
    table: Array | None = None

    def __post_init__(self) -> None:
        found = re.fullmatch(r"softcap ?(\d+(?:\.\d*)?)", self.name)
        if found:
            object.__setattr__(self, "name", "softcap")
            object.__setattr__(self, "parameter", float(found.group(1)))
        known = (*_LOGS, *_POWERS, "relu^2", "tabulated")
        if self.name not in known and power_of(self.name) is None:
            raise InvalidArgument(f"`kernel` must be one of {', '.join(known)} (got {self.name!r}).")
        needs = self.name in ("softcap", "tabulated")
        if needs != (self.parameter is not None) or (self.parameter is not None and not self.parameter > 0):
            raise InvalidArgument(f"the kernel {self.name!r} needs {'a positive' if needs else 'no'} parameter.")
        if (self.table is None) != (self.name != "tabulated"):
            raise InvalidArgument("a table goes with the kernel 'tabulated'.")

    def __str__(self) -> str:
        return self.name if self.parameter is None or self.table is not None else f"{self.name} {self.parameter:.6g}"

    @property
    def zero_at_zero(self) -> bool:
        """Whether kappa(0) = 0."""
        return power_of(self.name) is not None

    @property
    def one_sided(self) -> bool:
        """Whether negative scores weigh nothing."""
        return (power_of(self.name) or (0, 1))[1] == 0

    def log(self, s: Array) -> Array:
        """log kappa(s), for kernels that are positive."""
        s = np.asarray(s)
        if self.table is not None:
            assert self.parameter is not None
            return np.asarray(chebyshev.chebval(np.clip(s / self.parameter, -1, 1), self.table))
        return np.asarray(_LOGS[self.name](s, self.parameter or 1.0))

    def log_ratio(self, s: Array) -> Array:
        """log kappa(s) - log kappa(0)."""
        return np.asarray(self.log(s) - self.log(np.zeros(())))

    def __call__(self, s: Array) -> Array:
        """kappa(s)."""
        power = power_of(self.name)
        if power is None:
            return np.asarray(np.exp(self.log(s)))
        degree, side = power
        s = np.asarray(s)
        return np.asarray(np.maximum(s, 0.0) ** degree + side * np.maximum(-s, 0.0) ** degree)


def as_kernel(value: Any) -> Kernel:
    """A kernel, or the one of that name."""
    if isinstance(value, Kernel):
        return value
    if isinstance(value, str):
        return Kernel(value)
    raise InvalidArgument(f"`kernel` must be a name or a Kernel (got {type(value).__name__}).")
