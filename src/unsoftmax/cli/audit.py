"""`unsoftmax audit TARGET`: the ladder of access and defences, priced."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from unsoftmax.cli import exits, flags, settings, targets


def _number(help: str) -> Any:
    return Annotated[float | None, typer.Option(help=help, min=0)]


@flags.takes(
    learner=Annotated[
        str | None, typer.Option(help="The attack on exact answers; auto diagnoses the target and chooses it.")
    ],
    truth=Annotated[
        Path | None, typer.Option(help="The true model (.safetensors), where the target is not one itself.")
    ],
    price=flags.Price,
    rate=_number("Queries per second an attacker can ask (default 100)."),
    principal_price=_number("What an account or key costs an attacker a month."),
    keep_above=_number("What a copy should cost at least: limits that do it are computed."),
    budget=Annotated[int | None, typer.Option(help="Most queries the attacker may spend on each way in.", min=0)],
    max_cost=_number("Most the attacker may spend on each way in, at --price."),
    folder=Annotated[Path | None, typer.Option(help="Keep finished cells here; the same command resumes.")],
    report=flags.Page,
    output=Annotated[
        Path | None, typer.Option(help="Write the audit as JSON here; `unsoftmax report` makes the page of it.")
    ],
    sarif=flags.Sarif,
    cyclonedx=flags.CycloneDx,
    fail_if_cost_below=_number(
        "Exit with code 10 if a close copy costs less than this; its cost includes verification."
    ),
    seed=flags.Seed,
    workers=Annotated[int | None, typer.Option(help="Cells to run at the same time (default 1).", min=1)],
    **flags.DOMAIN,
    **flags.VIEW,
    link=flags.LinkOption,
    send_rate=_number("Queries per second sent to a server at most (default 1000)."),
    **flags.SERVER,
)
def audit(target: flags.Target, options: dict[str, Any], as_json: bool) -> None:
    """Say what TARGET leaks, at what price, and what each defence buys. Only for models you own or may test.

    Examples:

    unsoftmax audit head.safetensors --price 0.001 --report page.html

    unsoftmax audit head.safetensors --price 0.01 --fail-if-cost-below 100   (for CI)

    unsoftmax audit head.safetensors --price 0.01 --keep-above 10000 --principal-price 20   (limits to set)
    """
    from unsoftmax import auditing, models
    from unsoftmax.errors import InvalidArgument

    if options["fail_if_cost_below"] is not None and not options["price"]:
        raise InvalidArgument("`--fail-if-cost-below` needs `--price`: without a price every copy costs nothing.")
    if options["rate"] == 0:
        raise InvalidArgument("`--rate` must be positive: queries per second an attacker can ask (got 0).")
    settings.writable(options, "report", "output", "sarif", "cyclonedx", target=target, truth=options["truth"])
    terms = auditing.Terms(
        price_per_query=options["price"] or 0.0, rate=options["rate"] or 100.0,
        price_per_principal=options["principal_price"] or 0.0, keep_above=options["keep_above"],
    )  # fmt: skip
    attack = settings.learner_named(options["learner"])
    oracle, true_model = targets.resolve(target, **settings.oracle_options(options, "send_rate"))
    if options["truth"]:
        true_model = models.load(options["truth"])
    with settings.threads(options["workers"]) as executor:
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
        raise typer.Exit(exits.Exit.TOO_CHEAP)
    if not result.in_scope:
        raise typer.Exit(exits.Exit.NOT_RECOVERED)


def _deliver(result: Any, options: dict[str, Any], as_json: bool) -> None:
    """Write the files that were asked for, and print what follows from the audit."""
    from unsoftmax.report import audit_attestation, audit_page, sarif

    settings.write_files(result, options, sarif=sarif, cyclonedx=audit_attestation, report=audit_page)
    if as_json:
        typer.echo(result.to_json(), nl=False)
        return
    about = [f"Asked: {result.evidence.asked}."] if result.evidence is not None and result.evidence.asked else []
    typer.echo(exits.plain("\n".join(["", *result.recommendations, *about])))
    settings.say_files(options)


def show_cell(cell: Any, done: int, total: int) -> None:
    """One line per finished cell."""
    cost = f", {cell.queries:,} queries" if cell.queries else ""
    words = f"[{done:>{len(str(total))}}/{total}] {cell.title}: {cell.verdict}{cost}"
    typer.echo(exits.plain(words), err=not sys.stdout.isatty())
