"""The published JSON Schemas of `Audit.to_json` and `Comparison.to_json`."""

from __future__ import annotations

from typing import Any, get_args

from unsoftmax.results.audit import AUDIT_FORMAT
from unsoftmax.results.comparison import COMPARISON_FORMAT, Verdict


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "required": list(properties),
    }


_NUMBER_OR_NULL = {"type": ["number", "null"]}
_COUNT = {"type": "integer", "minimum": 0}
_TEXT = {"type": "string"}
_GRID = {"type": "array", "items": {"type": "array", "items": {"type": "number"}}}
_GRID_OR_NULL = {"anyOf": [_GRID, {"type": "null"}]}

_CELL = _object(
    {
        "access": _TEXT,
        "defence": _TEXT,
        "learner": _TEXT,
        "status": _TEXT,
        "leak": {"enum": ["exact", "close", "rough", "none", "unknown"]},
        "queries": _COUNT,
        "tokens": _COUNT,
        "hours": {"type": "number", "minimum": 0},
        "price": {"type": "number", "minimum": 0},
        "parameter_error": _NUMBER_OR_NULL,
        "functional_error": _NUMBER_OR_NULL,
        "reason": _TEXT,
        "part": _TEXT,
    }
)
_COUNT_OR_NULL = {"type": ["integer", "null"], "minimum": 0}
_LIMIT = _object(
    {
        "access": _TEXT,
        "queries": _COUNT,
        "fewest": _COUNT,
        "price": {"type": "number", "minimum": 0},
        "query_price": {"type": "number", "minimum": 0},
        "monthly": _COUNT_OR_NULL,
        "monthly_any": _COUNT_OR_NULL,
    }
)
_CLAIM = _object(
    {
        "name": _TEXT,
        "bound": _NUMBER_OR_NULL,
        "observed": _NUMBER_OR_NULL,
        "basis": {"enum": ["proved", "measured", "assumed"]},
        "theorem": {"type": ["string", "null"]},
        "statement": _TEXT,
    }
)
_EVIDENCE = _object(
    {
        "model": _TEXT,
        "status": _TEXT,
        "phases": {"type": "object", "additionalProperties": _COUNT},
        "claims": {"type": "array", "items": _CLAIM},
        "pictures": {
            "type": "array",
            "items": _object(
                {"name": _TEXT, "recovered": _GRID, "true": _GRID_OR_NULL, "difference": _GRID_OR_NULL, "shows": _TEXT}
            ),
        },
        "asked": _TEXT,
    }
)

AUDIT_SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "unsoftmax audit",
    **_object(
        {
            "format": {"const": AUDIT_FORMAT},
            "target": _TEXT,
            "dim": {"type": "integer", "minimum": 1},
            "unknowns": _COUNT,
            "truth_given": {"type": "boolean"},
            "rate": {"type": "number", "exclusiveMinimum": 0},
            "currency": _TEXT,
            "cells": {"type": "array", "items": _CELL},
            "recommendations": {"type": "array", "items": _TEXT},
            "provenance": {"type": "object"},
            "evidence": {"anyOf": [_EVIDENCE, {"type": "null"}]},
            "limits": {"type": "array", "items": _LIMIT},
        }
    ),
}

_USAGE = _object(
    {
        **dict.fromkeys(("asked", "billed", "tokens", "numbers", "rounds"), _COUNT),
        "seconds": {"type": "number", "minimum": 0},
        "target_seconds": {"type": "number", "minimum": 0},
        "phases": {"type": "object", "additionalProperties": _COUNT},
    }
)

COMPARISON_SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "unsoftmax comparison",
    **_object(
        {
            "format_version": {"const": COMPARISON_FORMAT},
            "verdict": {"enum": list(get_args(Verdict))},
            "differs": {"type": ["boolean", "null"]},
            "sentence": _TEXT,
            "p_value": {"type": "number", "minimum": 0, "maximum": 1},
            "e_value": _NUMBER_OR_NULL,
            "detectable": _NUMBER_OR_NULL,
            "format": {"type": ["string", "null"]},
            "heads": {"anyOf": [{"type": "array", "items": _COUNT}, {"type": "null"}]},
            "rank": {"type": ["integer", "null"]},
            "evidence": {"type": "object"},
            "notes": {"type": "array", "items": _TEXT},
            "usage": _USAGE,
            "provenance": {"type": "object"},
        }
    ),
}
