"""Heads that fill the space, so that no token writes nothing: rotary positions themselves tell them apart.

[q + e, q] answers above M q are sum_h sigma(kappa_h + u_h . e) P_h e, kappa_h = q'(W_h(1) - W_h(0)) q. As e -> 0 the
Jacobian is J = sum_h sigma(kappa_h) P_h exactly: J M^-1 has one eigenvalue per head, as often as the head has
dimensions.

Theory: docs/theory/attention-layer.md, "Layers of language models".
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unsoftmax.errors import Code, ModelMismatch, NotIdentifiable
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.settling import settle
from unsoftmax.learners.rotary.constants import ROTARY
from unsoftmax.learners.rotary.scene import Scene
from unsoftmax.learners.rotary.values import Values
from unsoftmax.probes.around import orthonormal
from unsoftmax.probes.base import Array
from unsoftmax.solvers.mixing_newton import refine
from unsoftmax.solvers.pencil import Clusters, annihilators, equal_groups


def require_filling(scene: Scene, turning: bool) -> None:
    """What this way of telling heads apart needs, by name."""
    if scene.sinks or not turning or len(scene.M) != scene.dim or not scene.exact:
        what = [
            "sinks" if scene.sinks else "",
            "" if turning else "no rotary positions",
            "" if scene.exact else "answers of less than float64's digits",
            "" if len(scene.M) == scene.dim else "another number of outputs than inputs",
        ]
        raise NotIdentifiable(
            f"heads leave {len(scene.empty)} dimensions of tokens that write nothing, too few to tell them apart by, "
            f"and the other way needs rotary positions, float64, no sinks and as many outputs as inputs (here: "
            f"{', '.join(w for w in what if w)}).",
            code=Code.OVERLAPPING,
        )


def fill(scene: Scene, rng: np.random.Generator) -> Asking[tuple[Scene, Values]]:
    """2 d + H + 20 queries: a Jacobian, and random tokens for a Newton iteration. A residual without norm is found."""
    d = scene.dim
    for attempt in range(ROTARY.tries):
        phase = "main" if attempt == 0 else "repair"
        q = scene.draw(np.eye(d), 0.95, rng)
        steps = orthonormal(rng, d) * (ROTARY.filling_step * scene.radius)
        y, z = yield from scene.ask(np.stack([q + steps, np.broadcast_to(q, steps.shape)], axis=1), phase)
        J = np.linalg.solve(z[:, 0] - z[:, 1], y - z[:, 1] @ scene.M.T).T
        for candidate in _candidates(scene):
            groups = equal_groups(np.linalg.eigvals(np.linalg.solve(candidate.M.T, J.T)))
            if groups is None or groups.contrast < ROTARY.clear_gap:
                continue
            values = yield from _refined(candidate, J, groups, q, rng, phase)
            if values is not None:
                return candidate, values
    raise ModelMismatch(
        f"in {ROTARY.tries} draws heads that leave no token that writes nothing did not fall apart into equal groups "
        "of "
        "eigenvalues: heads that share values and fill the space, heads of unequal rank, or more than attention. Heads "
        "that share values are told apart where fewer groups leave dimensions free."
    )


def _candidates(scene: Scene) -> list[Scene]:
    """Without a norm a residual hides in M: both readings are tried."""
    found = [scene]
    if scene.eps is None and not scene.residual:
        found.append(replace(scene, M=scene.M - np.eye(scene.dim), residual=True))
    return [s for s in found if np.linalg.cond(s.M) < 1e10]


def _refined(
    scene: Scene, J: Array, groups: Clusters, q: Array, rng: np.random.Generator, phase: str
) -> Asking[Values | None]:
    """Values from rough annihilators by Newton on random tokens before q; None if it does not settle."""
    d, s, M = scene.dim, groups.rank, scene.M
    H = d // s
    left = annihilators(J, M, groups, s)
    x = scene.draw(np.eye(d), 0.95, rng, d + H + ROTARY.spare_tokens)
    y, z = yield from scene.ask(np.stack([x, np.broadcast_to(q, x.shape)], axis=1), phase)
    E, Y = z[:, 0] - z[:, 1], y - z[:, 1] @ M.T
    # A displacement's score at another distance has a part of its own: one coordinate more.
    wide = np.column_stack([E, np.ones(len(E))])
    u = np.zeros((H, d + 1))
    for k, L in enumerate(left):
        v = E @ M.T @ L
        alpha = np.clip(((Y @ L) * v).sum(axis=1) / (v * v).sum(axis=1), 1e-4, 1 - 1e-4)
        u[k] = np.linalg.lstsq(wide, np.log(alpha / (1 - alpha)), rcond=None)[0]
    O = np.linalg.inv(np.hstack(left).T)
    O = np.hstack([np.linalg.qr(part)[0] for part in np.split(O, H, axis=1)])
    mixing = refine(O, u, np.column_stack([M, np.zeros(d)]), [(wide[:, None], Y)])
    if not mixing.residual < max(1e-10, 3e3 * scene.noise):
        return None
    Z = np.linalg.solve(mixing.O, M).reshape(H, s, d)
    blocks, V = np.stack(np.split(mixing.O, H, axis=1)), np.zeros_like(Z)
    for k in range(H):
        rows, r = np.linalg.qr(Z[k].T)
        V[k], blocks[k] = rows.T, blocks[k] @ r.T
    # Heads come in the order of their eigenvalues, and their rows in any basis.
    blocks, V = yield from settle("values", blocks, V)
    return Values(blocks, V, np.arange(H), mixing.residual * float(np.linalg.cond(mixing.O)))
