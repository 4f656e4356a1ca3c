"""`python -m benchmarks [--large] [NAME...]`: run, print a table of ratios, write out/benchmarks.json."""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import platform
from dataclasses import asdict
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import benchmarks
from benchmarks.base import Row


def main() -> None:
    parser = argparse.ArgumentParser(description="Ratios measured side by side in one run.")
    parser.add_argument("names", nargs="*", help="benchmark files to run (default: all)")
    parser.add_argument("--large", action="store_true", help="the long ones too")
    parser.add_argument("--output", type=Path, default=Path("out/benchmarks.json"))
    options = parser.parse_args()
    files = [
        m.name for m in pkgutil.iter_modules(benchmarks.__path__) if m.name not in ("base", "subjects", "__main__")
    ]
    rows: list[Row] = []
    console = Console()
    for name in options.names or files:
        for row in importlib.import_module(f"benchmarks.{name}").rows(options.large):
            rows.append(row)
            mark = {True: "met", False: "NOT MET", None: ""}[row.met]
            limit = "" if row.limit is None else f" (limit {row.limit:g})"
            console.print(f"{name}: {row.name}: {row.ratio:.3g}{limit} {mark}", soft_wrap=True)
    table = Table("benchmark", "ratio", "limit", "met", "what it is")
    for row in rows:
        mark = {True: "yes", False: "no", None: "-"}[row.met]
        table.add_row(row.name, f"{row.ratio:.3g}", "-" if row.limit is None else f"{row.limit:g}", mark, row.meaning)
    console.print(table)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    data = {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "machine": platform.machine(),
        "rows": [{**asdict(row), "met": row.met} for row in rows],
    }
    options.output.write_text(json.dumps(data, indent=1, default=float) + "\n")
    console.print(f"written to {options.output}")


main()
