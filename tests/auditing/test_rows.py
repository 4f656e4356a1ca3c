"""Rows of the ladder: probabilities, prompt embeds, and noise that every class is asked through again and again."""

from __future__ import annotations

import json

import numpy as np
import pytest

import unsoftmax as us
from unsoftmax.adapters.remote.wire import Wire, _Named
from unsoftmax.auditing import ladder
from unsoftmax.auditing.attacks import Averaged
from unsoftmax.oracles.base import of_source
from unsoftmax.oracles.semantic import Probabilities, Stochastic
from unsoftmax.probes.base import Probes
from unsoftmax.report import audit_page, sarif
from unsoftmax.results.access import LABELS, LEVELS, level_of, place_of, shown, top

HEAD = us.models.SingleHead.random(6, norm=2.0, seed=1)
TWO = us.models.MultiHead.random(6, 2, norm=2.0, seed=0)


def cells(model, access, truth=None, **which):
    oracle = us.oracle(model)
    rungs = ladder(oracle.spec, truth)
    chosen = [rungs[0], *(r for r in rungs[1:] if r.access == access and which.items() <= vars(r).items())]
    return us.audit(oracle, model, scenarios=chosen).cells


def test_probabilities_leak_and_rounded_ones_do() -> None:
    _, whole, four, two = cells(HEAD, "probabilities")
    assert whole.leak == "exact"
    assert four.leak in ("exact", "close")
    assert two.leak in ("rough", "none", "close")


def test_learners_of_more_than_a_head_ask_short_tokens_behind_a_sigmoid() -> None:
    assert cells(TWO, "probabilities")[1].leak == "exact"


def test_probabilities_are_what_a_service_shows() -> None:
    X = np.random.default_rng(0).standard_normal((4, 3, 6))
    shown = Probabilities(us.oracle(HEAD), decimals=2)
    assert shown.spec.link == "sigmoid"
    assert shown.spec.tolerance == 0.005
    np.testing.assert_allclose(1 / (1 + np.exp(-shown(Probes(X)))), np.round(1 / (1 + np.exp(-HEAD(X))), 2))


def test_random_noise_does_not_save_several_heads() -> None:
    _, noise = cells(TWO, "values", defence="random noise of deviation 0.001")
    assert noise.leak in ("exact", "close")
    assert "noise was measured" in noise.reason


def test_averages_are_declared_and_paid_for() -> None:
    target = Averaged(Stochastic(us.oracle(HEAD), deviation=0.1), 64, 0.1)
    X = np.random.default_rng(0).standard_normal((50, 3, 6))
    assert np.abs(target(Probes(X)) - HEAD(X)).max() <= target.spec.tolerance == pytest.approx(5 * 0.1 / 8)


class Counting:
    """A head that counts the sequences it computes, answers in one buffer and overwrites its tokens."""

    def __init__(self, noise: float = 0.0) -> None:
        self.computed, self.noise, self.rng = 0, noise, np.random.default_rng(1)
        self.buffer = np.empty(4096)

    def __call__(self, tokens):
        self.computed += len(tokens)
        answer = HEAD(tokens.copy())
        tokens[:] = 7.0
        self.buffer[: len(answer)] = answer + self.noise * self.rng.standard_normal(len(answer))
        return self.buffer[: len(answer)]


def test_askings_that_only_the_defence_tells_apart_are_computed_twice() -> None:
    X = np.random.default_rng(0).standard_normal((50, 3, 6))
    steady, plain = Counting(), Stochastic(us.oracle(HEAD), deviation=0.1)
    answered = Averaged(Stochastic(us.oracle(steady, 6), deviation=0.1), 64, 0.1)(Probes(X.copy()))
    assert steady.computed <= 2 * 50 + 8  # and what us.oracle tries
    # The noise of each asking is its own, as if every one had been computed.
    assert np.array_equal(answered, np.mean([plain(Probes(X)) for _ in range(64)], axis=0))


def test_noise_of_the_target_itself_is_averaged_too() -> None:
    X = np.random.default_rng(0).standard_normal((50, 3, 6))
    noisy = Counting(noise=0.1)
    target = Averaged(Stochastic(us.oracle(noisy, 6), deviation=0.1), 64, 0.15)
    assert np.abs(target(Probes(X.copy())) - HEAD(X)).max() <= target.spec.tolerance
    assert noisy.computed >= 64 * 50


