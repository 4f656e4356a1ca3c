"""Equal numbers keep their order on every processor: sorts that decide what is asked or solved are stable.

NumPy's default sort orders ties as the processor's widest instructions do, so that a run resumed elsewhere drew other
fresh queries for a model whose scores are all 0.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "src" / "unsoftmax"
ROOMS = ["learners", "solvers", "verify", "probes", "models", "fitting", "comparing", "diagnosis"]


def unstable(source: str) -> list[int]:
    """Lines that call argsort without `kind="stable"`."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "argsort"
        if not any(word.arg == "kind" and ast.literal_eval(word.value) == "stable" for word in node.keywords)
    ]


@pytest.mark.parametrize("room", ROOMS)
def test_ties_are_ordered_alike_everywhere(room: str) -> None:
    found = {path.name: lines for path in (ROOT / room).rglob("*.py") if (lines := unstable(path.read_text()))}
    assert not found


def test_the_check_can_fail() -> None:
    assert unstable("np.argsort(x)\nnp.argsort(x, kind='stable')\nx.argsort(kind='heapsort')") == [1, 3]
