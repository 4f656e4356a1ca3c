"""The matrix at the top of an audit's page: what an attacker sees by what the owner puts in front of it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from unsoftmax.results.access import EXPLANATIONS, QUERY_BUDGET, RECORDED, place_of
from unsoftmax.results.audit import OWN_LIMIT, Audit, Cell, duration, error_of, proof_of

_KINDS = (
    (QUERY_BUDGET, QUERY_BUDGET),
    ("per second", "rate limit"),
    ("sequences of", "short sequences"),
    ("token norm", "short tokens"),
    ("noise", "noise"),
    ("rounding", "fewer digits"),
    ("arithmetic", "fewer digits"),
)
"""Words by which a defence belongs to a kind; one that has several of them belongs to the first."""

_ORDER = ("no defence", "fewer digits", "noise", "short tokens", "short sequences", "rate limit", "query budget")
"""Columns from left to right; others follow in the order of the ladder."""

_PROTECTS = {"exact": 0, "close": 1, "rough": 2, "unknown": 3, "held": 4, "proved": 5}

NO_COPY = {"proved": "closed by proof", "held": "no copy, no proof"}
"""What a cell without a copy is called: closed to every method, or only not passed by the learners of this version."""


def kind_of(defence: str) -> str:
    """Column of a defence: its kind, or its own name where no kind fits."""
    if defence == "none":
        return "no defence"
    return next((kind for word, kind in _KINDS if word in defence), defence)


def shade(audit: Audit, cell: Cell) -> str:
    """Colour of a cell: its copy; without one, "proved" where no method has one, "held" where ours have not."""
    if cell.leak != "none":
        return cell.leak
    return "proved" if proof_of(cell, audit.cells[0].learner) else "held"


def result(audit: Audit, cell: Cell) -> str:
    """What the attacker has in the end, in words that do not say more than is known."""
    if cell.status == OWN_LIMIT and not proof_of(cell, audit.cells[0].learner):
        return "beyond your budget"
    return NO_COPY.get(shade(audit, cell), cell.verdict)


def best_defended(audit: Audit, cells: Sequence[Cell]) -> Cell:
    """The cell that leaves the attacker least: a proof, no copy, the worst copy, then the longest way to it."""
    return max(cells, key=lambda c: (_PROTECTS[shade(audit, c)], c.hours, min(error_of(c), 1e300)))


def matrix(audit: Audit) -> str:
    """Rows are access levels, columns kinds of defences; each cell is the defence of its kind that helped most."""
    found: dict[tuple[str, str], list[Cell]] = {}
    for cell in audit.cells:
        found.setdefault((cell.access, kind_of(cell.defence)), []).append(cell)
    rows = sorted(dict.fromkeys(access for access, _ in found), key=place_of)
    seen = list(dict.fromkeys(kind for _, kind in found))
    columns = [kind for kind in _ORDER if kind in seen] + [kind for kind in seen if kind not in _ORDER]
    heads = "".join(f'<th scope="col">{escape(name)}</th>' for name in columns)
    body = "".join(
        f'<tr><th scope="row">{escape(access)}{_unoffered(access)}</th>'
        + "".join(_cell(audit, name, found.get((access, name), ())) for name in columns)
        + "</tr>"
        for access in rows
    )
    caption = "What an attacker has in the end. Each cell is the defence of its kind that helped most."
    return (
        f'<table class="matrix"><caption>{caption}{_legend(audit)}</caption><thead><tr><td></td>{heads}</tr></thead>'
        f"<tbody>{body}</tbody></table>"
    )


def _legend(audit: Audit) -> str:
    """What the two kinds of cells without a copy mean, as far as the audit has them."""
    seen = {shade(audit, cell) for cell in audit.cells}
    words = {
        "proved": "no method has a copy",
        "held": "the learners of this version found none, which shows their limits, not yours",
    }
    return "".join(
        f' <span class="{name}"><b>{escape(NO_COPY[name])}</b>: {escape(told)}.</span>'
        for name, told in words.items()
        if name in seen
    )


def _unoffered(access: str) -> str:
    return "<span>if it were offered</span>" if access in EXPLANATIONS else ""


def _cell(audit: Audit, column: str, cells: Sequence[Cell]) -> str:
    if not cells:
        return '<td class="empty"></td>'
    cell = best_defended(audit, cells)
    words = []
    if cell.queries and cell.access == RECORDED:
        words = [f"{cell.queries:,} records"]
    elif cell.queries:
        words = [f"{cell.queries:,} queries", duration(cell.hours)]
        words += [f"{cell.price:,.2f} {audit.currency}"] if cell.price else []
    else:
        words = ["the attack cannot begin"] if cell.verdict == "refused" else []
    lines = f"<b>{escape(result(audit, cell))}</b>" + "".join(f"<span>{escape(w)}</span>" for w in words)
    return f'<td class="{shade(audit, cell)}" data-label="{escape(column)}" title="{escape(cell.title)}">{lines}</td>'
