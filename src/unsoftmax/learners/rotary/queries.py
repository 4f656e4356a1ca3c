"""Queries Q_h q + b_h of every head: one sequence for every query token, its tokens made for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.errors import ModelMismatch
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.rotary.keys import Keys
from unsoftmax.learners.rotary.presets import Plan
from unsoftmax.learners.rotary.turns import Turns
from unsoftmax.learners.rotary.weights import Reader, dual_values
from unsoftmax.probes.around import orthonormal
from unsoftmax.probes.base import Array
from unsoftmax.solvers.shift_operator import rotation

_ROOM = 0.8
"""Share of the dimensions up to which values and keys of all groups can be prescribed together."""

_PART, _EDGE = 0.6, 0.95
"""Lengths, as shares of the radius, of the two parts of a designed token, and of the longest token."""

_SCORE = 1.2
"""Typical score of a designed token: larger ones lose the digits of small weights, smaller ones their own."""

_CANDIDATES, _KEPT = 150, 30
"""Random blocks tried where tokens cannot be prescribed, and those kept for the choice at each query token."""

_REPAIRS = 6


@dataclass(frozen=True, eq=False)
class Queries:
    """Q (H, s, d), bias (H, s); condition: worst conditioning of a query token's own equations."""

    Q: Array
    bias: Array
    condition: float


@dataclass(frozen=True, eq=False)
class _Design:
    """What every sequence needs: keys by group, rotations of the slots (farthest first), sequences per query token."""

    reader: Reader
    keys: Keys
    group: Array
    R: list[Array]
    repeats: int

    @property
    def slots(self) -> int:
        return len(self.R)

    def key(self, g: int, z: Array) -> Array:
        return self.keys.K[g] @ z + self.keys.bias[g]

    def rows(self, g: int, z: Array) -> Array:
        """Equations (m, s) for a_h(q) from one sequence z (m + 1, d): R^D xi(z_i) - xi(q)."""
        return np.stack([R @ self.key(g, x) for R, x in zip(self.R, z[:-1], strict=True)]) - self.key(g, z[-1])


