"""Copies of a model with one parameter off by a known share in a random direction: what would an error of it do?"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import replace
from functools import singledispatch
from typing import Any

import numpy as np

from unsoftmax.models.attention_layer import AttentionLayer
from unsoftmax.models.base import Array, Model
from unsoftmax.models.multi_head import MultiHead
from unsoftmax.models.single_head import LowRankHead, SingleHead
from unsoftmax.models.token_layer import TokenLayer

_FACTORS = 16
"""Rank of a random error of a matrix that is kept as factors: a'E b is then within a few percent of Gaussian."""

Near = Iterator[tuple[str, Model]]


@singledispatch
def nearby(model: Model, share: float, rng: np.random.Generator, known: Container[str] = ()) -> Near:
    """(name, copy): in each copy one parameter is off by `share` of its Frobenius norm, a W that is 0 by `share`.

    Other parameters that are 0 are left out, and weights of a network: the network as a whole has a claim of its own.
    Names in `known` are passed over: a copy of a large layer costs more than its answers to a few sequences.
    """
    parameters = model.parameters()
    for name in ("W", "K", "Q", "c", "v", "O", "V"):
        value = parameters.get(name)
        if name == "W" and value is not None and value.ndim == 3:
            for h in range(len(value)):
                yield from _heads(model, ("W",), h, share, rng, known)
        elif name not in known and value is not None and value.ndim and (value.any() or name == "W"):
            off = value + _direction(value, rng) * share
            yield name, model.from_parameters({**parameters, name: off})


@nearby.register
def _(model: SingleHead, share: float, rng: np.random.Generator, known: Container[str] = ()) -> Near:
    return _parts(model, ("W", "v", "c", "constant"), share, rng, known)


@nearby.register
def _(model: LowRankHead, share: float, rng: np.random.Generator, known: Container[str] = ()) -> Near:
    if "W" not in known:
        G, E = _error(model.dim, model.dim, (_size(model.K, model.Q) or 1.0) * share, rng)
        yield "W", replace(model, K=np.hstack([model.K, G]), Q=np.hstack([model.Q, E]))
    yield from _parts(model, ("v", "c", "constant"), share, rng, known)


@nearby.register
def _(model: MultiHead, share: float, rng: np.random.Generator, known: Container[str] = ()) -> Near:
    for h in range(model.heads):
        yield from _heads(model, ("W", "v", "c"), h, share, rng, known)
        # Where the others have their values, head h is never seen alone: its keys are known worst along these.
        others = np.delete(model.v, h, axis=0)
        E = others.T @ rng.standard_normal((len(others), model.dim))
        if E.any() and f"W along values_{h + 1}" not in known:
            W = model.W.copy()
            W[h] += E * (share * (float(np.linalg.norm(W[h])) or 1.0) / np.linalg.norm(E))
            yield f"W along values_{h + 1}", replace(model, W=W)
    yield from _parts(model, ("constant",), share, rng, known)


@nearby.register
def _(model: AttentionLayer, share: float, rng: np.random.Generator, known: Container[str] = ()) -> Near:
    d, out = model.dim, model.outputs
    for h in range(model.heads):
        if model.positions is None and model.features is None:
            if f"W_{h + 1}" not in known:
                G, E = _error(d, d, (_size(model.K[h].T, model.Q[h].T) or 1.0) * share, rng)
                yield f"W_{h + 1}", replace(model, K=_beside(model.K, h, G.T), Q=_beside(model.Q, h, E.T))
        else:
            # What turns keys by their position, or norms them, fixes their number: errors of the factors stand for W's.
            yield from _heads(model, ("K", "Q"), h, share, rng, known)
        if f"P_{h + 1}" not in known and (size := _size(model.O[h], model.V[h].T)):
            G, E = _error(out, d, size * share, rng)
            O = _beside(model.O.transpose(0, 2, 1), h, G.T).transpose(0, 2, 1)
            yield f"P_{h + 1}", replace(model, O=O, V=_beside(model.V, h, E.T))
        yield from _heads(model, ("c",), h, share, rng, known)
    yield from _parts(model, ("constant", "gamma", "beta"), share, rng, known)


@nearby.register
def _(model: TokenLayer, share: float, rng: np.random.Generator, known: Container[str] = ()) -> Near:
    for h in range(model.heads):
        yield from _heads(model, ("W", "P", "c"), h, share, rng, known)
    yield from _parts(model, ("positions", "embeddings"), share, rng, known)


def _parts(model: Any, names: tuple[str, ...], share: float, rng: np.random.Generator, known: Container[str]) -> Near:
    for name in names:
        value = getattr(model, name)
        if name not in known and value is not None and (np.any(value) or name == "W"):
            off = np.asarray(value) + _direction(np.asarray(value), rng) * share
            yield name, replace(model, **{name: off.item() if off.ndim == 0 else off})


def _heads(
    model: Any, names: tuple[str, ...], h: int, share: float, rng: np.random.Generator, known: Container[str]
) -> Near:
    for name in names:
        value = getattr(model, name)
        if f"{name}_{h + 1}" not in known and value is not None and (value[h].any() or name == "W"):
            off = value.copy()
            off[h] += _direction(value[h], rng) * share
            yield f"{name}_{h + 1}", replace(model, **{name: off})


def _direction(value: Array, rng: np.random.Generator) -> Array:
    """A random array like `value`, of its norm, or of norm 1 where it is 0."""
    E = rng.standard_normal(value.shape)
    return np.asarray(E * ((float(np.linalg.norm(value)) or 1.0) / max(float(np.linalg.norm(E)), 1e-300)))


def _error(rows: int, columns: int, size: float, rng: np.random.Generator) -> tuple[Array, Array]:
    """Factors G (rows, k), E (columns, k) of a random matrix G E' of about this norm."""
    G, E = rng.standard_normal((rows, _FACTORS)), rng.standard_normal((columns, _FACTORS))
    return G, E * (size / float(np.sqrt(_FACTORS * rows * columns)))


def _size(left: Array, right: Array) -> float:
    """||left right'||_F without forming it."""
    return float(np.sqrt(max(float(np.sum((left.T @ left) * (right.T @ right))), 0.0)))


def _beside(factors: Array, h: int, rows: Array) -> Array:
    """Factors (H, r, d) with more rows: those given for head h, zeros for the others."""
    more = np.zeros((len(factors), len(rows), factors.shape[2]))
    more[h] = rows
    return np.concatenate([factors, more], axis=1)
