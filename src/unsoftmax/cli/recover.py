"""`unsoftmax recover TARGET`: the model behind a target, verified and saved."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from unsoftmax.cli import settings, targets
from unsoftmax.cli.exits import one_sentence, plain


def recover(
    target: Annotated[str, typer.Argument(metavar="TARGET", help=targets.HELP)],
    learner: Annotated[str | None, typer.Option(help="auto, or a learner such as SingleHead or LowRank.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Learner parameter NAME=VALUE; repeatable.")] = None,
    seed: settings.Seed = None,
    budget: settings.BudgetOption = None,
    price: settings.Price = None,
    max_cost: settings.MaxCost = None,
    ledger: settings.Ledger = None,
    keep_tokens: Annotated[
        bool, typer.Option("--keep-tokens", help="The ledger keeps the sequences too; `unsoftmax fit` then reads it.")
    ] = False,
    workers: settings.Workers = None,
    output: Annotated[Path | None, typer.Option(help="Save the Recovery here (.safetensors).")] = None,
    report: Annotated[Path | None, typer.Option(help="Write an HTML page here.")] = None,
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
    """Recover the model behind TARGET from its answers alone. Only for models you own or may test.

    Examples:

    unsoftmax recover head.safetensors --output copy.safetensors

    unsoftmax recover layer.onnx --learner AttentionLayer --set preset=lean --report page.html

    unsoftmax recover model.py:make --ledger run.ledger --budget 20000

    unsoftmax recover https://host/v2/models/NAME --token-env MY_TOKEN --rate 50 --ledger run.ledger
    """
    import unsoftmax as us

    with one_sentence(debug, as_json):
        options = settings.merged(
            config, learner=learner, set=set_, seed=seed, budget=budget, price=price, max_cost=max_cost, ledger=ledger,
            workers=workers, output=output, report=report, verify=verify, dim=dim, kind=kind, tolerance=tolerance,
            max_norm=max_norm, max_length=max_length, max_batch=max_batch, rate=rate, token_env=token_env,
            part=part, position=position, link=link,
            api=api, model=model, wire=wire,
        )  # fmt: skip
        settings.writable(options, "output", "report", "ledger", target=target)
        chosen = settings.learner_named(options["learner"], settings.parameters_from(options["set"]))
        oracle, truth = targets.resolve(target, **settings.oracle_options(options))
        count = options["workers"] or 1
        with ThreadPoolExecutor(count) if count > 1 else nullcontext(None) as executor:
            recovery = us.recover(
                oracle, chosen, seed=options["seed"] or 0, budget=settings.budget_of(options), ledger=options["ledger"],
                executor=executor, verify=options["verify"] is not False, progress=not as_json, keep_tokens=keep_tokens,
            )  # fmt: skip
        command = settings.command("recover", target, options)
        recovery = replace(recovery, provenance=recovery.provenance | {"command": command})
        if options["output"]:
            recovery.save(options["output"])
        if options["report"]:
            from unsoftmax.report import recovery_page, write

            write(recovery_page(recovery, truth), options["report"])
        if as_json:
            data = {
                "status": recovery.status.value,
                "model": type(recovery.model).__name__,
                "usage": asdict(recovery.usage),
                "claims": [{**asdict(c), "holds": c.holds} for c in recovery.certificate.claims],
                "notes": recovery.notes,
            }
            typer.echo(json.dumps(data))
            return
        typer.echo(plain(repr(recovery)))
        for name in ("output", "report"):
            if options[name]:
                typer.echo(f"{name}: {options[name]}")
