"""Layers: which head feeds which, from answers at one query token of several large lengths; and causal or not.

Theory: docs/theory/stacks.md, "A deep pre-norm stack", order.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unsoftmax.errors import Code, ModelMismatch
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.stack.constants import STACK
from unsoftmax.learners.stack.far import Far
from unsoftmax.learners.stack.frame import Frame
from unsoftmax.probes.base import Probes
from unsoftmax.probes.scales import held, weights_at_infinity
from unsoftmax.solvers.layer_order import Order, Size, find_order, first_order
from unsoftmax.solvers.stack_heads import Contexts, Heads

_LENGTHS = {
    ("float64", False): (2.0**13, 2.0**14),
    ("float64", True): (2.0**10, 2.0**11, 2.0**12),
    ("float32", False): (2.0**4, 2.0**5, 2.0**6),
    ("float32", True): (2.0**4, 2.0**5, 2.0**6),
}
"""lambda by number format and networks: where the 1/lambda term stands out of rounding and of the terms above it."""


def find_layers(far: Far, heads: Heads, told_again: bool) -> Asking[tuple[list[list[int]], Order]]:
    """Heads by layer, lowest first, phase "order"; raises where no order of layers explains the answers at any q.

    told_again: ordinary answers will be held against the layers, so that a first guess is enough.
    """
    for attempt in range(STACK.tries):
        order = yield from _at_one_query(far, heads, "order" if attempt == 0 else "repair")
        layers = order.layers()
        clear = order.deviation <= STACK.order_retold if told_again else _is_strict(order)
        if layers is not None and clear:
            return layers, order
    raise ModelMismatch(
        f"{len(heads)} heads were told apart, and which of them feed which is no order of layers: entries of a matrix "
        f"that should be 0 or 1 are off by {max(order.deviation, order.own):.2g}, and it leaves {order.residual:.2g} "
        "of the answers' change. The target is no stack of layers with residuals, two heads of different layers attend "
        "alike, or its answers are too noisy."
    )


def _is_strict(order: Order) -> bool:
    return max(order.deviation, order.own) <= STACK.order_strict and order.residual <= STACK.misfit_of_order


def spread(heads: Heads, layers: list[list[int]]) -> Heads:
    """Heads that stand in several layers write their share in each: at infinity their sum was seen."""
    times = np.bincount([h for layer in layers for h in layer], minlength=len(heads))
    return replace(heads, O=heads.O / times[:, None, None])


def _at_one_query(far: Far, heads: Heads, phase: str) -> Asking[Order]:
    """Which head feeds which, from contexts that share one q."""
    frame = far.frame
    lengths = _LENGTHS[frame.dtype, far.networks]
    size = Size(len(heads), frame.D, far.outputs, heads.B.shape[1], heads.V.shape[1], far.networks)
    m = size.contexts(STACK.numbers_asked) + CORE.to_spare
    m = m if frame.dtype == "float64" else 4 * m
    q = np.tile(far.directions(1), (m, 1))
    others, counts = far.contexts(m)
    counts = np.ones_like(counts) if far.places else counts
    contexts = Contexts(q, others, np.log(counts), np.zeros((m, far.outputs)), np.full(m, np.inf))
    y = yield from far.at(lengths, q, others, counts, phase)
    term = first_order(list(y), np.array(lengths))
    if frame.final is None:
        return find_order(heads, frame.T, contexts, term, far.networks)
    limit = np.tensordot(weights_at_infinity(lengths), y, axes=1)
    return find_order(heads, np.eye(frame.D), contexts, term, far.networks, limit)


def require_feeding(far: Far) -> Asking[None]:
    """Refuse heads beside a function of the last token alone, where single tokens show more than heads, phase "pilot".

    Whatever stands behind heads moves what a context adds by a term in 1/lambda. Where there is none, no order can be
    told, at any number of queries.
    """
    frame, m = far.frame, STACK.contexts_that_feed
    if not far.networks or frame.final is not None or far.places or frame.dtype != "float64":
        return
    lengths = _LENGTHS[frame.dtype, True]
    q = far.directions(m)
    others, counts = far.contexts(m)
    behind = yield from far.at(lengths, q, others, counts, "pilot")
    alone = yield from far.at(lengths, q, others[:, :0], counts[:, :0], "pilot")
    added = behind - alone
    weights = np.linalg.inv((1 / np.array(lengths))[:, None] ** np.arange(len(lengths)))[1]
    term = float(np.abs(np.tensordot(weights, added, axes=1)).max())
    size = np.array(lengths) + np.abs(behind).max(axis=(1, 2))
    if term > STACK.feeding_over_rounding * frame.unit * float(np.abs(weights) @ size):
        return
    raise ModelMismatch(
        "single tokens are answered with more than heads, and what the other tokens add does not change with the "
        f"length of the last one (by {term:.1g} of its inverse, which is rounding): one layer of heads, and beside it "
        "a function of the last token alone, such as a network in parallel or a map of its own around the heads. A "
        "network behind heads, or a second layer, would show. Such heads are not learned here; ask for the answers "
        "without that function.",
        code=Code.NETWORK,
    )


def find_causal(frame: Frame, rng: np.random.Generator) -> Asking[bool]:
    """Two ordinary sequences whose first tokens are exchanged: only a causal stack tells them apart."""
    x = held(rng.standard_normal((3, frame.d)))
    y = yield Probes(np.stack([x, x[[1, 0, 2]]]), phase="pilot")
    return frame.differ(y[0], y[1])
