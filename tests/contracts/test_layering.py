"""Data flows one way: who may import whom, read from the source."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "src" / "unsoftmax"

# room -> rooms it must never import (first component below `unsoftmax`)
FORBIDDEN = {
    "errors": {"*"},
    "arguments": {"*", "-errors"},
    "spec": {"*", "-errors", "-arguments"},
    "theory": {"*", "-errors", "-arguments", "-theory"},
    "probes": {"*", "-errors", "-spec", "-probes"},
    "links": {"*", "-errors", "-spec"},
    "inversion": {"*", "-errors", "-spec", "-probes", "-inversion", "-links"},
    "solvers": {"*", "-errors", "-spec", "-probes", "-inversion", "-solvers", "-theory"},
    "models": {"*", "-errors", "-arguments", "-models", "-solvers", "-probes"},
    "learners": {"oracles", "adapters", "engine", "recovery", "verify", "cli", "report", "experiments", "auditing"},
    "verify": {"oracles", "adapters", "engine", "recovery", "cli", "report", "experiments", "auditing"},
    "oracles": {"learners", "adapters", "engine", "recovery", "cli", "report", "experiments", "verify", "auditing"},
    "adapters": {"learners", "engine", "recovery", "cli", "report", "experiments", "verify", "auditing"},
    "engine": {"adapters", "recovery", "cli", "report", "experiments", "verify", "auditing"},
    "report": {"learners", "oracles", "adapters", "engine", "recovery", "cli", "verify", "auditing"},
}


def imports(path: Path) -> set[str]:
    """First components below `unsoftmax` that a file imports at run time."""
    tree = ast.parse(path.read_text())
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "unsoftmax":
            parts = node.module.split(".")
            found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {n.name.split(".")[1] for n in node.names if n.name.startswith("unsoftmax.")}
    return found


def forbidden(room: str, seen: set[str]) -> set[str]:
    rules = FORBIDDEN[room]
    if "*" in rules:
        return seen - {rule[1:] for rule in rules if rule.startswith("-")}
    return seen & rules


@pytest.mark.parametrize("room", FORBIDDEN)
def test_room_imports_only_what_lies_below(room: str) -> None:
    files = [ROOT / f"{room}.py"] if (ROOT / f"{room}.py").exists() else sorted((ROOT / room).rglob("*.py"))
    assert files
    broken = {str(path.relative_to(ROOT)): forbidden(room, imports(path)) for path in files}
    assert {name: rooms for name, rooms in broken.items() if rooms} == {}


def test_the_check_can_fail() -> None:
    assert forbidden("report", {"learners", "result"}) == {"learners"}
    assert forbidden("spec", {"errors", "models"}) == {"models"}


def test_core_import_needs_no_optional_dependency() -> None:
    import subprocess
    import sys

    heavy = ("torch", "onnx", "onnxruntime", "tritonclient", "cvxpy", "altair", "matplotlib", "distributed")
    code = f"import sys, unsoftmax; print([m for m in {heavy} if m in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
