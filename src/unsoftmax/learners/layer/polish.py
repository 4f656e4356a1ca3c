"""Tokens with the widest margins: once key directions are known roughly, each head gets a token of its own.

Theory: docs/theory/attention-layer.md, "A real layer", polish.
"""

from __future__ import annotations

import numpy as np

from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.layer.constants import LAYER
from unsoftmax.learners.layer.keys import directions_at
from unsoftmax.learners.layer.picks import Picks
from unsoftmax.learners.layer.presets import Preset
from unsoftmax.learners.layer.scores import Reader, Scales
from unsoftmax.probes.base import Array, Probes
from unsoftmax.probes.scales import on_grid
from unsoftmax.spec import OracleSpec


def dual_picks(
    reader: Reader, scales: Scales, picks: Picks, preset: Preset, spec: OracleSpec, rng: np.random.Generator
) -> Asking[Picks]:
    """Picks whose tokens score with one head each: moves as large as a tenth of the token, whatever its direction.

    Falls back to the picks it was given when the domain is too small for such tokens, or scores are opposite and there
    are none.
    """
    q = on_grid(rng.standard_normal((1, spec.dim)) * (scales.query / np.sqrt(spec.dim)), 4 * scales.query, spec.dtype)
    u = (yield from directions_at(reader, q, scales, preset, spec, rng))[0]
    tokens, reach = _duals(u, LAYER.winner_margin)
    if np.abs(tokens).max() > LAYER.tokens_over_moves * reach:
        return picks
    if np.linalg.norm(tokens, axis=1).max() + 4 * reach * np.sqrt(spec.dim) > spec.domain.norm_limit:
        return picks
    X = np.vstack([on_grid(tokens, 2 * float(np.abs(tokens).max()), spec.dtype), q])
    answer = yield Probes(X[None], phase="pilot")
    return Picks(X, answer[0], reach, picks.residual, picks.size)


def _duals(u: Array, margin: float) -> tuple[Array, float]:
    """Tokens (H, d) with u_g . x_h = 0 for g != h, and the deviation per coordinate that any move may have.

    A move of deviation `reach` changes head g's scores by reach |u_g|; the margin is that many deviations, and what
    is left of it still makes a hard choice for the weakest head.
    """
    lengths = np.linalg.norm(u, axis=1)
    duals = np.linalg.pinv(u / lengths[:, None]).T
    reach = CORE.no_digit / (0.5 * margin * float(lengths.min()))
    return np.asarray(duals * (margin * reach)), reach
