"""Layers: which head feeds which, from answers at one query token of several large lengths; and causal or not.

Theory: docs/theory/stacks.md, "A deep pre-norm stack", order.
"""

from __future__ import annotations

import numpy as np

from unsoftmax.errors import ModelMismatch
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.stack.far import Far, random_contexts, weights_at_infinity
from unsoftmax.probes.base import Probes
from unsoftmax.probes.sphere import sphere
from unsoftmax.solvers.layer_order import Order, Size, find_order, first_order
from unsoftmax.solvers.stack_heads import Contexts, Heads
from unsoftmax.spec import OracleSpec

TOKENS = 4
"""Frozen tokens of a random context."""

_LENGTHS = {
    ("float64", False): (2.0**13, 2.0**14),
    ("float64", True): (2.0**10, 2.0**11, 2.0**12),
    ("float32", False): (2.0**4, 2.0**5, 2.0**6),
    ("float32", True): (2.0**4, 2.0**5, 2.0**6),
}
"""lambda by number format and networks: where the 1/lambda term stands out of rounding and of the terms above it."""

_OVER = 1.4
"""Equations over unknowns."""

_SPARE = 4
"""Contexts beyond that."""

_TRIES = 3
"""Query tokens that are tried: near a kink of a network the 1/lambda term is none."""

_CLEAR = 0.3
"""Largest distance of an entry from 0 and 1: at random half the entries would be further away."""


def find_layers(far: Far, heads: Heads, rng: np.random.Generator) -> Asking[tuple[list[list[int]], Order]]:
    """Heads by layer, lowest first, phase "order"; raises where no order of layers explains the answers at any q."""
    for attempt in range(_TRIES):
        order = yield from _at_one_query(far, heads, rng, "order" if attempt == 0 else "repair")
        layers = order.layers()
        if layers is not None and order.deviation <= _CLEAR:
            return layers, order
    raise ModelMismatch(
        f"{len(heads)} heads were told apart, and which of them feed which is no order of layers: entries of a matrix "
        f"that should be 0 or 1 are off by {order.deviation:.2g}. The target is no stack of layers with residuals, or "
        "its answers are too noisy."
    )


def _at_one_query(far: Far, heads: Heads, rng: np.random.Generator, phase: str) -> Asking[Order]:
    """Which head feeds which, from contexts that share one q."""
    frame = far.frame
    lengths = _LENGTHS[frame.dtype, far.networks]
    size = Size(len(heads), frame.D, far.outputs, heads.B.shape[1], heads.V.shape[1], far.networks)
    m = size.contexts(_OVER) + _SPARE
    m = m if frame.dtype == "float64" else 4 * m
    q = np.tile(frame.radius * sphere(rng, (frame.D,)), (m, 1))
    others, counts = random_contexts(frame, m, TOKENS, rng)
    contexts = Contexts(q, others, np.log(counts), np.zeros((m, far.outputs)), np.full(m, np.inf))
    y = []
    for length in lengths:
        y.append((yield from far.ask(q, others, counts, length, phase)))
    term = first_order(y, np.array(lengths))
    if frame.final is None:
        return find_order(heads, frame.T, contexts, term, far.networks)
    limit = np.tensordot(weights_at_infinity(lengths), np.stack(y), axes=1)
    return find_order(heads, np.eye(frame.D), contexts, term, far.networks, limit)


def find_causal(spec: OracleSpec, rng: np.random.Generator) -> Asking[bool]:
    """Two ordinary sequences whose first tokens are exchanged: only a causal stack tells them apart."""
    x = rng.standard_normal((3, spec.dim))
    x = x.astype(np.float32).astype(np.float64)
    y = yield Probes(np.stack([x, x[[1, 0, 2]]]), phase="pilot")
    return bool(np.abs(y[1] - y[0]).max() > max(1e-9, 1e3 * spec.eps) * (1 + np.abs(y).max()))
