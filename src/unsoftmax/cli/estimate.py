"""`unsoftmax estimate TARGET`: what a recovery will cost, before anything is asked."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from unsoftmax.cli import settings, targets
from unsoftmax.cli.exits import one_sentence


def estimate(
    target: Annotated[str, typer.Argument(metavar="TARGET", help=targets.HELP)],
    learner: Annotated[str | None, typer.Option(help="auto, or a learner such as SingleHead or LowRank.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Learner parameter NAME=VALUE; repeatable.")] = None,
    price: settings.Price = None,
    verify: Annotated[
        bool | None, typer.Option("--verify/--no-verify", help="Check on fresh queries (default: yes).")
    ] = None,
    dim: settings.Dim = None,
    kind: settings.KindOption = None,
    tolerance: settings.Tolerance = None,
    max_norm: settings.MaxNorm = None,
    max_length: settings.MaxLength = None,
    max_batch: settings.MaxBatch = None,
    part: settings.Part = None,
    position: settings.Position = None,
    rate: settings.Rate = None,
    token_env: settings.TokenEnv = None,
    api: settings.Api = None,
    model: settings.ModelName = None,
    wire: settings.WireOption = None,
    config: settings.Config = None,
    as_json: settings.Json = False,
    debug: settings.Debug = False,
) -> None:
    """Say how many queries `recover TARGET` will take, step by step, at least and at most. Nothing is asked.

    Example: unsoftmax estimate head.safetensors --learner MultiHead --set heads=4
    """
    import unsoftmax as us

    with one_sentence(debug, as_json):
        options = settings.merged(
            config, learner=learner, set=set_, price=price, verify=verify, dim=dim, kind=kind, tolerance=tolerance,
            max_norm=max_norm, max_length=max_length, max_batch=max_batch, part=part, position=position, rate=rate,
            token_env=token_env, api=api, model=model, wire=wire,
        )  # fmt: skip
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
