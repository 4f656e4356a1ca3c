"""SARIF 2.1.0 of an audit, for code-scanning pages: one result per way in that leaks."""

from __future__ import annotations

import json
from typing import Any

from unsoftmax.audit_result import Audit, Cell, error_of

_LEVEL = {"exact": "error", "close": "error", "rough": "warning"}


def sarif(audit: Audit) -> str:
    """The audit as a SARIF log."""
    rule = {
        "id": "attention-weights-leak",
        "shortDescription": {"text": "Attention weights can be recovered from queries"},
        "help": {"text": "Add a defence that stops the listed access level, or do not expose it."},
    }
    driver = {"name": "unsoftmax", "version": str(audit.provenance.get("version", "")), "rules": [rule]}
    results = [_result(audit, cell) for cell in audit.cells if cell.leak in _LEVEL]
    log = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }
    return json.dumps(log, indent=1) + "\n"


def _result(audit: Audit, cell: Cell) -> dict[str, Any]:
    text = (
        f"{audit.target}: access '{cell.access}' with defence '{cell.defence}' gives a copy of relative error "
        f"{error_of(cell):.1e} for {cell.queries} queries."
    )
    return {
        "ruleId": "attention-weights-leak",
        "level": _LEVEL[cell.leak],
        "message": {"text": text},
        "locations": [{"logicalLocations": [{"name": audit.target, "kind": "module"}]}],
        "properties": {"queries": cell.queries, "price": cell.price, "error": error_of(cell)},
    }
