"""A head with W = 0 attends to all tokens alike: its share depends on k alone, however large z is.

Theory: docs/theory/multi-head.md, "Generic heads", discovery.
"""

from __future__ import annotations

import numpy as np

from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.heads.discovery import Circle, Unresolved
from unsoftmax.probes.base import Array

_DEEPER = 2.0**10
"""z is longer than the circle's by this factor, so that all heads but the one with W = 0 are saturated in almost every
direction; a power of two rounds nothing."""

_REDRAWS = 12
"""How often directions in which some head is still in transition are turned and asked again."""


def read_flat_value(circle: Circle, rng: np.random.Generator) -> Asking[Array]:
    """v (d,) of the head with W = 0: F(k = 1/2) - F(k = 2) = z.v / 3 once every other head is saturated."""
    d = circle.ground.dim
    radius = circle.radius * _DEEPER
    z = np.linalg.qr(rng.standard_normal((d, d)))[0] * radius
    value = np.full(d, np.nan)
    for _ in range(_REDRAWS):
        left = np.flatnonzero(np.isnan(value))
        if len(left) == 0:
            return np.asarray(np.linalg.solve(z, value))
        asked = np.repeat(z[left], 3, axis=0)
        copies = np.tile([[2, 1], [1, 1], [1, 2]], (len(left), 1))
        F = (yield from circle.ground.pairs(asked, circle.b0, copies, phase="discovery")).reshape(-1, 3)
        # 2/3, 1/2, 1/3 of z.v: any other ratio is a head in transition, asked again elsewhere.
        straight = np.abs((F[:, 0] - F[:, 1]) - (F[:, 1] - F[:, 2])) <= circle.tolerance * radius
        value[left[straight]] = 3 * (F[straight, 0] - F[straight, 2])
        turn = rng.standard_normal((int((~straight).sum()), d))
        z[left[~straight]] += 0.2 * radius * turn / np.linalg.norm(turn, axis=1, keepdims=True)
    raise Unresolved("the dependence on copies does not settle for large tokens")
