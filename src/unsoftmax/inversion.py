"""INVERT: from answers to logits, with the error that answer noise leaves in them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax import links
from unsoftmax.probes.base import Array
from unsoftmax.spec import Link

DISTINCT = 12
"""Fewer different answers than this do not tell a grid of decimals from chance."""

FORMAT_SHOWS = 3
"""Different answers other than 0 that show a number format: by chance one fits float32 in 2^-29 of all cases, and three
fit nine digits in 1e-18."""

_LOOKED_AT = 64
"""Numbers of an answer whose digits are looked at: more say the same, and digits are counted one number at a time."""

_FEW_DECIMALS = 1e-8
"""Rounding error from which on decimals are no digits: a dozen digits of weights near 1/32 are thirteen decimals."""

_MOST_SHOWN = 14
"""Digits that are looked for, one less: float64 holds 15, and rounding of the last one looks like any other."""

_LAST_PLACES = 1e-15
"""Decimals are not binary: a rounded number is off by a few units of its last place."""


@dataclass(frozen=True, eq=False)
class Logits:
    """`t`: logits, NaN where the answer is outside the open interval; `gain`: dt/dy = 1/(|a.v| alpha (1 - alpha))."""

    t: Array
    gain: Array


def logits(y: Array, av: Array, bv: Array) -> Logits:
    """Solve y = bv + sigma(t) av for t, elementwise (broadcasting).

    The two ends are computed separately, log(y - bv) - log(av + bv - y), so neither cancels near 0 or 1.
    """
    low = (y - bv) / av
    high = (av + bv - y) / av
    inside = (low > 0) & (high > 0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        t = np.where(inside, np.log(low) - np.log(high), np.nan)
        gain = np.where(inside, 1 / (np.abs(av) * low * high), np.inf)
    return Logits(t, gain)


@dataclass(frozen=True)
class Noise:
    """How wrong an answer may be: `absolute`, plus `relative` times the size of the numbers behind it.

    With a `link` both parts are errors of the answer link(f), and an answer's radius is what they leave in f.
    `measured` tells an estimate from a promise of the oracle.
    """

    absolute: float
    relative: float
    link: Link | None = None
    measured: bool = False

    def radius(self, f: Array, size: Array | float) -> Array:
        """Radius of f, elementwise; `size` bounds the numbers that were added up to f (largest |x| |v|)."""
        if self.link is None:
            return np.asarray(self.absolute + self.relative * np.broadcast_to(size, np.shape(f)))
        # Rounding happens twice: in f itself, and in the answer after the link, which may be larger than 1.
        size_of_answer = links.answer_size(self.link, f)
        # What was measured may be a share of the answers as well: behind a link their format is not seen.
        error = (
            self.absolute * (np.maximum(size_of_answer, 1.0) if self.measured else 1.0) + self.relative * size_of_answer
        )
        return links.radius(self.link, f, error) + self.relative * np.asarray(size)


@dataclass(frozen=True, eq=False)
class Shares:
    """alpha = (y - x2.v) / ((x1 - x2).v) as an interval `low`..`high` around `mid`, and its logit `t` +- `radius`.

    `steepest`, `flattest`: largest and smallest slope of the logit on the interval, so that
    t - t* = slope (alpha - alpha*) for some slope between them. All inf / NaN where the interval leaves (0, 1).
    """

    mid: Array
    low: Array
    high: Array
    t: Array
    radius: Array
    steepest: Array
    flattest: Array


def shares(y: Array, span: Array, base: Array, radius: Array) -> Shares:
    """Invert y = base + alpha span with |error of the numerator| <= radius, elementwise (broadcasting)."""
    mid = (y - base) / span
    reach = radius / np.abs(span)
    with np.errstate(invalid="ignore"):
        low, high = mid - reach, mid + reach
    inside = (low > 0) & (high < 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(inside, np.log(mid) - np.log1p(-mid), np.nan)
        below = t - (np.log(low) - np.log1p(-low))
        above = np.log(high) - np.log1p(-high) - t
        slope = np.stack([1 / (low * (1 - low)), 1 / (high * (1 - high))])
    around_half = (low < 0.5) & (high > 0.5)
    return Shares(
        mid,
        low,
        high,
        t,
        np.where(inside, np.maximum(below, above), np.inf),
        np.where(inside, slope.max(axis=0), np.inf),
        np.where(around_half, 4.0, slope.min(axis=0)),
    )


def ray_logits(y: Array, c: Array, degree: int) -> Array:
    """Solve y = sigma(t)^degree c for t, elementwise; NaN where y / c is not inside (0, 1)."""
    ratio = y / c
    inside = (ratio > 0) & (ratio < 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_alpha = np.log(ratio) / degree
        # logit(alpha) = log(alpha) - log(1 - alpha), with 1 - alpha from expm1 so that it does not cancel near 1.
        return np.where(inside, log_alpha - np.log(-np.expm1(log_alpha)), np.nan)


def saturating_logits(y: Array, av: Array, bv: Array, noise: float) -> Logits:
    """As `logits`, for answers right within `noise`: at the ends t is the bound that noise allows and gain is inf."""
    with np.errstate(divide="ignore", invalid="ignore"):
        low, high, floor = (y - bv) / av, (av + bv - y) / av, 2 * noise / np.abs(av)
        clipped_low, clipped_high = np.maximum(low, floor), np.maximum(high, floor)
        t = np.log(clipped_low) - np.log(clipped_high)
        readable = np.minimum(low, high) > 2 * floor
        gain = np.where(readable, 1 / (np.abs(av) * clipped_low * clipped_high), np.inf)
    return Logits(np.where(np.isfinite(t), t, 0.0), gain)


def rounding_unit(y: Array, slack: float = 0.0) -> float:
    """Rounding unit of the narrowest number format that holds every answer exactly, or but for this share of it."""
    for name in ("float16", "float32"):
        with np.errstate(over="ignore"):
            if (np.abs(y.astype(name).astype(np.float64) - y) <= slack * np.abs(y)).all():
                return float(np.finfo(name).eps)
    return float(np.finfo(np.float64).eps)


def lowest_step(unit: float) -> float:
    """Distance of the smallest numbers of the format with this rounding unit, whose rounding is absolute; else 0."""
    return next((float(np.finfo(x).smallest_subnormal) for x in ("float16", "float32") if np.finfo(x).eps == unit), 0.0)


def few_digits(y: Array) -> float:
    """Rounding error, as a share of the largest, of answers that all have at most 9 decimals or 9 digits; else 0."""
    largest = float(np.abs(y).max(initial=0.0))
    for k in range(1, 10):
        if _has_decimals(y, k):
            return 0.5 * 10.0**-k / largest if largest else 0.0
        if _has_digits(y, k):
            return 0.5 * 10.0 ** (1 - k)
    return 0.0


def _has_decimals(y: Array, k: int) -> bool:
    # Digits kept by arithmetic, not by printing, are off by a rounding of their own.
    return bool(np.allclose(np.round(y, k), y, rtol=_LAST_PLACES, atol=0.0))


def _has_digits(y: Array, k: int) -> bool:
    return bool(np.allclose([float(f"{number:.{k}g}") for number in y], y, rtol=_LAST_PLACES, atol=0.0))


def fewest_decimals(y: Array) -> float:
    """Rounding error of the fewest decimals that all numbers have, be they few and simple; 0 if they have too many."""
    return next((0.5 * 10.0**-k for k in range(1, _MOST_SHOWN) if _has_decimals(y, k)), 0.0)


def shown_rounding(y: Array) -> tuple[float, float]:
    """Absolute and relative rounding error of the format that different answers (n,) show; 0 where they show none.

    Fewer than three different ones say nothing. Numbers of one size may have so many decimals or so many digits: then
    both errors are said.
    """
    seen = np.unique(y[y != 0])
    if len(seen) < FORMAT_SHOWS:
        return 0.0, 0.0
    unit = rounding_unit(seen)
    decimals = fewest_decimals(seen)
    digits = next((0.5 * 10.0 ** (1 - k) for k in range(1, _MOST_SHOWN) if _has_digits(seen, k)), 0.0)
    return decimals, max(unit if unit > np.finfo(np.float64).eps else 0.0, digits)


def shown_unit(y: Array, noise: float) -> float:
    """Rounding unit that answers of any shape and this absolute noise show: of a short float, or of few digits.

    Small numbers of few decimals have few digits, and are off by no more; many decimals may be many digits.
    """
    digits = 0.0 if noise > _FEW_DECIMALS else shown_rounding(y.ravel()[:_LOOKED_AT])[1]
    return max(rounding_unit(y), digits)


def smallest_normal(unit: float) -> float:
    """Numbers below have fewer digits, or are 0, in the format of float16, 32 or 64 whose rounding unit is this one."""
    wider = (kind for kind in ("float16", "float32") if unit >= np.finfo(kind).eps / 4)
    return float(np.finfo(next(wider, "float64")).tiny)


_HELD = 1.5 * float(np.finfo(np.float64).eps)
"""Share by which a number of k decimals, held in float64 and multiplied by 10^k, is off a whole one: half a unit of
rounding from each of the two steps, and half as much again."""

_NO_CHANCE = -27.6
"""Logarithm of 1e-12: below, answers that all lie so near to whole numbers do not do so by chance."""


def decimal_error(y: Array, least: int = DISTINCT) -> float:
    """Rounding error of answers that all have the same few digits (2 to 14) after the point; 0 if they have not.

    Fewer than `least` different answers say nothing: simple numbers have few digits of themselves. The more digits,
    the wider what float64 leaves of a whole number, and the more answers it takes until chance is no explanation.
    """
    seen = np.unique(y)
    if len(seen) < least:
        return 0.0
    for decimals in range(2, 15):
        scaled = seen * 10.0**decimals
        off = np.maximum(1e-5, _HELD * np.abs(scaled))
        chance = float(np.log(np.minimum(1.0, 2 * off)).sum())
        # Numbers far below the last digit are all near 0 and say nothing either.
        if len(np.unique(np.round(scaled))) < least:
            continue
        if (np.abs(scaled - np.round(scaled)) <= off).all() and chance < _NO_CHANCE:
            return 0.5 * 10.0**-decimals
    return 0.0


_MOST_END_EARLIER = 0.5
"""Share of numbers with fewer decimals than the others from which on they have digits instead: a tenth of numbers with
equal decimals end earlier by chance, nine tenths of those with equal digits wherever sizes differ by ten."""


def printed_error(y: Array, least: int = DISTINCT) -> float:
    """`decimal_error` of answers, or that of the largest where all have the same few significant digits instead.

    Of numbers with k decimals one in ten ends earlier; of numbers with so many digits all but the smallest do.
    """
    error = decimal_error(y, least)
    if error == 0:
        return 0.0
    seen = np.unique(np.abs(y[y != 0]))
    earlier = np.abs(seen - np.round(seen / (20 * error)) * (20 * error)) < error
    if np.mean(earlier) < _MOST_END_EARLIER:
        return error
    return max(error, shown_rounding(seen[-_LOOKED_AT:])[1] * float(seen[-1]))
