"""Derivatives of what two tokens are answered: heads behind a LayerNorm as clusters of eigenvalues.

Theory: docs/theory/attention-layer.md, "LayerNorm before".
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.layer.ball import Ball
from unsoftmax.learners.layer.constants import LAYER
from unsoftmax.precision import SHORT_FORMAT
from unsoftmax.probes.base import Array, Probes
from unsoftmax.solvers.pencil import Clusters, annihilators, find_clusters, typical_logit
from unsoftmax.solvers.singular import svd


def of_length(length: float, ball: Ball, rng: np.random.Generator) -> Array:
    w = rng.standard_normal(len(ball.U))
    return np.asarray(w * (length / np.linalg.norm(w)))


@dataclass(frozen=True, eq=False)
class At:
    """Sequences that end in one query token q (D,), answered above q alone, in the coordinates B of all ranges."""

    q: Array
    ball: Ball
    B: Array

    def ask(self, w: Array, phase: str, copies: Array | None = None) -> Asking[Array]:
        """Answers (n, rank) to [w_1, ..., w_m, q], w (n, m, D), each as often as `copies` (n, m + 1) says."""
        last = np.broadcast_to(self.q, (len(w), 1, len(self.q)))
        y = yield Probes(self.ball.tokens(np.concatenate([w, last], axis=1)), copies, phase)
        return (y - self.ball.alone(self.q[None])) @ self.B


def clusters(
    at: At, P: Array, rng: np.random.Generator, phase: str, fine: bool, near: float = 1.0
) -> Asking[tuple[tuple[Clusters, list[Array]] | None, float]]:
    """Clusters of eigenvalues, one per head, with the annihilators of all other heads, None if they are not clear; and
    the typical logit of an eigenvalue.

    The directions that P shrinks most are left out at first: a head of large rank shows without them, and clearer.
    `fine`: exact answers are differenced four times, for four digits more. `near`: distance of the two tokens as a
    share of what the ball allows: scores grow with it, and heads that give one token all the weight are alike.
    """
    n, exact = len(P), at.ball.noise < SHORT_FORMAT
    sizes, V = svd(P, full_matrices=False)[1:]
    radius = at.ball.radius
    # Ranges do not depend on the query token: a long one spreads the eigenvalues.
    at = replace(at, q=of_length(CORE.edge * radius, at.ball, rng))
    x = of_length((CORE.edge if exact else 0.75) * radius, at.ball, rng)
    x = x + (1 - near) * (at.q - x)
    steps = near * LAYER.one_sided_step * radius * np.sqrt(np.median(sizes) / sizes).clip(0.1, 100)
    base = (yield from at.ask(x[None, None], phase)) if exact and not fine else None
    J = np.zeros((n, 0))
    for part in np.split(np.arange(len(V)), [len(V) - n // LAYER.left_out_one_in]):
        if len(part) == 0:
            continue
        if base is not None:
            J = np.hstack([J, (yield from _one_sided(x, V[part], steps[part], base, at, phase))])
        else:
            width = near * (LAYER.central_step if exact else 0.2) * radius
            J = np.hstack([J, (yield from _central(x, V[part], width, at, phase))])
        PT = P @ V[: J.shape[1]].T
        found = find_clusters(J, PT)
        if found is not None and found.contrast >= (8.0 if exact else 2.0):
            left = annihilators(J, PT, found, max(1, found.rank - 1), precise=exact and fine)
            return (found, left), typical_logit(J, PT)
    return None, typical_logit(J, PT)


def _one_sided(x: Array, T: Array, steps: Array, base: Array, at: At, phase: str) -> Asking[Array]:
    """Derivative (n, k) of the answers to [x, q] along the rows of T (k, D)."""
    y = yield from at.ask((x + steps[:, None] * T)[:, None], phase)
    return (y - base).T / steps


def _central(x: Array, T: Array, h: float, at: At, phase: str) -> Asking[Array]:
    """The same from noisy answers: wide central differences at two widths, the third order cancelled."""
    y = yield from at.ask(np.concatenate([x + s * h * T for s in (0.5, -0.5, 1.0, -1.0)])[:, None], phase)
    near, back, far, far_back = np.split(y, 4)
    return (4 * (near - back) / h - (far - far_back) / (2 * h)).T / 3
