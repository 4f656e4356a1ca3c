"""`unsoftmax audit TARGET`: the ladder of access and defences, priced."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer

from unsoftmax.cli import exits, settings, targets


def audit(
    target: Annotated[str, typer.Argument(help=targets.HELP)],
    learner: Annotated[str | None, typer.Option(help="The attack on exact answers; auto chooses it.")] = None,
    price: settings.Price = None,
    rate: Annotated[float | None, typer.Option(help="Queries per second an attacker can ask (default 100).")] = None,
    folder: Annotated[Path | None, typer.Option(help="Keep finished cells here; the same command resumes.")] = None,
    report: Annotated[Path | None, typer.Option(help="Write an HTML page here.")] = None,
    output: Annotated[Path | None, typer.Option(help="Write the audit as JSON here.")] = None,
    sarif: Annotated[Path | None, typer.Option(help="Write SARIF for code-scanning pages here.")] = None,
    fail_if_cost_below: Annotated[
        float | None, typer.Option(help="Exit with code 10 if a close copy costs less than this.")
    ] = None,
    seed: settings.Seed = None,
    workers: settings.Workers = None,
    dim: settings.Dim = None,
    max_norm: settings.MaxNorm = None,
    max_length: settings.MaxLength = None,
    max_batch: settings.MaxBatch = None,
    config: settings.Config = None,
    as_json: settings.Json = False,
    debug: settings.Debug = False,
) -> None:
    """Say what TARGET leaks, at what price, and what each defence buys. Only for models you own or may test.

    Examples:

    unsoftmax audit head.safetensors --price 0.001 --report page.html

    unsoftmax audit head.safetensors --price 0.01 --fail-if-cost-below 100   (for CI)
    """
    from unsoftmax import auditing
    from unsoftmax.errors import InvalidArgument
    from unsoftmax.report import audit_page, write
    from unsoftmax.report import sarif as to_sarif

    with exits.one_sentence(debug, as_json):
        options = settings.merged(
            config, learner=learner, price=price, rate=rate, folder=folder, report=report, output=output, sarif=sarif,
            fail_if_cost_below=fail_if_cost_below, seed=seed, workers=workers, dim=dim, max_norm=max_norm,
            max_length=max_length, max_batch=max_batch,
        )  # fmt: skip
        if options["fail_if_cost_below"] is not None and not options["price"]:
            raise InvalidArgument("`--fail-if-cost-below` needs `--price`: without a price every copy costs nothing.")
        oracle, truth = targets.resolve(target, **settings.oracle_options(options))
        terms = auditing.Terms(price_per_query=options["price"] or 0.0, rate=options["rate"] or 100.0)
        count = options["workers"] or 1
        pool = ThreadPoolExecutor(count) if count > 1 else nullcontext(None)
        kept = nullcontext(options["folder"]) if options["folder"] else TemporaryDirectory(prefix="unsoftmax-audit-")
        with pool as executor, kept as folder_used:
            result = auditing.audit(
                oracle, truth, learner=settings.learner_named(options["learner"]), terms=terms,
                seed=options["seed"] or 0, folder=folder_used, executor=executor,
                progress=None if as_json else show_cell,
            )  # fmt: skip
            undefended = _undefended(result, Path(folder_used))
        if options["output"]:
            result.save(options["output"])
        if options["sarif"]:
            Path(options["sarif"]).write_text(to_sarif(result))
        if options["report"]:
            write(audit_page(result, undefended, truth), options["report"])
        typer.echo(result.to_json() if as_json else "\n".join(["", *result.recommendations]))
        if options["report"] and not as_json:
            typer.echo(f"report: {options['report']}")
        floor = options["fail_if_cost_below"]
        if floor is not None and result.cheapest is not None and result.cheapest < floor:
            typer.echo(f"a close copy costs {result.cheapest:.2f}, below the {floor:.2f} required.", err=True)
            raise typer.Exit(exits.TOO_CHEAP)


def show_cell(cell: Any, done: int, total: int) -> None:
    """One line per finished cell."""
    typer.echo(f"[{done}/{total}] {cell.name}: {cell.leak} after {cell.queries} queries", err=not sys.stdout.isatty())


def _undefended(result: Any, folder: Path) -> Any:
    """The saved recovery of the first cell."""
    from unsoftmax.auditing import ladder_slug
    from unsoftmax.result import load

    path = folder / f"{ladder_slug(result.cells[0].access, result.cells[0].defence)}.safetensors"
    return load(path) if path.exists() else None
