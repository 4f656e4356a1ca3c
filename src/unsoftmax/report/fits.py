"""Sections of a page about a model from recorded traffic: curve, error bars, what the log does not show."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from unsoftmax.report.charts import Chart, curve_chart, error_bar_chart, heatmap_chart
from unsoftmax.report.document import figure, paragraph, section
from unsoftmax.results.evidence import shrunk
from unsoftmax.results.recovery import Recovery

_BARS = 40
"""Entries of W shown with their error bars, the largest first."""


def fit_sections(recovery: Recovery, drawn: dict[str, Chart]) -> Iterator[str]:
    """Only what the result holds."""
    curve = _curve(recovery.provenance.get("curve"))
    if curve:
        drawn["curve"] = curve_chart(curve)
        yield section(
            "Error against records", figure("curve", drawn, "Error on held-out records against the records fitted.")
        )
    W, errors = (
        np.ravel(np.asarray(part)) for part in (getattr(recovery.model, "W", ()), recovery.errors.get("W", ()))
    )
    if len(errors) and len(errors) == len(W):
        largest = np.argsort(-np.abs(W))[:_BARS]
        drawn["bars"] = error_bar_chart([(float(W[i]), float(errors[i])) for i in largest])
        words = f"The {len(largest)} largest entries of W with two standard errors to either side."
        yield section("Error bars", figure("bars", drawn, words))
    if recovery.undetermined is not None:
        yield section("What the log does not show", _blind(recovery, recovery.undetermined, drawn))


def _curve(points: Any) -> list[tuple[int, float]]:
    """Points as a file holds them; nothing if they are something else."""
    try:
        found = [(int(records), float(error)) for records, error in points or ()]
    except (TypeError, ValueError):
        return []
    return [point for point in found if math.isfinite(point[1])]


def _blind(recovery: Recovery, basis: Any, drawn: dict[str, Chart]) -> str:
    """How much of every entry of the first W lies in undetermined directions."""
    d = recovery.model.dim
    words = paragraph(f"{len(basis)} directions of {basis.shape[1]} are not determined by these records.")
    if basis.ndim != 2 or basis.shape[1] < d * d:
        return words
    share = (basis[:, : d * d] ** 2).sum(axis=0).reshape(d, d)
    drawn["blind"] = heatmap_chart("the undetermined share of every entry of W", shrunk(share).tolist(), 1.0)
    return words + figure("blind", drawn, "Share of every entry of W that the log does not show: 1 is nothing known.")
