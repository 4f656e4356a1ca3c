"""`unsoftmax compare TARGET REFERENCE`: is it the model that was shipped, and if not, what changed?"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from unsoftmax.cli import exits, flags, settings, targets

Reference = Annotated[
    str,
    typer.Argument(
        metavar="REFERENCE", help="What it should be: a .safetensors model, an .onnx file or module.py:factory."
    ),
]

_OF_COMPARISONS = ("smallest", "explain", "ledger", "output", "report", "sarif", "cyclonedx")
"""Options that mean something for a comparison alone."""


@flags.takes(
    alpha=Annotated[float | None, typer.Option(help="Rate of false alarms (default 0.001).")],
    smallest=Annotated[float | None, typer.Option(help="Relative change of the weights that must not stay unseen.")],
    arithmetic=Annotated[
        str | None, typer.Option(help="Number format the target computes in: float64, float32, float16, bfloat16.")
    ],
    explain=Annotated[bool | None, typer.Option("--explain/--no-explain", help="Say what changed (default: yes).")],
    monitor=Annotated[
        Path | None,
        typer.Option(help="Ask eight questions and add them to the evidence in this file; exit 11 on an alarm."),
    ],
    seed=flags.Seed,
    budget=flags.BudgetOption,
    ledger=flags.Ledger,
    workers=flags.Workers,
    output=Annotated[Path | None, typer.Option(help="Save the comparison here (.safetensors).")],
    report=flags.Page,
    sarif=flags.Sarif,
    cyclonedx=flags.CycloneDx,
    **flags.DOMAIN,
    rate=flags.Rate,
    **flags.SERVER,
)
def compare(target: flags.Target, reference: Reference, options: dict[str, Any], as_json: bool) -> None:
    """Say whether TARGET answers as REFERENCE does, to rounding, and if not, what changed and where.

    Exit codes: 0 the same, 11 it differs (or the monitor alarms), 12 undecided or answering at random.

    Examples:

    unsoftmax compare https://host/v2/models/NAME shipped.safetensors --token-env MY_TOKEN

    unsoftmax compare served.onnx shipped.safetensors --report page.html --sarif drift.sarif

    unsoftmax compare served.onnx shipped.safetensors --monitor state.json   (every hour)
    """
    import unsoftmax as us

    settings.writable(
        options, "output", "report", "sarif", "cyclonedx", "ledger", "monitor", target=target, reference=reference
    )
    oracle, _ = targets.resolve(target, **settings.oracle_options(options))
    known = targets.known(reference, **_for_reference(reference, options))
    level = 1e-3 if options["alpha"] is None else options["alpha"]
    if options["monitor"]:
        _only_steps(options)
        watch = us.Monitor(known, level, options["monitor"], options["arithmetic"])
        _say(watch.step(oracle, budget=options["budget"], target_error=_stated(target)), as_json)
        return
    with settings.threads(options["workers"]) as executor:
        result = us.compare(
            oracle, known, arithmetic=options["arithmetic"], alpha=level, smallest=options["smallest"],
            budget=options["budget"], explain=options["explain"] is not False, target_error=_stated(target),
            seed=options["seed"] or 0,
            ledger=options["ledger"], executor=executor, progress=not as_json,
        )  # fmt: skip
    command = settings.command("compare", (target, reference), options)
    facts = {"target": target, "reference": reference, "command": command}
    _deliver(replace(result, provenance=result.provenance | facts), options, as_json)


def _stated(target: str) -> float:
    """The error of its weights that the file of a target states: a recovery is no more exact than it says."""
    from unsoftmax.comparing.references import stated_error

    return stated_error(Path(target)) if target.endswith(".safetensors") else 0.0


def _only_steps(options: dict[str, Any]) -> None:
    """Refuse what a call of a monitor does not give."""
    from unsoftmax.errors import InvalidArgument

    given = [f"--{name}" for name in _OF_COMPARISONS if options[name] is not None]
    if given:
        raise InvalidArgument(
            f"--monitor adds evidence to its file and gives no {', '.join(given)}; leave {_them(given)} out, or "
            "compare without --monitor."
        )


def _them(given: list[str]) -> str:
    return "it" if len(given) == 1 else "them"


def _for_reference(reference: str, options: dict[str, Any]) -> dict[str, Any]:
    """What the reference must be told: the dimension, where it does not know it."""
    return {} if reference.endswith(".safetensors") or options["dim"] is None else {"dim": options["dim"]}


def _deliver(result: Any, options: dict[str, Any], as_json: bool) -> None:
    """Write the files that were asked for, say the sentence, and end with the code of the verdict."""
    from unsoftmax.report import comparison_attestation, comparison_page, comparison_sarif

    made = {"sarif": comparison_sarif, "cyclonedx": comparison_attestation, "report": comparison_page}
    settings.write_files(result, options, **made)
    if as_json:
        typer.echo(result.to_json(), nl=False)
    else:
        typer.echo(exits.plain(f"{result.verdict}: {result.sentence} ({result.usage.billed} queries)"))
        for note in result.notes:
            typer.echo(exits.plain(f"note: {note}"))
        settings.say_files(options)
    if result.differs is not False:
        raise typer.Exit(exits.Exit.UNDECIDED if result.differs is None else exits.Exit.DIFFERS)


def _say(step: Any, as_json: bool) -> None:
    """What a call of a monitor found."""
    if as_json:
        typer.echo(json.dumps(asdict(step)))
    else:
        words = "ALARM: the target is not the reference" if step.alarm else "no alarm"
        typer.echo(f"{words}; evidence {step.e_value:.3g} after {step.calls} calls ({step.usage.billed} queries)")
    if step.alarm:
        raise typer.Exit(exits.Exit.DIFFERS)
