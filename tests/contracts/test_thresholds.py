"""Every number at module level has a docstring of its own: what it is compared with, and why it has its value."""

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


def files() -> list[str]:
    return sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py"))


def test_every_number_has_a_docstring_of_its_own() -> None:
    bare = {file: found for file in files() if (found := list(bare_numbers((ROOT / file).read_text())))}
    assert not bare, f"give each number its own docstring, right below it: {bare}"


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
