"""`unsoftmax estimate TARGET`: what a recovery will cost, before anything is asked."""

from __future__ import annotations

import json
from typing import Any

import typer

from unsoftmax.cli import flags, settings, targets


@flags.takes(
    learner=flags.Learner, set=flags.Set, price=flags.Price, verify=flags.Verify,
    **flags.DOMAIN, **flags.VIEW, rate=flags.Rate, **flags.SERVER,
)  # fmt: skip
def estimate(target: flags.Target, options: dict[str, Any], as_json: bool) -> None:
    """Say how many queries `recover TARGET` will take, step by step, at least and at most. Nothing is asked.

    Example: unsoftmax estimate head.safetensors --learner MultiHead --set heads=4
    """
    import unsoftmax as us

    chosen = settings.learner_named(options["learner"], settings.parameters_from(options["set"]))
    if target.startswith(("http://", "https://")):
        # Nothing is asked, not even how far answers lie apart.
        options["tolerance"] = options["tolerance"] or 0.0
    oracle, _ = targets.resolve(target, **settings.oracle_options(options))
    found = us.estimate(oracle, chosen, verify=options["verify"] is not False)
    if as_json:
        typer.echo(json.dumps(found.to_json()))
        return
    typer.echo(str(found))
    if options["price"]:
        cost = [options["price"] * queries for queries in (found.lower, found.upper) if queries is not None]
        typer.echo(f"At {options['price']:g} per query: {' to '.join(f'{c:,.2f}' for c in cost)}.")
