"""With every head's output told apart, one sequence reads all heads' attention: logits, scales, key directions.

Theory: docs/theory/attention-layer.md, "A real layer", scores.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from scipy.linalg import solve_triangular

from unsoftmax.errors import ModelMismatch
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.readable import INVISIBLE, SATURATED, Repair, Steps, find_scale, until_readable
from unsoftmax.learners.layer.constants import LAYER
from unsoftmax.learners.layer.ranges import Heads
from unsoftmax.probes.around import Around, Embed
from unsoftmax.probes.base import Array

_REPAIR = Repair(readable=math.inf, far=1 / 4, tries=13)
"""Saturated sequences are asked again a quarter as long: 4^-12 = 6e-8 in the end, and what saturates even then is
refused. What is readable is told by the weights."""


@dataclass(eq=False)
class Reader:
    """Logits of all heads from sequences [q + e_1, ..., q + e_m, q]; `alone` gives the one-token answers at q (n, d).

    An answer exceeds q's own by sum_h P_h sum_i alpha_hi e_i, so least squares on what the heads write gives alpha.
    `worst` is the largest relative error of a logit that the answers' noise can have left so far.
    """

    heads: Heads
    alone: Callable[[Array], Array]
    noise: float
    embed: Embed | None = None
    worst: float = 0.0
    typical: float = LAYER.typical_logit
    """Size of the strongest head's logits, smaller where tokens are limited."""
    _known: dict[bytes, tuple[Array, Array, float]] = field(default_factory=dict)

    @property
    def room(self) -> int:
        """Attention weights, of all heads together, that one answer can tell."""
        return len(self.heads.O[0])

    def tokens(self, wanted: int) -> int:
        """Tokens beside the query token in one sequence: as wanted, as far as there is room for all heads."""
        return max(1, min(wanted, self.room // len(self.heads.O)))

    def read(self, Q: Array, E: Array, phase: str) -> Asking[Array]:
        """e_i . u_h(q_n) as (n, H, m), u_h(q) = W_h q + c_h; saturated sequences are asked again, shortened."""

        def ask(index: Array, shrink: Array, phase: str) -> Asking[Array]:
            y = yield Around(Q[index], E, shrink, self.embed).probes(phase)
            return self._logits(y, Q[index], E, shrink)

        t, left = yield from until_readable(ask, np.ones(len(Q)), _REPAIR, phase)
        if len(left):
            raise ModelMismatch(
                f"{len(left)} of {len(Q)} sequences show attention weights outside (0, 1) however close their tokens "
                "are; heads told apart rightly cannot. A head was missed, or the target is outside the class."
            )
        return t

    def weights(self, y: Array, Q: Array, E: Array) -> tuple[Array, float]:
        """alpha (n, H, m), and the error it may have, from answers y (n, outputs) at displacements E of every q."""
        Qr, R, gain = self._factors(E)
        alpha = solve_triangular(R, Qr.T @ (y - self.alone(Q)).T).T.reshape(len(Q), len(self.heads.O), len(E))
        return alpha, gain * self.noise * float(np.abs(y).max())

    def _logits(self, y: Array, Q: Array, E: Array, shrink: Array) -> Array:
        # Shrinking a block by s divides what it writes: the same inverse serves, the weights are those times 1/s.
        scale = shrink[:, None, None]
        alpha, error = self.weights(y, Q, E)
        alpha = alpha / scale
        last = 1 - alpha.sum(axis=2, keepdims=True)
        self.worst = max(self.worst, error / float(shrink.min()) * (len(E) + 1) / self.typical)
        # Noise as large as a typical weight is no reason to ask again: shorter tokens would not help.
        margin = np.maximum(LAYER.least_weight_read, np.minimum(4 * error / scale, 0.02 / (len(E) + 1)))
        inside = (alpha > margin) & (last > margin)
        with np.errstate(invalid="ignore", divide="ignore"):
            t = np.where(inside, np.log(alpha) - np.log(last), np.nan)
        return np.asarray(t / scale)

    def _factors(self, E: Array) -> tuple[Array, Array, float]:
        """QR factors of what the heads write along E, and the norm of their inverse's largest row."""
        key = E.tobytes()
        if key not in self._known:
            Qr, R = np.linalg.qr(self.heads.written(E))
            if not np.abs(np.diag(R)).min() > 1e-14 * np.abs(np.diag(R)).max():
                raise ModelMismatch(
                    "what the heads write along the probes is linearly dependent: their ranges coincide, or the tokens "
                    "are so short against the answers (a large c) that rounding hides what is written."
                )
            rows = np.linalg.norm(solve_triangular(R, np.eye(len(R))), axis=1)
            self._known[key] = (Qr, R, float(rows.max()))
        return self._known[key]


@dataclass(frozen=True)
class Scales:
    """Lengths of displacements and of query tokens at which logits are readable; no displacement beyond `longest`."""

    step: float
    query: float
    longest: float


def find_scales(reader: Reader, units: Array, rng: np.random.Generator, limit: float) -> Asking[Scales]:
    """Displacement length so that the strongest head's logits are typical; query length so that W q shows.

    units (m, d) orthonormal displacements. With |c| small against |W q| both lengths are of one size; otherwise q is
    as long as makes W q as large as c.
    """
    direction = rng.standard_normal((units.shape[1],))
    direction = direction / np.linalg.norm(direction)
    still = turned = 0.0

    def look(step: float) -> Asking[float]:
        nonlocal still, turned
        Q = np.stack([-step * direction, step * direction])
        y = yield Around(Q, units * step, embed=reader.embed).probes("pilot")
        alpha, error = reader.weights(y, Q, units * step)
        last = 1 - alpha.sum(axis=2, keepdims=True)
        if min(alpha.min(), last.min()) < max(1e-3, min(4 * error, 0.1 / (len(units) + 1))):
            return SATURATED
        t = np.log(alpha) - np.log(last)
        still, turned = (float(np.sqrt((x**2).mean(axis=-1)).max()) for x in ((t[1] + t[0]) / 2, (t[1] - t[0]) / 2))
        return INVISIBLE if max(still, turned) < 0.02 and step < min(limit / 8, 1e9) else 1.0

    found = yield from find_scale(look, 1.0, Steps(shorter=1 / 4, longer=4.0, limit=limit / 4, floor=2e-10, looks=40))
    if found.size == SATURATED:
        raise ModelMismatch(
            "no token size makes the attention weights readable; the heads were not told apart rightly."
        )
    offset, slope = still / found.scale, max(turned, 1e-9) / found.scale**2
    even = float(np.sqrt(LAYER.typical_logit / (LAYER.query_length * slope)))
    if offset * even > LAYER.typical_logit:
        step, query = LAYER.typical_logit / (1.1 * offset), LAYER.query_length * offset / slope
    else:
        step, query = even, LAYER.query_length * even
    step, query = min(step, limit / 4), min(query, limit / 4)
    reader.typical = float(min(LAYER.typical_logit, max(offset * step, slope * step * query)))
    return Scales(step, query, min(4 * step, limit / 4))
