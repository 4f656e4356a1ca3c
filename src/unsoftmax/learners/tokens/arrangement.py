"""Targets with positions, asked in the one arrangement [key, query]: what the last token is worth in its place.

Theory: docs/theory/token-access.md, "Token access", positions.
"""

from __future__ import annotations

import numpy as np

from unsoftmax.errors import ModelMismatch
from unsoftmax.learners.core.base import Asking
from unsoftmax.probes.base import Array, Probes
from unsoftmax.solvers.position_offset import Offset, offset

_DOUBLED = 16
"""Tokens i asked as [i, i], which answers the value of i unless positions change values. A constant shows in each, and
what differs by token in most of them."""

_BLOCK = 48
"""Rows and columns of the block of pairs whose rank tells the offset: scores of rank up to 45 leave three singular
values to vanish together."""


def last_values(ids: Array, values: Array, noise: float, rng: np.random.Generator) -> Asking[tuple[Array, float]]:
    """Values (n,) in the last of two positions, given those in the first, and their error; phase "pilot".

    [i, i] answers the value of i if positions do not change values. If they add a constant (embeddings plus positions
    under a linear value map), a block of pairs gives it.
    """
    some = rng.choice(len(ids), min(_DOUBLED, len(ids)), replace=False)
    y = yield Probes(ids[np.stack([some, some], axis=1)], phase="pilot")
    moved = np.abs(y - values[some])
    if moved.max() <= 8 * noise:
        return values, 0.0
    m = min(_BLOCK, len(ids) // 2)
    order = rng.permutation(len(ids))
    keys, queries = order[:m], order[m : 2 * m]
    pairs = np.stack(np.broadcast_arrays(keys[:, None], queries), axis=-1).reshape(-1, 2)
    answers = yield Probes(ids[pairs], phase="pilot")
    found: Offset | None = offset(answers.reshape(m, m), values[keys], values[queries], noise)
    if found is None:
        worst = int(np.argmax(moved))
        raise ModelMismatch(
            f"values depend on the position: token {ids[some[worst]]} answered {values[some[worst]]:.6g} alone and "
            f"{y[worst]:.6g} after itself, and no constant explains this together with scores of rank below {m - 3}."
        )
    return values + found.c, found.error
