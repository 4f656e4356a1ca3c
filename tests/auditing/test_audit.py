"""The ladder end to end on a small head: verdicts, advice, resumption."""

from __future__ import annotations

import pytest

import unsoftmax as us
from unsoftmax.auditing import Terms, audit, ladder

HEAD = us.models.SingleHead.random(6, norm=2.0, seed=1)


def oracle():
    return us.oracle(HEAD, name="head")


@pytest.fixture(scope="module")
def result():
    return audit(oracle(), HEAD, terms=Terms(price_per_query=0.01, rate=10))


def cell(result, words: str):
    return next(c for c in result.cells if words in c.name)


def test_the_open_rung_leaks_exactly(result) -> None:
    open_ = result.cells[0]
    assert open_.leak == "exact"
    assert open_.parameter_error < 1e-12
    assert open_.price == pytest.approx(0.01 * open_.queries)
    assert open_.hours == pytest.approx(open_.queries / 10 / 3600)


def test_what_cannot_work_is_said(result) -> None:
    assert cell(result, "sequences of 1 token").leak == "none"
    assert "budget" in cell(result, "query budget").reason


def test_labels_cost_more_but_leak(result) -> None:
    labels = cell(result, "labels only, none")
    assert labels.leak in ("exact", "close")
    assert labels.queries > 3 * result.cells[0].queries


def test_a_rate_limit_stretches_time_only(result) -> None:
    slow = cell(result, "one query per second")
    assert slow.queries == result.cells[0].queries
    assert slow.hours == pytest.approx(slow.queries / 3600)


def test_advice_reads_as_sentences(result) -> None:
    assert result.recommendations[0].startswith("Undefended, the target leaks")
    assert all(text.endswith(".") for text in result.recommendations)


def test_every_rung_has_its_own_file_name() -> None:
    rungs = ladder(oracle().spec)
    assert len({s.slug for s in rungs}) == len(rungs)


def test_interrupted_and_resumed_it_gives_the_same_bytes(tmp_path) -> None:
    whole = audit(oracle(), HEAD, folder=tmp_path / "whole").to_json()

    def stop(cell, done, total):
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        audit(oracle(), HEAD, folder=tmp_path / "parts", progress=stop)
    asked = []
    again = audit(oracle(), HEAD, folder=tmp_path / "parts", progress=lambda c, i, n: asked.append(c))
    assert again.to_json() == whole


def test_without_the_truth_answers_are_compared() -> None:
    result = audit(oracle(), scenarios=ladder(oracle().spec)[:2])
    assert result.cells[0].parameter_error is None
    assert result.cells[0].functional_error < 1e-12
    assert result.cells[0].leak == "exact"


def test_a_bare_function_is_refused() -> None:
    with pytest.raises(us.errors.InvalidArgument, match=r"us\.oracle"):
        audit(HEAD)


def test_a_folder_belongs_to_one_target_and_seed(tmp_path) -> None:
    rungs = ladder(oracle().spec)[:1]
    first = audit(oracle(), HEAD, scenarios=rungs, folder=tmp_path, terms=Terms(price_per_query=1.0))
    dearer = audit(oracle(), HEAD, scenarios=rungs, folder=tmp_path, terms=Terms(price_per_query=2.0))
    assert dearer.cells[0].price == pytest.approx(2 * first.cells[0].price)
    other = us.models.SingleHead.random(6, norm=2.0, seed=2)
    with pytest.raises(us.errors.InvalidArgument, match="belongs to another audit"):
        audit(us.oracle(other, name="head"), other, scenarios=rungs, folder=tmp_path)
    with pytest.raises(us.errors.InvalidArgument, match="seed"):
        audit(oracle(), HEAD, scenarios=rungs, folder=tmp_path, seed=1)


def test_kept_and_unkept_audits_have_the_same_bill(tmp_path) -> None:
    kept = audit(oracle(), HEAD, folder=tmp_path)
    assert [c.queries for c in audit(oracle(), HEAD).cells] == [c.queries for c in kept.cells]
