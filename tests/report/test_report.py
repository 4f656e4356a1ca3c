"""Pages, JSON and SARIF from saved results."""

from __future__ import annotations

import json

import jsonschema
import pytest

import unsoftmax as us
from tests.report.examples import HOSTILE, an_audit, recovered
from unsoftmax.audit_result import load_audit
from unsoftmax.evidence import shrunk
from unsoftmax.report import AUDIT_SCHEMA, audit_page, recovery_page, sarif


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
