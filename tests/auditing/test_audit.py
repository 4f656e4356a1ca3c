"""The ladder end to end on a small head: verdicts, advice, resumption."""

from __future__ import annotations

import json
import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import unsoftmax as us
from unsoftmax.auditing import Scenario, Terms, audit, ladder
from unsoftmax.auditing.unknowns import unknowns_of
from unsoftmax.oracles.semantic import Rounded
from unsoftmax.results.audit import duration, load_audit

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


def test_a_cell_interrupted_half_way_has_the_whole_bill(tmp_path) -> None:
    rungs = [ladder(oracle().spec)[0]]
    whole = audit(oracle(), HEAD, scenarios=rungs, folder=tmp_path / "whole").to_json()
    asked = 0

    def failing(X):
        nonlocal asked
        asked += len(X)
        if asked > 300:
            raise KeyboardInterrupt
        return HEAD(X)

    target = us.oracle(failing, 6, max_batch=8, name="head")
    with pytest.raises(KeyboardInterrupt):
        audit(target, HEAD, scenarios=rungs, folder=tmp_path / "parts")
    asked = -(10**9)
    again = audit(target, HEAD, scenarios=rungs, folder=tmp_path / "parts")
    assert 0 < asked + 10**9 < again.cells[0].queries + 200  # the diagnosis and what was paid are not asked again
    assert replace(again, provenance={}) == replace(load_audit_text(whole, tmp_path), provenance={})


def load_audit_text(text: str, folder):
    (folder / "whole.json").write_text(text)
    return load_audit(folder / "whole.json")


def test_cells_run_in_parallel_with_the_same_result(result) -> None:
    with ThreadPoolExecutor(3) as executor:
        again = audit(oracle(), HEAD, terms=Terms(price_per_query=0.01, rate=10), executor=executor)
    assert again.to_json() == result.to_json()


def test_cells_can_be_sent_to_other_processes() -> None:
    for scenario in ladder(oracle().spec):
        again = pickle.loads(pickle.dumps(scenario))
        assert again.slug == scenario.slug
        assert again.wrap(oracle()).spec == scenario.wrap(oracle()).spec


def test_the_class_is_found_by_diagnosis() -> None:
    two = us.models.MultiHead.random(5, 2, norm=2.0, seed=3)
    found = audit(us.oracle(two), two, scenarios=ladder(us.oracle(two).spec)[:1])
    assert found.provenance["learner"] == "MultiHead"
    assert found.cells[0].leak == "exact"
    assert len(found.evidence.pictures) == 2


def test_a_target_that_shows_labels_is_audited_through_labels() -> None:
    labels = us.oracle(HEAD, kind="membership", name="labels")
    rungs = ladder(labels.spec)
    assert {s.access for s in rungs} == {"labels only"}
    assert not any("rounding" in s.defence for s in rungs)
    assert audit(labels, HEAD, scenarios=rungs[:1]).cells[0].leak in ("exact", "close")


def test_a_budget_holds_for_each_cell() -> None:
    found = audit(oracle(), HEAD, scenarios=ladder(oracle().spec)[:2], budget=20)
    assert [c.leak for c in found.cells] == ["none", "none"]
    assert [c.verdict for c in found.cells] == ["refused"] * 2
    assert found.cells[0].reason.startswith("not within the budget you set; it needs at least ")
    assert "budget you set" in found.recommendations[0]
    assert not any("No learner" in text or "no learner" in text for text in found.recommendations)


def test_limits_of_the_target_hold_on_every_rung() -> None:
    tight = us.oracle(HEAD, max_norm=0.5, max_length=3, name="tight")
    for scenario in ladder(tight.spec):
        domain = scenario.wrap(tight).spec.domain
        assert domain.max_norm <= 0.5
        assert domain.max_length <= 3


def test_a_defence_that_cannot_be_tried_is_a_finding() -> None:
    linked = us.oracle(lambda X: np.tanh(HEAD(X) / 50), 6, link="tanh", max_norm=4.0, name="linked")
    rungs = [ladder(linked.spec)[0], Scenario("values behind tanh", "rounding", partial(Rounded, decimals=3))]
    assert not any("rounding" in rung.defence for rung in ladder(linked.spec))  # the ladder has what can be tried
    found = audit(linked, scenarios=rungs)
    assert found.cells[1].status == "refused"
    assert "link" in found.cells[1].reason


