"""Random attention layers of the usual sizes, for tests and demonstrations."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from unsoftmax.errors import InvalidArgument
from unsoftmax.models.attention_layer import AttentionLayer, Norm
from unsoftmax.models.base import Array, seeded
from unsoftmax.models.features import Features
from unsoftmax.models.positions import Positions
from unsoftmax.models.weighing import Weighing

L = TypeVar("L", bound=AttentionLayer)


def random_layer(
    cls: type[L],
    dim: int,
    heads: int = 1,
    head_dim: int | None = None,
    *,
    outputs: int | None = None,
    scale: float = 1.0,
    bias: bool = True,
    residual: bool = False,
    norm: Norm | None = None,
    eps: float = 1e-5,
    seed: int = 0,
    kv_groups: int | None = None,
    positions: Positions | None = None,
    qk_norm: bool = False,
    softcap: float | None = None,
    sinks: bool = False,
    window: int | None = None,
) -> L:
    """Uniform weights of the usual sizes; `scale` multiplies the scores, `head_dim` defaults to dim / heads.

    `kv_groups`: heads share keys and values in so many groups. `sinks` and `qk_norm` draw their parameters.
    """
    rng = seeded(seed, dim=dim, heads=heads)
    if heads < 1 or (head_dim is None and dim % heads):
        raise InvalidArgument(f"`heads` must divide dim (got {heads} for dim {dim}); or pass head_dim.")
    if kv_groups is not None and (kv_groups < 1 or heads % kv_groups):
        raise InvalidArgument(f"`kv_groups` must divide the heads (got {kv_groups} for {heads}).")
    dh, out = dim // heads if head_dim is None else head_dim, dim if outputs is None else outputs
    size = np.sqrt(1.5 / dim)
    Wq, Wk, Wv = (rng.uniform(-size, size, (heads * dh, dim)) for _ in range(3))
    Wo = rng.uniform(-1, 1, (out, heads * dh)) / np.sqrt(dim)
    biases = [rng.uniform(-1, 1, n) / np.sqrt(dim) * bias for n in (heads * dh, heads * dh, heads * dh, out)]
    if kv_groups is not None:
        Wk, Wv, biases[1], biases[2] = (_shared(w, heads, kv_groups) for w in (Wk, Wv, biases[1], biases[2]))
    rest: dict[str, Any] = {"residual": residual, "norm": norm}
    if norm is not None:
        width = out if norm == "post" else dim
        gamma, beta = 1 + 0.3 * rng.uniform(-1, 1, width), 0.2 * rng.standard_normal(width)
        rest |= {"gamma": gamma, "eps": eps} | ({} if norm == "rms" else {"beta": beta})
    parts = zip((Wq * scale, Wk, Wv, Wo), (biases[0] * scale, *biases[1:]), strict=True)
    query, key, value, final = parts
    logits = rng.standard_normal(heads) if sinks else None
    rest |= {"positions": positions, "weighing": Weighing(softcap, logits, window)}
    if not (positions is None and softcap is None and not sinks and not qk_norm):
        rest["features"] = _features(query[1], key[1], heads, dh, qk_norm, rng)
        query = (query[0], None)
    return cls.from_projections(query, key, value, final, heads, **rest)


def _shared(rows: Array, heads: int, groups: int) -> Array:
    """The first groups' rows, each repeated for the heads of its group."""
    blocks = rows.reshape(heads, -1, *rows.shape[1:])[:groups]
    return np.repeat(blocks, heads // groups, axis=0).reshape(rows.shape)


def _features(bq: Array, bk: Array, heads: int, dh: int, normed: bool, rng: np.random.Generator) -> Features:
    """Biases as features; normed: RMSNorms of random gains, one for all queries and one for all keys."""
    query, key = bq.reshape(heads, dh) / np.sqrt(dh), bk.reshape(heads, dh)
    if not normed:
        return Features(key, query)
    # Rows already carry their gains, those of Q 1 / sqrt(dh) too.
    forms = [np.diag(scale / (1 + 0.3 * rng.uniform(-1, 1, dh)) ** 2) for scale in (1 / dh, 1.0)]
    key_form, query_form = (np.repeat(form[None], heads, axis=0) for form in forms)
    eps = np.full(heads, 1e-6)
    return Features(key, query, key_form, query_form, eps, eps)
