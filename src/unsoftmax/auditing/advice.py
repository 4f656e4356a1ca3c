"""What the cells mean, in sentences: what each defence costs the attacker, and what stops the leak."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from unsoftmax.audit_result import Cell, error_of


def recommendations(cells: Sequence[Cell], currency: str) -> Iterator[str]:
    """Plain sentences, the most important first."""
    open_cells = [c for c in cells if c.defence == "none" and c.leak != "none"]
    if not open_cells:
        yield "Without any defence no learner of this version recovered the target; see the reasons in the ladder."
        return
    base = min(open_cells, key=lambda c: c.queries)
    money = "" if base.price == 0 else f" for {base.price:.2f} {currency}"
    yield (
        f"Undefended, the target leaks to a relative error of {error_of(base):.0e} in {base.queries} queries{money}, "
        f"about {_time(base.hours)} at the assumed rate."
    )
    stopping = [c for c in cells if c.defence != "none" and c.leak == "none"]
    for cell in cells:
        if cell is base or cell.leak == "none":
            continue
        yield f"{_subject(cell)} {_effect(cell, base)}"
    if stopping:
        names = "; ".join(_subject(c).lower() for c in stopping)
        yield f"No learner of this version got anything usable behind: {names}. That is no proof that nothing can."
    else:
        yield (
            "No defence of the ladder stopped the leak; combine a query budget with coarse labels, "
            "or do not expose the layer."
        )


def _subject(cell: Cell) -> str:
    if cell.defence == "none":
        return f"Showing {cell.access}"
    words = cell.defence[0].upper() + cell.defence[1:]
    return words if cell.access != "labels only" else f"{words} with labels only"


def _effect(cell: Cell, base: Cell) -> str:
    if cell.hours > 2 * base.hours and cell.queries <= 1.5 * base.queries:
        return f"stretches the attack from {_time(base.hours)} to {_time(cell.hours)}; it does not stop it."
    dearer = cell.queries > 1.5 * base.queries
    worse = error_of(cell) > 100 * max(error_of(base), 1e-12)
    cost = f"raises the cost from {base.queries} to {cell.queries} queries" if dearer else "does not raise the cost"
    if worse:
        copy = f"leaves a copy with relative error {error_of(cell):.0e} ({cell.leak})"
        return f"{cost} and {copy}; it does not stop the leak."
    return f"{cost} and the copy is as good as without it (relative error {error_of(cell):.0e})."


def _time(hours: float) -> str:
    if hours < 1 / 60:
        return f"{3600 * hours:.0f} seconds"
    if hours < 1:
        return f"{60 * hours:.0f} minutes"
    return f"{hours:.1f} hours" if hours < 48 else f"{hours / 24:.1f} days"
