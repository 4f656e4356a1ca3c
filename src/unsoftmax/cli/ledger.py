"""`unsoftmax ledger show|export`: what a ledger holds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unsoftmax.cli import flags, settings
from unsoftmax.cli.exits import one_sentence, plain
from unsoftmax.errors import InvalidArgument

if TYPE_CHECKING:
    from unsoftmax.oracles.ledger import Ledger

app = typer.Typer(help="Look into ledgers: the answers that were paid for.", no_args_is_help=True)

LedgerPath = Annotated[Path, typer.Argument(metavar="LEDGER", help="The ledger, as passed to recover --ledger.")]


@contextmanager
def _opened(path: Path, debug: bool, as_json: bool) -> Iterator[Ledger]:
    from unsoftmax.oracles.ledger import Ledger

    with one_sentence(debug, as_json):
        if not path.is_file():
            raise InvalidArgument(f"{path} does not exist or is a folder; name a ledger written by recover --ledger.")
        with Ledger(path) as ledger:
            yield ledger


@app.command("show")
def show(path: LedgerPath, as_json: flags.Json = False, debug: flags.Debug = False) -> None:
    """Show to what a ledger is bound, how many answers it holds by phase, and whether it is whole.

    Example: unsoftmax ledger show run.db
    """
    from collections import Counter

    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    with _opened(path, debug, as_json) as ledger:
        problems = ledger.check()
        facts: dict[str, str] = {name: plain(value) for name, value in ledger.binding.items()}
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
        table = Table(title=escape(plain(path)), show_header=False)
        for name, value in facts.items():
            table.add_row(name, escape(value))
        Console().print(table)
    if problems:
        raise typer.Exit(2)


@app.command("export")
def export(
    path: LedgerPath,
    output: Annotated[Path, typer.Argument(help="File to write: .csv, or .parquet if pyarrow is installed.")],
    as_json: flags.Json = False,
    debug: flags.Debug = False,
) -> None:
    """Write every answer with its phase and content address, in the order they were paid.

    Example: unsoftmax ledger export run.db answers.csv
    """
    from unsoftmax.oracles.export import to_csv, to_parquet

    writers = {".csv": to_csv, ".parquet": to_parquet}
    with _opened(path, debug, as_json) as ledger:
        if output.suffix not in writers:
            raise InvalidArgument(f"the output must end in .csv or .parquet (got {output.name}).")
        settings.writable({"output": output}, "output")
        try:
            written = writers[output.suffix](ledger, output)
        except ImportError as error:
            raise InvalidArgument('Parquet needs pyarrow: pip install "unsoftmax[parquet]".') from error
        facts = {"answers": written, "output": str(output)}
        typer.echo(json.dumps(facts) if as_json else f"wrote {written} answers to {output}")
