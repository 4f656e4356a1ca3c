"""The first lines of an audit's page: what leaks, what it costs, what closes it."""

from __future__ import annotations

from html import escape

from unsoftmax.report.matrix import kind_of
from unsoftmax.results.access import RECORDED
from unsoftmax.results.audit import OWN_LIMIT, Audit, Cell, duration, proof_of, rounded_up


def answer(audit: Audit) -> str:
    """Three cards, or four where a limit was computed; each a title, the answer, and what is behind it."""
    cards = [("What leaks", *_leaks(audit)), ("What it costs", *_costs(audit)), ("What closes it", *_closes(audit))]
    cards += _limit(audit)
    shown = "".join(
        f"<div><dt>{escape(title)}</dt><dd>{escape(words)}</dd><dd class='soft'>{escape(behind)}</dd></div>"
        for title, words, behind in cards
    )
    return f'<dl class="figures answer">{shown}</dl>'


def _offered(audit: Audit) -> list[Cell]:
    return [c for c in audit.cells if c.offered]


def _usable(audit: Audit) -> list[Cell]:
    return [c for c in _offered(audit) if c.leak in ("exact", "close")]


def _leaks(audit: Audit) -> tuple[str, str]:
    if not audit.in_scope:
        return "not known", "out of scope: no learner of this version fits the target, which is not the same as safe"
    usable, offered = _usable(audit), _offered(audit)
    tried = f"{len(usable)} of {len(offered)} ways in give an exact or close copy"
    if not usable:
        rough = any(c.leak == "rough" for c in offered)
        return "a rough copy" if rough else "no copy was found", f"{tried}; no proof that nothing leaks"
    kind = "an exact copy" if any(c.leak == "exact" for c in usable) else "a close copy"
    parts = f"of {usable[0].part}" if usable[0].part else "of the weights"
    what = "of the output layer's space" if usable[0].learner == "OutputLayer" else parts
    return f"{kind} {what}", f"{tried}; degrees of freedom: {audit.unknowns:,}"


def _costs(audit: Audit) -> tuple[str, str]:
    spent = [c for c in _usable(audit) if c.access != RECORDED]
    if not spent:
        asked = sum(c.queries for c in _offered(audit))
        return "not known", f"{asked:,} queries were spent without a close copy"
    cell = min(spent, key=lambda c: (c.price, c.queries))
    time = duration(cell.queries / audit.rate / 3600)
    words = f"{cell.price:,.2f} {audit.currency}" if cell.price else f"{cell.queries:,} queries"
    return words, f"{cell.queries:,} queries, {time} at {audit.rate:g} per second; the cheapest close copy"


def _closes(audit: Audit) -> tuple[str, str]:
    if not audit.in_scope:
        return "not known", "no defence was tried"
    learner = audit.cells[0].learner
    stopping = [c for c in _offered(audit) if c.leak == "none"]
    proved = list(dict.fromkeys(words for c in stopping if (words := proof_of(c, learner))))
    unproved = [c for c in stopping if proof_of(c, learner) is None and c.status != OWN_LIMIT]
    held = [c for c in unproved if kind_of(c.defence) != "no defence"]
    own = audit.cells[0].access
    also = list(dict.fromkeys(c.defence if c.access == own else f"{c.access}, {c.defence}" for c in held))
    today = f"not passed today, without proof: {'; '.join(also)}" if also else "everything else that was tried leaks"
    if not proved:
        return "nothing is proved to", today
    return "; ".join(proved), today


def _limit(audit: Audit) -> list[tuple[str, str, str]]:
    """The tightest limit that the owner has to set for the price that was named."""
    terms = audit.provenance.get("terms")
    if not audit.limits or not isinstance(terms, dict) or not terms.get("keep_above"):
        return []
    kept = f"keeps a copy above {terms['keep_above']:,.0f} {audit.currency}"
    needed = [limit for limit in audit.limits if limit.monthly is not None]
    if not needed:
        return [("Limit to set", "none is needed", f"the price of queries {kept}")]
    tight = min(needed, key=lambda limit: limit.monthly or 0)
    if not tight.monthly:
        least = max(limit.query_price for limit in needed)
        return [
            ("Limit to set", f"{rounded_up(least)} {audit.currency} a query", f"{kept}; no limit per principal does")
        ]
    each = f"{terms.get('price_per_principal', 0):,.2f} {audit.currency} a principal and month"
    return [
        ("Limit to set", f"{tight.monthly:,} queries per principal and month", f"{kept} at {each} ({tight.access})")
    ]
