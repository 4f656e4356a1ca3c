"""The singular values of a language model's answers: where they drop is its hidden width."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from unsoftmax.models.base import Array
from unsoftmax.report.charts import Chart, chart

MOST = 400
"""Values drawn at most: a wide spectrum is thinned evenly, its neighbourhood of the width is kept."""

_NEAR = 16
"""Values on either side of the width that are always drawn."""

_LEAST = 1e-17
"""Smallest value beside the largest that is drawn: below it float64 holds nothing."""


def spectrum_chart(values: Array, width: int) -> Chart:
    """Singular values (n,), largest first, in two colours: those of the signal and those past the width."""
    shown = _thinned(len(values), width)
    points: list[dict[str, Any]] = [
        {
            "number": int(i) + 1,
            "value": max(float(values[i] / values[0]), _LEAST),
            "part": "signal" if i < width else "noise",
        }
        for i in shown
    ]
    ratio = float(values[width - 1] / max(values[width], _LEAST * values[0])) if width < len(values) else math.inf
    return chart(
        f"Dot plot of {len(values)} singular values on a logarithmic scale; number {width + 1} is {ratio:.1e} times "
        f"smaller than number {width}.",
        points,
        height=240,
        mark={"type": "point", "filled": True, "size": 18, "tooltip": True},
        encoding={
            "x": {"field": "number", "type": "quantitative", "title": "singular value"},
            "y": {
                "field": "value",
                "type": "quantitative",
                "scale": {"type": "log"},
                "title": "beside the largest",
                "axis": {"format": ".0e", "tickCount": 6},
            },
            "color": {"field": "part", "type": "nominal", "title": None},
        },
    )


def _thinned(count: int, width: int) -> list[int]:
    even = np.linspace(0, count - 1, min(count, MOST)).astype(int)
    near = np.arange(max(0, width - _NEAR), min(count, width + _NEAR))
    return [int(i) for i in np.union1d(even, near)]
