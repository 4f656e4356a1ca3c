"""What the cells mean, in sentences: what each defence costs the attacker, and what stops the leak."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from unsoftmax.auditing.constants import AUDITING
from unsoftmax.results.access import EXPLAINED, RECORDED
from unsoftmax.results.audit import OWN_LIMIT, Cell, duration, error_of, proof_of

NOT_WITHIN = "not within the budget you set"
"""How a cell is told of that the user's own limit ended."""
_COPIES = ("exact", "close", "rough")
"""Defined: what counts as a copy, the best first; "none" and "unknown" are none."""


def recommendations(cells: Sequence[Cell], currency: str, fewest: int = 0) -> Iterator[str]:
    """Plain sentences, the most important first; `fewest` answers hold as many numbers as there are unknowns."""
    if cells and cells[0].leak == "unknown":
        yield from _out_of_scope(cells[0], currency)
        return
    own, learner = (cells[0].access, cells[0].learner) if cells else ("", "")
    read = [c for c in cells if c.access == RECORDED]
    explained = [c for c in cells if not c.offered and c.leak in _COPIES]
    cells = [c for c in cells if c.access != RECORDED and c.offered]
    open_cells = [c for c in cells if c.defence == "none" and c.leak in _COPIES]
    limited = [c for c in cells if c.status == OWN_LIMIT]
    held = next((c for c in limited if c.defence == "none"), None)
    if not open_cells and held is not None:
        yield f"Undefended, the attack was {held.reason} Raise the budget: this says nothing about the defences."
        return
    if not open_cells:
        yield "Without any defence no learner of this version recovered the target; the ladder says why."
        yield _NO_PROOF
        return
    base = min(open_cells, key=lambda c: c.queries)
    yield (
        f"Undefended, the target leaks: {base.queries:,} queries{_money(base, currency)} give {_copy(base)}, "
        f"in {duration(base.hours)} at the assumed rate."
    )
    yield from (_reader(c) for c in read)
    for cell in explained:
        spent = f"{cell.queries:,} queries{_money(cell, currency)}"
        yield f"If answers came with {cell.access}, {spent} would give {_copy(cell)}."
    yield from _limits(base, fewest)
    leaking = [c for c in cells if c is not base and c.leak in _COPIES]
    useless = [c for c in leaking if not _slower(c, base) and not _dearer(c, base) and not _blurred(c, base)]
    if useless:
        which = "This defence buys nothing" if len(useless) == 1 else "These defences buy nothing"
        yield f"{which}, the copy stays {base.leak} for about as many queries: {_subjects(useless, own)}."
    yield from (_effect(c, base, currency, own) for c in leaking if c not in useless)
    proved = [c for c in cells if proof_of(c, learner)]
    limited = [c for c in limited if c not in proved]
    stopping = [c for c in cells if c.leak in ("none", "unknown") and c not in limited and c not in proved]
    if proved:
        yield f"No method gets a copy behind, by proof: {_subjects(proved, own)}."
    if limited:
        yield f"Behind these the attack was {NOT_WITHIN}, which says nothing about them: {_subjects(limited, own)}."
    if stopping:
        names = _subjects(stopping, own)
        yield f"No learner of this version got a usable copy behind: {names}. {_NO_PROOF}"
    elif not limited and not proved:
        yield (
            "No defence of the ladder stopped the leak; combine a query budget with coarse labels, "
            "or do not expose the layer."
        )


_MONTHS = 12
"""Defined: months of a year, over which a monthly limit is spread in the sentence about limits."""


def _limits(base: Cell, fewest: int) -> Iterator[str]:
    """What an owner can set: fewer answers than degrees of freedom leave weights undetermined, by any method."""
    held = min(fewest, base.queries) - 1
    if held < 1 or base.access.startswith(EXPLAINED):
        return
    monthly = held // _MONTHS
    spread = f"; {monthly:,} a month keep that up for a year" if monthly else ""
    yield f"Limit to set: {held:,} queries per principal in all show fewer numbers than there are unknowns{spread}."


