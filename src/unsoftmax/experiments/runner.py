"""Run an experiment into a folder: rows.csv (resumable), summary.csv, figure.svg, claim.md."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unsoftmax.errors import FileFormatError
from unsoftmax.experiments.base import Experiment, Row, Verdict, grouped
from unsoftmax.experiments.plot import draw

RowCallback = Callable[[int, int], None]


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
