"""Vega-Lite charts as plain data: no library is needed to make them, one inlined script draws them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from unsoftmax.audit_result import Audit, error_of
from unsoftmax.result import Recovery

Chart = dict[str, Any]

_SCHEMA = "https://vega.github.io/schema/vega-lite/v5.json"
_LARGEST_HEATMAP = 64


def _chart(description: str, values: list[dict[str, Any]], **rest: Any) -> Chart:
    return {
        "$schema": _SCHEMA,
        "description": description,
        "background": None,
        "data": {"values": values},
        **{"width": "container", **rest},
    }


def ladder_chart(audit: Audit) -> Chart:
    """Queries per cell, coloured by what leaked."""
    values = [
        {"cell": c.name, "queries": max(c.queries, 1), "leak": c.leak, "error": _number(error_of(c))}
        for c in audit.cells
    ]
    return _chart(
        "Bar chart: queries an attacker needs at each rung of the ladder, coloured by how good the copy is.",
        values,
        height={"step": 22},
        mark={"type": "bar", "tooltip": True},
        encoding={
            "y": {"field": "cell", "type": "nominal", "sort": None, "title": None, "axis": {"labelLimit": 260}},
            "x": {"field": "queries", "type": "quantitative", "scale": {"type": "log"}, "title": "queries"},
            "x2": {"datum": 0.5},
            "color": {
                "field": "leak",
                "type": "nominal",
                "scale": {
                    "domain": ["exact", "close", "rough", "none"],
                    "range": ["#b42318", "#d97706", "#6b7280", "#15803d"],
                },
                "title": "copy",
            },
            "tooltip": [{"field": f} for f in ("cell", "queries", "leak", "error")],
        },
    )


def frontier_chart(audit: Audit) -> Chart:
    """Error against queries; the line joins the cells nobody beats."""
    best = {c.name for c in audit.frontier}
    values = [
        {"cell": c.name, "queries": c.queries, "error": max(error_of(c), 1e-16), "frontier": c.name in best}
        for c in audit.cells
        if c.queries > 0 and math.isfinite(error_of(c))
    ]
    encoding = {
        "x": {"field": "queries", "type": "quantitative", "scale": {"type": "log"}, "title": "queries"},
        "y": {
            "field": "error",
            "type": "quantitative",
            "scale": {"type": "log"},
            "title": "relative error of the copy",
            "axis": {"format": ".0e"},
        },
    }
    return _chart(
        "Scatter plot: relative error of the copy against the queries it took; a line joins the best cells.",
        values,
        height=280,
        encoding=encoding,
        layer=[
            {"mark": {"type": "line", "color": "#b42318"}, "transform": [{"filter": "datum.frontier"}]},
            {
                "mark": {"type": "point", "filled": True, "size": 80, "color": "#2563eb"},
                "encoding": {"tooltip": [{"field": f} for f in ("cell", "queries", "error")]},
            },
        ],
    )


def phases_chart(recovery: Recovery) -> Chart:
    """Queries by phase."""
    values = [{"phase": name, "queries": n} for name, n in recovery.usage.phases.items()]
    return _chart(
        "Bar chart: queries billed in each phase of the recovery.",
        values,
        height={"step": 24},
        mark={"type": "bar", "color": "#2563eb", "tooltip": True},
        encoding={
            "y": {"field": "phase", "type": "nominal", "sort": None, "title": None},
            "x": {"field": "queries", "type": "quantitative"},
        },
    )


def claims_chart(recovery: Recovery) -> Chart:
    """What was observed beside what each claim allows."""
    values = [
        {"claim": c.name, "kind": kind, "value": max(float(v), 1e-17)}
        for c in recovery.certificate.claims
        if c.observed is not None
        for kind, v in (("observed", c.observed), ("allowed", c.bound))
        if math.isfinite(v)
    ]
    return _chart(
        "Dot plot: the error observed on fresh queries beside the bound each claim allows.",
        values,
        height={"step": 26},
        mark={"type": "point", "filled": True, "size": 90, "tooltip": True},
        encoding={
            "y": {"field": "claim", "type": "nominal", "sort": None, "title": None, "axis": {"labelLimit": 220}},
            "x": {"field": "value", "type": "quantitative", "scale": {"type": "log"}, "axis": {"format": ".0e"}},
            "color": {
                "field": "kind",
                "type": "nominal",
                "scale": {"domain": ["observed", "allowed"], "range": ["#2563eb", "#d97706"]},
                "title": None,
            },
        },
    )


def heatmap_chart(matrices: dict[str, Any]) -> Chart:
    """Matrices side by side on one colour scale, averaged over blocks beyond 64 rows."""
    values: list[dict[str, Any]] = []
    for name, matrix in matrices.items():
        small = shrunk(np.asarray(matrix, dtype=float))
        values += [
            {"matrix": name, "row": i, "column": j, "value": float(f"{x:.4g}")} for (i, j), x in np.ndenumerate(small)
        ]
    top = max((abs(v["value"]) for v in values), default=1.0) or 1.0
    return _chart(
        "Heat maps of " + " and ".join(matrices) + ", on one colour scale.",
        values,
        width=250,
        height=250,
        mark={"type": "rect", "tooltip": True},
        encoding={
            "x": {"field": "column", "type": "ordinal", "axis": None},
            "y": {"field": "row", "type": "ordinal", "axis": None},
            "color": {
                "field": "value",
                "type": "quantitative",
                "scale": {"scheme": "blueorange", "domain": [-top, top]},
                "title": None,
            },
            "row": {"field": "matrix", "title": None, "sort": None},
        },
    )


def shrunk(matrix: Any) -> Any:
    """Block means of a matrix down to at most 64 x 64."""
    rows, columns = (np.array_split(np.arange(n), min(n, _LARGEST_HEATMAP)) for n in matrix.shape)
    return np.array([[matrix[np.ix_(r, c)].mean() for c in columns] for r in rows])


def _number(x: float) -> float | None:
    return x if math.isfinite(x) else None
