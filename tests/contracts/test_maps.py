"""The docstring of every room is its map: each file and each room in it has a line there, and nothing else has one."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "src" / "unsoftmax"

REGISTERED = {"experiments": ("base", "runner")}
"""Rooms in which what a file defines registers it: beside these, files need no line."""


def rooms() -> list[Path]:
    return sorted(path.parent for path in ROOT.rglob("__init__.py"))


def inside(room: Path) -> set[str]:
    """Names of the files and the rooms in a room."""
    files = {path.stem for path in room.glob("*.py") if not path.stem.startswith("__")}
    return files | {path.parent.name for path in room.glob("*/__init__.py")}


def mapped(docstring: str) -> list[str]:
    """First words of the lines of a map: names, with two spaces or more behind them."""
    return re.findall(r"^([a-z][a-z0-9_]*) {2,}\S", docstring, re.MULTILINE)


def beside(docstring: str) -> set[str]:
    """Words in brackets at the ends of lines: rooms that hold the parts of what stands there."""
    return {word for part in re.findall(r"\(([^)]*)\)$", docstring, re.MULTILINE) for word in re.findall(r"\w+", part)}


@pytest.mark.parametrize("room", rooms(), ids=lambda room: room.relative_to(ROOT).as_posix())
def test_every_file_has_its_line(room: Path) -> None:
    docstring = ast.get_docstring(ast.parse((room / "__init__.py").read_text())) or ""
    found, there = mapped(docstring), inside(room)
    assert len(found) == len(set(found)), "a file has two lines"
    assert set(found) <= there, f"not in this room: {set(found) - there}"
    missing = set(REGISTERED.get(room.name, there)) - set(found) - beside(docstring)
    assert not missing, f"no line in the map of this room: {missing}"


def test_a_missing_line_shows() -> None:
    docstring = "What.\n\nfirst   one thing\nsecond_2  another\n        in two lines (third; fourth)\n"
    assert mapped(docstring) == ["first", "second_2"]
    assert beside(docstring) == {"third", "fourth"}
