"""One interface for every experiment: sweep -> rows -> claim -> plot."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Row = dict[str, Any]


@dataclass(frozen=True)
class Verdict:
    """Whether the rows bear the claim out, and the sentence that says on what grounds."""

    holds: bool
    because: str

    def __str__(self) -> str:
        return f"{'holds' if self.holds else 'does not hold'}: {self.because}"


@dataclass(frozen=True)
class Figure:
    """What to draw: column `y` against column `x`, one line per value of `group`, medians with the seeds' range.

    `reference` draws a theoretical curve: a name and a column that holds its value at every row.
    """

    x: str
    y: str
    group: str | None = None
    log_x: bool = True
    log_y: bool = True
    reference: tuple[str, str] | None = None


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
    """Median and its distribution-free 95 % confidence interval (order statistics; the range for few values)."""
    ordered = np.sort(np.asarray(values, dtype=float))
    n = len(ordered)
    half = 1.96 * math.sqrt(n) / 2
    low, high = max(0, math.floor(n / 2 - half)), min(n - 1, math.ceil(n / 2 + half))
    return float(np.median(ordered)), float(ordered[low]), float(ordered[high])


def grouped(rows: Sequence[Row], *columns: str) -> dict[tuple[Any, ...], list[Row]]:
    """Rows by the values of some columns, in order of first appearance."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[c] for c in columns), []).append(row)
    return groups
