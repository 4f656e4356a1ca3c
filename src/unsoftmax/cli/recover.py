"""`unsoftmax recover TARGET`: the model behind a target, verified and saved."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Annotated, Any

import typer

from unsoftmax.cli import flags, settings, targets
from unsoftmax.cli.exits import plain


@flags.takes(
    learner=flags.Learner, set=flags.Set, seed=flags.Seed, budget=flags.BudgetOption, price=flags.Price,
    max_cost=flags.MaxCost, ledger=flags.Ledger,
    keep_tokens=Annotated[
        bool | None,
        typer.Option("--keep-tokens", help="The ledger keeps the sequences too; `unsoftmax fit` then reads it."),
    ],
    workers=flags.Workers, output=flags.RecoveryFile, report=flags.Page, verify=flags.Verify,
    **flags.DOMAIN, **flags.VIEW, link=flags.LinkOption, rate=flags.Rate, **flags.SERVER,
)  # fmt: skip
def recover(target: flags.Target, options: dict[str, Any], as_json: bool) -> None:
    """Recover the model behind TARGET from its answers alone. Only for models you own or may test.

    Examples:

    unsoftmax recover head.safetensors --output copy.safetensors

    unsoftmax recover layer.onnx --learner AttentionLayer --set preset=lean --report page.html

    unsoftmax recover model.py:make --ledger run.ledger --budget 20000

    unsoftmax recover https://host/v2/models/NAME --token-env MY_TOKEN --rate 50 --ledger run.ledger
    """
    import unsoftmax as us

    settings.writable(options, "output", "report", "ledger", target=target)
    chosen = settings.learner_named(options["learner"], settings.parameters_from(options["set"]))
    oracle, truth = targets.resolve(target, **settings.oracle_options(options))
    with settings.threads(options["workers"]) as executor:
        recovery = us.recover(
            oracle, chosen, seed=options["seed"] or 0, budget=settings.budget_of(options), ledger=options["ledger"],
            executor=executor, verify=options["verify"] is not False, progress=not as_json,
            keep_tokens=bool(options["keep_tokens"]),
        )  # fmt: skip
    command = settings.command("recover", target, options)
    recovery = replace(recovery, provenance=recovery.provenance | {"command": command})
    settings.write_files(recovery, options, report=lambda found: settings.page_of(found, truth))
    if as_json:
        data = {"usage": asdict(recovery.usage), "notes": recovery.notes}
        typer.echo(json.dumps(settings.facts(recovery) | data))
        return
    typer.echo(plain(repr(recovery)))
    settings.say_files(options)
