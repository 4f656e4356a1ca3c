"""`unsoftmax fit LOG`: the model behind recorded traffic."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from unsoftmax.cli import flags, settings
from unsoftmax.cli.exits import Exit, one_sentence, plain


def fit(
    log: Annotated[Path, typer.Argument(metavar="LOG", help="Records: .npz, .parquet, .jsonl or .ledger.")],
    model: Annotated[str, typer.Option(help="single-head, low-rank, multi-head or layer.")] = "single head",
    heads: Annotated[int | None, typer.Option(help="Number of heads; found if not given.", min=1)] = None,
    rank: Annotated[int | None, typer.Option(help="Rank of W; found if not given (low rank).", min=1)] = None,
    table: Annotated[Path | None, typer.Option(help="Embeddings of the ids (V, d): a .npy file.")] = None,
    tolerance: Annotated[float | None, typer.Option(help="Standard deviation of the answers' noise.", min=0)] = None,
    dtype: Annotated[str | None, typer.Option(help="Number format the answers were computed in.")] = None,
    holdout: Annotated[float, typer.Option(help="Share of records kept for the verdict.")] = 0.15,
    starts: Annotated[int, typer.Option(help="Most starts tried per shape.", min=1)] = 160,
    seed: flags.Seed = None,
    output: flags.RecoveryFile = None,
    report: Annotated[Path | None, typer.Option(help="Write an HTML page here, with the curve.")] = None,
    as_json: flags.Json = False,
    debug: flags.Debug = False,
) -> None:
    """Find the model behind the records in LOG; nothing is asked. Only for models you own or may test.

    Exit code 3 where the result is a surrogate: records are predicted, no model is recovered.

    Examples:

    unsoftmax fit traffic.npz --output copy.safetensors

    unsoftmax fit traffic.jsonl --table embeddings.npy --model multi-head --tolerance 0.001 --report page.html
    """
    import numpy as np

    import unsoftmax as us
    from unsoftmax.fitting.fit import Class

    model = {name.replace(" ", "-"): name for name in get_args(Class)}.get(model.replace(" ", "-"), model)
    with one_sentence(debug, as_json):
        options: dict[str, Any] = {
            "model": model, "heads": heads, "rank": rank, "table": table, "tolerance": tolerance, "dtype": dtype,
            "holdout": holdout, "starts": starts, "seed": seed, "output": output, "report": report,
        }  # fmt: skip
        settings.writable(options, "output", "report", target=str(log))
        try:
            vectors = None if table is None else np.load(table, allow_pickle=False)
        except ValueError as error:
            raise us.errors.FileFormatError(f"{table} is not a .npy file of numbers ({error}).") from error
        records = us.Log.read(log, table=vectors, tolerance=tolerance, dtype=dtype)
        found = us.fit(
            records, model, heads=heads, rank=rank, holdout=holdout, seed=seed or 0, starts=starts,  # type: ignore[arg-type]
            curve=report is not None, progress=not as_json,
        )  # fmt: skip
        command = settings.command("fit", str(log), options)
        found = replace(found, provenance=found.provenance | {"command": command})
        settings.write_files(found, options, report=settings.page_of)
        if as_json:
            shapes = found.provenance["found"]
            data = {"found": shapes, "records": found.usage.phases, "undetermined": shapes.get("undetermined", 0)}
            typer.echo(json.dumps(settings.facts(found) | data | {"notes": found.notes}))
        else:
            typer.echo(plain(repr(found)))
            settings.say_files(options)
    if found.status is us.Status.SURROGATE:
        raise typer.Exit(Exit.NOT_RECOVERED)
