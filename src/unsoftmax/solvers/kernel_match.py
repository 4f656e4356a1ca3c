"""Which kernel a table shows: g_k = log kappa(tau x_k) / kappa(0) for an unknown scale tau, matched to a catalogue.

Theory: docs/theory/kernels.md, "Other kernels than the exponential", method.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.polynomial import chebyshev
from scipy.optimize import least_squares

from unsoftmax.probes.base import Array

LogRatio = Callable[[Array], Array]

_STEP = 1e-6
"""Step of the central difference that gives the slope of a kernel at 0: its error is 1e-11 of the slope."""


@dataclass(frozen=True)
class Matched:
    """A kernel with scale tau and parameter, and the root mean square of what it leaves of the table."""

    name: str
    tau: float
    parameter: float | None
    misfit: float


def match(
    x: Array, g: Array, catalogue: dict[str, Callable[[float | None], LogRatio]], capped: tuple[str, ...]
) -> list[Matched]:
    """Every kernel of the catalogue fitted to the table (x, g), best first.

    `catalogue` maps a name to the log ratio for a parameter; those in `capped` have one, which is found as well.
    """
    order = np.argsort(np.abs(x), kind="stable")
    near = order[: max(6, len(x) // 6)]
    slope = float(np.polynomial.polynomial.polyfit(x[near], g[near], 3)[1])
    found = [_fit(name, x, g, slope, catalogue[name], name in capped) for name in catalogue]
    return sorted(found, key=lambda fit: fit.misfit)


def _fit(
    name: str, x: Array, g: Array, slope: float, made: Callable[[float | None], LogRatio], capped: bool
) -> Matched:
    starts = [np.array([slope, np.log(c)]) for c in (0.3, 1.0, 3.0, 10.0)] if capped else [np.array([slope])]
    best: Matched | None = None
    size = max(float(np.abs(g).max()), 1e-300)
    for start in starts:
        if capped:
            # A cap in units of the largest value of the table.
            start[1] += np.log(size)
        else:
            base = made(None)
            steep = float(base(np.array(_STEP)) - base(np.array(-_STEP))) / (2 * _STEP)
            start = start / steep

        def rest(p: Array) -> Array:
            return np.asarray(made(float(np.exp(min(p[1], 300.0))) if capped else None)(p[0] * x) - g)

        with np.errstate(over="ignore", invalid="ignore"):
            try:
                fit = least_squares(rest, start, xtol=1e-15, ftol=1e-15, gtol=1e-15, x_scale="jac", max_nfev=200)
            except ValueError:
                continue
        misfit = float(np.sqrt(np.mean(fit.fun**2)))
        if best is None or misfit < best.misfit:
            best = Matched(name, float(fit.x[0]), float(np.exp(min(fit.x[1], 300.0))) if capped else None, misfit)
    return best if best is not None else Matched(name, slope, None, np.inf)


def series(x: Array, g: Array, span: float) -> tuple[Array, float]:
    """Chebyshev series of g on |x| <= span from Chebyshev points x, and the size of its last coefficients."""
    coefficients = chebyshev.chebfit(x / span, g, len(x) - 1)
    return coefficients, float(np.abs(coefficients[-4:]).max())


def inverse(log_ratio: LogRatio, values: Array, low: float, high: float, steps: int = 60) -> tuple[Array, Array]:
    """t in low..high with log_ratio(t) = values, by bisection and Newton, and the slope there; log_ratio rises."""
    a, b = np.full(values.shape, low), np.full(values.shape, high)
    for _ in range(steps):
        middle = (a + b) / 2
        below = log_ratio(middle) < values
        a, b = np.where(below, middle, a), np.where(below, b, middle)
    t = (a + b) / 2
    h = 1e-6 * (high - low)
    slope = (log_ratio(t + h) - log_ratio(t - h)) / (2 * h)
    return t, np.asarray(slope)
