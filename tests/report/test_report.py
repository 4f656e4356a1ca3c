"""Pages, JSON and SARIF from saved results."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

import unsoftmax as us
from tests.report.examples import HOSTILE, an_audit, recovered
from unsoftmax.report import AUDIT_SCHEMA, audit_page, recovery_page, sarif
from unsoftmax.report.audit_charts import LEAK_COLOURS, ladder_chart
from unsoftmax.report.document import STYLE
from unsoftmax.results.audit import load_audit
from unsoftmax.results.evidence import evidence_of, shrunk

ROOT = Path(__file__).parents[2]


def test_json_follows_the_published_schema_and_reads_back(tmp_path) -> None:
    audit = an_audit()
    jsonschema.validate(json.loads(audit.to_json()), AUDIT_SCHEMA)
    audit.save(tmp_path / "audit.json")
    assert load_audit(tmp_path / "audit.json") == audit


def test_the_frontier_holds_what_nobody_beats() -> None:
    assert [c.queries for c in an_audit().frontier] == [1214]
    assert an_audit().cheapest == 1.21


def test_sarif_has_a_result_per_leak() -> None:
    log = json.loads(sarif(an_audit()))
    assert log["version"] == "2.1.0"
    assert [r["level"] for r in log["runs"][0]["results"]] == ["error", "error", "error"]


def test_sarif_has_what_code_scanning_pages_ask_for() -> None:
    """A driver with described rules; results with a rule, a message, a file below the root, and a fingerprint each."""
    run = json.loads(sarif(an_audit()))["runs"][0]
    driver = run["tool"]["driver"]
    assert driver["name"] == "unsoftmax"
    rules = driver["rules"]
    for rule in rules:
        assert {"id", "name", "shortDescription", "fullDescription", "help", "defaultConfiguration"} <= set(rule)
        assert rule["help"]["text"]
        assert 0 < float(rule["properties"]["security-severity"]) <= 10
    prints = set()
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in ("error", "warning", "note")
        assert result["message"]["text"]
        physical = result["locations"][0]["physicalLocation"]
        uri = physical["artifactLocation"]["uri"]
        assert re.fullmatch(r"[A-Za-z0-9_.~%/-]+", uri)
        assert not uri.startswith("/")
        assert physical["region"]["startLine"] == 1
        prints.add(result["partialFingerprints"]["primaryLocationLineHash"])
    assert len(prints) == len(run["results"])


@pytest.mark.parametrize(
    ("target", "uri"),
    [
        ("models/head.safetensors", "models/head.safetensors"),
        ("../x/my head.onnx", "x/my%20head.onnx"),
        ("/srv/m.py:make", "srv/m.py"),
        ("http://127.0.0.1:8080/v2/models/m", "http/127.0.0.1%3A8080/v2/models/m"),
    ],
)
def test_sarif_names_the_target_as_a_file_below_the_root(target, uri) -> None:
    audit = replace(an_audit(), provenance={"target": target})
    result = json.loads(sarif(audit))["runs"][0]["results"][0]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == uri


def full_audit():
    recovery, truth = recovered()
    return replace(an_audit(), evidence=evidence_of(recovery, truth))


def test_the_page_of_a_saved_audit_is_the_page_of_the_audit(tmp_path) -> None:
    audit = full_audit()
    jsonschema.validate(json.loads(audit.to_json()), AUDIT_SCHEMA)
    audit.save(tmp_path / "audit.json")
    html = audit_page(load_audit(tmp_path / "audit.json"))
    assert html == audit_page(audit)
    recovery, truth = recovered()
    assert html == audit_page(an_audit(), recovery, truth)
    for words in ("true W", "near ties", "Queries by phase"):
        assert words in html


def test_the_published_schema_is_the_one_in_use() -> None:
    assert json.loads((ROOT / "docs" / "schema" / "audit-1.json").read_text()) == AUDIT_SCHEMA
    jsonschema.Draft202012Validator.check_schema(AUDIT_SCHEMA)


@pytest.mark.parametrize("change", [{"cells": 3}, {"evidence": {}}, {"dim": 0}, {"extra": 1}], ids=str)
def test_the_schema_refuses_other_things(change) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**json.loads(an_audit().to_json()), **change}, AUDIT_SCHEMA)


def test_infinite_numbers_do_not_break_the_json(tmp_path) -> None:
    audit = full_audit()
    claim = replace(audit.evidence.claims[0], bound=math.inf)
    cell = replace(audit.cells[0], parameter_error=math.inf)
    audit = replace(audit, cells=(cell,), evidence=replace(audit.evidence, claims=(claim,)))
    jsonschema.validate(json.loads(audit.to_json(), parse_constant=pytest.fail), AUDIT_SCHEMA)
    audit.save(tmp_path / "audit.json")
    assert load_audit(tmp_path / "audit.json").evidence.claims[0].bound == math.inf
    assert audit_page(load_audit(tmp_path / "audit.json"))


def test_a_cell_without_queries_has_no_bar_and_says_so() -> None:
    drawn = ladder_chart(an_audit())
    values = drawn["data"]["values"]
    assert [v["queries"] for v in values] == [1214, 1300, 23000, None]
    assert "refused" in values[3]["refused"]
    assert "1 refused before the first query" in drawn["description"]


def test_the_page_speaks_of_time_and_price_as_people_do() -> None:
    html = audit_page(an_audit())
    assert "0.00 h" not in html
    assert "11 seconds" in html
    assert "1.21 USD" in html
    free = replace(an_audit(), cells=tuple(replace(c, price=0.0) for c in an_audit().cells))
    assert "USD" not in audit_page(free).split("<footer>")[0].split("</h2>")[2]


def test_the_page_says_how_to_make_it_again() -> None:
    told = replace(an_audit(), provenance={"seed": 3, "command": "unsoftmax audit 'my head' --price 0.001"})
    assert "unsoftmax audit &#x27;my head&#x27; --price 0.001" in audit_page(told)
    assert "us.audit(oracle, truth" in audit_page(an_audit())
    recovery, _ = recovered()
    assert "us.recover(oracle, us.learners.SingleHead(" in recovery_page(recovery)
    assert "TARGET" not in audit_page(an_audit()).split("<script")[0]


def test_every_figure_has_a_text_that_tells_it() -> None:
    html = audit_page(full_audit())
    labels = re.findall(r'role="img" aria-label="([^"]*)"', html)
    assert len(labels) == 7
    assert all(len(label) > 30 for label in labels)
    assert "from 1,214 to 23,000 queries" in labels[0]


def test_colours_stand_out_on_both_backgrounds() -> None:
    for colour in LEAK_COLOURS.values():
        assert min(contrast(colour, "#ffffff"), contrast(colour, "#111827")) >= 3
    light, dark = STYLE.split("@media screen and (prefers-color-scheme: dark)")
    for part, paper in ((light, "#ffffff"), (dark.split("* {")[0], "#111827")):
        for name in ("ink", "soft", "exact", "close", "rough", "held", "proved"):
            colour = re.search(rf"--{name}: (#[0-9a-f]{{6}})", part).group(1)
            assert contrast(colour, paper) >= 4.5, (name, colour)


def contrast(a: str, b: str) -> float:
    """Contrast ratio of two colours as WCAG 2 defines it."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("which", ["audit", "recovery"])
