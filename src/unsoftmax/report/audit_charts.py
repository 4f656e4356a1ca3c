"""Charts of an audit: what every access costs and how good the copy is."""

from __future__ import annotations

import math
from typing import Any

from unsoftmax.report.charts import INK, ROW, Chart, axis_of_errors, chart, number
from unsoftmax.report.matrix import NO_COPY, shade
from unsoftmax.results.audit import CLOSE, EXACT, Audit, Cell, error_of

LEAK_COLOURS = {
    "exact": "#dc2626",
    "close": "#d97706",
    "rough": "#6b7280",
    NO_COPY["held"]: "#2563eb",
    NO_COPY["proved"]: "#15803d",
    "unknown": "#7c3aed",
}
_WORDS = {"unknown": "out of scope"}
_UNASKED = {"unknown": "out of scope, not tried"}


def _by_copy(audit: Audit) -> Chart:
    """Colour by how good the copy is; the legend names what an audit of this kind can show."""
    named = {name: colour for name, colour in LEAK_COLOURS.items() if name != "unknown" or not audit.in_scope}
    return {
        "field": "copy",
        "type": "nominal",
        "scale": {"domain": list(named), "range": list(named.values())},
        "legend": {"title": "copy", "orient": "top", "direction": "horizontal", "columns": 3},
    }


def _copy_of(audit: Audit, cell: Cell) -> str:
    name = shade(audit, cell)
    return NO_COPY.get(name, name)


def ladder_chart(audit: Audit) -> Chart:
    """Queries per cell, coloured by what leaked; a cell that was refused before a query has no bar."""
    values = [
        {
            "cell": c.title.removeprefix(f"{audit.cells[0].access}, "),
            "queries": c.queries or None,
            "copy": _copy_of(audit, c),
            "error": number(error_of(c)),
            "words": f"{c.queries:,} · {_WORDS.get(c.leak, _copy_of(audit, c))}" if c.queries else "",
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
    text = {"type": "text", "align": "left", "baseline": "middle", "fill": INK, "clip": False}
    scale = {"type": "log", "domain": [1, max(10.0, float(most)) ** 1.45], "nice": False}
    x = {
        "field": "queries",
        "type": "quantitative",
        "scale": scale,
        "title": "queries, logarithmic scale",
        "axis": {"values": [10**k for k in range(int(math.log10(max(most, 10))) + 2)], "format": "~s"},
    }
    return chart(
        words + "The table below has the numbers.",
        values,
        height=ROW * len(values),
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
            "copy": _copy_of(audit, c),
        }
        for c in audit.cells
        if c.queries > 0 and math.isfinite(error_of(c))
    ]
    if not values:
        return chart("No cell gave a copy whose error could be measured.", values, mark="point", height=40)
    left, right = min(v["queries"] for v in values) / 1.3, 1.3 * max(v["queries"] for v in values)
    stair = [{"queries": c.queries, "error": max(error_of(c), 1e-16)} for c in audit.frontier]
    if stair:
        stair.append({**stair[-1], "queries": right})
    low, high = (bound(math.log10(f(v["error"] for v in values))) for f, bound in ((min, math.floor), (max, math.ceil)))
    x, y = _axis_of_queries(left, right), axis_of_errors(low, high)
    marks = [
        {"level": e, "words": w}
        for e, w in ((EXACT, "exact below"), (CLOSE, "close below"))
        if low <= math.log10(e) <= high + 0.5
    ]
    level = {**y, "field": "level"}
    return chart(
        f"Scatter plot: relative error of the copy against the queries it took, for {len(values)} ways in; a stair "
        f"joins the {len(audit.frontier)} that no other beats. Lower left is worse for the owner.",
        values,
        height=300,
        layer=[
            {
                "data": {"values": marks},
                "mark": {"type": "rule", "stroke": INK, "strokeDash": [3, 3], "opacity": 0.5},
                "encoding": {"y": level},
            },
            {
                "data": {"values": marks},
                "mark": {"type": "text", "align": "right", "dy": -6, "fill": INK, "fontSize": 10},
                "encoding": {"y": level, "x": {"value": "width"}, "text": {"field": "words"}},
            },
            {
                "data": {"values": stair},
                "mark": {"type": "line", "interpolate": "step-after", "stroke": INK, "opacity": 0.6},
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
