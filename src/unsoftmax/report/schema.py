"""The published JSON Schema of `Audit.to_json`."""

from __future__ import annotations

from typing import Any

from unsoftmax.audit_result import AUDIT_FORMAT

_NUMBER_OR_NULL = {"type": ["number", "null"]}
_CELL: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "access": {"type": "string"},
        "defence": {"type": "string"},
        "learner": {"type": "string"},
        "status": {"type": "string"},
        "leak": {"enum": ["exact", "close", "rough", "none"]},
        "queries": {"type": "integer", "minimum": 0},
        "tokens": {"type": "integer", "minimum": 0},
        "hours": {"type": "number", "minimum": 0},
        "price": {"type": "number", "minimum": 0},
        "parameter_error": _NUMBER_OR_NULL,
        "functional_error": _NUMBER_OR_NULL,
        "reason": {"type": "string"},
    },
}
_CELL["required"] = list(_CELL["properties"])

AUDIT_SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "unsoftmax audit",
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "format": {"const": AUDIT_FORMAT},
        "target": {"type": "string"},
        "dim": {"type": "integer", "minimum": 1},
        "unknowns": {"type": "integer", "minimum": 0},
        "truth_given": {"type": "boolean"},
        "rate": {"type": "number"},
        "currency": {"type": "string"},
        "cells": {"type": "array", "items": _CELL},
        "recommendations": {"type": "array", "items": {"type": "string"}},
        "provenance": {"type": "object"},
    },
}
AUDIT_SCHEMA["required"] = list(AUDIT_SCHEMA["properties"])
