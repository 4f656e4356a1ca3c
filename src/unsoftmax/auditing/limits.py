"""Limits an owner can set: which price per query, or how many queries per principal and month, keep a copy dear."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

from unsoftmax import theory
from unsoftmax.auditing.terms import Terms
from unsoftmax.results.access import EXPLAINED, RECORDED
from unsoftmax.results.audit import CLOSE, Cell, Limit, rounded_up


def limits(cells: Sequence[Cell], terms: Terms, unknowns: int, outputs: int | None) -> Iterator[Limit]:
    """A limit for each access level that is offered and gives a close copy, from its cheapest cell."""
    floor = terms.keep_above
    if floor is None:
        return
    usable = [c for c in cells if c.offered and c.access != RECORDED and c.leak in ("exact", "close")]
    for access in dict.fromkeys(c.access for c in usable):
        cell = min((c for c in usable if c.access == access), key=lambda c: c.queries)
        fewest = min(cell.queries, _fewest(access, unknowns, outputs))
        each = cell.price / cell.queries
        yield Limit(
            access=access,
            queries=cell.queries,
            fewest=fewest,
            price=cell.price,
            query_price=theory.query_price(cell.queries, floor),
            monthly=_monthly(cell.queries, floor, each, terms.price_per_principal),
            monthly_any=_monthly(fewest, floor, each, terms.price_per_principal),
        )


def _fewest(access: str, unknowns: int, outputs: int | None) -> int:
    """Answers that hold as many numbers as there are unknowns; a label holds one bit of what a close copy needs."""
    if access.startswith(EXPLAINED):
        return 1  # an answer holds as many numbers as its sequence has
    if access == "labels only":
        return max(1, math.ceil((unknowns - 1) * math.log2(1 / CLOSE)))
    top = re.match(r"top (\d+) ", access)
    return max(1, math.ceil(unknowns / (int(top[1]) if top else outputs or 1)))


def _monthly(queries: int, floor: float, price: float, principal: float) -> int | None:
    found = theory.principal_limit(queries, floor, price, principal)
    return None if math.isinf(found) else int(found)


def sentence(limit: Limit, terms: Terms) -> str:
    """What to set, in words."""
    floor, unit = f"{terms.keep_above:,.0f} {terms.currency}", terms.currency
    asked = f"{limit.queries:,} queries are measured, and {limit.fewest:,} answers are the fewest that any method needs"
    if limit.monthly is None:
        return f"A copy by {limit.access} costs {floor} or more as it is: {limit.price:,.2f} {unit} of queries."
    price = f"a query would have to cost {rounded_up(limit.query_price)} {unit}"
    if terms.price_per_principal <= 0:
        return (
            f"To keep a copy by {limit.access} above {floor}, {price}; a limit per principal delays, and makes it "
            f"dearer only where a principal costs something (price_per_principal, --principal-price): {asked}."
        )
    each = f"{terms.price_per_principal:,.2f} {unit} a principal and month"
    if limit.monthly == 0:
        return f"No limit keeps a copy by {limit.access} above {floor} at {each}: {asked}; {price}."
    most = f"{limit.monthly:,} {'query' if limit.monthly == 1 else 'queries'}"
    return (
        f"To keep a copy by {limit.access} above {floor} at {each}, allow at most {most} per principal and month, "
        f"{limit.monthly_any or 0:,} against any method: {asked}."
    )
