"""`unsoftmax experiments`: put the theorems to the test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from unsoftmax.cli import exits, flags
from unsoftmax.errors import InvalidArgument


def experiments(
    names: Annotated[list[str] | None, typer.Argument(help="Which to run; all if none is named.")] = None,
    quick: Annotated[bool, typer.Option("--quick/--full", help="Minutes instead of hours.")] = True,
    output: Annotated[Path, typer.Option(help="Folder for CSV, figures and claims.")] = Path("out/experiments"),
    workers: Annotated[int, typer.Option(help="Processes to measure rows in.", min=1)] = 1,
    as_json: flags.Json = False,
    show: Annotated[bool, typer.Option("--list", help="Name the experiments and stop.")] = False,
    debug: flags.Debug = False,
) -> None:
    """Run experiments, each a sweep with a claim that the data bear out or not.

    Example: unsoftmax experiments theorem-4.1 --quick

    Interrupt and run again with the same --output to go on where it stopped. Exit code 13 if a claim does not hold.
    """
    from rich.console import Console

    from unsoftmax.experiments import available

    console = Console()
    known = available()
    with exits.one_sentence(debug, as_json):
        if show:
            claims = {name: experiment.claim for name, experiment in known.items()}
            typer.echo(json.dumps(claims) if as_json else "\n".join(f"{name}: {c}" for name, c in claims.items()))
            return
        unknown = [name for name in names or [] if name not in known]
        if unknown:
            raise InvalidArgument(f"{', '.join(unknown)} is not an experiment; choose from {', '.join(known)}.")
        chosen = {name: known[name] for name in names or list(known)}
        rows = _run(chosen, output, quick, workers, None if as_json else console)
        if as_json:
            typer.echo(json.dumps(rows))
        else:
            console.print(f"Rows, figures and claims are in {output}.", markup=False)
        fallen = [str(row["name"]) for row in rows if not row["holds"]]
        if fallen:
            typer.echo(f"does not hold: {', '.join(fallen)}", err=True)
            raise typer.Exit(exits.Exit.FALLEN)


def _run(chosen: dict[str, Any], output: Path, quick: bool, workers: int, console: Any) -> list[dict[str, object]]:
    from concurrent.futures import ProcessPoolExecutor
    from contextlib import nullcontext

    from rich.console import Console
    from rich.progress import Progress, TaskID

    from unsoftmax.experiments import run

    rows: list[dict[str, object]] = []
    pool = ProcessPoolExecutor(workers) if workers > 1 else nullcontext(None)
    with pool as executor, Progress(console=Console(stderr=True), transient=True) as bar:
        for name, experiment in chosen.items():
            task = bar.add_task(name)

            def advance(done: int, total: int, task: TaskID = task) -> None:
                bar.update(task, completed=done, total=total)

            report = run(experiment, output / name, quick=quick, executor=executor, progress=advance)
            bar.remove_task(task)
            rows.append({"name": name, "holds": report.verdict.holds, "paragraph": report.paragraph})
            if console is not None:
                console.print(report.paragraph, soft_wrap=True)
    return rows
