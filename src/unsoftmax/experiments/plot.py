"""Draw an experiment's figure with matplotlib; without it the rows and the claim stand alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unsoftmax.experiments.base import Experiment, Figure, Row, grouped

WORDS = {
    "d": "dimension d",
    "m": "neurons m",
    "error": "relative error",
    "billed": "queries billed, all phases",
    "queries": "queries",
    "per_unknown": "queries per unknown, all phases",
    "accuracy": "accuracy asked for",
    "tau": "tolerance of the answers",
    "digits": "decimals kept",
    "vocabulary": "tokens in the vocabulary",
}
MOST_TICKS = 9
"""So many sizes are each named on the axis; more get the usual ticks."""


def draw(experiment: Experiment, rows: Sequence[Row], path: Path) -> bool:
    """Write an SVG; False if matplotlib (extra `plots`) is not installed."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure as Canvas
    except ImportError:
        return False
    wanted = experiment.figure
    canvas = Canvas(figsize=(8, 4.5), layout="constrained")
    axes = canvas.subplots()
    groups = grouped(rows, *wanted.group)
    for place, (key, members) in enumerate(groups.items()):
        by_x = sorted(grouped(members, wanted.x).items())
        xs = [_beside(x, place - (len(groups) - 1) / 2, wanted.log_x) for (x,), _ in by_x]
        middle, low, high = zip(*(wanted.middle([r[wanted.y] for r in same]) for _, same in by_x), strict=True)
        spans = [
            [m - lo for m, lo in zip(middle, low, strict=True)],
            [hi - m for m, hi in zip(middle, high, strict=True)],
        ]
        axes.errorbar(xs, middle, spans, marker="o", capsize=3, elinewidth=1, label=named(wanted.group, key))
    if wanted.reference is not None:
        name, column = wanted.reference
        points = sorted({(r[wanted.x], r[column]) for r in rows})
        axes.plot(*zip(*points, strict=True), "k--", label=name)
    _scale(axes, wanted, sorted({r[wanted.x] for r in rows}))
    axes.set_xlabel(wanted.labels[0] or WORDS.get(wanted.x, wanted.x))
    axes.set_ylabel(wanted.labels[1] or WORDS.get(wanted.y, wanted.y))
    axes.set_title(experiment.result)
    axes.grid(alpha=0.3)
    if wanted.group or wanted.reference is not None:
        # Beside the data, never on it.
        canvas.legend(loc="outside right upper")
    # Same rows, same bytes: without a salt the SVG's identifiers are random.
    with rc_context({"svg.hashsalt": "unsoftmax"}):
        canvas.savefig(path, metadata={"Date": None})
    return True


def named(columns: tuple[str, ...], key: tuple[Any, ...]) -> str:
    """ "nuclear, d = 16": words stand for themselves, numbers need their column's name."""
    parts = [v if isinstance(v, str) else f"{c} = {v:g}" for c, v in zip(columns, key, strict=True)]
    return ", ".join(parts)


def _beside(x: float, place: float, log: bool) -> float:
    """Groups stand a little apart, so that one that answers like another is not hidden behind it."""
    return x * 1.015**place if log else x + 0.015 * place


def _scale(axes: Any, wanted: Figure, xs: list[float]) -> None:
    """Logarithmic axes end at whole powers of ten, and a few sizes are named as they are: 8, 16, 32."""
    from matplotlib.ticker import NullFormatter, NullLocator

    if wanted.log_x:
        axes.set_xscale("log")
    if all(float(x).is_integer() for x in xs) and len(xs) <= MOST_TICKS:
        axes.set_xticks(xs, [f"{x:g}" for x in xs])
        axes.xaxis.set_minor_locator(NullLocator())
    if wanted.log_y:
        axes.set_yscale("log")
        low, high = axes.get_ylim()
        axes.set_ylim(10.0 ** math.floor(math.log10(low)), 10.0 ** math.ceil(math.log10(high)))
        axes.yaxis.set_minor_formatter(NullFormatter())
