"""What findings are filed under is the same in JSON, SARIF and on the page."""

from __future__ import annotations

import json

import pytest

import unsoftmax as us
from tests.report.examples import an_audit
from unsoftmax.report import audit_page, comparison_page, comparison_sarif, sarif
from unsoftmax.results.references import DRIFT, EXTRACTION

HEAD = us.models.SingleHead.random(3, norm=1.0, seed=0)


@pytest.fixture(scope="module")
def compared() -> us.Comparison:
    return us.compare(us.oracle(HEAD), HEAD)


def test_results_carry_their_references(compared) -> None:
    rung = us.auditing.ladder(us.oracle(HEAD).spec)[:1]
    audited = us.audit(us.oracle(HEAD), HEAD, scenarios=rung)
    assert [r["id"] for r in audited.provenance["references"]] == [r.id for r in EXTRACTION]
    assert [r["id"] for r in json.loads(compared.to_json())["provenance"]["references"]] == [r.id for r in DRIFT]


def test_rules_and_pages_name_them(compared) -> None:
    for log, references in ((sarif(an_audit()), EXTRACTION), (comparison_sarif(compared), DRIFT)):
        rule = json.loads(log)["runs"][0]["tool"]["driver"]["rules"][0]
        for reference in references:
            assert any(tag.endswith(f"/{reference.id}") for tag in rule["properties"]["tags"])
            assert reference.id in rule["help"]["text"]
            assert reference.url in rule["help"]["markdown"]
    for page, references in ((audit_page(an_audit()), EXTRACTION), (comparison_page(compared), DRIFT)):
        assert all(f"{r.id}: {r.name}" in page for r in references)
