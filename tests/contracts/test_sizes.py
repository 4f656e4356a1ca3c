"""Functions and files stay small enough to be read at once, and not so small that one is read for the other's sake."""

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

ONE_IMPORTER = 0.22
"""Share of files that a single other file imports, from which on rooms are cut finer than their ideas."""


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


def single_files(sources: dict[str, str]) -> list[str]:
    """Modules that one other module imports; those that only a package registers, and commands, have no other way in.

    sources: text by name, "a.b" or "a.b.__init__".
    """
    named = {name.removesuffix(".__init__"): name for name in sources}
    importers: dict[str, set[str]] = {name: set() for name in named}
    for name, text in sources.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and node.module:
                for found in {f"{node.module}.{alias.name}" for alias in node.names}:
                    importers.get(found if found in named else node.module, set()).add(name)
    return sorted(
        name
        for name, found in importers.items()
        if len(found) == 1
        and not named[name].endswith(".__init__")
        and not next(iter(found)).endswith(".__init__")
        and ".cli." not in name
    )


def test_few_files_are_there_for_one_other_alone() -> None:
    paths = sorted(ROOT.rglob("*.py"))
    sources = {".".join(path.relative_to(ROOT).with_suffix("").parts): path.read_text() for path in paths}
    files = [name for name in sources if not name.endswith(".__init__")]
    assert len(single_files(sources)) < ONE_IMPORTER * len(files)


def test_files_for_one_other_are_counted() -> None:
    sources = {"p.__init__": "from p.a import x", "p.a": "from p.b import y", "p.b": "", "p.c": "from p import d"}
    assert single_files({**sources, "p.d": "", "p.cli.e": "from p.cli import f", "p.cli.f": ""}) == ["p.b", "p.d"]