def read_queries(reader: Reader, turns: Turns, keys: Keys, plan: Plan, rng: np.random.Generator) -> Asking[Queries]:
    """d + 1 query tokens, x = 0 among them; those at which a head is saturated are asked again, shorter."""
    scene, m = reader.scene, plan.last_slots(reader)
    s, d = reader.values.width, scene.dim
    R = [rotation(turns.theta, D) for D in range(m, 0, -1)]
    design = _Design(reader, keys, turns.group, R, max(plan.repeats, -(-s // m)))
    room = len(np.vstack(list(reader.values.V))) + keys.K.shape[0] * s <= _ROOM * d
    q = np.vstack([np.zeros(d), orthonormal(rng, d) * ((0.9 if room else 0.63) * scene.radius * turns.scale)])
    A, last, worst = np.zeros((d + 1, len(turns.group), s)), q.copy(), 0.0
    left, phase = np.arange(d + 1), "main"
    for _ in range(_REPAIRS):
        z = _prescribed(design, q[left]) if room else _chosen(design, q[left], rng)
        alpha, own, seen = yield from reader.before_any(z.reshape(-1, m + 1, d), phase)
        # A query token is shortened by halves where a weight is lost in the noise of the answer.
        lost = (np.minimum(alpha.min(axis=2), own) <= max(1e-12, 10 * scene.noise)).any(axis=1)
        lost = lost.reshape(len(left), -1).any(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            t = (np.log(alpha) - np.log(own)[..., None]).reshape(len(left), design.repeats, -1, m)
        seen = seen.reshape(len(left), design.repeats, m + 1, d)
        for j in np.flatnonzero(~lost):
            A[left[j]], condition = _solved(design, seen[j], t[j])
            last[left[j]], worst = seen[j, 0, -1], max(worst, condition)
        left, phase = left[lost], "repair"
        if len(left) == 0:
            whole = np.linalg.lstsq(np.column_stack([last, np.ones(d + 1)]), A.reshape(d + 1, -1), rcond=None)[0]
            whole = whole.reshape(d + 1, -1, s)
            return Queries(whole[:d].transpose(1, 2, 0), whole[d], worst)
        q[left] *= 0.5
    raise ModelMismatch(
        f"at {len(left)} query tokens some head attends to one token alone however short they are: scores are beyond "
        "what its answers can tell, or the keys found are not its keys."
    )


def _solved(design: _Design, z: Array, t: Array) -> tuple[Array, float]:
    """a_h(q) (H, s) of one query token from its sequences z (repeats, m + 1, d) and logs t (repeats, H, m)."""
    out, worst = np.zeros((t.shape[1], design.keys.K.shape[1])), 0.0
    for g in range(len(design.keys.K)):
        heads = np.flatnonzero(design.group == g)
        rows = np.vstack([design.rows(g, part) for part in z])
        right = t[:, heads].transpose(0, 2, 1).reshape(len(rows), -1)
        out[heads] = np.linalg.lstsq(rows, right, rcond=None)[0].T
        worst = max(worst, float(np.linalg.cond(rows)))
    return out, worst


def _prescribed(design: _Design, q: Array) -> Array:
    """Sequences (n, repeats, m + 1, d): V_g z_i = e_i and R^D xi_g(z_i) = -sign(xi_g(q)_i) e_i, far from xi_g(q)."""
    values, K, m = design.reader.values, design.keys.K, design.slots
    s, d, radius = values.width, q.shape[1], design.reader.scene.radius
    split = len(values.V) * s
    inverse = np.linalg.pinv(np.vstack([*values.V, *K]))
    value_part = inverse[:, :split] @ np.vstack([np.eye(s)[:, :m]] * len(values.V))
    value_part *= _PART * radius / np.linalg.norm(value_part, axis=0).max()
    strength = float(np.sqrt((design.keys.A**2).mean(axis=(0, 2))).max())
    z = np.zeros((len(q), design.repeats, m + 1, d))
    for j, last in enumerate(q):
        own = [design.key(g, last) for g in range(len(K))]
        for c in range(design.repeats):
            shown = (np.arange(m) + c * (s - m)) % s
            wanted = []
            for xi in own:
                signs = np.zeros((s, m))
                signs[shown, np.arange(m)] = -np.where(xi[shown] > 0, 1.0, -1.0)
                wanted.append(np.stack([R.T @ signs[:, i] for i, R in enumerate(design.R)], axis=1))
            key_part = inverse[:, split:] @ np.vstack(wanted)
            key_part *= min(_SCORE / strength, _PART * radius / np.linalg.norm(key_part, axis=0).max())
            tokens = (value_part + key_part).T
            tokens *= min(1.0, _EDGE * radius / np.linalg.norm(tokens, axis=1).max())
            z[j, c, :m], z[j, c, m] = tokens, last
    return z


def _chosen(design: _Design, q: Array, rng: np.random.Generator) -> Array:
    """Sequences of tokens q + v_i, V_g v_i orthogonal, from random blocks: the best conditioned at each q."""
    reader, m = design.reader, design.slots
    blocks = []
    for _ in range(_CANDIDATES):
        v = dual_values(reader.values, m, 0.68 * reader.scene.radius, rng)
        rows = [np.stack([R @ (K @ x) for R, x in zip(design.R, v, strict=True)]) for K in design.keys.K]
        blocks.append((max(np.linalg.cond(part) for part in rows), v, rows))
    blocks = sorted(blocks, key=lambda b: b[0])[:_KEPT]
    z = np.zeros((len(q), design.repeats, m + 1, q.shape[1]))
    for j, last in enumerate(q):
        own = [design.key(g, last) for g in range(len(design.keys.K))]
        add = [np.stack([R @ xi for R in design.R]) - xi for xi in own]
        cost = [max(np.linalg.cond(a + b) for a, b in zip(rows, add, strict=True)) for _, _, rows in blocks]
        for c, best in enumerate(np.argsort(cost)[: design.repeats]):
            z[j, c, :m], z[j, c, m] = last + blocks[best][1], last
    over = np.linalg.norm(z, axis=3).max() / (0.97 * reader.scene.radius)
    return z / over if over > 1 and reader.scene.eps is not None else z
