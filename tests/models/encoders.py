"""The truth about PyTorch encoders: what nn.TransformerEncoder(norm_first=True) holds, as a stack."""

from __future__ import annotations

from typing import Any

import numpy as np

from unsoftmax.errors import InvalidArgument
from unsoftmax.models.attention_layer import AttentionLayer
from unsoftmax.models.attention_stack import AttentionStack
from unsoftmax.models.base import Array
from unsoftmax.models.feed_forward import Activation, FeedForward
from unsoftmax.models.stack_forms import with_affine


def from_encoder(encoder: Any) -> AttentionStack:
    """The stack inside an nn.TransformerEncoder(norm_first=True), gamma and beta inside heads and networks."""
    layers, networks = [], []
    for block in encoder.layers:
        if not block.norm_first:
            raise InvalidArgument("this encoder norms after every layer (norm_first=False); a stack norms before.")
        layers.append(_attention(block))
        networks.append(_feed_forward(block))
    final = encoder.norm
    rest = {} if final is None else {"gamma": _array(final.weight), "beta": _array(final.bias)}
    eps = float(encoder.layers[0].norm1.eps)
    return AttentionStack(tuple(layers), "layer", eps, False, tuple(networks), final is not None, **rest)


def _attention(block: Any) -> AttentionLayer:
    attention = block.self_attn
    weights = np.split(_array(attention.in_proj_weight), 3)
    biases = [None] * 3 if attention.in_proj_bias is None else np.split(_array(attention.in_proj_bias), 3)
    out = attention.out_proj
    query, key, value = zip(weights, biases, strict=True)
    final = (_array(out.weight), None if out.bias is None else _array(out.bias))
    layer = AttentionLayer.from_projections(query, key, value, final, attention.num_heads)
    return with_affine(layer, _array(block.norm1.weight), _array(block.norm1.bias))


def _feed_forward(block: Any) -> FeedForward:
    gamma, beta = _array(block.norm2.weight), _array(block.norm2.bias)
    A = _array(block.linear1.weight)
    name = str(getattr(block.activation, "__name__", type(block.activation).__name__)).lower()
    activation: Activation = "relu" if name == "relu" else "gelu"
    b = _array(block.linear1.bias) + A @ beta
    return FeedForward(A * gamma, b, _array(block.linear2.weight), _array(block.linear2.bias), activation)


def _array(tensor: Any) -> Array:
    return np.asarray(tensor.detach().cpu().numpy())
