"""Stacks compared: layers in their order, heads of a layer in any, and only what queries can show."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unsoftmax.errors import InvalidArgument
from unsoftmax.models.attention_stack import AttentionStack
from unsoftmax.models.base import Model
from unsoftmax.models.distance import beside, distance, relative
from unsoftmax.models.equivalence import equivalent
from unsoftmax.models.layer_distance import distinct, layer_gaps


@distance.register
def _(model: AttentionStack, other: Model) -> float:
    """Worst head of the worst layer; constants only where no network hides them."""
    if not isinstance(other, AttentionStack):
        raise InvalidArgument(f"an AttentionStack cannot be compared with a {type(other).__name__}.")
    if (model.heads, model.norm, model.final_norm) != (other.heads, other.norm, other.final_norm):
        return float("inf")
    gaps = stack_gaps(model, other)
    return max(gaps.values())


def stack_gaps(model: AttentionStack, other: AttentionStack) -> dict[str, float]:
    """Relative errors by parameter, the worst over layers of equal place; heads of a layer are matched."""
    first, second = model.canonical(), other.canonical()
    # With networks, known or not, the constants of attention and network show only as their sum.
    shown = first.networks is None and second.networks is None
    worst: dict[str, float] = {}
    for mine, true in zip(first.layers, second.layers, strict=True):
        for name, gap in layer_gaps(mine, true).items():
            if name != "constant" or shown:
                worst[name] = max(worst.get(name, 0.0), gap)
    if first.final_norm:
        gamma, gamma2 = (np.ones(m.dim) if m.gamma is None else m.gamma for m in (first, second))
        beta, beta2 = (np.zeros(m.dim) if m.beta is None else m.beta for m in (first, second))
        worst |= {"gamma": relative(gamma, gamma2), "beta": beside(beta, beta2, gamma2)}
    return worst


@equivalent.register
def _(a: AttentionStack, b: Model, tolerance: float = 1e-9) -> bool:
    """Same frame and, layer by layer, the same heads: equal scores count as one head, P_h = 0 as none.

    Two stacks of this kind that differ there answer differently where all tokens but the last are long, unless heads of
    different layers attend alike; then the parts they share stay undecided and False is said.
    """
    if not isinstance(b, AttentionStack):
        raise InvalidArgument(f"an AttentionStack cannot be compared with a {type(b).__name__}.")
    if a.networks is not None or b.networks is not None:
        raise InvalidArgument(
            "equivalence is not decided for stacks with feed-forward networks; us.models.distance compares the heads."
        )
    first, second = _distinct(a), _distinct(b)
    if (a.dim, a.norm, a.final_norm, first.heads) != (b.dim, b.norm, b.final_norm, second.heads):
        return False
    if (a.causal != b.causal and a.depth > 1) or (a.norm is not None and abs(a.eps - b.eps) > tolerance * abs(b.eps)):
        return False
    return distance(first, second) <= tolerance


def _distinct(stack: AttentionStack) -> AttentionStack:
    return replace(stack, layers=tuple(distinct(layer) for layer in stack.canonical().layers))
