"""Errors carry a code and fields for programs, and a message for people; nobody reads the message."""

from __future__ import annotations

import ast
import pickle
from pathlib import Path

import numpy as np
import pytest

import unsoftmax as us
from unsoftmax import errors

ROOT = Path(__file__).parents[1] / "src" / "unsoftmax"
CLASSES = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.UnsoftmaxError)]
ERRORS = {"error", "refusal", "failure", "mismatch"}
WORDS = {"reason", "sentence", "statement", "message", "note", "words"}


def test_every_class_of_errors_has_a_code_of_its_own() -> None:
    assert len({kind.code for kind in CLASSES}) == len(CLASSES)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_reason_and_advice_make_the_message_and_travel(kind) -> None:
    error = kind("d is 3.", advice="pass d=4.")
    error.code = errors.Code.ORDER
    for copy in (error, pickle.loads(pickle.dumps(error))):
        assert (str(copy), copy.reason, copy.advice) == ("d is 3; pass d=4.", "d is 3.", "pass d=4.")
        assert copy.code == "order"
    assert str(kind("d is 3.")) == kind("d is 3.").reason == "d is 3."


def test_a_target_outside_every_class_is_refused_with_the_code_of_the_diagnosis() -> None:
    oracle = us.oracle(lambda X: X[:, 0] @ np.arange(1.0, 5.0), 4)
    with pytest.raises(us.errors.ModelMismatch) as refusal:
        us.recover(oracle)
    assert refusal.value.code == us.diagnose(oracle).code != ""


def test_a_model_that_fresh_queries_contradict_has_its_own_code() -> None:
    with pytest.raises(us.errors.ModelMismatch) as refusal:
        us.recover(us.oracle(us.models.Transformer.random(4, 6, seed=1)), us.learners.ReluNetwork())
    assert refusal.value.code is errors.Code.CONTRADICTED


def reads_words(node: ast.AST) -> bool:
    """Whether a decision hangs on a sentence: `"..." in str(error)`, or `reason.startswith("...")`."""
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn)):
        return isinstance(node.left, ast.Constant) and _sentence(node.comparators[0])
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in ("startswith", "partition", "replace") and _sentence(node.func.value)
    return False


def _sentence(node: ast.AST) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "str":
        return isinstance(node.args[0], ast.Name) and node.args[0].id in ERRORS
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name in WORDS


@pytest.mark.parametrize("room", ["auditing", "diagnosis", "cli", "run", "verify"])
def test_no_decision_hangs_on_a_sentence(room: str) -> None:
    found = [
        f"{path.name}:{node.lineno}"
        for path in sorted((ROOT / room).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if reads_words(node)
    ]
    assert found == []


@pytest.mark.parametrize(
    "code",
    ['x = "order" in str(error)', 'y = trial.reason.startswith("TooDear")', 'z = [n for n in notes if "a" in note]'],
)
def test_the_check_can_fail(code: str) -> None:
    assert any(reads_words(node) for node in ast.walk(ast.parse(code)))
