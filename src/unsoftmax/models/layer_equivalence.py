"""Attention layers and token heads: same function or not, decided from the parameters."""

from __future__ import annotations

import numpy as np

from unsoftmax.errors import InvalidArgument
from unsoftmax.models.attention_layer import AttentionLayer
from unsoftmax.models.base import Array, Model
from unsoftmax.models.distance import distance
from unsoftmax.models.equivalence import equivalent
from unsoftmax.models.layer_scores import add_up_to_nothing, same_weighing
from unsoftmax.models.multi_head import MultiHead, equal_heads, same
from unsoftmax.models.token_head import TokenHead


@equivalent.register
def _(a: AttentionLayer, b: Model, tolerance: float = 1e-9) -> bool:
    """Every output is a model of heads, so heads of equal W and c are added up: nothing may be left of P_a - P_b."""
    if not isinstance(b, AttentionLayer):
        raise InvalidArgument(f"an AttentionLayer cannot be compared with a {type(b).__name__}.")
    if "post" in (a.norm, b.norm):
        raise InvalidArgument(
            "equivalence is not decided behind a norm after attention, which hides scales; compare the parameters that "
            "show with us.models.distance."
        )
    if (a.dim, a.outputs, a.residual) != (b.dim, b.outputs, b.residual):
        return False
    first, second = a.canonical(), b.canonical()
    if not same(first.constant, second.constant, tolerance):
        return False
    if a.norm != b.norm or not same(np.array(a.eps), np.array(b.eps), tolerance if a.norm == "rms" else 0.0):
        # Tokens that are normed in another way show, unless no head looks at them.
        if not (a.classic and b.classic):
            return not first.P.any() and not second.P.any()
        return _vanish(first.W, first.c, first.P, tolerance) and _vanish(second.W, second.c, second.P, tolerance)
    if not (a.classic and b.classic):
        return same_weighing(a, b, tolerance) and add_up_to_nothing(a, b, tolerance)
    W, c, P = ((first.W, second.W), (first.c, second.c), (first.P, -second.P))
    return _vanish(np.concatenate(W), np.concatenate(c), np.concatenate(P), tolerance)


def _vanish(W: Array, c: Array, P: Array, tolerance: float) -> bool:
    """Whether heads W (H, d, d), c (H, d) with value maps P (H, outputs, d) add up to 0 on every sequence."""
    for group in equal_heads(MultiHead(W, np.zeros_like(c), c), tolerance):
        if np.linalg.norm(P[group].sum(axis=0)) > tolerance * np.linalg.norm(P[group], axis=(1, 2)).sum():
            return False
    return True


@equivalent.register
def _(a: TokenHead, b: Model, tolerance: float = 1e-9) -> bool:
    """Same values and gaps on the ids of both; gaps do not show where all tokens have one value."""
    if not isinstance(b, TokenHead):
        raise InvalidArgument(f"a TokenHead cannot be compared with a {type(b).__name__}.")
    if a.vocabulary != b.vocabulary or a.length != b.length or not np.array_equal(a.known, b.known):
        return False
    first, second = (np.concatenate([m.values[m.known], _last_values(m)[m.known]]) for m in (a, b))
    if not same(first, second, tolerance):
        return False
    flat = same(first, np.full_like(first, first[0]), tolerance)
    return flat or distance(a, b) <= tolerance


def _last_values(model: TokenHead) -> Array:
    return model.values if model.own_values is None else model.own_values
