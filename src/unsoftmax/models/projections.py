"""A layer's heads as stacked projections of equal size, the form that frameworks store."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.models.attention_layer import AttentionLayer
from unsoftmax.models.base import Array

_EXACT = 1e-9
"""Part of c that a query bias may leave over: float64 through a least-squares fit keeps nine digits."""


@dataclass(frozen=True, eq=False)
class Projections:
    """query, key, value (H * width, d), query_bias (H * width,), out (outputs, H * width); scores are plain q . k."""

    heads: int
    width: int
    query: Array
    key: Array
    value: Array
    query_bias: Array
    out: Array


def projections(layer: AttentionLayer, width: int | None = None) -> Projections | None:
    """Heads with `width` rows each (the least possible if None); None if they do not fit."""
    K, Q, b = _with_offsets(layer)
    least = max(K.shape[1], layer.V.shape[1])
    width = least if width is None else width
    if least > width:
        return None
    pad = lambda x: np.concatenate([x, np.zeros((len(x), width - x.shape[1], *x.shape[2:]), x.dtype)], axis=1)  # noqa: E731
    key, query, value, bias = (pad(x) for x in (K, Q, layer.V, b))
    out = pad(layer.O.transpose(0, 2, 1)).reshape(-1, layer.outputs).T
    rows = layer.heads * width
    query, key, value = (x.reshape(rows, layer.dim) for x in (query, key, value))
    return Projections(layer.heads, width, query, key, value, bias.reshape(rows), out)


def _with_offsets(layer: AttentionLayer) -> tuple[Array, Array, Array]:
    """K, Q (H, r, d) and query biases b (H, r) with K_h'b_h = c_h; a row is added where c_h is outside K_h's rows."""
    b = np.stack([np.linalg.lstsq(k.T, c, rcond=1e-12)[0] for k, c in zip(layer.K, layer.c, strict=True)])
    rest = layer.c - np.einsum("hrd,hr->hd", layer.K, b)
    if np.linalg.norm(rest) <= max(_EXACT, 10 * np.finfo(rest.dtype).eps) * np.linalg.norm(layer.c):
        return layer.K, layer.Q, b
    K = np.concatenate([layer.K, rest[:, None]], axis=1)
    Q = np.concatenate([layer.Q, np.zeros_like(rest)[:, None]], axis=1)
    return K, Q, np.concatenate([b, np.ones((len(b), 1), b.dtype)], axis=1)
