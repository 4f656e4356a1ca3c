"""One-layer language models to practise on: what they answer, and the attention layer at their bottom."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import unsoftmax as us
from unsoftmax.serving.llama import Llama

Array = NDArray[Any]


def attention_of(model: Llama, index: int = 0) -> us.models.AttentionLayer:
    """The attention of a block, its norm included, without the residual."""
    block, d, H, G = model.blocks[index], model.dim, model.heads, model.kv_heads
    dh = block.q.shape[1] // H
    key, value = (np.repeat(w.T.reshape(G, dh, d), H // G, axis=0).reshape(H * dh, d) for w in (block.k, block.v))
    return us.models.AttentionLayer.from_projections(
        (block.q.T, None),
        (key, None),
        (value, None),
        (block.o.T, None),
        H,
        norm="rms",
        gamma=block.attention_norm,
        eps=1e-5,
        positions=us.models.Rope.ladder(dh, model.base),
    )


def hidden(model: Llama) -> Callable[[Array], Array]:
    """The last token's state behind the final norm."""
    return lambda X: model.hidden(X)[:, -1]


def stream(model: Llama) -> Callable[[Array], Array]:
    """The last token's state before the final norm."""
    return lambda X: model.stream(X)[:, -1]


def log_probabilities(model: Llama) -> Callable[[Array], Array]:
    """Of all tokens."""

    def shown(X: Array) -> Array:
        y = model.logits(X)
        return y - np.logaddexp.reduce(y, axis=1, keepdims=True)

    return shown
