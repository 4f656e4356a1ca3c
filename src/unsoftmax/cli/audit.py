"""`unsoftmax audit TARGET`: the ladder of access and defences, priced."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from unsoftmax.cli import exits, settings, targets


def audit(
    target: Annotated[str, typer.Argument(metavar="TARGET", help=targets.HELP)],
    learner: Annotated[
        str | None, typer.Option(help="The attack on exact answers; auto diagnoses the target and chooses it.")
    ] = None,
    truth: Annotated[
        Path | None, typer.Option(help="The true model (.safetensors), where the target is not one itself.")
    ] = None,
    price: settings.Price = None,
    rate: Annotated[
        float | None, typer.Option(help="Queries per second an attacker can ask (default 100).", min=0)
    ] = None,
    principal_price: Annotated[
        float | None, typer.Option(help="What an account or key costs an attacker a month.", min=0)
    ] = None,
    keep_above: Annotated[
        float | None, typer.Option(help="What a copy should cost at least: limits that do it are computed.", min=0)
    ] = None,
    budget: Annotated[
        int | None, typer.Option(help="Most queries the attacker may spend on each way in.", min=0)
    ] = None,
    max_cost: Annotated[
        float | None, typer.Option(help="Most the attacker may spend on each way in, at --price.", min=0)
    ] = None,
    folder: Annotated[Path | None, typer.Option(help="Keep finished cells here; the same command resumes.")] = None,
    report: Annotated[Path | None, typer.Option(help="Write an HTML page here.")] = None,
    output: Annotated[
        Path | None, typer.Option(help="Write the audit as JSON here; `unsoftmax report` makes the page of it.")
    ] = None,
    sarif: Annotated[Path | None, typer.Option(help="Write SARIF for code-scanning pages here.")] = None,
    cyclonedx: Annotated[Path | None, typer.Option(help="Write a CycloneDX 1.6 attestation here.")] = None,
    fail_if_cost_below: Annotated[
        float | None,
        typer.Option(
            help="Exit with code 10 if a close copy costs less than this; its cost includes verification.", min=0
        ),
    ] = None,
    seed: settings.Seed = None,
    workers: Annotated[int | None, typer.Option(help="Cells to run at the same time (default 1).", min=1)] = None,
    dim: settings.Dim = None,
    kind: settings.KindOption = None,
    tolerance: settings.Tolerance = None,
    max_norm: settings.MaxNorm = None,
    max_length: settings.MaxLength = None,
    max_batch: settings.MaxBatch = None,
    part: settings.Part = None,
    position: settings.Position = None,
    link: settings.LinkOption = None,
    send_rate: Annotated[
        float | None, typer.Option(help="Queries per second sent to a server at most (default 1000).", min=0)
    ] = None,
    token_env: settings.TokenEnv = None,
    api: settings.Api = None,
    model: settings.ModelName = None,
    wire: settings.WireOption = None,
    config: settings.Config = None,
    as_json: settings.Json = False,
    debug: settings.Debug = False,
) -> None:
    """Say what TARGET leaks, at what price, and what each defence buys. Only for models you own or may test.

    Examples:

    unsoftmax audit head.safetensors --price 0.001 --report page.html

    unsoftmax audit head.safetensors --price 0.01 --fail-if-cost-below 100   (for CI)

    unsoftmax audit head.safetensors --price 0.01 --keep-above 10000 --principal-price 20   (limits to set)
    """
    from unsoftmax import auditing, models
    from unsoftmax.errors import InvalidArgument

    with exits.one_sentence(debug, as_json):
        options = settings.merged(
            config, learner=learner, truth=truth, price=price, rate=rate,
            principal_price=principal_price, keep_above=keep_above, budget=budget, max_cost=max_cost,
            folder=folder, report=report, output=output, sarif=sarif, cyclonedx=cyclonedx,
            fail_if_cost_below=fail_if_cost_below, seed=seed,
            workers=workers, dim=dim, kind=kind, tolerance=tolerance, max_norm=max_norm, max_length=max_length,
            max_batch=max_batch, part=part, position=position, link=link, send_rate=send_rate, token_env=token_env,
            api=api, model=model, wire=wire,
        )  # fmt: skip
        if options["fail_if_cost_below"] is not None and not options["price"]:
            raise InvalidArgument("`--fail-if-cost-below` needs `--price`: without a price every copy costs nothing.")
        if options["rate"] == 0:
            raise InvalidArgument("`--rate` must be positive: queries per second an attacker can ask (got 0).")
        settings.writable(options, "report", "output", "sarif", "cyclonedx", target=target)
        terms = auditing.Terms(
            price_per_query=options["price"] or 0.0, rate=options["rate"] or 100.0,
            price_per_principal=options["principal_price"] or 0.0, keep_above=options["keep_above"],
        )  # fmt: skip
        attack = settings.learner_named(options["learner"])
        oracle, true_model = targets.resolve(target, **settings.oracle_options(options, "send_rate"))
        if options["truth"]:
            true_model = models.load(options["truth"])
        count = options["workers"] or 1
        with ThreadPoolExecutor(count) if count > 1 else nullcontext(None) as executor:
            result = auditing.audit(
                oracle, true_model, learner=attack, terms=terms, budget=settings.budget_of(options),
                seed=options["seed"] or 0, folder=options["folder"], executor=executor,
                progress=None if as_json else show_cell,
            )  # fmt: skip
        command = settings.command("audit", target, options)
        result = replace(result, provenance=result.provenance | {"target": target, "command": command})
        _deliver(result, options, as_json)
        floor = options["fail_if_cost_below"]
        if floor is not None and result.cheapest is not None and result.cheapest < floor:
            typer.echo(f"a close copy costs {result.cheapest:.2f}, below the {floor:.2f} required.", err=True)
            raise typer.Exit(exits.TOO_CHEAP)
        if not result.in_scope:
            raise typer.Exit(exits.NOT_RECOVERED)


def _deliver(result: Any, options: dict[str, Any], as_json: bool) -> None:
    """Write the files that were asked for, and print what follows from the audit."""
    from unsoftmax.report import audit_attestation, audit_page, sarif, write

    if options["output"]:
        result.save(options["output"])
    if options["sarif"]:
        write(sarif(result), options["sarif"])
    if options["cyclonedx"]:
        write(audit_attestation(result), options["cyclonedx"])
    if options["report"]:
        write(audit_page(result), options["report"])
    if as_json:
        typer.echo(result.to_json(), nl=False)
        return
    about = [f"Asked: {result.evidence.asked}."] if result.evidence is not None and result.evidence.asked else []
    typer.echo(exits.plain("\n".join(["", *result.recommendations, *about])))
    for name in ("report", "output", "sarif", "cyclonedx"):
        if options[name]:
            typer.echo(f"{name}: {options[name]}")


def show_cell(cell: Any, done: int, total: int) -> None:
    """One line per finished cell."""
    cost = f", {cell.queries:,} queries" if cell.queries else ""
    words = f"[{done:>{len(str(total))}}/{total}] {cell.title}: {cell.verdict}{cost}"
    typer.echo(exits.plain(words), err=not sys.stdout.isatty())
