"""Unknowns of a model: its degrees of freedom, which are fewer than the numbers it is stored in.

A matrix of rank r has r(m + n - r) degrees of freedom, whatever its factors hold; a neuron's scale moves freely between
its two layers. Ranks are counted above the stated error of the model: below it there is nothing to tell from noise.
"""

from __future__ import annotations

from functools import singledispatch
from typing import Any

import numpy as np

from unsoftmax import models, theory
from unsoftmax.models.base import Array, Model
from unsoftmax.solvers.cross import NO_DIRECTION
from unsoftmax.verify.constants import VERIFY


@singledispatch
def unknowns_of(model: Model, error: float = 0.0) -> int:
    """Degrees of freedom; the stored numbers where nothing better is known of the class.

    `error` is the stated relative error of the parameters. An output constant that is 0 is part of no published class
    and is not counted.
    """
    return sum(int(np.size(value)) for value in model.parameters().values() if np.ndim(value) or np.any(value))


def _matrix(matrix: Array, error: float, most: int | None = None) -> tuple[int, int]:
    """Degrees of freedom of a matrix of rank at most `most`, and its rank."""
    m, n = matrix.shape
    rank = min(m, n) if most is None else min(m, n, most)
    if error <= VERIFY.one_digit:
        values = np.linalg.svd(matrix, compute_uv=False)
        rank = min(rank, int((values > max(NO_DIRECTION, error) * values[0]).sum()))
    return rank * (m + n - rank), rank


def _beside(model: Any) -> int:
    """Offset of the keys and constant of a head, where it has them."""
    c, constant = getattr(model, "c", None), getattr(model, "constant", 0.0)
    return (0 if c is None else int(np.size(c))) + int(np.any(constant))


@unknowns_of.register(models.SingleHead)
@unknowns_of.register(models.LowRankHead)
def _(model: Any, error: float = 0.0) -> int:
    most = model.K.shape[1] if isinstance(model, models.LowRankHead) else None
    return _matrix(np.asarray(model.W), error, most)[0] + model.dim + _beside(model)


@unknowns_of.register
def _(model: models.MultiHead, error: float = 0.0) -> int:
    return sum(_matrix(W, error)[0] for W in model.W) + model.v.size + _beside(model)


@unknowns_of.register
def _(model: models.AttentionLayer, error: float = 0.0) -> int:
    """c_h lies in the range of W_h, as a query bias puts it there: as many numbers as the rank."""
    count = len(model.constant) + sum(int(np.size(x)) for x in (model.gamma, model.beta) if x is not None)
    for W, P in zip(model.W, model.P, strict=True):
        scores, rank = _matrix(W, error, model.K.shape[1])
        count += scores + rank + _matrix(P, error, model.head_dim)[0]
    return count


@unknowns_of.register
def _(model: models.AttentionStack, error: float = 0.0) -> int:
    """Heads on normalised tokens, of which a LayerNorm leaves d - 1 dimensions; constants only where they are known."""
    seen = model.canonical()
    count = sum(int(np.size(x)) for x in (model.gamma, model.beta) if x is not None)
    if model.networks is None:
        count += model.dim * (1 if model.norm is None else model.depth) + (model.norm is not None)
    lost = int(model.norm == "layer")
    for layer in seen.layers:
        for W, P in zip(layer.W, layer.P, strict=True):
            scores, rank = _matrix(W, error, layer.K.shape[1])
            values, width = _matrix(P, error, layer.head_dim)
            count += scores - 2 * lost * rank + rank + values - lost * width
    return count


@unknowns_of.register(models.ReluNetwork)
@unknowns_of.register(models.Transformer)
@unknowns_of.register(models.MultiHeadTransformer)
def _(model: Any, error: float = 0.0) -> int:
    stored = sum(int(np.size(value)) for value in model.parameters().values() if np.ndim(value) or np.any(value))
    return stored - int(np.size(model.w_o))


@unknowns_of.register
def _(model: models.TokenHead, error: float = 0.0) -> int:
    """A learned head holds its gaps, whose rank is one more than that of the scores."""
    width = model.scores[0].shape[1]
    return theory.token_head_unknowns(len(model.values), width if model.errors is None else max(0, width - 1))


@unknowns_of.register
def _(model: models.OutputLayer, error: float = 0.0) -> int:
    return theory.output_layer_unknowns(model.vocabulary, model.width)


@unknowns_of.register
def _(model: models.TokenLayer, error: float = 0.0) -> int:
    """Heads have the ranks of their scores and values."""
    V, d, T = model.vocabulary, model.width, model.length
    alone = d * (2 * V + T - 1 - d)
    return alone + sum(_matrix(W, error)[0] + _matrix(P, error)[0] for W, P in zip(model.W, model.P, strict=True))
