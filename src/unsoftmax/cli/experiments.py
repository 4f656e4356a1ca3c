"""`unsoftmax experiments`: put the theorems to the test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from unsoftmax.cli import settings


def experiments(
    names: Annotated[list[str] | None, typer.Argument(help="Which to run; all if none is named.")] = None,
    quick: Annotated[bool, typer.Option("--quick/--full", help="Minutes instead of hours.")] = True,
    output: Annotated[Path, typer.Option(help="Folder for CSV, figures and claims.")] = Path("out/experiments"),
    workers: Annotated[int, typer.Option(help="Processes to measure rows in.", min=1)] = 1,
    as_json: settings.Json = False,
    show: Annotated[bool, typer.Option("--list", help="Name the experiments and stop.")] = False,
) -> None:
    """Run experiments, each a sweep with a claim that the data bear out or not.

    Example: unsoftmax experiments theorem-4.1 --quick

    Interrupt and run again with the same --output to go on where it stopped.
    """
    from concurrent.futures import ProcessPoolExecutor
    from contextlib import nullcontext

    from rich.console import Console
    from rich.progress import Progress, TaskID

    from unsoftmax.experiments import available, run

    console = Console()
    known = available()
    if show:
        for name, experiment in known.items():
            console.print(f"{name}: {experiment.claim}")
        return
    unknown = [name for name in names or [] if name not in known]
    if unknown:
        raise typer.BadParameter(f"{', '.join(unknown)} is not an experiment; choose from {', '.join(known)}.")
    rows: list[dict[str, object]] = []
    pool = ProcessPoolExecutor(workers) if workers > 1 else nullcontext(None)
    with pool as executor, Progress(console=Console(stderr=True), transient=True) as bar:
        for name in names or list(known):
            task = bar.add_task(name)

            def advance(done: int, total: int, task: TaskID = task) -> None:
                bar.update(task, completed=done, total=total)

            report = run(known[name], output / name, quick=quick, executor=executor, progress=advance)
            bar.remove_task(task)
            rows.append({"name": name, "holds": report.verdict.holds, "paragraph": report.paragraph})
            if not as_json:
                console.print(report.paragraph, soft_wrap=True)
    if as_json:
        typer.echo(json.dumps(rows))
        return
    console.print(f"Rows, figures and claims are in {output}.")
