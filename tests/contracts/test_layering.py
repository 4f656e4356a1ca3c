"""Data flows one way: who may import whom, read from the source."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "src" / "unsoftmax"

# room -> rooms it must never import (first component below `unsoftmax`)
FORBIDDEN = {
    "errors": {"*"},
    "precision": {"*"},
    "arguments": {"*", "-errors"},
    "spec": {"*", "-errors", "-arguments", "-precision"},
    "theory": {"*", "-errors", "-arguments", "-theory", "-precision"},
    "probes": {"*", "-errors", "-spec", "-probes", "-precision"},
    "links": {"*", "-errors", "-spec", "-precision"},
    "inversion": {"*", "-errors", "-spec", "-probes", "-inversion", "-links", "-precision"},
    "solvers": {"*", "-errors", "-spec", "-probes", "-inversion", "-solvers", "-theory", "-precision"},
    "models": {"*", "-errors", "-arguments", "-models", "-solvers", "-probes", "-precision"},
    "learners": {"oracles", "adapters", "run", "verify", "cli", "report", "experiments", "auditing"},
    "verify": {"oracles", "adapters", "run", "cli", "report", "experiments", "auditing"},
    "oracles": {"learners", "adapters", "run", "cli", "report", "experiments", "verify", "auditing"},
    "adapters": {"learners", "run", "cli", "report", "experiments", "verify", "auditing"},
    "exposure": {"*", "-errors", "-adapters", "-exposure", "-precision"},
    "results": {"*", "-errors", "-arguments", "-models", "-results", "-probes", "-precision"},
    "fitting": {"learners", "adapters", "run", "cli", "report", "experiments", "auditing", "verify", "diagnosis"},
    "run": {"adapters", "cli", "report", "experiments", "auditing", "comparing", "fitting"},
    "comparing": {"cli", "report", "experiments", "auditing", "diagnosis", "fitting"},
    "report": {"learners", "oracles", "adapters", "run", "cli", "verify", "auditing", "comparing", "fitting"},
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


# room of learners/ -> other rooms whose parts it may use; every room may use core and itself
NEIGHBOURS = {"block": {"rotary"}, "circuits": {"output"}}


def rooms_used(path: Path) -> set[str]:
    """Rooms of learners/ that a file imports; a public learner counts as "root"."""
    modules = [node.module for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
    inside = [m.split(".") for m in modules if m and m.startswith("unsoftmax.learners")]
    return {parts[2] if len(parts) > 2 and (ROOT / "learners" / parts[2]).is_dir() else "root" for parts in inside}


@pytest.mark.parametrize("room", sorted(p.parent.name for p in (ROOT / "learners").glob("*/__init__.py")))
def test_a_room_of_learners_uses_core_and_itself(room: str) -> None:
    allowed = {"core", room} | NEIGHBOURS.get(room, set())
    broken = {path.name: rooms_used(path) - allowed for path in (ROOT / "learners" / room).glob("*.py")}
    assert {name: rooms for name, rooms in broken.items() if rooms} == {}


@pytest.mark.parametrize("map_", sorted(ROOT.glob("learners/*/__init__.py")), ids=lambda path: path.parent.name)
def test_the_map_of_a_room_names_every_file(map_: Path) -> None:
    named = {line.split("  ")[0] for line in (ast.get_docstring(ast.parse(map_.read_text())) or "").splitlines()}
    assert {path.stem for path in map_.parent.glob("*.py")} - {"__init__"} - named == set()


def test_the_check_can_fail() -> None:
    assert forbidden("report", {"learners", "results"}) == {"learners"}
    assert forbidden("spec", {"errors", "models"}) == {"models"}


def test_core_import_needs_no_optional_dependency() -> None:
    import subprocess
    import sys

    heavy = ("torch", "onnx", "onnxruntime", "tritonclient", "cvxpy", "altair", "matplotlib", "distributed")
    code = f"import sys, unsoftmax; print([m for m in {heavy} if m in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
