"""From what was read to the model, its notes and its claims.

Theory: docs/theory/stacks.md, "A deep pre-norm stack".
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np

from unsoftmax.learners.core.base import RELATIVE_ERROR, Allowance, Outcome
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.stack.far import Far
from unsoftmax.learners.stack.frame import Frame
from unsoftmax.learners.stack.polish import Polished, cut_heads
from unsoftmax.learners.stack.star import Star
from unsoftmax.models.attention_layer import AttentionLayer
from unsoftmax.models.attention_stack import AttentionStack
from unsoftmax.models.feed_forward import FeedForward
from unsoftmax.probes.base import Array
from unsoftmax.results.recovery import Claim
from unsoftmax.solvers.cross import NO_DIRECTION
from unsoftmax.solvers.layer_order import Order
from unsoftmax.solvers.neurons_apart import Neurons
from unsoftmax.solvers.plain_stack import Plain
from unsoftmax.solvers.stack_heads import Heads
from unsoftmax.solvers.stack_models import Deep
from unsoftmax.solvers.star import ranks
from unsoftmax.spec import OracleSpec


def outcome(
    far: Far, polished: Polished, layers: list[list[int]], order: Order, causal: bool, spec: OracleSpec
) -> Outcome:
    """The stack in the oracle's number format."""
    fit = polished.fit.model
    sizes = [len(layer) for layer in layers]
    networks: tuple[FeedForward, ...] | Literal["unknown"] | None = "unknown"
    if isinstance(fit, Deep):
        of_heads = fit.constants[::2] if fit.networks else fit.constants
        heads, constants, eps = fit.heads, of_heads @ far.frame.basis.T, fit.eps
        networks = tuple(_network(net, fit, l) for l, net in enumerate(fit.networks)) or None
    else:
        heads = polished.heads.take([h for layer in layers for h in layer])
        constants, eps = np.zeros((len(layers), far.frame.d)), 0.0
    parts, start = [], 0
    for size, constant in zip(sizes, constants, strict=True):
        own = heads.take(list(range(start, start + size)))
        own = replace(own, O=np.einsum("de,hes->hds", far.frame.basis, own.O))
        parts.append(_layer(own, constant, far.frame.T))
        start += size
    model = AttentionStack(tuple(parts), far.frame.norm, eps, causal, networks, **_on_top(far.frame))
    model = model.astype(spec.dtype)
    return Outcome(
        model, (_found(model, heads, far),), (_order(order),), _allowed(CORE.stated_over_rounding * polished.error)
    )


def plain_outcome(found: Plain, error: float) -> Outcome:
    """A stack without norms, its heads in factors of the largest rank that one of a layer has."""
    layers, shown = [], max(NO_DIRECTION, 10 * error)
    for number, rows in enumerate(found.layers()):
        heads = cut_heads(Star(found.W[rows], found.c[rows], found.P[rows]), lambda matrices: ranks(matrices, shown))
        top = number == len(found.sizes) - 1
        layers.append(_layer(heads, found.constant if top else np.zeros_like(found.constant)))
    model = AttentionStack(tuple(layers), None, 0.0, found.causal)
    note = f"{_counted(model)}, no norm, {_seen(model)}, all constants on top."
    return Outcome(model, (note,), allows=_allowed(error))


def _network(net: Neurons, fit: Deep, l: int) -> FeedForward:
    """One network on normalised tokens."""
    activation: Any = fit.activation
    return FeedForward(net.A @ fit.T.T, net.b, net.C, fit.constants[2 * l + 1], activation)


def _on_top(frame: Frame) -> dict[str, Any]:
    """The final norm, if there is one; an RMSNorm has no beta."""
    if frame.final is None:
        return {}
    beta = frame.final.beta if frame.norm == "layer" else None
    return {"final_norm": True, "gamma": frame.final.gamma, "beta": beta}


def _layer(heads: Heads, constant: Array, T: Array | None = None) -> AttentionLayer:
    """Heads, in coordinates T (d, D) of normalised tokens or in those of tokens, as a plain layer."""
    T = np.eye(len(constant)) if T is None else T
    K, Q, V = heads.A.transpose(0, 2, 1) @ T.T, heads.B @ T.T, heads.V @ T.T
    return AttentionLayer(K, Q, heads.c @ T.T, heads.O, V, constant)


def _allowed(error: float) -> Allowance:
    statement = "worst head's W, c or P: what errors of the answers like those seen do to it, in the first order"
    return Allowance(Claim(RELATIVE_ERROR, error, statement=statement))


def _order(order: Order) -> Claim:
    statement = "the matrix of which head feeds which is 0 and 1 up to this"
    return Claim("order of layers", 0.5, order.deviation, statement=statement)


def _found(model: AttentionStack, heads: Heads, far: Far) -> str:
    norm = "LayerNorm" if model.norm == "layer" else "RMSNorm"
    between = f"nothing but constants between them, eps {model.eps:.3g}"
    if isinstance(model.networks, tuple):
        widths = ", ".join(str(len(net.b)) for net in model.networks)
        between = f"networks of {widths} neurons ({model.networks[0].activation}) behind each, eps {model.eps:.3g}"
    if model.networks == "unknown":
        unread = "feed-forward networks" if far.networks else "constants"
        unread = "positions that are added to tokens, and what stands" if far.places else unread
        between = f"{unread} between them that were not read, so the stack cannot be called"
    # Tokens at other places are other tokens: exchanging them tells nothing.
    seen = "causal or not was not told" if far.places else _seen(model)
    shown = f"rank of W at most {heads.A.shape[2]}, of P {heads.V.shape[1]}"
    between += ", a final norm on top" if model.final_norm else ""
    return f"{_counted(model)}, {shown}, {norm} before each, {seen}, {between}."


def _counted(model: AttentionStack) -> str:
    return f"{model.depth} layers of {', '.join(map(str, model.heads))} heads (lowest first)"


def _seen(model: AttentionStack) -> str:
    return "causal" if model.causal else "every token sees all"
