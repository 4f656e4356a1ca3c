"""A second reading of heads that are known well: displacements in all directions, instead of turns around one.

Rows of W from displacements that are nearly parallel have lost a digit or two where these are taken apart. Heads that
are known foretell their logits at any displacement, so that D orthogonal ones can be read, each on its own.

Theory: docs/theory/stacks.md, "A deep pre-norm stack", star.
"""

from __future__ import annotations

import numpy as np

from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.stack.apart import SIZES
from unsoftmax.learners.stack.far import Far
from unsoftmax.learners.stack.star import COPIES, Star, read_opposite, same_order
from unsoftmax.probes.around import orthonormal
from unsoftmax.solvers.stack_heads import Heads
from unsoftmax.solvers.star import assemble

_OVER = 1.3
"""Answers of a displacement over p + n: they are all that is read, and the condition gains from a few more."""

_OPPOSITE = 4
"""Pairs of answers at every -delta: two were enough for a start."""


def read_spread(far: Far, heads: Heads, rng: np.random.Generator) -> Asking[Star]:
    """W, c and P of heads that are known to a few digits, read again at D orthogonal displacements."""
    D, n = far.frame.D, len(heads)
    cuts = [far.cut(SIZES[0] * far.frame.radius * direction) for direction in orthonormal(rng, D, D)]
    m = int(np.ceil(_OVER * (cuts[0].features + n)))
    drawn = [cut.draw(m, rng) for cut in cuts]
    copies = COPIES[rng.integers(0, len(COPIES), D * m)]
    delta = np.repeat([cut.delta for cut in cuts], m, axis=0)
    y = yield from far.pairs(np.concatenate([q for _, q in drawn]), delta, copies)
    log_k = np.log(copies[:, 1] / copies[:, 0])
    W, c, P, rays, worst = heads.W, heads.c, heads.P, [], 0.0
    for i, (cut, (F, q)) in enumerate(zip(cuts, drawn, strict=True)):
        rows = slice(i * m, (i + 1) * m)
        t = np.einsum("d,hde,be->bh", cut.delta, W, q, optimize=True) + c @ cut.delta
        fit = far.fit(np.linalg.lstsq(F, t, rcond=None)[0].T, F, log_k[rows], y[rows])
        fit = same_order(fit, (P @ cut.delta).T)
        worst = max(worst, fit.residual * float(np.sqrt(np.mean(y[rows] ** 2))))
        rays.append((yield from read_opposite(far, cut, fit, rng, "main", _OPPOSITE)))
    return Star(*assemble(rays, [], np.empty((D, 0)), D), D, worst)
