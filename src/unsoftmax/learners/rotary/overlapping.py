"""Heads whose ranks add up to more than the dimensions there are, or that share values and fill them.

Before one query token q the Jacobian of [q + e, q] is sum_h sigma_h(q) P_h: before as many query tokens as there are
heads, and one more, these span the P_h, which are what is of low rank there. So they are known as well as steps show
them; heads that share values as a group, whose weights fall apart because their logits are linear in the tokens.
Longer tokens before two of the query tokens then tell their scores, and what is written by least squares beside them,
to rounding.

Theory: docs/theory/attention-layer.md, "Layers of language models", heads that overlap.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.linalg import qr

from unsoftmax import theory
from unsoftmax.errors import Code, ModelMismatch, NotIdentifiable
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.core.law import OTHER_WEIGHTS
from unsoftmax.learners.core.reductions import relabelled
from unsoftmax.learners.core.settling import settle, settle_list
from unsoftmax.learners.rotary.constants import ROTARY
from unsoftmax.learners.rotary.scene import Scene, beside_token
from unsoftmax.learners.rotary.values import Values
from unsoftmax.probes.around import orthonormal
from unsoftmax.probes.base import Array
from unsoftmax.solvers.eliminated_values import Above, Fitted, eliminate, read_weights
from unsoftmax.solvers.low_rank_members import Members, members, outside
from unsoftmax.solvers.sigmoid_mixtures import unmixed
from unsoftmax.solvers.singular import svd


def above(scene: Scene, x: Array, q: Array, phase: str) -> Asking[tuple[Array, Array]]:
    """Displacements (n, d) of tokens x (n, d) from q, as seen, and answers (n, outputs) to [x, q] above M q."""
    y, z = yield from scene.ask(np.stack([x, np.broadcast_to(q, x.shape)], axis=1), phase)
    return z[:, 0] - z[:, 1], y - z[:, 1] @ scene.M.T


def tell_overlapping(scene: Scene, rng: np.random.Generator, length: float = 1.0) -> Asking[tuple[Scene, Values]]:
    """`theory.overlapping_heads_queries` queries, and a few for every time that tokens are shortened; as many again
    before shorter query tokens than of this length, where scores are so strong that heads are saturated before these.
    A residual without norm is found."""
    whole = length
    for _ in range(ROTARY.saturated_tries - 1):
        shares: list[Array] = []
        try:
            told = _told(scene, length, shares, rng)
            return (yield from (told if length == whole else relabelled(told, "repair")))
        except (ModelMismatch, NotIdentifiable):
            saturated = [np.minimum(share, 1 - share) < ROTARY.saturated_weight for share in shares]
            if not saturated or saturated[0].mean() <= ROTARY.loud_share:
                raise
        length *= CORE.shortened**2
    return (yield from relabelled(_told(scene, length, [], rng), "repair"))


def _told(scene: Scene, length: float, shares: list[Array], rng: np.random.Generator) -> Asking[tuple[Scene, Values]]:
    """The same before query tokens of this length; `shares` (H + 1, H) of heads before them are left there."""
    q = yield from _counted(scene, length, rng)
    H = len(q) - 1
    _require_size(scene, H)
    steps = orthonormal(rng, scene.dim) * (ROTARY.filling_step * scene.radius)
    mixtures = []
    for last in q:
        E, Y = yield from above(scene, last + steps, last, "main")
        mixtures.append(np.linalg.solve(E, Y).T)
    scene, found = _members(scene, np.array(mixtures), H)
    shares.append(found.shares)
    told = found.shares[:, found.single]
    even = np.minimum(told, 1 - told).min(axis=1, initial=0.5)
    order = np.argsort(-even, kind="stable")[: theory.overlapping_query_tokens(scene.dim, H)]
    (before,) = yield from settle("query tokens that longer tokens stand before", q[order])
    share, P = 1.0, None
    for _ in range(1 if found.alone else ROTARY.parted_tries):
        data, share = yield from _longer(scene, found, before, share, rng)
        P = _parted(found, data)
        if P is not None:
            fitted = yield from _told_better(scene, eliminate(P, data), data, before, share)
            return scene, (yield from _values(scene, P, fitted))
        share *= CORE.shortened
    raise NotIdentifiable(
        f"{len(found.P)} heads in {int(found.family.max()) + 1} groups that share values have ranks that add up to "
        f"more than the {len(scene.written)} dimensions that they write, and the weights of the heads of one group do "
        "not fall apart by scores that are linear in the tokens: too many share values, or scores follow another law.",
        code=Code.OVERLAPPING,
    )


def _counted(scene: Scene, length: float, rng: np.random.Generator) -> Asking[Array]:
    """One query token more than heads, q (H + 1, d), before which these weigh as differently as possible.

    Before ever more query tokens heads write sum_h sigma_h P_h w of one w, as many dimensions as there are heads,
    and a gate of the query token all that there are. `counted_heads` queries and 2, doubled until that is clear."""
    r, n = len(scene.written), ROTARY.counted_heads + 2
    w = orthonormal(rng, r)[0] @ scene.written * (ROTARY.filling_step * scene.radius)
    q, answers = np.zeros((0, scene.dim)), np.zeros((0, len(scene.M)))
    while True:
        new = scene.draw(np.eye(scene.dim), 0.95 * length, rng, n - len(q))
        _, y = yield from above(scene, new + w, new, "pilot")
        q, answers = np.vstack([q, new]), np.vstack([answers, y])
        sizes = np.linalg.svd(answers, compute_uv=False)
        H = int((sizes > ROTARY.counted_apart * sizes[0]).sum())
        if n >= H + 2 and min(answers.shape) > H:
            break
        if n >= len(scene.M):
            raise NotIdentifiable(
                f"what is written before {n} query tokens spans {H} of {len(scene.M)} dimensions: so many heads, or "
                "more than attention acts on what they write (gates of the query token).",
                code=Code.OVERLAPPING,
            )
        n = min(2 * n, len(scene.M))
    # Which query tokens part the heads best hangs on last digits where two do alike.
    chosen = qr(answers.T, mode="economic", pivoting=True)[2][: H + 1]
    (kept,) = yield from settle("query tokens that part the heads", q[chosen])
    return kept


def _require_size(scene: Scene, H: int) -> None:
    if (H - 1) * scene.dim > ROTARY.largest_overlap or len(scene.M) < 2 * H:
        raise NotIdentifiable(
            f"answers to a token before different query tokens span {H} dimensions, as those of so many heads whose "
            "ranks add up to more than they write, or which share values, if nothing but heads writes: they are told "
            f"apart up to {ROTARY.largest_overlap} unknown numbers for every output (here {(H - 1) * scene.dim}) and "
            "up to one head for two outputs.",
            code=Code.OVERLAPPING,
        )


def _members(scene: Scene, mixtures: Array, H: int) -> tuple[Scene, Members]:
    """The P_h among mixtures (H + 1, outputs, d) of them; without a norm a residual hides in M, and not in these."""
    if scene.eps is None and not scene.residual and scene.M.shape == (scene.dim, scene.dim):
        beside = scene.M - np.eye(scene.dim)
        if outside(mixtures, beside, H) < outside(mixtures, scene.M, H):
            scene = replace(scene, M=beside, residual=True, noise=scene.noise * beside_token(beside))
    found = members(mixtures, scene.M, H)
    away = outside(mixtures, scene.M, H)
    if found is None or away > ROTARY.outside_span:
        reason = (
            "no matrices of low rank make it up"
            if found is None
            else f"what single tokens write is no sum of them (off by {away:.1g})"
        )
        raise NotIdentifiable(
            f"answers to a token before different query tokens span {H} dimensions, and {reason}: no count of heads "
            f"explains them. A head writes all of the {len(scene.written)} dimensions, scores hang on distances alone "
            "(a table of positions), small weights are dropped, or the query token acts beside attention (gates).",
            code=Code.OVERLAPPING,
        )
    return scene, found


def _longer(
    scene: Scene, found: Members, before: Array, share: float, rng: np.random.Generator
) -> Asking[tuple[Above, float]]:
    """Tokens between query tokens `before` (k, d) and random ones, so far that hardly a head is saturated, `share` of
    the way at most; and how far."""
    n = theory.overlapping_longer_tokens(scene.dim, len(scene.M), len(found.P))
    index = np.arange(n) % len(before)
    x = scene.draw(np.eye(scene.dim), 0.95, rng, n)
    few, phase = min(ROTARY.looked_at, n), "main" if share == 1.0 else "repair"
    for again in range(ROTARY.most_shortenings):
        seen = yield from _above_each(scene, before, index[:few], share * x[:few], share, phase)
        # Of heads that share values only mixtures of their weights are known.
        weights = read_weights(found.P, _data(scene, [seen], index[:few]))[:, found.single]
        lost = float((np.minimum(weights, 1 - weights) < ROTARY.saturated_weight).mean()) if weights.size else 0.0
        if lost <= ROTARY.saturated_share or again == ROTARY.most_shortenings - 1:
            break
        share, phase = share * CORE.shortened, "repair"
    more = yield from _above_each(scene, before, index[few:], share * x[few:], share, "main")
    return _data(scene, [seen, more], index), share


def _told_better(
    scene: Scene, fitted: Fitted | None, data: Above, before: Array, share: float
) -> Asking[Fitted | None]:
    """The fit, to half as many longer tokens more where those there hardly tell heads apart: equations that are hardly
    more than unknowns are badly conditioned, and weak scores show little in them. Tokens that strong scores brought
    near show no more in greater number."""
    n = len(data.E)
    poor = fitted is not None and fitted.determined and _error(scene, fitted) > ROTARY.fine_error * scene.noise
    poor &= share == 1.0
    kept = yield from settle_list("heads hardly told apart", [data.E] * (poor and 3 * n <= 2 * ROTARY.largest_overlap))
    if fitted is None or not kept:
        return fitted
    # Of its own generator: whether they are asked may hang on last digits.
    x = scene.draw(np.eye(scene.dim), 0.95, np.random.default_rng(n), n // 2)
    index = np.arange(n // 2) % len(before)
    more = yield from _above_each(scene, before, index, share * x, share, "repair")
    again = eliminate(fitted.P, _data(scene, [(data.E, data.Y), more], np.concatenate([data.index, index])))
    return again if again is not None and _error(scene, again) < _error(scene, fitted) else fitted


def _error(scene: Scene, fitted: Fitted) -> float:
    """Relative error of what heads write."""
    return ROTARY.fitted_rise * fitted.rise * max(fitted.residual, scene.noise)


def _parted(found: Members, data: Above) -> Array | None:
    """P (H, outputs, d) of single heads, where families of those that share values fall apart by their scores."""
    if found.alone:
        return found.P
    read, parts = read_weights(found.P, data), list[Array]()
    for k in range(int(found.family.max()) + 1):
        own = np.flatnonzero(found.family == k)
        C = np.eye(1) if len(own) == 1 else unmixed(read[:, own], data.wide, data.index, ROTARY.parted_misfit)
        if C is None:
            return None
        parts.append(np.tensordot(np.linalg.inv(C), found.P[own], 1))
    return np.concatenate(parts)


def _above_each(
    scene: Scene, before: Array, index: Array, x: Array, share: float, phase: str
) -> Asking[tuple[Array, Array]]:
    """Displacements and answers (n, ...) of tokens x + (1 - share) q, each before its own query token."""
    q = before[index]
    y, z = yield from scene.ask(np.stack([x + (1 - share) * q, q], axis=1), phase)
    return z[:, 0] - z[:, 1], y - z[:, 1] @ scene.M.T


def _data(scene: Scene, parts: list[tuple[Array, Array]], index: Array) -> Above:
    E, Y = (np.vstack([part[k] for part in parts]) for k in (0, 1))
    return Above(E, Y, index, scene.M, float(np.linalg.norm(E, axis=1).mean()))


def _values(scene: Scene, P: Array, fitted: Fitted | None) -> Asking[Values]:
    """Values in groups that share their rows."""
    if fitted is None or fitted.residual > max(1e-10, ROTARY.settled_misfit * scene.noise):
        raise ModelMismatch(
            f"{len(P)} heads whose ranks add up to more than the {len(scene.written)} dimensions that they write are "
            "told apart by steps, and scores that are linear in the tokens do not explain longer tokens: norms of keys "
            f"and queries, {OTHER_WEIGHTS}.",
            code=Code.LAW,
        )
    if not fitted.determined:
        raise NotIdentifiable(
            f"{len(P)} heads whose ranks add up to more than the {len(scene.written)} dimensions that they write score "
            "tokens so much alike that longer tokens do not show which of them writes what.",
            code=Code.OVERLAPPING,
        )
    P, error = fitted.P, _error(scene, fitted)
    sizes = np.linalg.svd(P, compute_uv=False)
    ranks = (sizes > CORE.loud * error * sizes[:, :1]).sum(axis=1)
    s = int(ranks.max())
    group, rows = _shared(P, s, scene.limits.shared_values + CORE.loud * error)
    O = np.einsum("hij,gsj->ghis", P, rows)[group, np.arange(len(P))]
    # Heads come in the order in which they were found, and their rows in any basis.
    O, V, kept = yield from settle("values", O, rows, group)
    return Values(O, V, kept.astype(int), error, narrow=int(ranks.min()))


def _shared(P: Array, s: int, limit: float) -> tuple[Array, Array]:
    """group (H,) and rows (G, s, d), orthonormal, of heads P (H, outputs, d) that read the same s dimensions."""
    group, first = np.full(len(P), -1), list[Array]()
    for h, own in enumerate(P):
        off = [np.linalg.norm(own - own @ rows.T @ rows) / np.linalg.norm(own) for rows in first]
        group[h] = next((g for g, gap in enumerate(off) if gap < limit), len(first))
        if group[h] == len(first):
            first.append(svd(own, full_matrices=False)[2][:s])
    whole = [svd(np.vstack(list(P[group == g])), full_matrices=False)[2][:s] for g in range(len(first))]
    return group, np.stack(whole)
