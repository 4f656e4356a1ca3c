"""Functions stay small enough to be read at once: their complexity and the lines of their bodies."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2] / "src"

COMPLEXITY = 15
"""Most independent paths through a function, as ruff's C901 counts them."""

LINES = 60
"""Most lines of a function below its signature and docstring: both are there to be long where much is to be said."""

FILE_LINES = 300
"""Most lines of a file; one that is longer has more than one idea."""


def test_no_function_is_too_complex() -> None:
    command = [
        sys.executable,
        "-m",
        "ruff",
        "check",
        "--isolated",
        "--select",
        "C901",
        "--quiet",
        "--output-format=concise",
    ]
    command += ["--config", f"lint.mccabe.max-complexity = {COMPLEXITY}", str(ROOT)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    documented = ast.get_docstring(function) is not None and len(function.body) > 1
    return (function.end_lineno or 0) - function.body[1 if documented else 0].lineno + 1


def test_no_function_is_too_long() -> None:
    long = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}: {body_lines(node)}"
        for path in sorted(ROOT.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and body_lines(node) > LINES
    ]
    assert not long


def test_no_file_is_too_long() -> None:
    sizes = {path.relative_to(ROOT).as_posix(): len(path.read_text().splitlines()) for path in ROOT.rglob("*.py")}
    assert not {name: size for name, size in sizes.items() if size > FILE_LINES}
