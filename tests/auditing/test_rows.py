"""Rows of the ladder: probabilities, prompt embeds, and noise that every class is asked through again and again."""

from __future__ import annotations

import json

import numpy as np
import pytest

import unsoftmax as us
from unsoftmax.auditing import ladder
from unsoftmax.auditing.averaging import Averaged
from unsoftmax.oracles.semantic import Probabilities, Stochastic
from unsoftmax.probes.base import Probes
from unsoftmax.report import sarif
from unsoftmax.results.access import LEVELS, level_of, place_of

HEAD = us.models.SingleHead.random(6, norm=2.0, seed=1)
TWO = us.models.MultiHead.random(6, 2, norm=2.0, seed=0)


def cells(model, access, truth=None, **which):
    oracle = us.oracle(model)
    rungs = ladder(oracle.spec, truth)
    chosen = [rungs[0], *(r for r in rungs[1:] if r.access == access and all(getattr(r, k) for k in which))]
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
    noise = cells(TWO, "values", stochastic=True)[1]
    assert noise.defence == "random noise of deviation 0.001"
    assert noise.leak in ("exact", "close")
    assert "deviation measured" in noise.reason


def test_averages_are_declared_and_paid_for() -> None:
    target = Averaged(Stochastic(us.oracle(HEAD), deviation=0.1), 64, 0.1)
    X = np.random.default_rng(0).standard_normal((50, 3, 6))
    assert np.abs(target(Probes(X)) - HEAD(X)).max() <= target.spec.tolerance == pytest.approx(5 * 0.1 / 8)


def test_vectors_sent_to_a_language_model_have_their_name() -> None:
    spec = us.oracle(lambda X: X[:, -1], 8, outputs=8).spec
    assert ladder(spec, embeds=True)[0].access == "prompt embeds"
    wire = us.adapters.openai("http://127.0.0.1:9/v1", "model", vocabulary=8, embeds=True, dim=8)
    from unsoftmax.oracles.base import of_source

    assert of_source(wire, "embeds", False) is True
    ids = us.adapters.openai("http://127.0.0.1:9/v1", "model", vocabulary=8)
    assert not of_source(ids, "embeds", False)


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
