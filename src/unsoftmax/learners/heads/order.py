"""Softmax heads do not see the order of the tokens before the last: a target that does is told at once.

Theory: docs/theory/multi-head.md, "Generic heads", where it stops.
"""

from __future__ import annotations

import numpy as np

from unsoftmax.errors import ModelMismatch
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.heads.ground import Ground, as_sent
from unsoftmax.probes.base import Probes

FELT = 1e4
"""Units of noise, relative to the answers, beyond which two answers differ: room for the sums of a network, far below
what order, a residual or a bias changes."""


_QUERIES = (1.0, 0.1, 0.01)
"""Lengths of query tokens beside the others' at which the order of tokens is tried: scores of many sizes."""


def require_no_order(ground: Ground, length: float, rng: np.random.Generator) -> Asking[None]:
    """[x1, x2, q] and [x2, x1, q] must answer alike, for x1 and x2 of this length and some shorter q."""
    lengths = length * np.array([[1.0, 1.0, q] for q in _QUERIES])
    x = rng.standard_normal((*lengths.shape, ground.dim))
    tokens = as_sent(np.asarray(x * (lengths / np.linalg.norm(x, axis=2))[:, :, None]), ground.spec)
    y = yield Probes(np.concatenate([tokens, tokens[:, [1, 0, 2]]]), phase="pilot")
    one, other = np.split(y, 2)
    size = np.maximum(np.abs(tokens @ ground.V).max(axis=1), np.maximum(np.abs(one), np.abs(other)))
    # Values that cancel leave rounding in some answers: every one is held against the largest per length of token.
    length = np.linalg.norm(tokens, axis=2).max(axis=1)
    size = length * float((size / length).max())
    gap = np.maximum(np.abs(one - other) - 2 * ground.spec.tolerance, 0.0)
    felt = float((gap / np.maximum(size, 1e-300)).max(initial=0.0))
    if felt > FELT * ground.noise:
        raise ModelMismatch(
            f"swapping two tokens before the last changes an answer by {felt:.2g} of its size, and no sum of softmax "
            "heads sees their order: the target uses positions (a bias by distance, a window, rotated tokens)."
        )