@pytest.mark.parametrize("options", [{"seed": -1}, {"seed": 1.5}, {"learner": 3}, {"scenarios": []}], ids=str)
def test_wrong_arguments_are_refused(options) -> None:
    with pytest.raises(us.errors.InvalidArgument):
        audit(oracle(), HEAD, **options)
    with pytest.raises(us.errors.InvalidArgument):
        Terms(rate=0)
    with pytest.raises(us.errors.InvalidArgument):
        Terms(price_per_query=-1)


def test_sentences_are_grammatical_for_every_defence(result) -> None:
    text = " ".join(result.recommendations)
    assert "tokens does" not in text
    assert "decimals does" not in text
    for rung in ladder(oracle().spec)[1:]:
        assert rung.defence in text or rung.defence == "none"
    with_labels = next(s for s in result.recommendations if s.startswith("With labels only, the cost rises from"))
    assert f"{result.cells[0].queries:,} to " in with_labels


def test_unknowns_are_those_of_the_class(result) -> None:
    assert result.unknowns == 42


@pytest.mark.parametrize("given", [True, False])
def test_unknowns_of_a_layer_are_degrees_of_freedom_not_stored_numbers(given) -> None:
    layer = us.models.AttentionLayer.random(16, 2, seed=0)
    target = us.oracle(layer)
    found = audit(target, layer if given else None, scenarios=ladder(target.spec)[:1])
    assert found.unknowns == us.theory.attention_layer_unknowns(16, 2, 8)


