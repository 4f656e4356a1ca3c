"""Limits that an owner can set: the closed form against counting, and what an audit makes of it."""

from __future__ import annotations

import json
import math

import jsonschema
import pytest

import unsoftmax as us
from unsoftmax.auditing import Terms, ladder
from unsoftmax.auditing.advice import recommendations
from unsoftmax.auditing.run import limits_to_set as limits
from unsoftmax.auditing.run import sentence
from unsoftmax.report import AUDIT_SCHEMA, audit_page
from unsoftmax.results.audit import Cell, load_audit

HEAD = us.models.SingleHead.random(6, norm=2.0, seed=1)


def audited(**terms):
    oracle = us.oracle(HEAD)
    rungs = [rung for rung in ladder(oracle.spec, HEAD) if rung.defence == "none"]
    return us.audit(oracle, HEAD, scenarios=rungs, terms=Terms(price_per_query=0.01, **terms))


@pytest.mark.parametrize("queries", [1, 7, 314, 5000])
@pytest.mark.parametrize("floor", [1.0, 100.0, 10_000.0])
@pytest.mark.parametrize("principal", [0.0, 1.0, 20.0])
def test_the_limit_is_the_largest_that_keeps_a_copy_above_the_price(queries, floor, principal) -> None:
    price = 0.01

    def cost(limit: int) -> float:
        return queries * price + math.ceil(queries / limit) * principal

    found = us.theory.principal_limit(queries, floor, price, principal)
    if math.isinf(found):
        assert cost(10**9) >= floor
        return
    assert found == 0 or cost(int(found)) >= floor
    assert cost(int(found) + 1) < floor


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(us.errors.InvalidArgument, match="keep_above"):
        Terms(keep_above=0)
    with pytest.raises(us.errors.InvalidArgument, match="price_per_principal"):
        Terms(price_per_principal=-1)
    with pytest.raises(us.errors.InvalidArgument, match="queries"):
        us.theory.principal_limit(0, 1.0, 1.0, 1.0)


def test_an_audit_computes_them_for_each_access_level(tmp_path) -> None:
    result = audited(keep_above=300.0, price_per_principal=20.0)
    found = {limit.access: limit for limit in result.limits}
    # Explanations are not offered, and logs are not asked.
    assert set(found) == {"values", "probabilities", "labels only"}
    values, labels = found["values"], found["labels only"]
    assert values.fewest == 42
    assert 0 < values.monthly_any <= values.monthly < labels.monthly
    assert values.query_price == pytest.approx(300 / values.queries)
    words = " ".join(result.recommendations)
    assert f"allow at most {values.monthly:,} queries per principal and month" in words
    page = audit_page(result)
    assert "Limits to set" in page
    assert f"{values.monthly:,} queries per principal and month" in page
    jsonschema.validate(json.loads(result.to_json()), AUDIT_SCHEMA)
    result.save(tmp_path / "audit.json")
    assert load_audit(tmp_path / "audit.json").limits == result.limits


def test_without_a_price_of_principals_a_limit_only_delays() -> None:
    result = audited(keep_above=300.0)
    assert {limit.monthly for limit in result.limits} == {0}
    assert any("--principal-price" in text for text in result.recommendations)
    assert "a query" in audit_page(result)


def test_what_costs_enough_needs_no_limit() -> None:
    result = audited(keep_above=1.0)
    assert all(limit.monthly is None for limit in result.limits)
    assert "none is needed" in audit_page(result)


def test_an_answer_of_log_probabilities_shows_as_many_numbers_as_one_of_logits() -> None:
    rows = ("all logits", "all log-probabilities", "top 5 with a bias", "labels only")
    cells = [Cell(row, "none", "OutputLayer", "recovered", "exact", 900, 1, 1.0, 9.0, None, 0.0, "") for row in rows]
    terms = Terms(price_per_query=0.01, keep_above=10_000, price_per_principal=20)
    found = {limit.access: limit for limit in limits(cells, terms, unknowns=1056, outputs=100)}
    assert [found[row].fewest for row in rows] == [11, 11, 212, 900]
    assert found["all logits"].monthly == 1
    assert "at most 1 query per principal" in sentence(found["all logits"], terms)


def test_a_row_out_of_scope_beside_one_that_leaks_is_no_copy():
    """Linear attention is recovered by its values and out of scope by probabilities: that had been a ValueError."""
    leaking = Cell("values", "none", "KernelHead", "recovered", "exact", 900, 1, 1.0, 9.0, None, 0.0, "")
    outside = Cell("probabilities", "none", "none", "mismatch", "unknown", 60, 1, 1.0, 9.0, None, None, "")
    told = list(recommendations([leaking, outside], "EUR"))
    assert "exact copy" in told[0]
    assert any("probabilities" in line and "no proof" in line for line in told)
