"""`unsoftmax compare TARGET REFERENCE`: is it the model that was shipped, and if not, what changed?"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from unsoftmax.cli import exits, settings, targets


def compare(
    target: Annotated[str, typer.Argument(metavar="TARGET", help=targets.HELP)],
    reference: Annotated[
        str,
        typer.Argument(
            metavar="REFERENCE", help="What it should be: a .safetensors model, an .onnx file or module.py:factory."
        ),
    ],
    alpha: Annotated[float | None, typer.Option(help="Rate of false alarms (default 0.001).")] = None,
    smallest: Annotated[
        float | None, typer.Option(help="Relative change of the weights that must not stay unseen.")
    ] = None,
    arithmetic: Annotated[
        str | None, typer.Option(help="Number format the target computes in: float64, float32, float16, bfloat16.")
    ] = None,
    explain: Annotated[
        bool | None, typer.Option("--explain/--no-explain", help="Say what changed (default: yes).")
    ] = None,
    monitor: Annotated[
        Path | None,
        typer.Option(help="Ask eight questions and add them to the evidence in this file; exit 11 on an alarm."),
    ] = None,
    seed: settings.Seed = None,
    budget: settings.BudgetOption = None,
    ledger: settings.Ledger = None,
    workers: settings.Workers = None,
    output: Annotated[Path | None, typer.Option(help="Save the comparison here (.safetensors).")] = None,
    report: Annotated[Path | None, typer.Option(help="Write an HTML page here.")] = None,
    sarif: Annotated[Path | None, typer.Option(help="Write SARIF for code-scanning pages here.")] = None,
    cyclonedx: Annotated[Path | None, typer.Option(help="Write a CycloneDX 1.6 attestation here.")] = None,
    dim: settings.Dim = None,
    tolerance: settings.Tolerance = None,
    max_norm: settings.MaxNorm = None,
    max_length: settings.MaxLength = None,
    max_batch: settings.MaxBatch = None,
    rate: settings.Rate = None,
    token_env: settings.TokenEnv = None,
    api: settings.Api = None,
    model: settings.ModelName = None,
    wire: settings.WireOption = None,
    config: settings.Config = None,
    as_json: settings.Json = False,
    debug: settings.Debug = False,
) -> None:
    """Say whether TARGET answers as REFERENCE does, to rounding, and if not, what changed and where.

    Exit codes: 0 the same, 11 it differs (or the monitor alarms), 12 undecided or answering at random.

    Examples:

    unsoftmax compare https://host/v2/models/NAME shipped.safetensors --token-env MY_TOKEN

    unsoftmax compare served.onnx shipped.safetensors --report page.html --sarif drift.sarif

    unsoftmax compare served.onnx shipped.safetensors --monitor state.json   (every hour)
    """
    import unsoftmax as us

    with exits.one_sentence(debug, as_json):
        options = settings.merged(
            config, alpha=alpha, smallest=smallest, arithmetic=arithmetic, explain=explain, monitor=monitor, seed=seed,
            budget=budget, ledger=ledger, workers=workers, output=output, report=report, sarif=sarif,
            cyclonedx=cyclonedx, dim=dim,
            tolerance=tolerance, max_norm=max_norm, max_length=max_length, max_batch=max_batch, rate=rate,
            token_env=token_env,
            api=api, model=model, wire=wire,
        )  # fmt: skip
        settings.writable(options, "output", "report", "sarif", "cyclonedx", "ledger", "monitor")
        oracle, _ = targets.resolve(target, **settings.oracle_options(options))
        asked, held = targets.resolve(reference, **_for_reference(reference, options))
        # A file is handed on as it is: that of a recovery states the error up to which its model is known.
        known: Any = asked if held is None else Path(reference)
        level = 1e-3 if options["alpha"] is None else options["alpha"]
        if options["monitor"]:
            _monitor(us.Monitor(known, level, options["monitor"], options["arithmetic"]), oracle, options, as_json)
            return
        count = options["workers"] or 1
        with ThreadPoolExecutor(count) if count > 1 else nullcontext(None) as executor:
            result = us.compare(
                oracle, known, arithmetic=options["arithmetic"], alpha=level, smallest=options["smallest"],
                budget=options["budget"], explain=options["explain"] is not False, seed=options["seed"] or 0,
                ledger=options["ledger"], executor=executor, progress=not as_json,
            )  # fmt: skip
        command = settings.command("compare", (target, reference), options)
        facts = {"target": target, "reference": reference, "command": command}
        _deliver(replace(result, provenance=result.provenance | facts), options, as_json)


def _for_reference(reference: str, options: dict[str, Any]) -> dict[str, Any]:
    """What the reference must be told: the dimension, where it does not know it."""
    return {} if reference.endswith(".safetensors") or options["dim"] is None else {"dim": options["dim"]}


def _deliver(result: Any, options: dict[str, Any], as_json: bool) -> None:
    """Write the files that were asked for, say the sentence, and end with the code of the verdict."""
    from unsoftmax.report import comparison_attestation, comparison_page, comparison_sarif, write

    if options["output"]:
        result.save(options["output"])
    if options["sarif"]:
        write(comparison_sarif(result), options["sarif"])
    if options["cyclonedx"]:
        write(comparison_attestation(result), options["cyclonedx"])
    if options["report"]:
        write(comparison_page(result), options["report"])
    if as_json:
        typer.echo(result.to_json(), nl=False)
    else:
        typer.echo(exits.plain(f"{result.verdict}: {result.sentence} ({result.usage.billed} queries)"))
        for note in result.notes:
            typer.echo(exits.plain(f"note: {note}"))
        for name in ("report", "output", "sarif", "cyclonedx"):
            if options[name]:
                typer.echo(f"{name}: {options[name]}")
    if result.differs is not False:
        raise typer.Exit(exits.UNDECIDED if result.differs is None else exits.DIFFERS)


def _monitor(watch: Any, oracle: Any, options: dict[str, Any], as_json: bool) -> None:
    step = watch.step(oracle, budget=options["budget"])
    if as_json:
        typer.echo(json.dumps(asdict(step)))
    else:
        words = "ALARM: the target is not the reference" if step.alarm else "no alarm"
        typer.echo(f"{words}; evidence {step.e_value:.3g} after {step.calls} calls ({step.usage.billed} queries)")
    if step.alarm:
        raise typer.Exit(exits.DIFFERS)
