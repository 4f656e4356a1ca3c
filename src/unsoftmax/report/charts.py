"""Vega-Lite charts as plain data: no library is needed to make them, one inlined script draws them.

Text and lines take the page's ink ("currentColor"), so that dark, light and paper need no second drawing; the colours
of marks have a contrast of at least 3 to 1 on both backgrounds.
"""

from __future__ import annotations

import math
from typing import Any

from unsoftmax.results.audit import CLOSE, EXACT, Audit, error_of
from unsoftmax.results.evidence import Evidence, Grid

Chart = dict[str, Any]

LEAK_COLOURS = {"exact": "#dc2626", "close": "#d97706", "rough": "#6b7280", "none": "#15803d", "unknown": "#7c3aed"}
_WORDS = {"none": "no copy", "unknown": "out of scope"}
_UNASKED = {"unknown": "out of scope, not tried"}
_BLUE, _ORANGE = "#2563eb", "#d97706"
_INK = "currentColor"
_ROW = 36
"""Height of a rung: its name above, its bar below, so that no name is cut on a phone."""


def _chart(description: str, values: list[dict[str, Any]], **rest: Any) -> Chart:
    return {
        "description": description,
        "background": None,
        "data": {"values": values},
        **{"width": "container", **rest},
    }


def _by_copy(audit: Audit) -> Chart:
    """Colour by how good the copy is; the legend names what an audit of this kind can show."""
    named = {name: colour for name, colour in LEAK_COLOURS.items() if name != "unknown" or not audit.in_scope}
    return {
        "field": "copy",
        "type": "nominal",
        "scale": {"domain": list(named), "range": list(named.values())},
        "legend": {"title": "copy", "orient": "top", "direction": "horizontal"},
    }


def ladder_chart(audit: Audit) -> Chart:
    """Queries per cell, coloured by what leaked; a cell that was refused before a query has no bar."""
    values = [
        {
            "cell": c.title.removeprefix(f"{audit.cells[0].access}, "),
            "queries": c.queries or None,
            "copy": c.leak,
            "error": _number(error_of(c)),
            "words": f"{c.queries:,} · {_WORDS.get(c.leak, c.leak)}" if c.queries else "",
            "refused": "" if c.queries else _UNASKED.get(c.leak, "refused before the first query"),
        }
        for c in audit.cells
    ]
    asked = [c.queries for c in audit.cells if c.queries]
    most = max(asked, default=10)
    refused = len(audit.cells) - len(asked)
    span = f"from {min(asked):,} to {most:,} queries" if asked else "no query was possible"
    words = f"Bar chart with a row for each of {len(audit.cells)} ways in: {span}, coloured by how good the copy is"
    words += f"; {refused} refused before the first query. " if refused else ". "
    row = {"field": "cell", "type": "nominal", "sort": [v["cell"] for v in values], "axis": None}
    text = {"type": "text", "align": "left", "baseline": "middle", "fill": _INK, "clip": False}
    scale = {"type": "log", "domain": [1, max(10.0, float(most)) ** 1.45], "nice": False}
    x = {
        "field": "queries",
        "type": "quantitative",
        "scale": scale,
        "title": "queries, logarithmic scale",
        "axis": {"values": [10**k for k in range(int(math.log10(max(most, 10))) + 2)], "format": "~s"},
    }
    return _chart(
        words + "The table below has the numbers.",
        values,
        height=_ROW * len(values),
        encoding={"y": row},
        layer=[
            {
                "transform": [{"filter": "datum.queries != null"}],
                "mark": {"type": "bar", "height": 10, "yOffset": 8, "cornerRadiusEnd": 2},
                "encoding": {
                    "x": x,
                    "x2": {"datum": 1},
                    "color": _by_copy(audit),
                    "tooltip": [{"field": f} for f in ("cell", "queries", "copy", "error")],
                },
            },
            {
                "mark": {**text, "yOffset": -8, "fontSize": 12},
                "encoding": {"text": {"field": "cell"}, "x": {"value": 0}},
            },
            {
                "transform": [{"filter": "datum.queries != null"}],
                "mark": {**text, "yOffset": 8, "dx": 5, "fontSize": 11},
                "encoding": {"text": {"field": "words"}, "x": x},
            },
            {
                "mark": {**text, "yOffset": 8, "fontSize": 11, "fontStyle": "italic"},
                "encoding": {"text": {"field": "refused"}, "x": {"value": 0}},
            },
        ],
    )


