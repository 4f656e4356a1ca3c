"""Heads that fill the space, so that no token writes nothing: rotary positions themselves tell them apart.

[q + e, q] answers above M q are sum_h sigma(kappa_h + u_h . e) P_h e, kappa_h = q'(W_h(1) - W_h(0)) q. As e -> 0 the
Jacobian is J = sum_h sigma(kappa_h) P_h exactly: J M^-1 has one eigenvalue per head, as often as the head has
dimensions, and commutes with that of any other q unless heads share values.

Theory: docs/theory/attention-layer.md, "Layers of language models".
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit

from unsoftmax.errors import Code, ModelMismatch, NotIdentifiable
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.core.reductions import relabelled
from unsoftmax.learners.core.settling import settle
from unsoftmax.learners.rotary.constants import ROTARY
from unsoftmax.learners.rotary.overlapping import above, tell_overlapping
from unsoftmax.learners.rotary.scene import Scene, beside_token
from unsoftmax.learners.rotary.values import Values
from unsoftmax.probes.around import orthonormal
from unsoftmax.probes.base import Array
from unsoftmax.solvers.mixing_newton import Mixing, refine
from unsoftmax.solvers.pencil import annihilators, equal_groups
from unsoftmax.solvers.singular import svd


def require_filling(scene: Scene, turning: bool) -> None:
    """What this way of telling heads apart needs, by name."""
    if scene.sinks or not turning or not scene.exact:
        what = ["sinks"] if scene.sinks else []
        what += [] if turning else ["no rotary positions"]
        # The class need not be another one where digits alone are missing.
        code = Code.OVERLAPPING if what else Code.NOISE
        what += [] if scene.exact else [f"answers rounded to {scene.noise:.1g} of their size"]
        raise NotIdentifiable(
            f"heads leave {len(scene.empty)} dimensions of tokens that write nothing, too few to tell them apart by, "
            f"and the other way needs rotary positions, float64 and no sinks (here: {', '.join(what)}).",
            code=code,
        )


@dataclass(frozen=True, eq=False)
class _Square:
    """A scene in coordinates of what is written: range (outputs, r) of answers, M (r, d) of tokens."""

    scene: Scene
    range: Array
    M: Array

    def ratio(self, E: Array, Y: Array) -> tuple[Array, Array]:
        """J (r, r) and M (r, r) on the tokens that write, from steps E (r, d) and their answers Y (r, outputs)."""
        written = self.scene.written.T
        return np.linalg.solve(E @ written, Y @ self.range).T, self.M @ written


def fill(scene: Scene, rough: bool, rng: np.random.Generator) -> Asking[tuple[Scene, Values]]:
    """r + 4 queries or a few more, r dimensions being written: a Jacobian, and random tokens that are fitted together
    with its steps, whatever the law of scores. Unless values may be `rough`, known as well as steps show them, d + H +
    20 tokens in all. A residual without norm is found."""
    bent, length, looked = [], 1.0, False
    for attempt in range(ROTARY.tries):
        phase = "main" if attempt == 0 else "repair"
        q = scene.draw(np.eye(scene.dim), 0.95 * length, rng)
        steps = orthonormal(rng, len(scene.written)) @ scene.written * (ROTARY.filling_step * scene.radius)
        E, Y = yield from above(scene, q + steps, q, phase)
        squares, stalled = _squares(scene), False
        for square in squares:
            J, M = square.ratio(E, Y)
            groups = equal_groups(np.linalg.eigvals(np.linalg.solve(M.T, J.T)))
            if groups is None or groups.contrast < ROTARY.clear_gap:
                continue
            ranges = np.linalg.inv(np.hstack(annihilators(J, M, groups, groups.rank, precise=True)).T)
            heads = np.split(ranges, len(groups.centres), axis=1)
            values = yield from _refined(square, heads, q, length, (E, Y), rough, rng, phase)
            if values is not None and values.linear:
                return square.scene, values
            stalled = True
            if values is None:
                continue
            bent.append(values)
            if len(bent) == ROTARY.stalled_fits:
                return (yield from _nearer(scene, square.scene, values, rough, length, rng))
        if all(_saturated(*square.ratio(E, Y)) for square in squares):
            length *= CORE.shortened**2
            continue
        if not looked and (yield from _overlap(scene, squares, E, Y, rng)):
            break
        looked = True
        # Heads are told apart, and tokens as long as these score too strongly for a fit.
        length *= CORE.shortened**2 if stalled else 1.0
    return (yield from tell_overlapping(scene, rng, length))


def _saturated(J: Array, M: Array) -> bool:
    """Whether heads are, whatever their ranks: their Jacobian over M has their weights for eigenvalues, or mixtures of
    them."""
    weights = np.linalg.eigvals(np.linalg.solve(M.T, J.T))
    lost = np.minimum(np.abs(weights), np.abs(1 - weights)) < ROTARY.saturated_weight
    return bool(lost.mean() > ROTARY.loud_share)


def _nearer(
    scene: Scene, seen: Scene, bent: Values, rough: bool, length: float, rng: np.random.Generator
) -> Asking[tuple[Scene, Values]]:
    """Heads whose scores are so strong that fits to random tokens stall, by tokens brought near enough; else as steps
    show them, for what their scores follow to be named."""
    if not rough:
        try:
            return (yield from relabelled(tell_overlapping(scene, rng, length), "repair"))
        except (ModelMismatch, NotIdentifiable):
            pass
    return seen, bent


def _squares(scene: Scene) -> list[_Square]:
    """The scene, and without a norm the same beside a residual, which hides in M where both fill the space."""
    found = [scene]
    if scene.eps is None and not scene.residual and scene.M.shape == (scene.dim, scene.dim) and not len(scene.empty):
        M = scene.M - np.eye(scene.dim)
        if np.linalg.cond(M) < 1e10:
            found.append(replace(scene, M=M, residual=True, noise=scene.noise * beside_token(M)))
    ranges = [svd(each.M)[0][:, : len(each.written)] for each in found]
    return [_Square(each, U, U.T @ each.M) for each, U in zip(found, ranges, strict=True)]


def _overlap(scene: Scene, squares: list[_Square], E: Array, Y: Array, rng: np.random.Generator) -> Asking[bool]:
    """Whether ranks add up to more than the r dimensions that are written, or values are shared; two queries for every
    reading of the scene. Else heads have values of their own, and Jacobians that commute.

    J' M^-1 J w = J M^-1 J' w is asked at one w, along w and along M^-1 J w, before another query token.
    """
    q, w = scene.draw(np.eye(scene.dim), 0.95, rng), orthonormal(rng, len(scene.written))[0]
    clear = True
    for square in squares:
        J, M = square.ratio(E, Y)
        # What all heads weigh alike commutes anyway.
        J = J - M * (np.trace(np.linalg.solve(M, J)) / len(M))
        along = np.stack([w, np.linalg.solve(M, J @ w)])
        along *= ROTARY.filling_step * scene.radius / np.maximum(np.linalg.norm(along, axis=1, keepdims=True), 1e-300)
        e, y = yield from above(scene, q + along @ scene.written, q, "repair")
        sent, moved = e @ scene.written.T, y @ square.range
        size = np.linalg.norm(np.linalg.solve(M, J @ sent[0])) / np.linalg.norm(sent[1])
        terms = size * moved[1], J @ np.linalg.solve(M, moved[0])
        gap = float(np.linalg.norm(terms[0] - terms[1]) / sum(map(np.linalg.norm, terms)))
        clear &= gap > max(
            ROTARY.apart_jacobians, ROTARY.bent_jacobians * ROTARY.filling_step * float(np.linalg.cond(M))
        )
    return clear


def _refined(
    square: _Square,
    ranges: list[Array],
    q: Array,
    length: float,
    steps: tuple[Array, Array],
    rough: bool,
    rng: np.random.Generator,
    phase: str,
) -> Asking[Values | None]:
    """Values by Newton from what heads write into, `ranges` (r, s): on steps and a few random tokens before q, then on
    random tokens as long as q alone unless `rough`; None if that does not settle."""
    scene, H, (r, s) = square.scene, len(ranges), ranges[0].shape
    few = min(-(-max(H * (r + 1) - r * s, 0) // (r - H)) + CORE.to_spare, r + 1)
    x = scene.draw(np.eye(scene.dim), 0.95 * length, rng, few if rough else scene.dim + H + ROTARY.spare_tokens)
    E, Y = yield from above(scene, x[:few], q, phase)
    # Steps are lengthened: linear but for scores, they show heads as random tokens do. So few have any scores.
    mixing = _fitted(square, ranges, [(E, Y), (steps[0] / ROTARY.filling_step, steps[1] / ROTARY.filling_step)])
    raised = float(np.linalg.cond(mixing.O)) if np.isfinite(mixing.residual) else np.inf
    if not mixing.residual < min(ROTARY.step_misfit * scene.noise / ROTARY.filling_step * raised, ROTARY.wrong_heads):
        return None
    # Steps tell heads apart by their eigenvalues, as well as these are apart.
    apart = np.diff(np.sort(expit(mixing.u[:, -1]))).min(initial=1.0)
    error = mixing.residual * raised / max(float(apart), 1e-300)
    linear = True
    if not rough:
        more = yield from above(scene, x[few:], q, phase)
        tokens = np.vstack([E, more[0]]), np.vstack([Y, more[1]])
        fine = _fitted(square, np.split(mixing.O, H, axis=1), [tokens])
        # Else scores are not linear in the tokens, which is named once weights are read.
        linear = fine.residual < max(1e-10, ROTARY.settled_misfit * scene.noise)
        if linear:
            mixing, error = fine, fine.residual * float(np.linalg.cond(fine.O))
    return (yield from _values(square, mixing, error, linear))


def _fitted(square: _Square, ranges: list[Array], data: list[tuple[Array, Array]]) -> Mixing:
    """Newton on displacements (n, d) and answers (n, outputs), each block of which has directions of scores of its own
    and, at another distance, a part of their own: d + 1 coordinates for every block."""
    d, blocks = square.scene.dim, len(data)
    O = np.hstack([np.linalg.qr(part)[0] for part in ranges])
    P = np.tile(np.column_stack([square.M, np.zeros(len(square.M))]), blocks)
    wide = np.zeros((sum(len(e) for e, _ in data), blocks * (d + 1)))
    row = 0
    for k, (e, _) in enumerate(data):
        wide[row : row + len(e), k * (d + 1) : (k + 1) * (d + 1)] = np.column_stack([e, np.ones(len(e))])
        row += len(e)
    seen = np.vstack([y for _, y in data]) @ square.range
    u = []
    for L in np.split(np.linalg.inv(O), len(ranges)):
        L = np.linalg.qr(L.T)[0]
        written = wide @ P.T @ L
        alpha = np.clip(((seen @ L) * written).sum(axis=1) / (written * written).sum(axis=1), 1e-4, 1 - 1e-4)
        # Logs show scores as well as weights are far from 0 and 1.
        told = alpha * (1 - alpha)
        u.append(np.linalg.lstsq(wide * told[:, None], np.log(alpha / (1 - alpha)) * told, rcond=None)[0])
    return refine(O, np.array(u), P, [(wide[:, None], seen)])


def _values(square: _Square, mixing: Mixing, error: float, linear: bool) -> Asking[Values]:
    """Values of heads with orthonormal rows, in the layer's coordinates."""
    H, r = len(mixing.u), len(square.M)
    Z = np.linalg.solve(mixing.O, square.M).reshape(H, r // H, -1)
    blocks, V = np.stack(np.split(square.range @ mixing.O, H, axis=1)), np.zeros_like(Z)
    for k in range(H):
        rows, triangle = np.linalg.qr(Z[k].T)
        V[k], blocks[k] = rows.T, blocks[k] @ triangle.T
    # Heads come in the order of their eigenvalues, and their rows in any basis.
    blocks, V = yield from settle("values", blocks, V)
    return Values(blocks, V, np.arange(H), error, linear)
