"""SARIF as another implementation of the standard reads it: every log is valid, and no field is unknown to it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import unsoftmax as us
from tests.report.examples import an_audit
from unsoftmax.report import comparison_sarif, sarif

standard = pytest.importorskip("sarif_pydantic")


def logs() -> dict[str, str]:
    head = us.models.SingleHead.random(6, norm=2.0, seed=0)
    changed = us.models.SingleHead(1.01 * head.W, head.v)
    audit = an_audit()
    outside = replace(audit, cells=(replace(audit.cells[0], leak="unknown"), *audit.cells[1:]))
    return {
        "audit": sarif(audit),
        "out of scope": sarif(outside),
        "same": comparison_sarif(us.compare(us.oracle(head), head)),
        "changed": comparison_sarif(us.compare(us.oracle(changed), head)),
    }


def test_logs_are_valid_and_every_field_is_known() -> None:
    for name, text in logs().items():
        given = json.loads(text)
        read = standard.Sarif.model_validate(given)
        assert _lost(given, json.loads(read.model_dump_json(by_alias=True, exclude_none=True))) == [], name


def _lost(given, read, place: str = "") -> list[str]:
    """Places of what was given and is not there when it was read."""
    if isinstance(given, dict):
        missing = [f"{place}/{key}" for key in given if key not in read]
        known = [key for key in given if key in read]
        return missing + [lost for key in known for lost in _lost(given[key], read[key], f"{place}/{key}")]
    if isinstance(given, list):
        return [lost for i, (a, b) in enumerate(zip(given, read, strict=True)) for lost in _lost(a, b, f"{place}/{i}")]
    return []