def test_names_from_outside_stay_text(which) -> None:
    recovery, truth = recovered()
    html = audit_page(an_audit(), recovery, truth) if which == "audit" else recovery_page(recovery, truth)
    assert HOSTILE not in html
    assert "&lt;script&gt;window.hacked=1" in html


def test_pages_come_from_files_alone(tmp_path) -> None:
    recovery, _ = recovered()
    recovery.save(tmp_path / "r.safetensors")
    assert "near ties" in recovery_page(us.load(tmp_path / "r.safetensors"))


def test_damaged_audits_are_typed_errors(tmp_path) -> None:
    path = tmp_path / "a.json"
    for text in (
        "",
        "[]",
        "{}",
        '{"format": "unsoftmax-audit/1"}',
        "[" * 9999,
        '{"format": "unsoftmax-audit/1", "cells": [3]}',
    ):
        path.write_text(text)
        with pytest.raises(us.errors.FileFormatError):
            load_audit(path)


def test_large_matrices_are_averaged() -> None:
    import numpy as np

    W = np.random.default_rng(0).standard_normal((200, 130))
    small = shrunk(W)
    assert small.shape == (64, 64)
    assert np.array_equal(shrunk(W[:5, :5]), W[:5, :5])


def test_heat_maps_say_what_they_show() -> None:
    head = us.models.SingleHead.random(70, norm=2.0, seed=0)
    page = us.report.recovery_page(us.recover(us.oracle(head), us.learners.SingleHead()), head)
    assert "rows: coordinates of the key, columns: of the query token; 70 x 70" in page
    assert "the mean of up to 2 x 2 entries" in page


def test_a_copy_of_the_attention_inside_is_not_sold_as_one_of_the_target():
    cell = replace(an_audit().cells[0], part="the attention inside it")
    assert cell.verdict == "exact copy of the attention inside it"
    audit = replace(an_audit(), cells=(cell,))
    assert "an exact copy of the attention inside it" in audit_page(audit)
    assert "exact copy of the attention inside it" in sarif(audit)
