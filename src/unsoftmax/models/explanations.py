"""What an explanation of a head's answer holds: its gradient in the tokens, or its attention weights."""

from __future__ import annotations

import numpy as np

from unsoftmax.errors import InvalidArgument
from unsoftmax.models.base import Array, Model, attention_weights, tokens_of
from unsoftmax.models.multi_head import MultiHead
from unsoftmax.models.single_head import LowRankHead, SingleHead


def attention(model: Model, tokens: Array) -> Array:
    """Weights (batch, H, N) of every head on tokens (batch, N, d)."""
    _require_heads(model)
    X = tokens_of(tokens, model.dim, _stacked(model)[0].dtype)
    directions = model.key_directions(X[:, -1])
    return attention_weights(np.einsum("bnd,hbd->bhn", X, directions), None)


def gradient(model: Model, tokens: Array) -> Array:
    """df/dX (batch, N, d). Through the keys alpha_i (x_i.v - f) u, through the query W'(sum of the same, times x_i)."""
    _require_heads(model)
    W, v = _stacked(model)
    X = tokens_of(tokens, model.dim, W.dtype)
    total = np.zeros_like(X)
    for W_h, v_h, u, alpha in zip(W, v, model.key_directions(X[:, -1]), _by_head(model, X), strict=True):
        values = X @ v_h
        pull = alpha * (values - (alpha * values).sum(axis=1, keepdims=True))
        total += alpha[:, :, None] * v_h + pull[:, :, None] * u[:, None, :]
        total[:, -1] += np.einsum("bn,bnd->bd", pull, X) @ W_h
    return total


def _by_head(model: Model, X: Array) -> Array:
    return np.moveaxis(attention(model, X), 1, 0)


def _stacked(model: Model) -> tuple[Array, Array]:
    assert isinstance(model, (SingleHead, LowRankHead, MultiHead))
    return (model.W, model.v) if isinstance(model, MultiHead) else (model.W[None], model.v[None])


def _require_heads(model: Model) -> None:
    if not isinstance(model, (SingleHead, LowRankHead, MultiHead)):
        raise InvalidArgument(
            f"explanations are computed for SingleHead, LowRankHead and MultiHead (got {type(model).__name__}); pass a "
            "function that returns the value and its gradient or attention."
        )
