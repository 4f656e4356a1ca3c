"""`unsoftmax demo`: recover a random head, audit a small one, compare a changed one, leave a report on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from unsoftmax.cli import flags, settings
from unsoftmax.cli.exits import one_sentence

PAGE = Path("out/demo.html")
"""Where the page goes if nobody says: beside what the experiments write."""


def demo(
    dim: Annotated[int, typer.Option(help="Token dimension d of the head.", min=1)] = 64,
    seed: Annotated[int, typer.Option(help="Seed of the target and of the learner.", min=0)] = 0,
    report: Annotated[
        Path | None, typer.Option(help=f"Where the page of the small audit goes (default {PAGE}).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the audit of the small head as JSON.")] = False,
    debug: flags.Debug = False,
) -> None:
    """Recover a random single head from its answers alone, audit a small one, and find what changed in a served one.

    Example: unsoftmax demo --dim 128
    """
    from rich.console import Console

    console = Console(quiet=as_json)
    with one_sentence(debug, as_json):
        page = _page(report)
        if not as_json:
            _recover(console, dim, seed)
        result = _audit(console, seed, page)
        if as_json:
            typer.echo(result.to_json(), nl=False)
            return
        _compare(console, seed)
        console.print(_NEXT, markup=False)


_NEXT = """
Next, on a model of yours (a .safetensors or .onnx file, model.py:factory, or the address of a server):
  unsoftmax diagnose TARGET
  unsoftmax audit TARGET --price 0.001 --output audit.json
  unsoftmax compare TARGET shipped.safetensors"""


def _page(report: Path | None) -> Path | None:
    """Where the page goes; None where nobody asked for it and nothing can draw it, which is no reason to end here."""
    from unsoftmax.report.document import can_draw

    if report is None and not can_draw():
        return None
    page = report or PAGE
    page.parent.mkdir(parents=True, exist_ok=True)
    settings.writable({"report": page}, "report")
    return page


def _recover(console: Any, dim: int, seed: int) -> None:
    from rich.table import Table

    import unsoftmax as us

    target = us.models.SingleHead.random(dim, norm=2.0, seed=seed)
    console.print(f"The target is a softmax head with {us.theory.single_head_unknowns(dim)} unknowns (d = {dim}).")
    console.print("The learner sees only its answers to sequences it chooses.")
    recovery = us.recover(us.oracle(target), us.learners.SingleHead(), seed=seed, progress=True)

    phases = recovery.usage.phases
    table = Table(title="Theorem 4.1 as running code", show_header=False)
    table.add_row("queries for v and W", f"{phases['values'] + phases['main']} (d + d² = {dim + dim * dim})")
    table.add_row("pilot and repairs", str(phases.get("pilot", 0) + phases.get("repair", 0)))
    table.add_row("fresh queries to verify", str(phases["verify"]))
    table.add_row("relative error of W and v", f"{us.models.distance(recovery.model, target):.1e}")
    table.add_row("seconds", f"{recovery.usage.seconds:.2f}")
    table.add_row("certificate", "holds" if recovery.certificate.holds else "fails")
    console.print(table)
    for claim in recovery.certificate:
        if claim.observed is not None:
            console.print(f"  {claim.name}: {claim.observed:.1e} (allowed {claim.bound:.1e}), {claim.statement}")


def _audit(console: Any, seed: int, page: Path | None) -> Any:
    from dataclasses import replace

    from rich.table import Table

    import unsoftmax as us
    from unsoftmax import auditing
    from unsoftmax.report import audit_page, write

    small = us.models.SingleHead.random(12, norm=2.0, seed=seed)
    console.print(
        "\nNow the ladder for a small head (d = 12): what each access level and defence means for an attacker."
    )
    terms = auditing.Terms(price_per_query=0.001)
    with console.status("auditing") as status:
        result = auditing.audit(
            us.oracle(small, name="demo head"), small, terms=terms, seed=seed,
            progress=lambda cell, done, total: status.update(f"{done}/{total}"),
        )  # fmt: skip
    command = settings.command("demo", None, {"seed": seed, "report": page})
    result = replace(result, provenance=result.provenance | {"command": command})
    table = Table("access", "defence", "result", "queries", "error", title="Leak ladder")
    for cell in result.cells:
        error = "" if cell.parameter_error is None else f"{cell.parameter_error:.0e}"
        table.add_row(cell.access, cell.defence, cell.verdict, f"{cell.queries:,}" if cell.queries else "", error)
    console.print(table)
    console.print(f"{result.recommendations[0]}")
    if page is None:
        console.print('Its page needs the extra "report": pip install "unsoftmax[report]".', markup=False)
        return result
    write(audit_page(result), page)
    console.print(f"The report is at {page}; open it in a browser.", markup=False)
    return result


def _compare(console: Any, seed: int) -> None:
    import numpy as np

    import unsoftmax as us

    shipped = us.models.MultiHead.random(16, 3, norm=2.0, seed=seed)
    W = np.array(shipped.W)
    W[1, 4, 7] += 1e-3
    console.print("\nLast, is what is served still the model that was shipped? Three heads, d = 16.")
    served = {
        "as it was shipped": us.oracle(shipped),
        "in float32": us.oracle(shipped.astype("float32"), dtype="float32"),
        "one weight of 768 moved by 0.001": us.oracle(us.models.MultiHead(W, shipped.v)),
    }
    for name, oracle in served.items():
        result = us.compare(oracle, shipped, seed=seed)
        words = f"  {name}: {result.verdict}. {result.sentence} ({result.usage.billed} queries)"
        console.print(words, markup=False, soft_wrap=True)
