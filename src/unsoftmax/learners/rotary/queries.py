"""Queries Q_h q + b_h of every head: one sequence for every query token, its tokens made for it.

Theory: docs/theory/attention-layer.md, "Layers of language models", keys and queries.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from unsoftmax.errors import ModelMismatch
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.core.readable import Repair, until_readable
from unsoftmax.learners.rotary.constants import ROTARY
from unsoftmax.learners.rotary.keys import Keys
from unsoftmax.learners.rotary.presets import Plan
from unsoftmax.learners.rotary.turns import Turns
from unsoftmax.learners.rotary.weights import Reader, dual_values
from unsoftmax.probes.base import Array
from unsoftmax.solvers.capped import uncapped
from unsoftmax.solvers.shift_operator import rotation
from unsoftmax.solvers.singular import svd
from unsoftmax.solvers.weighted import inverse_of, weighted


@dataclass(frozen=True, eq=False)
class Queries:
    """Q (H, s, d), bias (H, s); condition: worst conditioning of a query token's own equations.

    error: relative error of queries for an error of 1 in every weight; raised: the same for a relative error of 1 in
    the keys of their tokens. Behind a norm of queries: its form (H, s, s) and eps (H,).
    """

    Q: Array
    bias: Array
    condition: float
    error: float
    raised: float
    form: Array | None = None
    eps: Array | None = None


@dataclass(frozen=True, eq=False)
class Design:
    """What every sequence needs: keys by group, rotations of the slots (farthest first), sequences per query token.

    key(g, z): key of a token under group g; strength: typical size of queries; cap: scores s are seen as
    cap tanh(s / cap).
    """

    reader: Reader
    key: Callable[[int, Array], Array]
    group: Array
    R: list[Array]
    repeats: int
    strength: float
    cap: float | None = None

    @property
    def slots(self) -> int:
        return len(self.R)

    @property
    def groups(self) -> int:
        return int(self.group.max()) + 1

    def rows(self, g: int, z: Array) -> Array:
        """Equations (m, s) for a_h(q) from one sequence z (m + 1, d): R^D xi(z_i) - xi(q); with sinks xi(q) too."""
        own = self.key(g, z[-1])
        rows = np.stack([R @ self.key(g, x) for R, x in zip(self.R, z[:-1], strict=True)]) - own
        return rows if self.reader.sinks is None else np.vstack([rows, own])


def design_for(
    reader: Reader, turns: Turns, key: Callable[[int, Array], Array], A: Array, plan: Plan, cap: float | None
) -> Design:
    """The design of this plan for query tokens whose queries are as strong as A (n, H, s)."""
    m, s = plan.last_slots(reader), reader.values.width
    R = [rotation(turns.theta, D, s) for D in range(m, 0, -1)]
    strength = float(np.sqrt((A**2).mean(axis=(0, 2))).max())
    # The equation of the last token's own key is the same in all its sequences.
    repeats = max(plan.repeats, -(-(s - reader.absolute) // m)) + (plan.beyond_fewest(reader, s) > 0)
    return Design(reader, key, turns.group, R, repeats, strength, cap)


def read_queries(
    reader: Reader, turns: Turns, keys: Keys, plan: Plan, rng: np.random.Generator, cap: float | None = None
) -> Asking[Queries]:
    """d + 1 query tokens, x = 0 among them for the bias; beside sinks, whose queries have none, d of them."""
    d, s, scene = reader.scene.dim, reader.values.width, reader.scene
    design = design_for(reader, turns, lambda g, z: keys.K[g] @ z + keys.bias[g], keys.A, plan, cap)
    room = len(np.vstack(list(reader.values.V))) + len(keys.K) * s <= ROTARY.room * d
    q = scene.query_tokens((0.9 if room else 0.63) * scene.radius * turns.begun.scale, rng)
    biased = reader.sinks is None
    q = q if biased else q[1:]
    sequences = (lambda q: _prescribed(design, keys.K, q)) if room else (lambda q: _chosen(design, keys.K, q, rng))
    asked = yield from queries_at(design, q, sequences)
    last = asked.q
    right = np.column_stack([last, np.ones(len(last))]) if biased else last
    lengths = np.append(np.ones(d), [1 / scene.radius] * biased)
    whole, error = np.zeros((right.shape[1], len(turns.group), s)), 0.0
    for h, errors in enumerate(asked.errors.T):
        inverse = inverse_of(right, errors)
        whole[:, h] = inverse @ asked.A[:, h]
        told = float(np.linalg.norm(lengths[:, None] * inverse * errors))
        error = max(error, told / float(np.linalg.norm(lengths[:, None] * whole[:, h])))
    bias = whole[d] if biased else np.zeros((len(turns.group), s))
    return Queries(whole[:d].transpose(1, 2, 0), bias, asked.condition, error, asked.raised)


@dataclass(frozen=True, eq=False)
class Asked:
    """Query tokens q (n, d) as seen, their queries A (n, H, s), errors (n, H) of these for an error of 1 in every
    weight, and the worst conditioning; raised: relative error of all queries of a head for one of 1 in the keys."""

    q: Array
    A: Array
    errors: Array
    condition: float
    raised: float


def queries_at(design: Design, q: Array, sequences: Callable[[Array], Array]) -> Asking[Asked]:
    """Queries of query tokens q (n, d).

    sequences(q): (n, repeats, m + 1, d). Query tokens at which a head is saturated are asked again, shorter.
    """
    reader, m, d = design.reader, design.slots, q.shape[1]
    heads, s = len(design.group), reader.values.width

    def ask(index: Array, scale: Array, phase: str) -> Asking[Array]:
        z = sequences(q[index] * scale[:, None])
        alpha, own, seen = yield from reader.before_any(z.reshape(-1, m + 1, d), phase)
        # A query token is shortened by halves where a weight is lost in the noise of the answer.
        lost = (np.minimum(alpha.min(axis=2), own) <= max(1e-12, 10 * reader.scene.noise)).any(axis=1)
        t, errors = (part.reshape(len(index), design.repeats, heads, -1) for part in _logs(reader, alpha, own))
        seen = seen.reshape(len(index), design.repeats, m + 1, d)
        found = np.full((len(index), heads * s + d + 2 * heads + 1), np.nan)
        for j in np.flatnonzero(~lost.reshape(len(index), -1).any(axis=1)):
            A, told, condition = _solved(design, seen[j], t[j], errors[j])
            found[j] = np.concatenate([A.ravel(), seen[j, 0, -1], *told, [condition]])
        return found

    repair = Repair(math.inf, far=0.5, tries=ROTARY.query_repairs)
    found, left = yield from until_readable(ask, np.ones(len(q)), repair)
    if len(left):
        raise ModelMismatch(
            f"at {len(left)} query tokens some head attends to one token alone however short they are: scores are "
            "beyond what its answers can tell, or the keys found are not its keys."
        )
    A, last, errors, raised, conditions = np.split(found, np.cumsum([heads * s, d, heads, heads]), axis=1)
    A = A.reshape(len(q), heads, s)
    moved = np.linalg.norm(raised, axis=0) / np.linalg.norm(A, axis=(0, 2))
    return Asked(last, A, errors, float(conditions.max(initial=0.0)), float(moved.max()))


def _logs(reader: Reader, alpha: Array, own: Array) -> tuple[Array, Array]:
    """Right-hand sides (n, H, m) of the equations, scores against the last token's own, with sinks that one too; and
    their errors for an error of 1 in every weight."""
    alpha, own = np.maximum(alpha, 1e-300), np.maximum(own, 1e-300)
    logs = reader.level(np.log(alpha), np.arange(alpha.shape[2], 0, -1)) - np.log(own)[..., None]
    errors = 1 / alpha + 1 / own[..., None]
    if reader.sinks is None:
        return logs, errors
    sunk = np.maximum(1 - alpha.sum(axis=2) - own, 1e-300)
    logs = np.concatenate([logs, (np.log(own) - np.log(sunk) + reader.sinks)[..., None]], axis=2)
    return logs, np.concatenate([errors, (1 / own + 1 / sunk)[..., None]], axis=2)


def _solved(design: Design, z: Array, t: Array, errors: Array) -> tuple[Array, Array, float]:
    """a_h(q) (H, s) of one query token from its sequences z (repeats, m + 1, d) and logs t (repeats, H, m) with their
    errors; errors (2, H) of a_h(q) by those of weights and by relative ones of 1 in keys; the worst conditioning."""
    m, s = design.slots, design.reader.values.width
    out, told, worst = np.zeros((t.shape[1], s)), np.zeros((2, t.shape[1])), 0.0
    for g in range(design.groups):
        heads = np.flatnonzero(design.group == g)
        rows = np.vstack([design.rows(g, part) for part in z])
        right = t[:, heads].transpose(0, 2, 1).reshape(len(rows), -1)
        for k, h in enumerate(heads):
            found = weighted(rows, right[:, k], errors[:, h].ravel())
            # A row that is off by a share of its length moves its equation by that of the query, root of s less.
            share = np.linalg.norm(found.x) * np.linalg.norm(found.inverse * np.linalg.norm(rows, axis=1))
            out[h], told[:, h] = found.x, (found.error, share / math.sqrt(s))
        if design.cap is not None:
            # With sinks the last row is the last token's score itself, and nothing is taken from it.
            against = [np.tile(design.key(g, part[-1]), (m, 1)) for part in z]
            own = np.vstack([np.pad(part, ((0, len(rows) // len(z) - m), (0, 0))) for part in against])
            out[heads] = uncapped(rows + own, own, right, out[heads].T, design.cap).T
        worst = max(worst, float(np.linalg.cond(rows)))
    return out, told, worst


def _prescribed(design: Design, K: Array, q: Array) -> Array:
    """Sequences (n, repeats, m + 1, d): V_g z_i = e_i and R^D xi_g(z_i) = -sign(xi_g(q)_i) e_i, far from xi_g(q)."""
    values, m = design.reader.values, design.slots
    s, d, radius = values.width, q.shape[1], design.reader.scene.radius
    split = len(values.V) * s
    inverse = np.linalg.pinv(np.vstack([*values.V, *K]))
    sinking = design.reader.sinks is not None
    z = np.zeros((len(q), design.repeats, m + 1, d))
    for j, last in enumerate(q):
        own = [design.key(g, last) for g in range(len(K))]
        written = [_beside(V @ last, m) if sinking else _against(V @ last)[:, :m] for V in values.V]
        value_part = inverse[:, :split] @ np.vstack(written)
        value_part *= ROTARY.designed_part * radius / np.linalg.norm(value_part, axis=0).max()
        for c in range(design.repeats):
            shown = (np.arange(m) + c * (s - m)) % s
            wanted = []
            for xi in own:
                signs = _beside(xi, m) if sinking and design.repeats == 1 else _against(xi)[:, shown]
                wanted.append(np.stack([R.T @ signs[:, i] for i, R in enumerate(design.R)], axis=1))
            key_part = inverse[:, split:] @ np.vstack(wanted)
            key_part *= min(
                ROTARY.designed_score / design.strength,
                ROTARY.designed_part * radius / np.linalg.norm(key_part, axis=0).max(),
            )
            tokens = (value_part + key_part).T
            tokens *= min(1.0, CORE.edge * radius / np.linalg.norm(tokens, axis=1).max())
            z[j, c, :m], z[j, c, m] = tokens, last
    return z


def _against(own: Array) -> Array:
    """Columns (s, s) along the axes, each with the sign that the last token's own lacks: differences from it never
    cancel."""
    return np.diag(-np.where(own > 0, 1.0, -1.0))


def _beside(own: Array, m: int) -> Array:
    """m orthonormal columns (s, m) orthogonal to the last token's own."""
    return np.asarray(svd(own[None])[2][1:].T[:, :m])


