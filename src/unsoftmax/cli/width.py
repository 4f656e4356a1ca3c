"""`unsoftmax width URL`: the hidden width of a language model behind a server."""

from __future__ import annotations

import json
from typing import Any

import typer

from unsoftmax.cli import flags, settings, targets
from unsoftmax.cli.exits import plain


@flags.takes(
    seed=flags.Seed, budget=flags.BudgetOption, ledger=flags.Ledger, rate=flags.Rate, **flags.SERVER,
    output=flags.RecoveryFile, report=flags.Page,
)  # fmt: skip
def width(target: flags.Target, options: dict[str, Any], as_json: bool) -> None:
    """Find the hidden width of a language model, and the row space of its output layer. Only for models you may test.

    Example: unsoftmax width http://127.0.0.1:8000/v1 --model NAME --wire vocabulary=50257

    Example: unsoftmax width http://127.0.0.1:8080 --api llama.cpp
    """
    import unsoftmax as us

    settings.writable(options, "output", "report", "ledger", target=target)
    server = target.startswith(("http://", "https://"))
    given = settings.oracle_options(options | {"api": (options["api"] or "openai") if server else None})
    oracle, truth = targets.resolve(target, **given)
    recovery = us.recover(
        oracle, us.learners.OutputLayer(), seed=options["seed"] or 0, budget=options["budget"],
        ledger=options["ledger"], progress=not as_json,
    )  # fmt: skip
    settings.write_files(recovery, options, report=lambda found: settings.page_of(found, truth))
    found = {"width": recovery.model.width, "requests": recovery.usage.billed, "notes": recovery.notes}
    typer.echo(json.dumps(found) if as_json else plain(f"width {recovery.model.width}\n{recovery!r}"))
