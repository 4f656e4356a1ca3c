"""The page, the SARIF log and the schema of a comparison."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np

from unsoftmax.report import charts
from unsoftmax.report.document import bullets, code, document, facts, figure, figures, section, table
from unsoftmax.report.sarif import SCHEMA, helped, uri_of
from unsoftmax.results.comparison import Comparison
from unsoftmax.results.evidence import Evidence, shrunk
from unsoftmax.results.references import DRIFT, lines_of, tags_of

_MOST_HEADS = 12
"""Heat maps shown at most."""
_ROWS = 48
"""Rows of a heat map."""
_APART = ("command", "references")
"""Parts of the provenance that have a section of their own."""
_HELP = (
    "The target does not answer as its reference does. If the change was meant (a new checkpoint, a quantised format), "
    "make the new model the reference; otherwise find out who changed what is served."
)


def comparison_page(result: Comparison) -> str:
    """What changed at a glance: the verdict, where (bars by head), what (heat maps of the change), how it is known."""
    drawn: dict[str, charts.Chart] = {}
    name = str(result.provenance.get("target") or result.provenance.get("spec", {}).get("name") or "target")
    key = {
        "Verdict": result.verdict,
        "Queries": f"{result.usage.billed:,}",
        "p-value": f"{result.p_value:.1g}",
        "Detectable change": f"{result.detectable:.1g}",
    }
    if result.format:
        key["Number format"] = result.format
    if result.rank:
        key["Rank"] = str(result.rank)
    sections = [figures(key), section("Summary", bullets([result.sentence, *result.notes]))]
    sizes = _by_head(result)
    if sizes:
        drawn["heads"] = charts.bars_chart("relative change of each head", sizes)
        sections.append(section("Where", figure("heads", drawn, "Size of the change by head, relative to the head.")))
    maps = _maps(result, drawn)
    if maps:
        sections.append(section("What changed", f'<div class="pictures">{maps}</div>'))
    phases = Evidence("", result.verdict, dict(result.usage.phases), (), ())
    drawn["phases"] = charts.phases_chart(phases)
    sections += [
        section("Queries by phase", figure("phases", drawn, "Queries billed in each phase of the comparison.")),
        section("Evidence", _tests(result) + facts(_plain(result.evidence))),
        section("References", bullets(lines_of(DRIFT))),
        section("Provenance", facts({k: v for k, v in result.provenance.items() if k not in _APART})),
        section("How to reproduce", code(str(result.provenance.get("command") or "us.compare(oracle, reference)"))),
    ]
    return document(f"Comparison of {name}", sections, drawn)


def _by_head(result: Comparison) -> dict[str, float]:
    """Relative sizes by head: of a recovered change, or estimated ones."""
    scores = result.evidence.get("scores")
    if isinstance(scores, dict):
        return {f"head {h}": float(size["relative"]) for h, size in scores.items() if isinstance(size, dict)}
    if result.delta is not None and result.delta.ndim == 3:
        norms = np.linalg.norm(result.delta, axis=(1, 2))
        top = float(norms.max()) or 1.0
        return {f"head {h}": float(n) / top for h, n in enumerate(norms)}
    return {}


def _maps(result: Comparison, drawn: dict[str, charts.Chart]) -> str:
    named: dict[str, np.ndarray] = {}
    if result.delta is not None:
        every = result.delta if result.delta.ndim == 3 else result.delta[None]
        named |= {f"change of W, head {h}": part for h, part in enumerate(every) if part.any()}
    for name, change in result.changes.items():
        parts = change if change.ndim == 3 else change[None]
        named |= {f"change of {name}, head {h}": np.atleast_2d(part) for h, part in enumerate(parts) if part.any()}
    shown = []
    for number, (title, matrix) in enumerate(list(named.items())[:_MOST_HEADS]):
        # Sums of squares keep a lone entry visible where means would hide it.
        grid = shrunk(matrix, _ROWS) if matrix.size <= _ROWS**2 else np.sqrt(shrunk(matrix**2, _ROWS))
        key = f"change-{number}"
        rows = [[float(f"{x:.4g}") for x in row] for row in grid]
        drawn[key] = charts.heatmap_chart(title, rows, float(np.abs(grid).max()) or 1e-16)
        shown.append(figure(key, drawn, title))
    return "".join(shown)


def _tests(result: Comparison) -> str:
    tails = result.evidence.get("tails")
    if not isinstance(tails, dict):
        return ""
    rows = [("differs" if p < 1e-4 else "holds", [name, f"{p:.2g}"]) for name, p in tails.items()]
    return table("p-values by kind of sequence, uncorrected.", [("sequences", "wide title"), ("p", "number")], rows)


def _plain(evidence: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in evidence.items() if name not in ("tails", "entries")}


def comparison_sarif(result: Comparison) -> str:
    """One result if the target differs, a note if that is undecided; none if it is the same."""
    rule = {
        "id": "served-model-differs",
        "name": "ServedModelDiffers",
        "shortDescription": {"text": "The served model is not its reference"},
        "fullDescription": {"text": "Answers to questions made from the reference differ by more than rounding."},
        **helped(_HELP, DRIFT),
        "defaultConfiguration": {"level": "error"},
        "properties": {
            "tags": ["supply-chain", "model-drift", *tags_of(DRIFT)],
            "precision": "very-high",
            "security-severity": "5.0",
        },
    }
    version = str(result.provenance.get("version", "0"))
    target = str(result.provenance.get("target") or "target")
    driver = {"name": "unsoftmax", "version": version, "semanticVersion": version, "rules": [rule]}
    results = []
    if result.differs is not False:
        digest = hashlib.sha256(f"{target}|{result.verdict}|{result.format}".encode()).hexdigest()[:16]
        place = {"physicalLocation": {"artifactLocation": {"uri": uri_of(target)}, "region": {"startLine": 1}}}
        results.append(
            {
                "ruleId": rule["id"],
                "ruleIndex": 0,
                "level": "note" if result.differs is None else "error",
                "message": {"text": f"{target}: {result.verdict}: {result.sentence}"},
                "locations": [place],
                "partialFingerprints": {"primaryLocationLineHash": f"{digest}:1"},
                "properties": {"queries": result.usage.billed, "p_value": result.p_value},
            }
        )
    run = {"tool": {"driver": driver}, "automationDetails": {"id": "unsoftmax/compare/"}, "results": results}
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1) + "\n"