def _spread(rows: Array) -> Array:
    """Condition (n,), squared, of every one of n equations (n, m, s): good enough to choose by."""
    narrow = rows if rows.shape[1] < rows.shape[2] else rows.transpose(0, 2, 1)
    sizes = np.linalg.eigvalsh(narrow @ narrow.transpose(0, 2, 1))
    return np.asarray(sizes[:, -1] / np.maximum(sizes[:, 0], 1e-300))


def _chosen(design: Design, K: Array, q: Array, rng: np.random.Generator) -> Array:
    """Sequences of tokens q + v_i, V_g v_i orthogonal, from random blocks: the best conditioned at each q."""
    reader, m = design.reader, design.slots
    blocks = []
    for _ in range(ROTARY.block_candidates):
        v = dual_values(reader.values, m, 0.68 * reader.scene.radius, rng)
        rows = [np.stack([R @ (k @ x) for R, x in zip(design.R, v, strict=True)]) for k in K]
        blocks.append((max(np.linalg.cond(part) for part in rows), v, rows))
    blocks = sorted(blocks, key=lambda b: b[0])[: ROTARY.kept_blocks]
    offered = [np.stack([rows[g] for _, _, rows in blocks]) for g in range(len(K))]
    z = np.zeros((len(q), design.repeats, m + 1, q.shape[1]))
    for j, last in enumerate(q):
        own = [design.key(g, last) for g in range(len(K))]
        add = [np.stack([R @ xi for R in design.R]) - xi for xi in own]
        cost = np.max([_spread(offered[g] + a) for g, a in enumerate(add)], axis=0)
        for c, best in enumerate(np.argsort(cost, kind="stable")[: design.repeats]):
            z[j, c, :m], z[j, c, m] = last + blocks[best][1], last
    # Sums of two tokens may be longer than either: without a norm, as long as the target allows.
    longest = reader.scene.reach if reader.scene.eps is None else 0.97 * reader.scene.radius
    over = np.linalg.norm(z, axis=3).max() / longest
    return z / over if over > 1 else z
