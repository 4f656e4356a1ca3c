"""Every number has a docstring of its own: what it is compared with, and why it has its value.

In a room with a `constants.py` what was measured or chosen is a field there. What stands beside its use follows from
other numbers, from the mathematics ("Derived: ...") or from what a format, a page or a sign says ("Defined: ...").
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "src" / "unsoftmax"


def is_number(value: ast.expr) -> bool:
    """Whether an expression is a number, or arithmetic in which one stands."""
    match value:
        case ast.Constant():
            return isinstance(value.value, int | float) and not isinstance(value.value, bool)
        case ast.UnaryOp():
            return is_number(value.operand)
        case ast.BinOp():
            return is_number(value.left) or is_number(value.right)
    return False


def is_docstring(node: ast.stmt | None) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        and bool(node.value.value.strip())
    )


def bare_numbers(source: str) -> Iterator[str]:
    """Names of numbers without a docstring right below; `A, B = 1, 2` shares one, so neither has its own."""
    body = ast.parse(source).body
    for node, below in zip(body, [*body[1:], None], strict=True):
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                yield from (ast.unparse(name) for name, value in zip(names, values, strict=True) if is_number(value))
            case ast.Assign(targets=[*_, name], value=value) | ast.AnnAssign(target=name, value=ast.expr() as value):
                if is_number(value) and (not is_docstring(below) or len(getattr(node, "targets", ())) > 1):
                    yield ast.unparse(name)


def bare_fields(source: str) -> Iterator[str]:
    """Fields of dataclasses of constants without a docstring right below."""
    for table in ast.parse(source).body:
        if isinstance(table, ast.ClassDef):
            for node, below in zip(table.body, [*table.body[1:], None], strict=True):
                if isinstance(node, ast.AnnAssign) and not is_docstring(below):
                    yield ast.unparse(node.target)


def is_literal(value: ast.expr) -> bool:
    """Whether a number, or a tuple of numbers, is written out: no name stands in it."""
    if isinstance(value, ast.Tuple):
        return bool(value.elts) and all(map(is_literal, value.elts))
    return is_number(value) and not any(isinstance(node, ast.Name | ast.Call) for node in ast.walk(value))


def loose_numbers(source: str) -> Iterator[str]:
    """Names of numbers at module level that are written out and neither derived nor defined by their docstring."""
    body = ast.parse(source).body
    for node, below in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None and is_literal(node.value):
            said = below.value.value if is_docstring(below) else ""  # type: ignore[union-attr]
            if not said.startswith(("Derived: ", "Defined: ")):
                yield ast.unparse(node.targets[-1] if isinstance(node, ast.Assign) else node.target)


def rooms_with_a_table() -> list[Path]:
    """Rooms with a `constants.py`, and the public learners, whose numbers stand in the tables of their rooms."""
    return sorted({ROOT / "learners", *(path.parent for path in ROOT.rglob("constants.py"))})


def files() -> list[str]:
    return sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py"))


def test_every_number_has_a_docstring_of_its_own() -> None:
    bare = {file: found for file in files() if (found := list(bare_numbers((ROOT / file).read_text())))}
    assert not bare, f"give each number its own docstring, right below it: {bare}"


def test_every_field_has_a_docstring_of_its_own() -> None:
    tables = [*ROOT.rglob("constants*.py"), ROOT / "learners" / "rotary" / "limits.py"]
    bare = {path: found for path in tables if (found := list(bare_fields(path.read_text())))}
    assert not bare, f"give each field its own docstring, right below it: {bare}"


@pytest.mark.parametrize("room", rooms_with_a_table(), ids=lambda room: room.relative_to(ROOT).as_posix())
def test_a_room_with_a_table_keeps_its_numbers_there(room: Path) -> None:
    loose = {path.name: found for path in room.glob("*.py") if (found := list(loose_numbers(path.read_text())))}
    assert not loose, f"move them to constants.py, or say what they follow from (Derived: ..., Defined: ...): {loose}"


@pytest.mark.parametrize(
    ("source", "loose"),
    [
        ('A = 1\n"""Measured."""', ["A"]),
        ('A = 1\n"""Derived: 2 - 1."""', []),
        ('A = -1.0\n"""Defined: no reach is negative."""', []),
        ('A = (1, 2.0**-3)\n"""Measured."""', ["A"]),
        ('A = 2 * EPS\n"""Twice the unit."""', []),
        ("def f():\n    A = 1", []),
    ],
)
def test_what_counts_as_loose(source: str, loose: list[str]) -> None:
    assert list(loose_numbers(source)) == loose


def test_what_counts_as_a_bare_field() -> None:
    assert list(bare_fields('class A:\n    x: int = 1\n    """Why."""\n    y: int = 2\n    z: int')) == ["y", "z"]


@pytest.mark.parametrize(
    ("source", "bare"),
    [
        ('A = 1\n"""Why."""', []),
        ("A = 1", ["A"]),
        ('A = 1\nB = 2\n"""Why."""', ["A"]),
        ('A, B = 1, 2\n"""Why."""', ["A", "B"]),
        ('A = B = 1\n"""Why."""', ["B"]),
        ("A: float = -2.0**-3", ["A"]),
        ('A = 2 * len("xy")\n""""""', ["A"]),
        ("A = True\nB = 'text'\nC: int", []),
        ("def f():\n    A = 1", []),
    ],
)
def test_what_counts_as_bare(source: str, bare: list[str]) -> None:
    assert list(bare_numbers(source)) == bare
