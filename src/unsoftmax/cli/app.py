"""The typer application: global options, and the list of commands."""

from __future__ import annotations

import logging
from typing import Annotated

import typer

from unsoftmax.cli import (
    audit,
    compare,
    demo,
    diagnose,
    estimate,
    experiments,
    exposure,
    fit,
    ledger,
    recover,
    report,
    serve,
    theory,
    width,
)

app = typer.Typer(
    name="unsoftmax",
    invoke_without_command=True,
    add_completion=False,
)

_START = """What does my model give away, and is it still my model? For models you own or are permitted to test.

  unsoftmax demo                                      see it: recover, audit, compare (under a minute)
  unsoftmax diagnose TARGET                           what kind of model answers
  unsoftmax recover TARGET --output copy.safetensors  its weights from its answers, with the proof
  unsoftmax audit TARGET --price 0.001                what leaks, at what price, what a defence buys
  unsoftmax compare TARGET shipped.safetensors        is it the model that was shipped, and what changed
  unsoftmax fit log.npz                               what recorded traffic gives away
  unsoftmax exposure URL                              which doors of a model server are open

TARGET is a .safetensors or .onnx file, model.py:factory, or the address of a server.
All commands: unsoftmax --help"""
"""What somebody sees who types the name alone."""


def _version(value: bool) -> None:
    if value:
        from unsoftmax import __version__

        typer.echo(f"unsoftmax {__version__}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log what happens to standard error.")] = False,
) -> None:
    """Recover softmax-attention models from black-box queries, and price the leak.

    Use it only on models you own or are permitted to test.

    Begin with `unsoftmax demo`, then `unsoftmax audit head.safetensors --price 0.001 --report page.html`.

    Exit codes: 0 done, 2 wrong usage, 3 not recovered, 4 budget, 5 the target failed, 10 a copy is too cheap
    (`audit --fail-if-cost-below`), 11 the target differs from its reference (`compare`), 12 that is undecided, 13 a
    claim does not hold (`experiments`), 130 interrupted.
    """
    if context.invoked_subcommand is None:
        typer.echo(_START)
        raise typer.Exit
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING, format="%(levelname)s %(name)s: %(message)s"
    )
    if not verbose:
        # Each retry of a remote call would be a line of its own; the error at the end says what mattered.
        logging.getLogger("stamina").setLevel(logging.ERROR)


app.command("demo")(demo.demo)
app.command("diagnose")(diagnose.diagnose)
app.command("estimate")(estimate.estimate)
app.command("recover")(recover.recover)
app.command("fit")(fit.fit)
app.command("compare")(compare.compare)
app.command("audit")(audit.audit)
app.command("exposure")(exposure.exposure)
app.command("width")(width.width)
app.command("report")(report.report)
app.command("experiments")(experiments.experiments)
app.command("serve")(serve.serve)
app.add_typer(ledger.app, name="ledger")
app.command("theory")(theory.theory)
