"""Tables of the documentation from the benchmarks' JSON: docs/benchmarks/*.json -> the marked parts of the pages."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

MARK = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def write(docs: Path) -> None:
    """Fill every marked part of every page with the table it names."""
    for page in sorted(docs.rglob("*.md")):
        text = page.read_text()
        filled = MARK.sub(lambda found: found[1] + table(docs / "benchmarks" / found[2]) + found[3], text)
        if filled != text:
            page.write_text(filled)


def table(path: Path) -> str:
    """The JSON's `columns` and `lines` as Markdown; where and when it was measured below."""
    data = json.loads(path.read_text())
    columns = data["columns"]
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(shown(line.get(column)) for column in columns) + " |" for line in data["lines"]]
    return "\n".join(["", *lines, "", data["note"], ""])


def shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.2g}" if value and not 0.01 <= abs(value) < 1000 else f"{value:.3g}"
    return str(value).replace("|", "\\|")
