"""`unsoftmax demo`: recover a random head and show what it took."""

from __future__ import annotations

from typing import Annotated

import typer


def demo(
    dim: Annotated[int, typer.Option(help="Token dimension d of the head.")] = 64,
    seed: Annotated[int, typer.Option(help="Seed of the target and of the learner.")] = 0,
) -> None:
    """Recover a random single head from its answers alone and compare it with the truth.

    Example: unsoftmax demo --dim 128
    """
    from rich.console import Console
    from rich.table import Table

    import unsoftmax as us

    console = Console()
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
    for claim in recovery.certificate.claims:
        console.print(f"  {claim.name}: {claim.observed:.1e} (allowed {claim.bound:.1e}), {claim.statement}")