def test_vectors_sent_to_a_language_model_have_their_name() -> None:
    spec = us.oracle(lambda X: X[:, -1], 8, outputs=8).spec
    assert ladder(spec, embeds=True)[0].access == "prompt embeds"
    for embeds in (True, False):
        wire = Wire(None, "model", "completions", None, None, {"embeds": embeds})
        assert of_source(us.oracle(_Named(lambda X: X[:, -1], wire), 8, outputs=8), "embeds", False) is embeds


def test_every_row_of_every_ladder_has_a_level_and_a_place() -> None:
    specs = [
        us.oracle(HEAD).spec,
        us.oracle(HEAD, kind="membership").spec,
        us.oracle(lambda X: X[:, -1], 8, outputs=8).spec,
        us.token_oracle(lambda ids: ids[:, 0], 40).spec,
        us.logit_oracle(lambda ids: np.zeros((len(ids), 40)), 40).spec,
    ]
    for spec in specs:
        for rung in ladder(spec, HEAD):
            assert level_of(rung.access) in LEVELS, rung.access
    assert place_of("labels only") < place_of("probabilities") < place_of("values") < place_of("recorded traffic")


def test_sarif_has_a_rule_for_each_level_that_leaks() -> None:
    oracle = us.oracle(HEAD)
    rungs = [r for r in ladder(oracle.spec, HEAD) if r.defence == "none"]
    (run,) = json.loads(sarif(us.audit(oracle, HEAD, scenarios=rungs)))["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules][:2] == ["weights-leak-values", "weights-leak-probabilities"]
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
    for rule in rules:
        assert len(rule["properties"]["tags"]) <= 10  # code-scanning pages keep no more
        assert "What closes it" in rule["help"]["text"]


@pytest.mark.parametrize("kind", ["gradient", "attention"])
def test_explained_answers_are_audited_and_their_values_remain(kind) -> None:
    result = us.audit(us.oracle(HEAD, kind=kind), HEAD)
    assert result.cells[0].access.startswith("answers with ")
    assert result.cells[0].offered
    assert result.cells[0].leak == "exact"
    found = {(cell.access, cell.defence): cell for cell in result.cells}
    assert found["values", "none"].leak == "exact"
    # Few decimals of an explanation are no defence where the value itself gives everything away.
    assert found[result.cells[0].access, "rounding to 2 decimals"].leak in ("exact", "close")
    assert not any("query budget" in cell.defence for cell in result.cells)


def test_probabilities_of_a_target_are_its_own_row() -> None:
    def classifier(X):
        return 1 / (1 + np.exp(-HEAD(X)))

    result = us.audit(us.oracle(classifier, 6, link="sigmoid"), HEAD)
    assert result.cells[0].access == "probabilities"
    assert result.cells[0].leak == "exact"
    assert {cell.defence for cell in result.cells if "rounding" in cell.defence and cell.learner != "none"}
    assert not any("cannot wrap" in cell.reason for cell in result.cells)


def test_outside_every_class_the_page_says_what_was_tried_and_what_is_unknown() -> None:
    result = us.audit(us.oracle(lambda X: np.sin(X.sum((1, 2))) ** 3, 6, name="a sine"))
    assert not result.in_scope
    words = " ".join(result.recommendations)
    for begin in ("Out of scope", "Tried: ", "Why: ", "Unknown: "):
        assert begin in words
    page = audit_page(result)
    assert "not the same as safe" in page
    assert "Leak ladder" not in page


def test_a_copy_of_the_attention_inside_is_judged_by_what_its_recovery_states() -> None:
    target = us.models.Transformer.random(6, 6, seed=0)

    class Behind:
        """A smooth network behind attention: only W comes out."""

        def __call__(self, X):
            mixed = us.models.AttentionBehind(target.W)(X)
            return (mixed @ np.arange(1.0, 7.0)) ** 3

    oracle = us.oracle(Behind(), 6, name="behind")
    result = us.audit(oracle, scenarios=ladder(oracle.spec)[:2], learner=us.learners.AttentionBehind())
    assert result.cells[0].leak in ("exact", "close")
    assert result.cells[0].functional_error is None
    assert "recovery states" in result.cells[0].reason


def test_how_many_tokens_a_level_shows_is_read_where_it_is_named() -> None:
    assert shown(top(20, "with a bias")) == 20
    assert shown(LABELS) is None
    assert shown("top tokens") is None
