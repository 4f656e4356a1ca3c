"""Programs read codes and fields, never messages: no words are looked for in what an error or a result says."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "src" / "unsoftmax"

SAID = {"sentence", "sentences", "reason", "advice", "notes", "statement", "args", "__notes__"}
"""Fields that are for people."""

LOOKING = {"startswith", "endswith", "find", "index", "count", "removeprefix"}
"""Methods of text that look for words."""


def is_said(node: ast.expr) -> bool:
    """Whether a text is `str(error)`, or a field for people, or made of one."""
    match node:
        case ast.Call(func=ast.Name(id="str" | "repr"), args=[ast.Name(id=name)]):
            return name in ("error", "failure", "refusal", "refused", "mismatch", "problem", "alone", "exception", "e")
        case ast.Attribute(attr=attr):
            return attr in SAID
        case ast.Call(func=ast.Attribute(value=inner)) | ast.Subscript(value=inner):
            return is_said(inner)
    return False


def looked_at(source: str) -> list[int]:
    """Lines in which words are looked for in what is said."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Attribute(value=text, attr=attr)) if attr in LOOKING and is_said(text):
                found.append(node.lineno)
            case ast.Compare(left=left, ops=[ast.In() | ast.NotIn()], comparators=[text]):
                if is_said(text) and not isinstance(left, ast.Attribute):
                    found.append(node.lineno)
            case ast.Compare(left=left, ops=[ast.Eq() | ast.NotEq()], comparators=[ast.Constant(value=str(words))]):
                if is_said(left) and words:
                    found.append(node.lineno)
    return found


def test_nothing_is_decided_by_words() -> None:
    files = {path.relative_to(ROOT).as_posix(): looked_at(path.read_text()) for path in ROOT.rglob("*.py")}
    assert not {name: lines for name, lines in files.items() if lines}


@pytest.mark.parametrize(
    ("source", "looks"),
    [
        ('if str(error).startswith("500 "): pass', True),
        ('if "noise" in refusal.reason: pass', True),
        ('if error.args[0] == "x": pass', True),
        ('if error.code == "x": pass', False),
        ("said = str(error)", False),
    ],
)
def test_what_counts_as_looking(source: str, looks: bool) -> None:
    assert bool(looked_at(source)) is looks
