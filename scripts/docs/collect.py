"""`python -m scripts.docs.collect FILE.json ...`: what was measured, kept for the tables of the docs.

FILE is out/benchmarks.json (peers, layers and scaling) or what `unsoftmax experiments --json` printed (claims).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "docs" / "benchmarks"
COLUMNS = {
    "peers": ["task", "method", "queries", "error", "seconds", "remark"],
    "served-peers": ["task", "limit", "peer", "peer's figure", "ours", "remark"],
    "layers": [
        "layer",
        "preset",
        "format",
        "queries",
        "numbers / unknowns",
        "error of W",
        "error of P",
        "seconds",
    ],
    "scaling": ["series", "size", "queries", "closed form", "seconds", "MiB"],
}


def collected(measured: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Contents of docs/benchmarks/NAME.json for every kind of line in a benchmark run's output."""
    origin = f"Measured with Python {measured['python']}, NumPy {measured['numpy']}, {measured['machine']}."
    found: dict[str, dict[str, Any]] = {}
    for name, columns in COLUMNS.items():
        rows = [row for row in measured["rows"] if set(columns) <= set((row["figures"].get("lines") or [{}])[0])]
        lines = [{column: line.get(column) for column in columns} for row in rows for line in row["figures"]["lines"]]
        if lines:
            found[name] = {"columns": columns, "lines": lines, "note": origin}
    fits = [
        {"series": row["figures"]["lines"][0]["series"], **row["figures"]["exponents"]}
        for row in measured["rows"]
        if "exponents" in row["figures"]
    ]
    if fits:
        names = ["series", "queries", "closed form", "seconds", "MiB"]
        note = "Slopes in logarithms: each column grows with this power of the size varied."
        found["exponents"] = {"columns": names, "lines": fits, "note": note}
    limits = [row for row in measured["rows"] if row["limit"] is not None and "ours / least" in row["meaning"]]
    if limits:
        lines = [
            {"row": row["name"], "ratio": row["ratio"], "limit": row["limit"], "met": row["met"]} for row in limits
        ]
        for line, row in zip(lines, limits, strict=True):
            line["what it is"] = row["meaning"]
        note = "Errors below 1e-14 are rounding and count as 1e-14."
        found["peers-ratios"] = {
            "columns": ["row", "ratio", "limit", "met", "what it is"],
            "lines": lines,
            "note": note,
        }
    return found


def claims(reports: list[dict[str, Any]]) -> dict[str, Any]:
    """Contents of docs/benchmarks/claims.json: every experiment with its verdict."""
    lines = [{"experiment": report["name"], "claim and data": report["paragraph"]} for report in reports]
    held = sum(bool(report["holds"]) for report in reports)
    return {"columns": ["experiment", "claim and data"], "lines": lines, "note": f"{held} of {len(lines)} claims hold."}


def main() -> None:
    for path in sys.argv[1:]:
        measured = json.loads(Path(path).read_text())
        found = {"claims": claims(measured)} if isinstance(measured, list) else collected(measured)
        for name, content in found.items():
            (FOLDER / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
