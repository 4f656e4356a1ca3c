"""Vega-Lite charts as plain data: no library is needed to make them, one inlined script draws them.

Text and lines take the page's ink ("currentColor"), so that dark, light and paper need no second drawing; the colours
of marks have a contrast of at least 3 to 1 on both backgrounds.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from unsoftmax.models.base import Array
from unsoftmax.results.evidence import Evidence, Grid

Chart = dict[str, Any]

_BLUE, _ORANGE = "#2563eb", "#d97706"
INK = "currentColor"
ROW = 36
"""Height of a rung: its name above, its bar below, so that no name is cut on a phone."""

MOST = 400
"""Values drawn at most: a wide spectrum is thinned evenly, its neighbourhood of the width is kept."""

_NEAR = 16
"""Values on either side of the width that are always drawn."""

_LEAST = 1e-17
"""Smallest value beside the largest that is drawn: below it float64 holds nothing."""


def chart(description: str, values: list[dict[str, Any]], **rest: Any) -> Chart:
    return {
        "description": description,
        "background": None,
        "data": {"values": values},
        **{"width": "container", **rest},
    }


def axis_of_errors(low: int, high: int) -> Chart:
    """Powers of ten from 10^low to 10^high, eight at most."""
    ticks = [10.0**k for k in range(low, max(high, low + 1) + 1, max(1, math.ceil((high - low) / 7)))]
    return {
        "field": "error",
        "type": "quantitative",
        "scale": {"type": "log", "domain": [10.0 ** (low - 0.5), 10.0 ** (max(high, low + 1) + 0.5)], "nice": False},
        "axis": {"values": ticks, "format": ".0e"},
        "title": "relative error of the copy",
    }


def phases_chart(evidence: Evidence) -> Chart:
    """Queries by phase."""
    values = [{"phase": name, "queries": n, "words": f"{n:,}"} for name, n in evidence.phases.items()]
    told = ", ".join(f"{name} {n:,}" for name, n in evidence.phases.items()) or "none"
    row = {"field": "phase", "type": "nominal", "sort": None, "title": None}
    most = max(evidence.phases.values(), default=1)
    x = {
        "field": "queries",
        "type": "quantitative",
        "scale": {"domain": [0, 1.15 * max(most, 1)], "nice": False},
        "axis": {"tickCount": 4, "format": ",d"},
    }
    return chart(
        f"Bar chart: queries billed in each phase: {told}.",
        values,
        height=26 * max(1, len(values)),
        encoding={"y": row, "x": x},
        layer=[
            {"mark": {"type": "bar", "color": _BLUE, "tooltip": True}},
            {
                "mark": {"type": "text", "align": "left", "dx": 5, "fill": INK, "fontSize": 11},
                "encoding": {"text": {"field": "words"}},
            },
        ],
    )


def bars_chart(title: str, sizes: dict[str, float]) -> Chart:
    """One bar for every named size."""
    values = [{"name": name, "size": size, "words": f"{size:.2g}"} for name, size in sizes.items()]
    told = ", ".join(f"{name} {size:.2g}" for name, size in sizes.items())
    row = {"field": "name", "type": "nominal", "sort": None, "title": None}
    top = max(sizes.values(), default=1.0) or 1.0
    x = {
        "field": "size",
        "type": "quantitative",
        "title": title,
        "scale": {"domain": [0, 1.15 * top], "nice": False},
        "axis": {"tickCount": 4, "format": ".2g"},
    }
    return chart(
        f"Bar chart: {title}: {told}.",
        values,
        height=26 * max(1, len(values)),
        encoding={"y": row, "x": x},
        layer=[
            {"mark": {"type": "bar", "color": _ORANGE, "tooltip": True}},
            {
                "mark": {"type": "text", "align": "left", "dx": 5, "fill": INK, "fontSize": 11},
                "encoding": {"text": {"field": "words"}},
            },
        ],
    )


def claims_chart(evidence: Evidence) -> Chart:
    """What was observed beside what each claim allows."""
    values: list[dict[str, Any]] = [
        {"claim": c.name, "kind": kind, "value": max(float(v), 1e-17)}
        for c in evidence.claims
        if c.observed is not None
        for kind, v in (("observed", c.observed), ("allowed", c.bound))
        if math.isfinite(v)
    ]
    powers = [math.log10(v["value"]) for v in values] or [0.0]
    low, high = math.floor(min(powers)), math.ceil(max(powers))
    ticks = [10.0**k for k in range(low, max(high, low + 1) + 1, max(1, math.ceil((high - low) / 4)))]
    return chart(
        "Dot plot: the error observed on fresh queries beside the bound each claim allows, logarithmic scale.",
        values,
        height=28 * len({v["claim"] for v in values}),
        mark={"type": "point", "filled": True, "size": 90, "opacity": 0.9, "tooltip": True},
        encoding={
            "y": {"field": "claim", "type": "nominal", "sort": None, "title": None, "axis": {"labelLimit": 150}},
            "x": {
                "field": "value",
                "type": "quantitative",
                "scale": {"type": "log", "domain": [10.0**low, 10.0 ** max(high, low + 1)], "nice": False},
                "axis": {"values": ticks, "format": ".0e"},
                "title": None,
            },
            "color": {
                "field": "kind",
                "type": "nominal",
                "scale": {"domain": ["observed", "allowed"], "range": [_BLUE, _ORANGE]},
                "legend": {"title": None, "orient": "top", "direction": "horizontal"},
            },
            "shape": {
                "field": "kind",
                "type": "nominal",
                "scale": {"domain": ["observed", "allowed"], "range": ["circle", "diamond"]},
            },
        },
    )


def heatmap_chart(title: str, grid: Grid, top: float) -> Chart:
    """One matrix; colours from -top to top."""
    values = [{"i": i, "j": j, "x": x} for i, row in enumerate(grid) for j, x in enumerate(row)]
    return {
        **chart(f"Heat map of {title}: entries between {_ends(grid)}.", values),
        "autosize": {"type": "pad"},
        "width": 216,
        "height": 216,
        "mark": {"type": "rect", "tooltip": True},
        "encoding": {
            "x": {"field": "j", "type": "ordinal", "axis": None},
            "y": {"field": "i", "type": "ordinal", "axis": None},
            "color": {
                "field": "x",
                "type": "quantitative",
                "scale": {"scheme": "blueorange", "domain": [-top, top]},
                "legend": {
                    "title": None,
                    "orient": "bottom",
                    "gradientLength": 216,
                    "values": [-top, 0, top],
                    "format": ".2g",
                },
            },
        },
    }


def _ends(grid: Grid) -> str:
    entries = [x for row in grid for x in row]
    return f"{min(entries):.3g} and {max(entries):.3g}"


def number(x: float) -> float | None:
    return x if math.isfinite(x) else None


def curve_chart(points: list[tuple[int, float]]) -> Chart:
    """Held-out error against records fitted."""
    values = [{"records": records, "error": max(error, 1e-17)} for records, error in points]
    told = ", ".join(f"{error:.1e} from {records:,}" for records, error in points)
    powers = [math.log10(v["error"]) for v in values]
    return chart(
        f"Line chart: relative error on held-out records against records fitted: {told}.",
        values,
        height=220,
        mark={"type": "line", "point": True, "color": _BLUE, "tooltip": True},
        encoding={
            "x": {"field": "records", "type": "quantitative", "title": "records fitted", "axis": {"tickCount": 5}},
            "y": {
                **axis_of_errors(math.floor(min(powers)), math.ceil(max(powers))),
                "field": "error",
                "type": "quantitative",
                "title": "relative error on held-out records",
            },
        },
    )


def error_bar_chart(entries: list[tuple[float, float]]) -> Chart:
    """Values with two standard errors to either side, in the order given."""
    values = [
        {"entry": i + 1, "value": value, "low": value - 2 * error, "high": value + 2 * error}
        for i, (value, error) in enumerate(entries)
    ]
    widest = max((error for _, error in entries), default=0.0)
    x = {"field": "entry", "type": "ordinal", "axis": None}
    return chart(
        f"Dot plot of {len(entries)} entries with their error bars; the largest standard error is {widest:.1e}.",
        values,
        height=220,
        encoding={"x": x},
        layer=[
            {
                "mark": {"type": "rule", "color": _ORANGE},
                "encoding": {
                    "y": {"field": "low", "type": "quantitative", "title": "entry of W"},
                    "y2": {"field": "high"},
                },
            },
            {
                "mark": {"type": "point", "filled": True, "color": _BLUE, "tooltip": True},
                "encoding": {"y": {"field": "value", "type": "quantitative"}},
            },
        ],
    )


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
