"""`unsoftmax diagnose TARGET`: what kind of model answers."""

from __future__ import annotations

import json
from typing import Any

import typer

from unsoftmax.cli import flags, settings, targets
from unsoftmax.cli.exits import plain


@flags.takes(seed=flags.Seed, **flags.DOMAIN, **flags.VIEW, link=flags.LinkOption, rate=flags.Rate, **flags.SERVER)
def diagnose(target: flags.Target, options: dict[str, Any], as_json: bool) -> None:
    """Say what kind of model TARGET is. Only for models you own or may test.

    It takes some hundred queries, and up to two thousand at d = 256; `unsoftmax estimate` says how many before.

    Example: unsoftmax diagnose head.safetensors
    """
    import unsoftmax as us

    oracle, _ = targets.resolve(target, **settings.oracle_options(options))
    found = us.diagnose(oracle, seed=options["seed"] or 0)
    if as_json:
        typer.echo(json.dumps(found.to_dict(), default=str))
        return
    typer.echo(plain(found))
    typer.echo(f"Queries: {found.usage.billed:,}.")
