"""Rotary frequencies and shared keys: the same tokens read at two distances, before a few query tokens.

Theory: docs/theory/attention-layer.md, "Layers of language models", turns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from unsoftmax import theory
from unsoftmax.errors import Code, ModelMismatch, NotIdentifiable
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.rotary.constants import ROTARY
from unsoftmax.learners.rotary.limits import ROUNDED, Limits
from unsoftmax.learners.rotary.presets import Plan
from unsoftmax.learners.rotary.weights import Reader, unread
from unsoftmax.probes.base import Array
from unsoftmax.solvers import shift_operator as shift
from unsoftmax.solvers.singular import svd


@dataclass(frozen=True, eq=False)
class Start:
    """Query tokens q (n, d), `scale` times their first length; blocks (m, d) of tokens for the fit of keys; and the
    weights (k, H, m) of the first one before k query tokens, which can be read: all of them, or as many as it takes
    where heads that share values share keys."""

    q: Array
    scale: float
    blocks: list[Array]
    weights: Array

    @property
    def block(self) -> Array:
        return self.blocks[0]

    def first(self, width: int) -> list[Array]:
        """Blocks that are asked at two distances: as many as show that keys have `width` dimensions."""
        return self.blocks[: -(-(width + 1) // (len(self.block) - 1))]


@dataclass(frozen=True, eq=False)
class Turns:
    """q (n, d) query tokens; A (n, H, s) their queries in the gauge of the frequencies, with `errors` (n, H);
    what was read of blocks of tokens before all of them; group (H,): who shares keys."""

    q: Array
    A: Array
    errors: Array
    theta: Array
    group: Array
    read: list[Logs]
    begun: Start

    @property
    def still(self) -> Array:
        """Which coordinates (s,) of keys do not turn; the last of an odd number never does."""
        still = np.ones(self.A.shape[2], dtype=bool)
        still[: 2 * len(self.theta)] = np.repeat(self.theta == 0, 2)
        return still

    @property
    def planned(self) -> list[Array]:
        """Blocks that were made for the fit of keys and are still to be asked."""
        return self.begun.blocks[len(self.read) :]


def start(reader: Reader, plan: Plan, rng: np.random.Generator) -> Asking[Start]:
    """s + 2 query tokens or a few more, short enough for weights that can be read; fewer are asked where heads that
    share values, and keys as it seems, show them together."""
    scene, s = reader.scene, reader.values.width
    n = s + (2 if reader.quiet or plan.rough else 4) + plan.beyond_fewest(reader, s)
    basis = scene.empty if reader.quiet else np.eye(scene.dim)
    q = scene.draw(basis, 0.95 if reader.quiet else 0.4, rng, n)
    m = slots_of(reader, plan)
    tokens = scene.dim + 1 + plan.tokens + plan.beyond_fewest(reader, scene.dim // 2)
    blocks = reader.blocks(max(-(-tokens // m), -(-(s + 1) // (m - 1))), m, rng)
    few = theory.rotary_query_tokens(len(reader.values.O), len(reader.values.V), s)
    few = few if reader.quiet and scene.free and scene.exact and _even(reader.values.group) else n
    scale, size, weights = yield from _readable(reader, blocks[0], q[:few])
    return Start(scale * q, scale, [size * block for block in blocks], weights)


def slots_of(reader: Reader, plan: Plan) -> int:
    """Tokens of a sequence; refused where those that keys are read from do not show together."""
    m, s = plan.slots(reader), reader.values.width
    if not 2 <= m <= s:
        raise NotIdentifiable(
            f"{len(reader.values.O)} heads were found that write into {s} of {reader.scene.shown} dimensions each: the "
            "weights of two tokens in one sequence, which keys are read from, do not show together. Where answers are "
            "rounded, more digits may show wider heads."
        )
    return m


def _even(group: Array) -> bool:
    """Whether all groups have as many heads."""
    sizes = np.bincount(group)
    return bool(sizes.min() == sizes.max())


def turn_queries(reader: Reader, begun: Start, turning: bool) -> int:
    """Sequences that `read_turns` asks before the query tokens that were asked first."""
    return len(begun.weights) * (len(begun.first(reader.values.width)) * (2 if turning else 1) - 1)


def read_turns(reader: Reader, begun: Start, turning: bool) -> Asking[Turns]:
    """Two sequences for every query token and block of tokens, ceil((s + 1) / (m - 1)) blocks; one if nothing turns."""
    away = np.arange(len(begun.block), 0, -1)

    def read(q: Array) -> Asking[list[Logs]]:
        found = []
        for k, planned in enumerate(begun.first(reader.values.width)):
            known = [begun.weights] if k == 0 and len(q) == len(begun.weights) else []
            block, weights = yield from read_block(reader, planned, q, 2 if turning else 1, known)
            near, far, own = weights[0], weights[-1], 1 - weights[0].sum(axis=2, keepdims=True)
            level = reader.level(np.log(near), away)
            found.append(Logs(block, level - np.log(own), 1 / near + 1 / own, level, np.log(far), 1 / near + 1 / far))
        return found

    return (yield from turns_of(reader, begun, turning, read))


@dataclass(frozen=True, eq=False)
class Logs:
    """A block (m, d) as asked; what keys are fitted to (n, H, m), and logs near and a step farther, with the errors of
    both for an error of 1 in every weight."""

    block: Array
    fitted: Array
    errors: Array
    near: Array
    far: Array
    errors_apart: Array


def turns_of(reader: Reader, begun: Start, turning: bool, read: Callable[[Array], Asking[list[Logs]]]) -> Asking[Turns]:
    """Who shares keys, and frequencies: before a few query tokens where heads that share values share keys too."""
    s, limits, values = reader.values.width, reader.limits, reader.values.group
    for n in sorted({len(begun.weights), len(begun.q)}):
        blocks = yield from read(begun.q[:n])
        # Rows of equal error span the same space: of strong scores a few are known far worse than others.
        errors = np.max([part.errors_apart.max(axis=2) for part in blocks], axis=0)
        Y0 = np.concatenate([part.near[..., 1:] - part.near[..., :1] for part in blocks], axis=2) / errors[..., None]
        Y1 = np.concatenate([part.far[..., 1:] - part.far[..., :1] for part in blocks], axis=2) / errors[..., None]
        Y1 = Y1 if turning else Y0
        group = shared(Y0, Y1, s, limits, np.arange(len(values)) if n == len(begun.q) else values)
        if group is not None:
            break
    assert group is not None
    theta, A = frequencies(Y0, Y1, group, s, limits, reader.weight_error)
    return Turns(begun.q[:n], A * errors[..., None], errors, theta, group, blocks, begun)


def _readable(reader: Reader, block: Array, q: Array) -> Asking[tuple[float, float, Array]]:
    """By how much to shorten query tokens and blocks for weights that can be read, and a block's weights (n, H, m).

    A bias of queries (or what a LayerNorm adds) scores before the shortest of them: then the block is shortened too.
    Where neither length counts, norms of queries and keys undo it, down to where their eps does: query tokens are
    shortened faster.
    """
    limit = reader.scene.limits.readable
    scale, size, phase, before, alike, step = 1.0, 1.0, "main", np.inf, 0, CORE.shortened
    for _ in range(ROTARY.most_shortenings):
        few = yield from weights_of(reader, size * block, scale * q[: ROTARY.first_queries], 0, phase)
        least = _least(few)
        # Behind a norm of queries their length does not count: what there is must do.
        normed = not reader.scene.free or abs(least - before) < ROTARY.same_weight * before
        if least > (limit / 1e3 if normed else limit):
            rest = yield from weights_of(reader, size * block, scale * q[ROTARY.first_queries :], 0, phase)
            if _least(rest) > (limit / 1e3 if normed else limit / 30):
                return scale, size, np.concatenate([few, rest])
        reader.gain.clear()
        alike = alike + 1 if normed else 0
        biased = reader.scene.free and alike < 2 and before < np.inf and _alone(before, least, step) < limit
        # Query tokens far shorter than their bias say little of what they add to it.
        drowned = least < ROTARY.drowned_weight and not biased
        step = ROTARY.below_norms if alike > 1 else CORE.shortened ** (3 if drowned else 1)
        size, scale = size * (CORE.shortened if biased else 1.0), scale * step
        phase, before = "repair", least
    raise ModelMismatch(
        "heads attend to one token alone however short the tokens are: scores so strong that weights of others drown "
        "(as norms of queries leave them), a cap that hides all other scores, or heads that do not explain the answers "
        "(gates of the query token among other reasons)."
    )


def _alone(before: float, least: float, step: float) -> float:
    """Least weight before the shortest query tokens, from those before and after they were shortened by `step`: its log
    is linear in their length."""
    if min(before, least) <= 0:
        return 0.0
    return float(np.exp(np.log(least) + np.log(least / before) * step / (1 - step)))


def read_block(
    reader: Reader, block: Array, q: Array, ways: int, known: list[Array] | None = None
) -> Asking[tuple[Array, list[Array]]]:
    """A block (m, d) and its weights (n, H, m) before every q with 0 .. ways - 1 empty tokens in between.

    `known`: those that were read before. The block is shortened, and asked again, where a weight is lost in the noise.
    """
    read, phase = list(known or []), "main"
    lost = ROTARY.lost_weight * reader.scene.limits.readable
    for _ in range(ROTARY.most_shortenings):
        counted = len(reader.gain)
        for empty in range(len(read), ways):
            read.append((yield from weights_of(reader, block, q, empty, phase)))
        if min(map(_least, read)) > lost:
            return block, read
        del reader.gain[counted:]
        block, read, phase = CORE.shortened * block, [], "repair"
    raise unread(reader, min(map(_least, read)), "before query tokens")


def weights_of(reader: Reader, block: Array, q: Array, empty: int, phase: str) -> Asking[Array]:
    """Weights (n, H, m) of a block before every q (n, d), with `empty` tokens x = 0 in between."""
    n, (m, d) = len(q), block.shape
    between = np.zeros((n, empty, d))
    z = np.concatenate([np.broadcast_to(block, (n, m, d)), between, q[:, None]], axis=1)
    return (yield from weights_before(reader, z, m, phase))


def weights_before(reader: Reader, z: Array, m: int, phase: str) -> Asking[Array]:
    """Weights (n, H, m) of the first m tokens, whether query tokens write or not."""
    if reader.quiet:
        return (yield from reader.before_quiet(z, m, phase))
    alpha, _, _ = yield from reader.before_any(z, phase)
    return alpha[..., :m]


def _least(weights: Array) -> float:
    return float(min(weights.min(), (1 - weights.sum(axis=2)).min()))


def shared(Y0: Array, Y1: Array, s: int, limits: Limits, together: Array) -> Array | None:
    """group (H,): heads whose rows [Y0, Y1] span the same space have the same keys.

    together (H,): heads whose rows are taken together because they are thought to share keys; None if they do not.
    """
    spaces = []
    for k in range(int(together.max()) + 1):
        rows = np.concatenate([Y0, Y1], axis=2)[:, together == k]
        space = svd(rows.reshape(-1, rows.shape[2]), full_matrices=False)[2][:s]
        off = rows - rows @ space.T @ space
        if rows.shape[1] > 1 and np.linalg.norm(off) > limits.same_keys * np.linalg.norm(rows):
            return None
        spaces.append(space)
    group = np.full(len(spaces), -1)
    first: list[int] = []
    for h, rows in enumerate(spaces):
        apart = [float(np.linalg.norm(rows - rows @ spaces[k].T @ spaces[k], 2)) for k in first]
        group[h] = next((g for g, angle in enumerate(apart) if angle < limits.same_keys), len(first))
        if group[h] == len(first):
            first.append(h)
    return np.asarray(group[together])


def frequencies(Y0: Array, Y1: Array, group: Array, s: int, limits: Limits, error: float) -> tuple[Array, Array]:
    """theta (s // 2,) of all groups together and A (n, H, s) in its gauge, from rows whose entries have this error.

    One step may be off as far as errors of what was read move its eigenvalues, and never farther than in rounded
    answers: what follows from it is verified in the end."""
    n, H = Y0.shape[:2]
    A, found = np.zeros((n, H, s)), list[shift.Turns]()
    for g in range(int(group.max()) + 1):
        heads = np.flatnonzero(group == g)
        rows = [np.vstack([Y[:, h] for h in heads]) for Y in (Y0, Y1)]
        found.append(shift.shift_operator(rows[0], rows[1], s, limits.still))
        A[:, heads] = found[-1].A.reshape(len(heads), n, s).transpose(1, 0, 2)
    each = np.array([turns.frequencies for turns in found])
    # Frequencies count by their errors; rounding is one that all have.
    moved = ROTARY.moved_turns * error * np.array([turns.rise for turns in found]) + np.finfo(float).eps
    theta = np.average(each, axis=0, weights=moved**-2.0)
    off, spread = np.array([turns.off_circle for turns in found]), np.abs(each - theta).max(axis=1, initial=0.0)
    none = off > _widened(limits.off_circle, moved, ROUNDED.off_circle)
    if (none | (spread > _widened(limits.apart, moved, ROUNDED.apart))).any():
        if moved.max() > ROUNDED.off_circle:
            raise NotIdentifiable(
                f"errors of what heads write leave one step of distance open (by {moved.max():.1g} before scores as "
                "strong as these): whether it is a rotation cannot be seen.",
                code=Code.NOISE,
            )
        raise ModelMismatch(
            f"one step of distance is no rotation that all heads share (eigenvalues off the circle by {off.max():.1g}, "
            f"frequencies apart by {spread.max():.1g}): learned tables of positions, heads with and without rotary "
            "positions, a soft cap beside norms of keys, or scores that are not x'R W q."
        )
    theta = np.where(theta < limits.still / 10, 0.0, theta)
    together = float((moved**-2.0).sum() ** -0.5)
    return shift.on_ladder(theta, float(_widened(limits.ladder, together, ROUNDED.ladder))), A


def _widened(limit: float, moved: float | Array, most: float) -> Array:
    """A limit where errors move what it is compared with."""
    return np.maximum(limit, np.minimum(moved, most))