def _reader(cell: Cell) -> str:
    """What the logs alone give away."""
    if not cell.queries:
        return f"What recorded answers to ordinary traffic give away is not known: {cell.reason}"
    if cell.leak == "none":
        return "From recorded answers to ordinary traffic no copy was found. " + _NO_PROOF
    return (
        f"Someone who only reads the logs gets {_copy(cell)} from {cell.queries:,} recorded answers to ordinary "
        "traffic, without one query of their own: keep logs as carefully as weights."
    )


_NO_PROOF = "That is no proof that nothing can."


def _out_of_scope(cell: Cell, currency: str) -> Iterator[str]:
    """What an audit without a learner for its target may say: nothing about its safety."""
    what = "no learner of this version fits the target" if cell.learner == "none" else f"{cell.learner} does not fit it"
    yield (
        f"Out of scope: undefended, {what}. Whether it leaks is not known: this audit is no proof that it is safe, and "
        "no defence was tried."
    )
    price = f" ({cell.price:,.2f} {currency})" if cell.price else ""
    spent = f"{cell.queries:,} queries{price}" if cell.queries else "no query"
    yield f"Tried: the diagnosis, and every learner that it did not rule out, undefended, for {spent}."
    yield f"Why: {cell.reason}"
    yield (
        "Unknown: whether another method copies the target, what recorded traffic gives away, and what a defence would "
        "buy. If a part of it is an attention layer, audit that part (--part), or give the output before pooling."
    )


def _dearer(cell: Cell, base: Cell) -> bool:
    return cell.queries > AUDITING.dearer * base.queries


def _slower(cell: Cell, base: Cell) -> bool:
    return cell.hours > AUDITING.slower * base.hours and not _dearer(cell, base)


def _blurred(cell: Cell, base: Cell) -> bool:
    return _COPIES.index(cell.leak) > _COPIES.index(base.leak)


def _subject(cell: Cell, own: str) -> str:
    """The defence, and the access where it is not the target's own: showing less is a defence too."""
    if cell.access != own:
        return cell.access if cell.defence == "none" else f"{cell.access} and {cell.defence}"
    return "no defence" if cell.defence == "none" else cell.defence


def _subjects(cells: Sequence[Cell], own: str) -> str:
    return "; ".join(_subject(c, own) for c in cells)


def _effect(cell: Cell, base: Cell, currency: str, own: str) -> str:
    """What a defence changes: time, cost, quality of the copy."""
    changes = []
    if _slower(cell, base):
        changes.append(f"the attack takes {duration(cell.hours)} instead of {duration(base.hours)}")
    elif _dearer(cell, base):
        money = "" if base.price == 0 else f" (from {base.price:,.2f} to {cell.price:,.2f} {currency})"
        changes.append(f"the cost rises from {base.queries:,} to {cell.queries:,} queries{money}")
    else:
        changes.append("the cost does not rise")
    joint = " but " if changes == ["the cost does not rise"] and _blurred(cell, base) else " and "
    if _blurred(cell, base):
        changes.append(f"the copy is {cell.leak} instead of {base.leak} (relative error {error_of(cell):.0e})")
    else:
        changes.append(f"the copy is still {cell.leak}")
    return f"With {_subject(cell, own)}, {joint.join(changes)}; the leak is not stopped."


def _copy(cell: Cell) -> str:
    if cell.learner == "OutputLayer":
        return f"the width and the row space of the output layer (relative error {error_of(cell):.0e})"
    article = "an" if cell.leak == "exact" else "a"
    return f"{article} {cell.copied} (relative error {error_of(cell):.0e})"


def _money(cell: Cell, currency: str) -> str:
    return "" if cell.price == 0 else f" for {cell.price:,.2f} {currency}"