@pytest.mark.parametrize(
    ("model", "wanted"),
    [
        (us.models.SingleHead.random(6, rank=2, seed=0), us.theory.low_rank_unknowns(6, 2)),
        (us.models.MultiHead.random(6, 2, seed=0), us.theory.multi_head_unknowns(6, 2)),
        (us.models.ReluNetwork.random(4, 7, seed=0), us.theory.relu_network_unknowns(4, 7)),
        (us.models.ReluNetwork.random(4, 7, bias=True, seed=0), us.theory.relu_network_unknowns(4, 7, True)),
        (us.models.Transformer.random(4, 7, seed=0), us.theory.transformer_unknowns(4, 7)),
        (us.models.TokenHead.random(20, 3, seed=0), us.theory.token_head_unknowns(20, 3)),
        (us.models.AttentionLayer.random(256, 4, seed=0), 229_888),
        (us.models.AttentionStack.random(10, 2, 2, 3, seed=0), us.theory.attention_stack_unknowns(10, 2, 2, 3)),
        (us.models.AttentionStack.random(9, 2, 1, 4, norm=None), us.theory.plain_stack_unknowns(9, 2, 1, 4)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_unknowns_agree_with_the_closed_forms(model, wanted) -> None:
    assert unknowns_of(model) == wanted


def test_out_of_scope_looks_different_from_safe(tmp_path) -> None:
    W, v = HEAD.W, HEAD.v
    waves = us.oracle(
        lambda X: (np.sin(np.einsum("bnd,de,be->bn", X, W, X[:, -1])) * (X @ v)).sum(axis=1), 6, name="waves"
    )
    asked = []
    found = audit(waves, progress=lambda cell, done, total: asked.append(cell))
    assert not found.in_scope
    assert {c.leak for c in found.cells} == {"unknown"}
    assert {c.verdict for c in found.cells} == {"out of scope"}
    assert sum(c.queries for c in found.cells[1:]) == 0
    assert "no proof" in found.recommendations[0]
    page = us.report.audit_page(found)
    assert "out of scope" in page
    assert "0 of 1" not in page
    (log,) = json.loads(us.report.sarif(found))["runs"]
    assert [(r["kind"], r["level"]) for r in log["results"]] == [("open", "none")]
    found.save(tmp_path / "audit.json")
    assert load_audit(tmp_path / "audit.json").cells == found.cells


@pytest.mark.parametrize(
    ("hours", "words"),
    [
        (0.0, "under 1 second"),
        (1 / 3600, "1 second"),
        (0.0033, "12 seconds"),
        (1 / 60, "1 minute"),
        (0.334, "20 minutes"),
        (0.999, "1.0 hours"),
        (47, "47.0 hours"),
        (240, "10.0 days"),
    ],
)
def test_times_are_for_people(hours, words) -> None:
    assert duration(hours) == words


def test_labels_are_judged_without_the_scale_they_do_not_show() -> None:
    head = us.models.SingleHead(HEAD.W, 7 * HEAD.v)
    rungs = [s for s in ladder(us.oracle(head).spec) if s.access == "labels only"]
    for truth in (head, None):
        result = audit(us.oracle(head), truth, learner=us.learners.SingleHead(), scenarios=rungs)
        assert [c.leak for c in result.cells] == ["exact", "exact"]
        assert all("scale of v" in c.reason for c in result.cells)


def test_labels_of_a_float32_target_are_tried_at_what_they_can_show() -> None:
    target = us.oracle(lambda X: HEAD(X.astype(np.float32)).astype(np.float32), 6, dtype="float32")
    rungs = [s for s in ladder(target.spec) if s.access == "labels only" and s.defence == "none"]
    (found,) = audit(target, HEAD, learner=us.learners.SingleHead(), scenarios=rungs).cells
    assert found.leak in ("exact", "close")


@pytest.mark.parametrize(
    "model", [us.models.SingleHead.random(8, norm=3.0, seed=1), us.models.MultiHead.random(5, 2, norm=2.0, seed=2)]
)
def test_someone_who_reads_the_logs_gets_a_copy(model) -> None:
    target = us.oracle(model)
    rungs = [s for s in ladder(target.spec) if s.defence == "none" and s.access != "labels only"]
    found = audit(target, model, scenarios=rungs)
    read = found.cells[-1]
    assert (read.access, read.leak, read.status) == ("recorded traffic", "exact", "recovered")
    assert read.queries <= 4.8 * found.unknowns
    assert any(f"{read.queries:,} recorded answers" in sentence for sentence in found.recommendations)


def test_large_targets_and_labels_have_no_reader() -> None:
    large = us.oracle(us.models.SingleHead.random(48, seed=0))
    assert "recorded traffic" not in {s.access for s in ladder(large.spec)}


def test_fresh_noise_before_short_tokens_is_averaged_away() -> None:
    head = us.models.SingleHead.random(4, norm=2.0, seed=0)
    oracle = us.oracle(head)
    every = us.auditing.ladder(oracle.spec)
    rungs = [s for s in every if s.defence == "none" or (s.stochastic and "norm" in s.defence)]
    found = us.audit(oracle, head, scenarios=rungs[:2])
    noisy = found.cells[1]
    assert (noisy.learner, noisy.leak) == ("Approximate", "close")
    assert noisy.queries > found.cells[0].queries


def test_a_limit_is_below_the_unknowns(result) -> None:
    limit = next(text for text in result.recommendations if text.startswith("Limit to set: "))
    assert int(limit.split()[3].replace(",", "")) == result.unknowns - 1


@pytest.mark.parametrize(
    "model",
    [us.models.SingleHead.random(4, norm=2.0, seed=0), us.models.MultiHead.random(4, 2, norm=2.0, seed=0)],
    ids=["single", "multi"],
)
def test_explanations_are_rows_that_count_for_no_price(model) -> None:
    names = ["input gradients", "attention maps"]
    oracle = us.oracle(model)
    rungs = us.auditing.ladder(oracle.spec, model)
    shown = [s for s in rungs if s.access in ("input gradients", "attention maps")]
    assert [s.access for s in shown] == names
    found = us.audit(oracle, model, scenarios=[rungs[0], *shown], terms=us.auditing.Terms(price_per_query=1.0))
    assert all(cell.leak == "exact" and not cell.offered for cell in found.cells[1:])
    assert found.cheapest == found.cells[0].price
    assert sum(text.startswith("If answers came with") for text in found.recommendations) == len(names)
    assert not [s for s in us.auditing.ladder(oracle.spec) if s.access in names]
