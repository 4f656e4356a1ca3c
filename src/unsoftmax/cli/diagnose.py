"""`unsoftmax diagnose TARGET`: what kind of model answers."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from unsoftmax.cli import settings, targets
from unsoftmax.cli.exits import one_sentence, plain


def diagnose(
    target: Annotated[str, typer.Argument(metavar="TARGET", help=targets.HELP)],
    seed: settings.Seed = None,
    dim: settings.Dim = None,
    kind: settings.KindOption = None,
    tolerance: settings.Tolerance = None,
    max_norm: settings.MaxNorm = None,
    max_length: settings.MaxLength = None,
    max_batch: settings.MaxBatch = None,
    part: settings.Part = None,
    position: settings.Position = None,
    link: settings.LinkOption = None,
    rate: settings.Rate = None,
    token_env: settings.TokenEnv = None,
    api: settings.Api = None,
    model: settings.ModelName = None,
    wire: settings.WireOption = None,
    config: settings.Config = None,
    as_json: settings.Json = False,
    debug: settings.Debug = False,
) -> None:
    """Say what kind of model TARGET is, from a few hundred queries. Only for models you own or may test.

    Example: unsoftmax diagnose head.safetensors
    """
    import unsoftmax as us

    with one_sentence(debug, as_json):
        options = settings.merged(
            config, seed=seed, dim=dim, kind=kind, tolerance=tolerance, max_norm=max_norm, max_length=max_length,
            max_batch=max_batch, part=part, position=position, link=link, rate=rate, token_env=token_env,
            api=api, model=model, wire=wire,
        )  # fmt: skip
        oracle, _ = targets.resolve(target, **settings.oracle_options(options))
        found = us.diagnose(oracle, seed=options["seed"] or 0)
        if as_json:
            typer.echo(json.dumps(found.to_dict(), default=str))
            return
        typer.echo(plain(found))
        typer.echo(f"Queries: {found.usage.billed:,}.")
