"""CycloneDX 1.6 attestations: that a model was audited, or that what is served was compared with what was shipped.

Same result, same bytes: there is no clock in it and the serial number is made from the content, so that a signature
over the file can be checked by making it again.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any
from uuid import UUID, uuid5

from unsoftmax.report.matrix import result
from unsoftmax.results.audit import Audit, Cell, error_of
from unsoftmax.results.comparison import Comparison
from unsoftmax.results.references import DRIFT, EXTRACTION, Reference, lines_of

_SPACE = UUID("8b0f3a52-6c1d-5f0e-9f52-7d1f6f5a2c11")
"""Name space of the serial numbers; any fixed one would do."""

_TARGET, _REQUIREMENT, _REFERENCE = "target", "requirement", "reference"


def audit_attestation(audit: Audit) -> str:
    """The audit as an attestation: one claim for each way in that was tried, its numbers as evidence."""
    claims, evidence = [], []
    for number, cell in enumerate(audit.cells):
        claims.append(_claim(number, _predicate(audit, cell), cell.reason))
        evidence.append(_evidence(number, "unsoftmax:cell", cell.title, asdict(cell)))
    rationale = audit.recommendations[0] if audit.recommendations else ""
    requirement = ("audited", "The model was audited for copies of its weights that its answers give away", EXTRACTION)
    name = str(audit.provenance.get("target") or audit.target)
    target = {"type": "machine-learning-model", "bom-ref": _TARGET, "name": name}
    return _document(
        audit.provenance, [target], requirement, claims, evidence, 1.0 if audit.in_scope else 0.0, rationale
    )


def comparison_attestation(result: Comparison) -> str:
    """The comparison as an attestation: conformance 1 if the target is its reference, 0 if not, none if undecided."""
    name = str(result.provenance.get("target") or result.provenance.get("spec", {}).get("name") or "target")
    shipped = str(result.provenance.get("reference") or "reference")
    parts = [
        {"type": "machine-learning-model", "bom-ref": _TARGET, "name": name},
        {"type": "machine-learning-model", "bom-ref": _REFERENCE, "name": shipped},
    ]
    numbers = {
        "verdict": result.verdict,
        "p_value": result.p_value,
        "detectable": result.detectable,
        "queries": result.usage.billed,
    }
    requirement = ("compared", "What is served was compared with the model that was shipped", DRIFT)
    score = None if result.differs is None else float(not result.differs)
    claims = [_claim(0, f"{result.verdict}: {result.sentence}", " ".join(result.notes))]
    evidence = [_evidence(0, "unsoftmax:comparison", "Verdict, p-value, smallest change seen, queries", numbers)]
    return _document(result.provenance, parts, requirement, claims, evidence, score, result.sentence)


def _predicate(audit: Audit, cell: Cell) -> str:
    if cell.leak in ("none", "unknown"):
        return f"{cell.title}: {result(audit, cell)}"
    return f"{cell.title}: {cell.verdict} from {cell.queries:,} queries (relative error {error_of(cell):.1e})"


def _claim(number: int, predicate: str, reasoning: str) -> dict[str, Any]:
    told = {"reasoning": reasoning} if reasoning else {}
    return {
        "bom-ref": f"claim-{number}",
        "target": _TARGET,
        "predicate": predicate,
        **told,
        "evidence": [f"evidence-{number}"],
    }


def _evidence(number: int, name: str, description: str, numbers: dict[str, Any]) -> dict[str, Any]:
    finite = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in numbers.items()}
    content = json.dumps(finite, sort_keys=True, allow_nan=False)
    held = {"attachment": {"contentType": "application/json", "content": content}}
    return {
        "bom-ref": f"evidence-{number}",
        "propertyName": name,
        "description": description,
        "data": [{"name": name, "contents": held}],
    }


def _document(
    provenance: dict[str, Any],
    parts: list[dict[str, Any]],
    requirement: tuple[str, str, tuple[Reference, ...]],
    claims: list[dict[str, Any]],
    evidence: list[dict[str, Any]],
    score: float | None,
    rationale: str,
) -> str:
    identifier, text, references = requirement
    outside = [
        {"type": "other", "url": r.url, "comment": line}
        for r, line in zip(references, lines_of(references), strict=True)
    ]
    conformance: dict[str, Any] = (
        {"rationale": rationale} if score is None else {"score": score, "rationale": rationale}
    )
    met = {
        "requirement": _REQUIREMENT,
        "claims": [claim["bom-ref"] for claim in claims],
        "conformance": conformance,
    }
    version = str(provenance.get("version", "0"))
    wanted = {"bom-ref": _REQUIREMENT, "identifier": identifier, "text": text, "externalReferences": outside}
    data: dict[str, Any] = {
        "metadata": {
            "tools": {"components": [{"type": "application", "name": "unsoftmax", "version": version}]},
            "properties": [{"name": "unsoftmax:command", "value": str(provenance.get("command", ""))}],
        },
        "declarations": {
            "attestations": [{"summary": text, "map": [met]}],
            "claims": claims,
            "evidence": evidence,
            "targets": {"components": parts},
        },
        "definitions": {
            "standards": [
                {"bom-ref": "standard", "name": "unsoftmax attestations", "version": "1", "requirements": [wanted]}
            ]
        },
    }
    serial = uuid5(_SPACE, json.dumps(data, sort_keys=True))
    head = {"bomFormat": "CycloneDX", "specVersion": "1.6", "serialNumber": f"urn:uuid:{serial}", "version": 1}
    return json.dumps({**head, **data}, indent=1, allow_nan=False) + "\n"
