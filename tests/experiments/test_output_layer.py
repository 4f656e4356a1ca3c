"""Experiments on language models: one point of each way of answering, and verdicts that can fail."""

from __future__ import annotations

import pytest

from unsoftmax.experiments import output_layer, token_layer


@pytest.mark.parametrize("shows", output_layer.WAYS)
def test_a_way_of_answering(shows: str) -> None:
    found = output_layer.row({"width": 12, "vocabulary": 120, "shows": shows, "seed": 0})
    assert found["right"]
    assert found["error"] <= found["stated"]
    assert found["requests"] == found["closed_form"]


def test_verdicts_can_fail() -> None:
    good = {"shows": "all logits", "right": True, "error": 1e-14, "stated": 1e-13, "requests": 48, "closed_form": 48}
    assert output_layer.judge([good]).holds
    for name, value in {"right": False, "error": 1e-9, "requests": 49}.items():
        assert not output_layer.judge([good, good | {name: value}]).holds
    one = {"error": 1e-10, "stated": 1e-9, "ratio": 1.5}
    assert token_layer.judge([one]).holds
    for name, value in {"error": 1e-7, "ratio": 2.1, "stated": 1e-11}.items():
        assert not token_layer.judge([one, one | {name: value}]).holds
