"""`unsoftmax width URL`: the hidden width of a language model behind a server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from unsoftmax.cli import settings, targets
from unsoftmax.cli.exits import one_sentence, plain


def width(
    target: Annotated[str, typer.Argument(metavar="TARGET", help=targets.HELP)],
    api: settings.Api = "openai",
    model: settings.ModelName = None,
    wire: settings.WireOption = None,
    seed: settings.Seed = None,
    budget: settings.BudgetOption = None,
    ledger: settings.Ledger = None,
    rate: settings.Rate = None,
    token_env: settings.TokenEnv = None,
    output: Annotated[Path | None, typer.Option(help="Save the Recovery here (.safetensors).")] = None,
    report: Annotated[Path | None, typer.Option(help="Write an HTML page here.")] = None,
    as_json: settings.Json = False,
    debug: settings.Debug = False,
) -> None:
    """Find the hidden width of a language model, and the row space of its output layer. Only for models you may test.

    Example: unsoftmax width http://127.0.0.1:8000/v1 --model NAME --wire vocabulary=50257

    Example: unsoftmax width http://127.0.0.1:8080 --api llama.cpp
    """
    import unsoftmax as us

    with one_sentence(debug, as_json):
        options = settings.merged(
            None, seed=seed, budget=budget, ledger=ledger, rate=rate, token_env=token_env, api=api, model=model,
            wire=wire, output=output, report=report,
        )  # fmt: skip
        settings.writable(options, "output", "report", "ledger", target=target)
        server = target.startswith(("http://", "https://"))
        given = settings.oracle_options(options if server else {**options, "api": None})
        oracle, truth = targets.resolve(target, **given)
        recovery = us.recover(
            oracle, us.learners.OutputLayer(), seed=seed or 0, budget=budget, ledger=ledger, progress=not as_json
        )
        if output:
            recovery.save(output)
        if report:
            from unsoftmax.report import recovery_page, write

            write(recovery_page(recovery, truth), report)
        found = {"width": recovery.model.width, "requests": recovery.usage.billed, "notes": recovery.notes}
        typer.echo(json.dumps(found) if as_json else plain(f"width {recovery.model.width}\n{recovery!r}"))
