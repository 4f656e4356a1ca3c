"""SARIF 2.1.0 of an audit, for code-scanning pages: one result per way in that leaks."""

from __future__ import annotations

import hashlib
import json
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

from unsoftmax.results.access import Level, level_of
from unsoftmax.results.audit import Audit, Cell, error_of
from unsoftmax.results.references import EXTRACTION, Reference, lines_of, tags_of

_LEVEL = {"exact": "error", "close": "error", "rough": "warning"}
SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_HELP = (
    "Whoever can send these queries gets a copy of the weights; what is shown: {shows}. What closes it: {closes}. The "
    "audit's page says what each defence buys, and at what price."
)


def sarif(audit: Audit) -> str:
    """The audit as a SARIF log: a rule for each access level that leaks."""
    leaking = [cell for cell in audit.cells if cell.leak in _LEVEL] or list(audit.cells[:1])
    rules = [_rule(level) for level in dict.fromkeys(level_of(cell.access) for cell in leaking)]
    places = {rule["id"]: number for number, rule in enumerate(rules)}
    version = str(audit.provenance.get("version", "0"))
    driver = {"name": "unsoftmax", "version": version, "semanticVersion": version, "rules": rules}
    results = [_result(audit, cell, places) for cell in audit.cells if cell.leak in _LEVEL]
    if not audit.in_scope:
        # A log without results reads as safe; this one says that nothing is known.
        told = {"level": "none", "kind": "open", "message": {"text": _told(audit)}}
        results = [{**_place(audit, audit.cells[0], places), **told}]
    run = {"tool": {"driver": driver}, "automationDetails": {"id": "unsoftmax/audit/"}, "results": results}
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1) + "\n"


def _rule(level: Level) -> dict[str, Any]:
    return {
        "id": _id(level),
        "name": "".join(word.capitalize() for word in _id(level).split("-")),
        "shortDescription": {"text": f"Weights can be recovered from {level.shows}"},
        "fullDescription": {
            "text": f"A copy of the model's weights can be computed from {level.shows}. What closes it: {level.closes}."
        },
        **helped(_HELP.format(shows=level.shows, closes=level.closes), EXTRACTION),
        "defaultConfiguration": {"level": "error"},
        "properties": {
            # Code-scanning pages keep ten tags of a rule.
            "tags": ["security", *tags_of(EXTRACTION)],
            "precision": "high",
            "security-severity": "7.0",
        },
    }


def _id(level: Level) -> str:
    return f"weights-leak-{level.slug}"


def helped(words: str, references: tuple[Reference, ...]) -> dict[str, Any]:
    """Help of a rule, plain and in Markdown, with what the finding is called elsewhere."""
    linked = [f"- [{line}]({r.url})" for line, r in zip(lines_of(references), references, strict=True)]
    return {
        "helpUri": references[0].url,
        "help": {
            "text": "\n".join([words, *lines_of(references)]),
            "markdown": "\n".join([words, "", *linked]),
        },
    }


def _result(audit: Audit, cell: Cell, places: dict[str, int]) -> dict[str, Any]:
    text = (
        f"{audit.target}: {cell.title}: {cell.queries:,} queries give a {cell.copied} "
        f"(relative error {error_of(cell):.1e})."
    )
    return {
        **_place(audit, cell, places),
        "level": _LEVEL[cell.leak] if cell.offered else "note",
        "message": {"text": text},
        "properties": {"queries": cell.queries, "price": cell.price, "error": error_of(cell)},
    }


def _told(audit: Audit) -> str:
    return f"{audit.target}: {' '.join(audit.recommendations[:1])}"


def _place(audit: Audit, cell: Cell, places: dict[str, int]) -> dict[str, Any]:
    rule = _id(level_of(cell.access))
    return {
        "ruleId": rule,
        "ruleIndex": places[rule],
        "locations": [
            {
                "physicalLocation": {"artifactLocation": {"uri": _uri(audit)}, "region": {"startLine": 1}},
                "logicalLocations": [{"name": audit.target, "kind": "module"}],
            }
        ],
        # All results lie on one line of one file: this name is the one by which code-scanning pages tell them apart.
        "partialFingerprints": {"primaryLocationLineHash": f"{_digest(audit.target, cell.name)}:1"},
    }


def _uri(audit: Audit) -> str:
    return uri_of(str(audit.provenance.get("target") or audit.target))


def uri_of(named: str) -> str:
    """A relative reference: code-scanning pages show only results with a file; it is the target as it was named."""
    path = named.rpartition(":")[0] if named.rpartition(":")[0].endswith(".py") else named
    parts = [
        part for part in PurePosixPath(path.replace("://", "/").replace("\\", "/")).parts if part not in ("/", "..")
    ]
    return quote("/".join(parts)) or "target"


def _digest(*names: str) -> str:
    return hashlib.sha256("|".join(names).encode()).hexdigest()[:16]
