"""Forms of a stack's layers: at random, with a norm's gamma and beta inside, and with only what queries can show."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from unsoftmax.models.attention_layer import AttentionLayer
from unsoftmax.models.base import Array

if TYPE_CHECKING:
    from unsoftmax.models.attention_stack import AttentionStack

StackNorm = Literal["layer", "rms"]
"""Norms that may stand before the layers."""


def random_layer(
    d: int, heads: int, dh: int, norm: StackNorm | None, bias: bool, scale: float, rng: np.random.Generator
) -> AttentionLayer:
    """One layer of AttentionStack.random."""
    draw = rng.standard_normal
    n, keep = heads * dh, float(bias)
    query, key = (draw((n, d)) * np.sqrt(1.5 * scale / d) for _ in range(2))
    value, out = draw((n, d)) / np.sqrt(d), 0.5 * draw((d, n)) / np.sqrt(n)
    biases = [keep * size * draw(m) for size, m in ((0.3, n), (0.3, n), (0.3, n), (0.2, d))]
    first, second, third, last = zip((query, key, value, out), biases, strict=True)
    layer = AttentionLayer.from_projections(first, second, third, last, heads)
    if norm is None:
        return layer
    gamma, beta = 1 + 0.2 * draw(d), 0.2 * draw(d) * (norm == "layer")
    return with_affine(layer, gamma, beta)


def with_affine(layer: AttentionLayer, gamma: Array, beta: Array) -> AttentionLayer:
    """The heads of `layer` on gamma z + beta, as heads on z: gamma and beta (d,) of a norm go into them."""
    return replace(
        layer,
        K=layer.K * gamma,
        Q=layer.Q * gamma,
        c=gamma * layer.key_directions(beta[None])[:, 0],
        V=layer.V * gamma,
        constant=layer.constant + (layer.P @ beta).sum(axis=0),
    )


def canonical(stack: AttentionStack) -> AttentionStack:
    """See AttentionStack.canonical."""
    if stack.norm is None and stack.networks is None:
        return _constants_on_top(stack)
    if stack.norm != "layer":
        return stack
    layers, total = [], 0.0
    for layer in stack.layers:
        total += float(layer.constant.mean())
        K, Q, c, V, constant = (_centred(x) for x in (layer.K, layer.Q, layer.c, layer.V, layer.constant))
        O = layer.O - layer.O.mean(axis=1, keepdims=True) if stack.final_norm else layer.O
        layers.append(replace(layer, K=K, Q=Q, c=c, V=V, O=O, constant=constant))
    if not stack.final_norm:
        layers[-1] = replace(layers[-1], constant=layers[-1].constant + layers[-1].constant.dtype.type(total))
    return replace(stack, layers=tuple(layers))


def _constants_on_top(stack: AttentionStack) -> AttentionStack:
    """What a layer adds to every token alike is a shift of the queries above, W shift, and of what they write."""
    layers, shift = [], np.zeros(stack.dim, stack.dtype)
    for layer in stack.layers:
        c = layer.key_directions(shift[None])[:, 0]
        shift = shift + layer.constant + (layer.P @ shift).sum(axis=0)
        layers.append(replace(layer, c=c, constant=np.zeros_like(layer.constant)))
    layers[-1] = replace(layers[-1], constant=shift)
    return replace(stack, layers=tuple(layers))


def _centred(x: Array) -> Array:
    return np.asarray(x - x.mean(axis=-1, keepdims=True))
