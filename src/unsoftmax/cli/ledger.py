"""`unsoftmax ledger show|export`: what a ledger holds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unsoftmax.cli import settings
from unsoftmax.cli.exits import one_sentence

if TYPE_CHECKING:
    from unsoftmax.oracles.ledger import Ledger

app = typer.Typer(help="Look into ledgers: the answers that were paid for.", no_args_is_help=True)

LedgerPath = Annotated[Path, typer.Argument(help="The ledger, as passed to recover(ledger=).")]


@contextmanager
def _opened(path: Path) -> Iterator[Ledger]:
    from unsoftmax.oracles.ledger import Ledger

    if not path.is_file():
        raise typer.BadParameter(f"{path} does not exist.")
    with one_sentence(), Ledger(path) as ledger:
        yield ledger


def _plain(value: object) -> str:
    """Text for a terminal: what came from outside may hold control characters."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(value))


@app.command("show")
def show(path: LedgerPath, as_json: settings.Json = False) -> None:
    """Show to what a ledger is bound, how many answers it holds by phase, and whether it is whole.

    Example: unsoftmax ledger show run.db
    """
    from collections import Counter

    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    with _opened(path) as ledger:
        problems = ledger.check()
        facts: dict[str, str] = {name: _plain(value) for name, value in ledger.binding.items()}
        if not problems:
            phases: Counter[str] = Counter()
            for phase, keys, _ in ledger.chunks():
                phases[phase or "unnamed"] += len(keys)
            for phase, answers in phases.items():
                facts[f"answers of phase {phase}"] = str(answers)
        held = len(ledger)
        facts["answers"] = str(held)
        facts["bytes per answer"] = f"{path.stat().st_size / max(1, held):.1f}"
        facts["integrity"] = "; ".join(problems) or "whole"
    if as_json:
        typer.echo(json.dumps(facts))
    else:
        table = Table(title=str(path), show_header=False)
        for name, value in facts.items():
            table.add_row(name, escape(value))
        Console().print(table)
    if problems:
        raise typer.Exit(2)


@app.command("export")
def export(
    path: LedgerPath,
    output: Annotated[Path, typer.Argument(help="File to write: .csv, or .parquet if pyarrow is installed.")],
) -> None:
    """Write every answer with its phase and content address, in the order they were paid.

    Example: unsoftmax ledger export run.db answers.csv
    """
    from unsoftmax.oracles.export import to_csv, to_parquet

    writers = {".csv": to_csv, ".parquet": to_parquet}
    if output.suffix not in writers:
        raise typer.BadParameter(f"the output must end in .csv or .parquet (got {output.name}).")
    with _opened(path) as ledger:
        try:
            written = writers[output.suffix](ledger, output)
        except ImportError as error:
            raise typer.BadParameter('Parquet needs pyarrow: pip install "unsoftmax[parquet]".') from error
    typer.echo(f"wrote {written} answers to {output}")
