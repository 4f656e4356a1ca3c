"""Same function or not: decided from the parameters, without a query."""

from __future__ import annotations

from functools import singledispatch

import numpy as np

from unsoftmax.errors import InvalidArgument
from unsoftmax.models.base import Array, Model
from unsoftmax.models.multi_head import MultiHead, same
from unsoftmax.models.relu_network import ReluNetwork
from unsoftmax.models.single_head import LowRankHead, SingleHead
from unsoftmax.models.transformer import Transformer


@singledispatch
def equivalent(a: Model, b: Model, tolerance: float = 1e-9) -> bool:
    """True if a and b answer alike on every sequence (parameters compared within a relative `tolerance`).

    Heads, one or many: f_a - f_b is itself a multi-head model; by partial fractions in the number of repetitions it
    vanishes on all sequences iff its canonical form has no head. O(H^2 d^2) operations.
    """
    raise InvalidArgument(
        f"equivalence is decided for heads, ReLU networks, Transformers, attention layers and token heads (got "
        f"{type(a).__name__}); compare parameters with us.models.distance."
    )


@equivalent.register(SingleHead)
@equivalent.register(LowRankHead)
@equivalent.register(MultiHead)
def _heads(a: Model, b: Model, tolerance: float = 1e-9) -> bool:
    if not isinstance(b, (SingleHead, LowRankHead, MultiHead)):
        raise InvalidArgument(f"a {type(a).__name__} cannot be compared with a {type(b).__name__}.")
    first, second = as_multi_head(a), as_multi_head(b)
    if first.dim != second.dim:
        return False
    c = [np.zeros_like(m.v) if m.c is None else m.c for m in (first, second)]
    gap = MultiHead(
        np.concatenate([first.W, second.W]), np.concatenate([first.v, -second.v]), np.concatenate(c)
    ).canonical(tolerance)
    return gap.heads == 0 and same(np.array(first.constant), np.array(second.constant), tolerance)


def as_multi_head(model: Model) -> MultiHead:
    """Any model of heads as a MultiHead."""
    if isinstance(model, MultiHead):
        return model
    assert isinstance(model, (SingleHead, LowRankHead))
    c = None if model.c is None else model.c[None]
    return MultiHead(model.W[None], model.v[None], c, model.constant)


@equivalent.register
def _(a: ReluNetwork, b: Model, tolerance: float = 1e-9) -> bool:
    if not isinstance(b, ReluNetwork):
        raise InvalidArgument(f"a ReluNetwork cannot be compared with a {type(b).__name__}.")
    return a.dim == b.dim and _vanishes(_difference(a, b), tolerance)


@equivalent.register
def _(a: Transformer, b: Model, tolerance: float = 1e-9) -> bool:
    if not isinstance(b, Transformer):
        raise InvalidArgument(f"a Transformer cannot be compared with a {type(b).__name__}.")
    if a.dim != b.dim or not equivalent(a.network, b.network, tolerance):
        return False
    constant = ReluNetwork(np.zeros((a.dim, 0)), np.zeros(0), None, float(a.network.of(np.zeros(a.dim))))
    if equivalent(a.network, constant, tolerance):
        return True
    return a.residual == b.residual and same(a.W, b.W, tolerance)


def _difference(a: ReluNetwork, b: ReluNetwork) -> ReluNetwork:
    """The network a - b."""
    b_a, b_b = (np.zeros(g.width) if g.b is None else g.b for g in (a, b))
    lin_a, lin_b = (np.zeros(g.dim) if g.lin is None else g.lin for g in (a, b))
    return ReluNetwork(
        np.hstack([a.A, b.A]),
        np.concatenate([a.w_o, -b.w_o]),
        np.concatenate([b_a, b_b]),
        a.b_o - b.b_o,
        lin_a - lin_b,
    )


def _vanishes(g: ReluNetwork, tolerance: float) -> bool:
    """Is g identically 0? Neurons that share a kink are added, ReLU(-u) = ReLU(u) - u turning them all one way."""
    b = np.zeros(g.width) if g.b is None else g.b
    neurons = np.column_stack([g.A.T, b])
    affine = np.append(np.zeros(g.dim) if g.lin is None else g.lin, g.b_o)
    size = np.abs(affine)
    kinks: list[tuple[Array, float, float]] = []
    for row, weight in zip(neurons, g.w_o, strict=True):
        size = size + np.abs(weight * row)
        length = float(np.linalg.norm(row))
        if np.linalg.norm(row[:-1]) == 0:
            affine[-1] += weight * max(row[-1], 0.0)
            continue
        unit, strength = row / length, weight * length
        for i, (other, total, members) in enumerate(kinks):
            same = 1.0 if unit @ other >= 0 else -1.0
            if np.linalg.norm(unit - same * other) <= tolerance:
                kinks[i] = (other, total + strength, members + abs(strength))
                if same < 0:
                    affine = affine + strength * unit
                break
        else:
            kinks.append((unit, strength, abs(strength)))
    flat = all(abs(total) <= tolerance * members for _, total, members in kinks)
    return flat and float(np.linalg.norm(affine)) <= tolerance * float(np.linalg.norm(size))
