"""Run an experiment into a folder: rows.csv (resumable), summary.csv, figure.svg, claim.md.

Draw an experiment's figure with matplotlib; without it the rows and the claim stand alone.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unsoftmax.errors import FileFormatError
from unsoftmax.experiments.base import Experiment, Figure, Row, Verdict, grouped

RowCallback = Callable[[int, int], None]

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


@dataclass(frozen=True)
class Report:
    """What an experiment gave: the rows, the verdict, and where the files are."""

    experiment: Experiment
    rows: tuple[Row, ...]
    verdict: Verdict
    folder: Path

    @property
    def paragraph(self) -> str:
        """The claim and whether the data bear it out."""
        return f"{self.experiment.result}. {self.experiment.claim} On {len(self.rows)} runs this claim {self.verdict}"


def run(
    experiment: Experiment,
    folder: Path,
    *,
    quick: bool = True,
    executor: Executor | None = None,
    progress: RowCallback | None = None,
) -> Report:
    """Measure every point that `folder` does not hold yet, then judge and draw. Interrupt and run again to go on."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "rows.csv"
    points = list(experiment.points(quick))
    done = {_key({name: row.get(name) for name in points[0]}): row for row in _read(path)}
    missing = [point for point in points if _key(point) not in done]
    measured = map(experiment.row, missing) if executor is None else executor.map(experiment.row, missing)
    for count, (point, values) in enumerate(zip(missing, measured, strict=True), len(points) - len(missing) + 1):
        row = {**point, **values}
        done[_key(point)] = row
        _append(path, row)
        if progress is not None:
            progress(count, len(points))
    rows = tuple(done[_key(point)] for point in points)
    report = Report(experiment, rows, experiment.judge(rows), folder)
    (folder / "claim.md").write_text(report.paragraph + "\n")
    _summarise(experiment, rows, folder / "summary.csv")
    draw(experiment, rows, folder / "figure.svg")
    return report


def _summarise(experiment: Experiment, rows: tuple[Row, ...], path: Path) -> None:
    """What the figure shows as numbers: runs, statistic and its confidence interval at every point of it."""
    wanted = experiment.figure
    columns = [*wanted.group, wanted.x]
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*columns, "runs", f"{wanted.statistic} {wanted.y}", "low", "high"])
        for key, members in grouped(rows, *columns).items():
            writer.writerow([*key, len(members), *wanted.middle([row[wanted.y] for row in members])])


def _key(point: Row) -> str:
    return json.dumps(point, sort_keys=True)


def _read(path: Path) -> list[Row]:
    if not path.exists():
        return []
    text = path.read_bytes().decode(errors="replace")
    if not text.endswith("\n"):
        # A run that died while writing leaves half a row: it is measured again.
        text = text[: text.rfind("\n") + 1]
        path.write_bytes(text.encode())
    try:
        lines = csv.DictReader(text.splitlines(keepends=True))
        return [{name: _value(text) for name, text in row.items()} for row in lines]
    except (ValueError, TypeError) as error:
        raise FileFormatError(f"{path} is damaged ({error}); delete it to measure again.") from error


def _cell(value: Any) -> str:
    """Numbers as JSON, words as they are; a word that would read as something else is quoted."""
    plain = isinstance(value, str) and value[:1].isalpha() and value.isprintable() and _value(value) == value
    return str(value) if plain else json.dumps(value)


def _value(text: Any) -> Any:
    """Inverse of `_cell`."""
    try:
        return json.loads(text)
    except ValueError:
        if text[:1].isalpha():
            return text
        raise


def _append(path: Path, row: Row) -> None:
    fresh = not path.exists() or path.stat().st_size == 0
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, list(row))
        if fresh:
            writer.writeheader()
        writer.writerow({name: _cell(value) for name, value in row.items()})


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