def frontier_chart(audit: Audit) -> Chart:
    """Error against queries; the stair joins the cells nobody beats."""
    values: list[dict[str, Any]] = [
        {
            "cell": c.title,
            "queries": c.queries,
            "error": max(error_of(c), 1e-16),
            "copy": c.leak,
        }
        for c in audit.cells
        if c.queries > 0 and math.isfinite(error_of(c))
    ]
    if not values:
        return _chart("No cell gave a copy whose error could be measured.", values, mark="point", height=40)
    left, right = min(v["queries"] for v in values) / 1.3, 1.3 * max(v["queries"] for v in values)
    stair = [{"queries": c.queries, "error": max(error_of(c), 1e-16)} for c in audit.frontier]
    if stair:
        stair.append({**stair[-1], "queries": right})
    low, high = (bound(math.log10(f(v["error"] for v in values))) for f, bound in ((min, math.floor), (max, math.ceil)))
    x, y = _axis_of_queries(left, right), _axis_of_errors(low, high)
    marks = [
        {"level": e, "words": w}
        for e, w in ((EXACT, "exact below"), (CLOSE, "close below"))
        if low <= math.log10(e) <= high + 0.5
    ]
    level = {**y, "field": "level"}
    return _chart(
        f"Scatter plot: relative error of the copy against the queries it took, for {len(values)} ways in; a stair "
        f"joins the {len(audit.frontier)} that no other beats. Lower left is worse for the owner.",
        values,
        height=300,
        layer=[
            {
                "data": {"values": marks},
                "mark": {"type": "rule", "stroke": _INK, "strokeDash": [3, 3], "opacity": 0.5},
                "encoding": {"y": level},
            },
            {
                "data": {"values": marks},
                "mark": {"type": "text", "align": "right", "dy": -6, "fill": _INK, "fontSize": 10},
                "encoding": {"y": level, "x": {"value": "width"}, "text": {"field": "words"}},
            },
            {
                "data": {"values": stair},
                "mark": {"type": "line", "interpolate": "step-after", "stroke": _INK, "opacity": 0.6},
                "encoding": {"x": x, "y": y},
            },
            {
                "mark": {"type": "point", "filled": True, "size": 90, "opacity": 0.85},
                "encoding": {
                    "x": x,
                    "y": y,
                    "color": _by_copy(audit),
                    "tooltip": [{"field": f} for f in ("cell", "queries", "error", "copy")],
                },
            },
        ],
    )


def _axis_of_queries(left: float, right: float) -> Chart:
    round_numbers = [n * 10**k for k in range(13) for n in (1, 2, 5) if left <= n * 10**k <= right]
    return {
        "field": "queries",
        "type": "quantitative",
        "scale": {"type": "log", "domain": [left, right], "nice": False},
        "axis": {"values": round_numbers, "format": "~s", "labelOverlap": True},
        "title": "queries, logarithmic scale",
    }


def _axis_of_errors(low: int, high: int) -> Chart:
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
    return _chart(
        f"Bar chart: queries billed in each phase: {told}.",
        values,
        height=26 * max(1, len(values)),
        encoding={"y": row, "x": x},
        layer=[
            {"mark": {"type": "bar", "color": _BLUE, "tooltip": True}},
            {
                "mark": {"type": "text", "align": "left", "dx": 5, "fill": _INK, "fontSize": 11},
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
    return _chart(
        f"Bar chart: {title}: {told}.",
        values,
        height=26 * max(1, len(values)),
        encoding={"y": row, "x": x},
        layer=[
            {"mark": {"type": "bar", "color": _ORANGE, "tooltip": True}},
            {
                "mark": {"type": "text", "align": "left", "dx": 5, "fill": _INK, "fontSize": 11},
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
    return _chart(
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
        **_chart(f"Heat map of {title}: entries between {_ends(grid)}.", values),
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


def _number(x: float) -> float | None:
    return x if math.isfinite(x) else None


def curve_chart(points: list[tuple[int, float]]) -> Chart:
    """Held-out error against records fitted."""
    values = [{"records": records, "error": max(error, 1e-17)} for records, error in points]
    told = ", ".join(f"{error:.1e} from {records:,}" for records, error in points)
    powers = [math.log10(v["error"]) for v in values]
    return _chart(
        f"Line chart: relative error on held-out records against records fitted: {told}.",
        values,
        height=220,
        mark={"type": "line", "point": True, "color": _BLUE, "tooltip": True},
        encoding={
            "x": {"field": "records", "type": "quantitative", "title": "records fitted", "axis": {"tickCount": 5}},
            "y": {
                **_axis_of_errors(math.floor(min(powers)), math.ceil(max(powers))),
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
    return _chart(
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
