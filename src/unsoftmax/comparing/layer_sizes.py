"""How large the changes of a layer's scores are where values changed too, by head.

Sequences [b + a ; b] and their three turned copies: a'dW_h b turns with a and with b, dc_h . a with a alone, and what
changed values leave in a head's weight with neither, or falls as 1 / |a|^2. So a is long, and orthogonal to the key
directions of every head at b and at -b.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.comparing import statistics
from unsoftmax.comparing.dense import Size, interval
from unsoftmax.comparing.reading import read_tokens
from unsoftmax.comparing.state import Evidence
from unsoftmax.learners.core.base import Asking
from unsoftmax.probes.sphere import sphere

PHASE = "heads"
_QUADS = 24
"""Directions, each asked with four signs."""
_LENGTHS = (256.0, 64.0, 16.0)
"""Norms of a over the usual one, shortened while weights are beyond reading: what changed values leave falls faster."""
_QUERY = 4.0
"""Norm of b over the usual one."""
_READABLE = 0.7
"""Part of the readings that must be open."""


@dataclass(frozen=True)
class Sized:
    """|dW_h| / |W_h| and |dc_h| / |c_h| of every head; the heads whose W changed, and those whose c did."""

    scores: dict[int, Size]
    offsets: dict[int, Size]
    changed: list[int]
    moved: list[int]


def sized_scores(state: Evidence) -> Asking[Sized]:
    """Sizes of the changes of all heads' scores."""
    heads, rng = state.heads, state.rng
    d, H = heads.dim, heads.count
    usual, room = state.plan.usual, state.plan.asked.spec.domain.norm_limit
    for factor in _LENGTHS:
        b = sphere(rng, (_QUADS, d)) * min(usual * _QUERY, room / 4)
        a = sphere(rng, (_QUADS, d)) * min(usual * factor, room / 2)
        keys = np.concatenate([heads.key_directions(b), heads.key_directions(-b)]).transpose(1, 2, 0)
        basis = np.linalg.qr(keys)[0]
        a = a - np.einsum("bdk,bek,be->bd", basis, basis, a)
        signs = ((1, 1), (-1, 1), (1, -1), (-1, -1))
        X = np.concatenate([np.stack([s * a + t * b, t * b], axis=1) for s, t in signs])
        X = state.plan.asked.on_grid(X, fine=True)
        made, y = yield from state.ask(X, PHASE, measured=True)
        D, sd = (part[:, :, 0].reshape(H, 4, _QUADS) for part in read_tokens(heads, X, y, made.sd))
        open_ = np.asarray(np.isfinite(sd).all(axis=1))
        if open_.mean() >= _READABLE:
            break
    turned = np.einsum("s,hsn->hn", np.array([1, -1, -1, 1]) / 4, D)
    offset = np.einsum("s,hsn->hn", np.array([1, -1, 1, -1]) / 4, D)
    # Rounding is the same where both turn: two of the four readings are independent.
    noise = np.where(np.isfinite(sd), sd, 0.0).max(axis=1) / np.sqrt(2)
    lengths, others = np.linalg.norm(a, axis=1), np.linalg.norm(b, axis=1)
    sizes, offsets = {}, {}
    found: list[int] = []
    moved: list[int] = []
    for h in range(H):
        use = open_[h]
        none = np.zeros(int(use.sum()))
        scale = (d / (lengths * others)[use]) ** 2
        sizes[h] = interval(turned[h][use] ** 2 * scale, none, float(np.linalg.norm(heads.W[h])) or 1.0)
        span = d / lengths[use] ** 2
        offsets[h] = interval(offset[h][use] ** 2 * span, none, float(np.linalg.norm(heads.c[h])) or 1.0)
        for differences, which in ((turned, found), (offset, moved)):
            if statistics.tail((differences[h][use] / np.maximum(noise[h][use], 1e-300)) ** 2) < state.alpha / H:
                which.append(h)
    return Sized(sizes, offsets, found, moved)
