"""A target over real HTTP without a budget: the default suffices for every learner whose cost depends on the target."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import unsoftmax as us
from tests.adapters.test_wires import MODEL, D, V
from tests.servers.language_model import language_server, served
from unsoftmax.serving.language_model import LanguageService
from unsoftmax.serving.open_inference import Service, application

HEADS = us.models.MultiHead.random(6, 2, norm=2.0, seed=1)
DEEP = us.models.MultiHeadTransformer.random(6, 2, 8, norm=4.0, seed=2)
APART = us.models.MultiHead(
    np.array([np.diag([1.0, 0, 0]), [[0, 0, 0], [0, 1, 2], [0, -1, 1]]]), np.array([[1.0, 0, 0], [0, 1, 1]])
)
CASES: dict[str, tuple[Any, Any]] = {
    "heads": (HEADS, us.learners.MultiHead()),
    "heads with biases": (HEADS, us.learners.MultiHead(affine=True)),
    "no learner": (HEADS, None),
    "orthogonal heads": (APART, us.learners.OrthogonalHeads()),
    "heads before a network": (DEEP, us.learners.Transformer(heads=None)),
    "heads before any network": (DEEP, us.learners.AttentionBehind(heads=None)),
    "another kernel": (us.models.KernelHead.random(6, "softplus", norm=2.0, seed=1), us.learners.KernelHead()),
    "a stack": (us.models.AttentionStack.random(8, 2, 2, 2, seed=1), us.learners.AttentionStack()),
}


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    target, learner = CASES[name]
    with served(application(Service(target))) as url:
        recovery = us.recover(us.adapters.http(url, "model", rate=math.inf), learner)
    assert any("queries were allowed" in note for note in recovery.notes)
    assert recovery.certificate.holds


def test_labels_of_unknown_rank() -> None:
    head = us.models.SingleHead.random(4, rank=1, norm=2.0, seed=1)
    with served(application(Service(head))) as url:
        oracle = us.adapters.http(url, "model", kind="membership", rate=math.inf)
        assert us.recover(oracle, us.learners.Membership(1e-3, rank=None)).certificate.holds


@pytest.mark.parametrize("way", [{"shows": "chosen", "top": 14}, {"shows": "top", "top": V - 1}], ids=["chosen", "top"])
def test_an_output_layer(way: dict[str, Any]) -> None:
    with language_server(LanguageService(MODEL)) as url:
        oracle = us.adapters.openai(f"{url}/v1", "model", vocabulary=V, rate=math.inf, **way)
        assert us.recover(oracle, us.learners.OutputLayer()).model.width == D
