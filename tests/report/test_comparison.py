"""The page, the log and the schema of a comparison."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import numpy as np
import pytest

import unsoftmax as us
from tests.report.examples import HOSTILE
from unsoftmax.report import COMPARISON_SCHEMA, comparison_page, comparison_sarif
from unsoftmax.results.recovery import Usage

ROOT = Path(__file__).parents[2]


def example(**given: object) -> us.Comparison:
    delta = np.zeros((2, 80, 80))
    delta[1, 3, 4] = 0.5
    result = us.Comparison(
        verdict="sparse",
        sentence="1 entry of head 1 changed.",
        p_value=1e-30,
        e_value=np.inf,
        detectable=1e-14,
        usage=Usage(asked=60, billed=60, phases={"detect": 52, "locate": 8}),
        heads=(1,),
        delta=delta,
        rank=1,
        evidence={"tails": {"near ties": 1e-40}, "arithmetic": "float64"},
        provenance={"target": "served.onnx", "seed": 0},
    )
    return replace(result, **given)  # type: ignore[arg-type]


def test_json_follows_the_published_schema() -> None:
    jsonschema.validate(json.loads(example().to_json()), COMPARISON_SCHEMA)
    head = us.models.SingleHead.random(8, seed=0)
    jsonschema.validate(json.loads(us.compare(us.oracle(head), head).to_json()), COMPARISON_SCHEMA)
    assert json.loads((ROOT / "docs" / "schema" / "comparison-1.json").read_text()) == COMPARISON_SCHEMA


def test_the_page_shows_the_verdict_the_heads_and_the_change() -> None:
    pytest.importorskip("vl_convert")
    page = comparison_page(example())
    for words in ("sparse", "1 entry of head 1 changed.", "head 1", "change of W, head 1", "Queries by phase"):
        assert words in page
    assert "change of W, head 0" not in page
    dense = example(delta=None, evidence={"scores": {"0": {"relative": 0.1, "low": 0.05, "high": 0.2}}})
    assert "relative change of each head" in comparison_page(dense)


def test_nothing_from_outside_is_left_unescaped() -> None:
    pytest.importorskip("vl_convert")
    page = comparison_page(example(sentence=HOSTILE, provenance={"target": HOSTILE}, notes=(HOSTILE,)))
    assert HOSTILE not in page


def test_sarif_has_a_result_if_it_differs_and_a_note_if_it_is_undecided() -> None:
    for verdict, levels in (("sparse", ["error"]), ("undecided", ["note"]), ("same", [])):
        run = json.loads(comparison_sarif(example(verdict=verdict)))["runs"][0]
        assert [result["level"] for result in run["results"]] == levels
        for result in run["results"]:
            assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
            assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "served.onnx"
