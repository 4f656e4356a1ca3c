"""The matrix: a row for each access level, a column for each kind of defence, and the defence that helped most."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests.report.examples import an_audit
from unsoftmax.report import audit_page
from unsoftmax.report.answer import answer
from unsoftmax.report.audit_charts import LEAK_COLOURS, ladder_chart
from unsoftmax.report.cyclonedx import audit_attestation
from unsoftmax.report.document import STYLE
from unsoftmax.report.matrix import best_defended, kind_of, matrix, shade
from unsoftmax.results.audit import OWN_LIMIT, rounded_up


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
    assert best_defended(an_audit(), cells) is cells[3]
    assert best_defended(an_audit(), cells[:2]) is cells[1]


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


def test_what_our_learners_do_not_pass_is_not_shown_as_closed() -> None:
    audit = an_audit()
    unproved = replace(audit.cells[3], defence="float16 arithmetic", queries=66, status="inconclusive")
    proved = replace(unproved, defence="query budget of half the unknowns")
    one = replace(audit.cells[3], defence="sequences of 1 token")
    two = replace(one, defence="sequences of at most 2 tokens")
    audit = replace(audit, cells=(audit.cells[0], unproved, proved, two, one))
    assert [shade(audit, cell) for cell in audit.cells] == ["exact", "held", "proved", "held", "proved"]
    assert best_defended(audit, (two, one)) is one
    shown = matrix(audit)
    for words in ("no copy, no proof", "closed by proof"):
        assert all(words in told for told in (shown, audit_page(audit), audit_attestation(audit)))
    drawn = {v["cell"]: v["copy"] for v in ladder_chart(audit)["data"]["values"]}
    assert (drawn["float16 arithmetic"], drawn[proved.defence]) == ("no copy, no proof", "closed by proof")
    assert all(drawn[v] in LEAK_COLOURS for v in drawn)
    light = STYLE.split("@media")[0]
    assert len({re.search(rf"--{name}: (#[0-9a-f]{{6}})", light).group(1) for name in ("held", "proved")}) == 2


def test_what_the_owner_s_budget_ended_is_neither_closed_nor_held() -> None:
    audit = an_audit()
    ended = replace(audit.cells[3], defence="rounding to 2 decimals", status=OWN_LIMIT)
    audit = replace(audit, cells=(audit.cells[0], ended))
    assert "beyond your budget" in matrix(audit)
    assert "not passed today" not in answer(audit)


def test_a_price_to_ask_is_never_below_what_keeps_a_copy_dear() -> None:
    for queries in (286, 364, 12126, 10**9, 2000):
        asked = float(rounded_up(10_000 / queries).replace(",", ""))
        assert 1 - 1e-12 <= queries * asked / 10_000 <= 1.02
    assert rounded_up(5.0) == "5.00"
