"""Modules in the style of language-model libraries as targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import unsoftmax as us

torch = pytest.importorskip("torch")

LAYER = us.models.AttentionLayer.random(
    16, 4, 4, kv_groups=2, positions=us.models.Rope.ladder(4), norm="rms", residual=True, bias=False, scale=2.0, seed=1
)


@dataclass
class Output:
    last_hidden_state: Any
    past: Any = None


class Model(torch.nn.Module):
    """Ids or vectors in, a record out."""

    def __init__(self):
        super().__init__()
        self.inner = LAYER.to_torch()

    def forward(self, input_ids=None, attention_mask=None, position_ids=None, inputs_embeds=None, use_cache=True):
        assert not use_cache
        return Output(self.inner(inputs_embeds))


class Block(torch.nn.Module):
    """Hidden states in, a tuple out; positions are required."""

    def __init__(self):
        super().__init__()
        self.inner = LAYER.to_torch()

    def forward(self, hidden_states, position_ids):
        assert position_ids.shape == hidden_states.shape[:2]
        return (self.inner(hidden_states), None)


class Inside(torch.nn.Module):
    """Needs what only the model around it makes."""

    def __init__(self):
        super().__init__()
        self.inner = LAYER.to_torch()

    def forward(self, hidden_states, position_embeddings):
        return self.inner(hidden_states)


@pytest.mark.parametrize("module", [Model, Block])
def test_modules_are_asked_by_what_they_accept(module):
    oracle = us.adapters.torch_module(module(), dim=16)
    recovery = us.recover(oracle, us.learners.AttentionLayer("lean"))
    assert us.models.distance(recovery.model, LAYER) < 1e-8
    X = np.random.default_rng(0).standard_normal((3, 5, 16))
    assert np.allclose(recovery.model(X), LAYER(X), atol=1e-8)


def test_what_only_the_model_makes_is_refused_by_name():
    with pytest.raises(us.errors.InvalidArgument, match="position_embeddings"):
        us.adapters.torch_module(Inside(), dim=16)
