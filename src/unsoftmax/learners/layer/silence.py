"""Attention that writes nothing: the answer is the last token's alone, and no query shows a head.

Theory: docs/theory/attention-layer.md, "A real layer", refused.
"""

from __future__ import annotations

import numpy as np

from unsoftmax.errors import NotIdentifiable
from unsoftmax.learners.core.base import Asking
from unsoftmax.probes.base import Array, Probes
from unsoftmax.probes.scales import on_grid, power_of_two
from unsoftmax.spec import OracleSpec

_ROUNDINGS = 4.0
"""Units of the answers' noise within which two answers count as one: each of them rounds, and so does the sum with a
residual."""

_SIZES = (1.0, 2.0**-10)
"""Typical coordinates of the tokens that are asked, within the norm limit: of order one, and so short that every head
attends to all alike."""


def same(answers: Array, base: Array, noise: float) -> bool:
    """Whether the answers (n, outputs) are all `base` (outputs,), as far as noise lets it be seen."""
    return float(np.abs(answers - base).max()) <= _ROUNDINGS * noise * float(np.abs(base).max())


def refuse_silence(spec: OracleSpec, noise: float, rng: np.random.Generator) -> Asking[None]:
    """Ask one last token beside others, at two sizes: where none of them changes the answer, there is nothing to learn.

    Six queries. Heads that settle on the last token, however long the others are, answer to short ones.
    """
    for size in _SIZES:
        size = power_of_two(min(size, 0.2 * spec.domain.norm_limit / np.sqrt(spec.dim)))
        x = on_grid(rng.standard_normal((4, spec.dim)).clip(-3, 3) * size, 4 * size, spec.dtype)
        beside = np.stack([x[[0, 1, 3]], x[[1, 2, 3]], x[[2, 0, 3]]])
        y = yield Probes(beside, phase="pilot")
        if not same(y[1:], y[0], noise):
            return
    raise NotIdentifiable(
        "the answer is the same whatever the other tokens are: attention writes nothing that shows beside the last "
        "token, so neither W nor P of a head can be known."
    )
