"""Draw an experiment's figure with matplotlib; without it the rows and the claim stand alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from unsoftmax.experiments.base import Experiment, Row, grouped, interval


def draw(experiment: Experiment, rows: Sequence[Row], path: Path) -> bool:
    """Write an SVG; False if matplotlib (extra `plots`) is not installed."""
    try:
        from matplotlib.figure import Figure as Canvas
    except ImportError:
        return False
    wanted = experiment.figure
    canvas = Canvas(figsize=(7, 4.5), layout="constrained")
    axes = canvas.subplots()
    groups = grouped(rows, wanted.group) if wanted.group else {("",): list(rows)}
    for (label,), members in groups.items():
        by_x = sorted(grouped(members, wanted.x).items())
        xs = [x for (x,), _ in by_x]
        middle, low, high = zip(*(interval([r[wanted.y] for r in same]) for _, same in by_x), strict=True)
        name = f"{wanted.group} = {label}" if wanted.group else wanted.y
        (line,) = axes.plot(xs, middle, marker="o", label=name)
        axes.fill_between(xs, low, high, alpha=0.2, color=line.get_color(), linewidth=0)
    if wanted.reference is not None:
        name, column = wanted.reference
        points = sorted({(r[wanted.x], r[column]) for r in rows})
        axes.plot(*zip(*points, strict=True), "k--", label=name)
    if wanted.log_x:
        axes.set_xscale("log")
    if wanted.log_y:
        axes.set_yscale("log")
    axes.set_xlabel(wanted.x)
    axes.set_ylabel(wanted.y)
    axes.set_title(experiment.result)
    axes.grid(alpha=0.3)
    axes.legend()
    canvas.savefig(path, metadata={"Date": None})
    return True
