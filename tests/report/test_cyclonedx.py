"""Attestations validate against the published CycloneDX 1.6 schema and are the same bytes each time."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

import unsoftmax as us
from tests.report.examples import an_audit
from unsoftmax.cli.app import app
from unsoftmax.report import audit_attestation, comparison_attestation

HEAD = us.models.SingleHead.random(3, norm=1.0, seed=0)


def valid(text: str) -> dict:
    validation = pytest.importorskip("cyclonedx.validation.json")
    from cyclonedx.schema import SchemaVersion

    assert validation.JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    wrong = text.replace('"predicate"', '"predicates"')
    assert validation.JsonStrictValidator(SchemaVersion.V1_6).validate_str(wrong) is not None
    return json.loads(text)


def test_an_audit_has_a_claim_for_each_way_in() -> None:
    audit = an_audit()
    data = valid(audit_attestation(audit))
    assert len(data["declarations"]["claims"]) == len(audit.cells)
    assert data["declarations"]["attestations"][0]["map"][0]["conformance"]["score"] == 1.0
    refs = {e["bom-ref"] for e in data["declarations"]["evidence"]}
    assert all(set(claim["evidence"]) <= refs for claim in data["declarations"]["claims"])


def test_an_audit_out_of_scope_attests_nothing() -> None:
    audit = an_audit()
    audit = replace(audit, cells=(replace(audit.cells[0], leak="unknown"), *audit.cells[1:]))
    data = valid(audit_attestation(audit))
    assert data["declarations"]["attestations"][0]["map"][0]["conformance"]["score"] == 0.0


@pytest.mark.parametrize(("change", "score"), [(0.0, 1.0), (0.1, 0.0)])
def test_a_comparison_attests_its_verdict_in_the_same_bytes(change, score) -> None:
    served = us.oracle(us.models.SingleHead(HEAD.W + change, HEAD.v))
    first, again = (comparison_attestation(us.compare(served, HEAD)) for _ in range(2))
    assert first == again
    assert valid(first)["declarations"]["attestations"][0]["map"][0]["conformance"]["score"] == score


def test_both_commands_write_it(tmp_path) -> None:
    HEAD.save(tmp_path / "head.safetensors")
    head, out = str(tmp_path / "head.safetensors"), tmp_path / "bom.json"
    written = []
    for arguments in (["audit", head], ["audit", head], ["compare", head, head]):
        done = CliRunner().invoke(app, [*arguments, "--cyclonedx", str(out)])
        assert done.exit_code == 0, done.output
        assert f"cyclonedx: {out}" in done.output
        written.append(out.read_bytes())
        valid(written[-1].decode())
    assert written[0] == written[1] != written[2]
