"""The matrix: a row for each access level, a column for each kind of defence, and the defence that helped most."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.report.examples import an_audit
from unsoftmax.report import audit_page
from unsoftmax.report.matrix import best_defended, kind_of, matrix


@pytest.mark.parametrize(
    ("defence", "kind"),
    [
        ("none", "no defence"),
        ("float16 arithmetic", "fewer digits"),
        ("rounding to 3 decimals", "fewer digits"),
        ("deterministic noise up to 0.001", "noise"),
        ("token norm at most 1 and rounding to 3 decimals", "short tokens"),
        ("sequences of 1 token", "short sequences"),
        ("one query per second", "rate limit"),
        ("query budget of half the unknowns", "query budget"),
        ("my own filter", "my own filter"),
    ],
)
def test_kinds(defence, kind) -> None:
    assert kind_of(defence) == kind


def test_each_cell_is_the_defence_that_helped_most() -> None:
    cells = an_audit().cells
    assert best_defended(cells) is cells[3]
    assert best_defended(cells[:2]) is cells[1]


def test_the_matrix_comes_before_the_summary_and_shows_price_and_time() -> None:
    page = audit_page(an_audit())
    assert page.index('class="matrix"') < page.index("<h2>Summary</h2>")
    shown = matrix(an_audit())
    assert shown.count("<tr>") == 1 + 2
    for words in ("1,214 queries", "1.21 USD", "11 seconds", "the attack cannot begin"):
        assert words in shown


def test_an_audit_out_of_scope_has_none() -> None:
    audit = an_audit()
    cells = (replace(audit.cells[0], leak="unknown"), *audit.cells[1:])
    assert 'class="matrix"' not in audit_page(replace(audit, cells=cells))
