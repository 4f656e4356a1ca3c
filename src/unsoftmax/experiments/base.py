"""One interface for every experiment: sweep -> rows -> claim -> plot."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

Row = dict[str, Any]


@dataclass(frozen=True)
class Verdict:
    """Whether the rows bear the claim out, and the sentence that says on what grounds."""

    holds: bool
    because: str

    def __post_init__(self) -> None:
        # Comparisons of measured rows give NumPy's truth values, which JSON does not know.
        object.__setattr__(self, "holds", bool(self.holds))

    def __str__(self) -> str:
        return f"{'holds' if self.holds else 'does not hold'}: {self.because}"


@dataclass(frozen=True)
class Figure:
    """What to draw: column `y` against column `x`, one line for each value of the `group` columns.

    statistic   "median": with its confidence interval; "share": mean of a column of zeros and ones, with its own.
    reference   a theoretical curve: a name and a column that holds its value at every row.
    labels      words for the axes, where the columns' names do not say enough.
    """

    x: str
    y: str
    group: tuple[str, ...] = ()
    log_x: bool = True
    log_y: bool = True
    statistic: Literal["median", "share"] = "median"
    reference: tuple[str, str] | None = None
    labels: tuple[str | None, str | None] = (None, None)

    def middle(self, values: Sequence[float]) -> tuple[float, float, float]:
        """The statistic of one point and its confidence interval."""
        return interval(values) if self.statistic == "median" else share(values)


@dataclass(frozen=True)
class Experiment:
    """A statement put to the test.

    points   quick -> settings to sweep, seeds included; plain data, so rows can be resumed and computed elsewhere.
    row      one setting -> its measurements (merged with the setting into one row).
    judge    all rows -> verdict.
    code     where the method lives in the package.
    """

    name: str
    result: str
    claim: str
    points: Callable[[bool], Sequence[Row]]
    row: Callable[[Row], Row]
    judge: Callable[[Sequence[Row]], Verdict]
    figure: Figure
    code: str


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Median and its distribution-free confidence interval, as near 95 % as order statistics of so few values allow.

    The range of 3 values covers the median with 75 %, of 5 with 93.75 %.
    """
    ordered = np.sort(np.asarray(values, dtype=float))
    n = len(ordered)
    half = 1.96 * math.sqrt(n) / 2
    low, high = max(0, math.floor(n / 2 - half)), min(n - 1, math.ceil(n / 2 + half))
    return float(np.median(ordered)), float(ordered[low]), float(ordered[high])


def share(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean of zeros and ones and its 95 % confidence interval (Wilson's, which is right for few runs too)."""
    n, rate, z = len(values), float(np.mean(values)), 1.96
    centre = (rate + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    return rate, max(0.0, centre - half), min(1.0, centre + half)


def grouped(rows: Sequence[Row], *columns: str) -> dict[tuple[Any, ...], list[Row]]:
    """Rows by the values of some columns, in order of first appearance."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[c] for c in columns), []).append(row)
    return groups
