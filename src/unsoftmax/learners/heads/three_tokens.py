"""The H - 1 directions per head that lie in the span of the other values.

[b + z1, b + z2, b] with z1 in that span and z2 free, longer than z1 and orthogonal to W_h b: the answer shows what
share z1 takes from z2 in head h. The other heads answer too, through z1 alone; all queries with one b form a small
square system for the vectors W_h b, solved by Newton steps. To first order in the scores two tokens cannot see these
directions: there only the symmetric part of sum_h v_h (W_h b)' is visible.

Theory: docs/theory/multi-head.md, "Generic heads", three tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.heads.constants import HEADS
from unsoftmax.learners.heads.ground import Ground
from unsoftmax.learners.heads.isolation import Isolated
from unsoftmax.probes.base import Array, Probes
from unsoftmax.probes.scales import held


@dataclass(eq=False)
class Shares:
    """Sequences of one head: tokens (m, n, 3, d) for its m bound directions and n columns b, answers y (m, n)."""

    head: Isolated
    tokens: Array
    y: Array
    size: Array
    """Length of z1 (m, n)."""
    second: Array
    """z2 (n, d)."""

    def build(self, ground: Ground, B: Array, i: Array, j: Array) -> Array:
        """Write and return the sequences of directions i and columns j with the current sizes."""
        query = ground.query(B[j])
        z1 = self.head.bound[i] * (self.size[i, j] * ground.stretch)[:, None]
        first, second = (held(z + query, ground.spec.dtype) for z in (z1, self.second[j] * ground.stretch))
        self.tokens[i, j] = np.stack([first, second, query], axis=1)
        return np.asarray(self.tokens[i, j])

    def scores(self, ground: Ground, U: Array) -> Array:
        """z1 . U (m, n) for the columns' U = W b (n, d): what saturates is asked again."""
        z1 = (self.tokens[:, :, 0] - self.tokens[:, :, 2]) / ground.stretch
        return np.asarray(np.einsum("mnd,nd->mn", z1, U))


def design_shares(ground: Ground, head: Isolated, B: Array, free: Array) -> Shares:
    """Tokens for every bound direction with every column b of B (n, d); `free` (p, n) are the free logits z'W b."""
    m, n, d = len(head.bound), len(B), ground.dim
    U = np.array([head.free_part(t) for t in free.T]).reshape(n, d)
    away = np.repeat(head.free[:1], n, axis=0)
    if len(head.free) > 1:
        # Along v as seen from the free directions, without what head h scores.
        away = away - U * (np.einsum("nd,nd->n", U, away) / np.maximum(np.einsum("nd,nd->n", U, U), 1e-300))[:, None]
    away /= np.linalg.norm(away, axis=1, keepdims=True)
    longer = np.full(n, HEADS.second_over_first)
    if len(head.free) == 1:
        longer = np.minimum(longer, 2 / np.maximum(np.abs(free[0]) * head.size, 1e-300))
    z2 = away * (longer * head.size)[:, None]
    return Shares(head, np.empty((m, n, 3, d)), np.empty((m, n)), np.full((m, n), head.size * HEADS.first_length), z2)


def ask_shares(
    ground: Ground, shares: list[Shares], B: Array, entries: list[tuple[Array, Array]], phase: str
) -> Asking[None]:
    """Ask the entries (directions i, columns j) of every head in one round."""
    tokens = [s.build(ground, B, i, j) for s, (i, j) in zip(shares, entries, strict=True)]
    if sum(map(len, tokens)) == 0:
        return
    y = yield Probes(np.concatenate(tokens), phase=phase)
    parts = np.split(y, np.cumsum([len(t) for t in tokens])[:-1])
    for s, (i, j), part in zip(shares, entries, parts, strict=True):
        s.y[i, j] = part


def everywhere(share: Shares) -> tuple[Array, Array]:
    """All directions and columns."""
    i, j = np.indices(share.y.shape).reshape(2, -1)
    return i, j


def saturated(ground: Ground, share: Shares, U: Array) -> tuple[Array, Array]:
    """Directions and columns whose first token scores too far from the others; their z1 is shortened in place."""
    t = share.scores(ground, U)
    i, j = np.nonzero(~(np.abs(t) <= HEADS.first_readable))
    share.size[i, j] /= np.clip(np.abs(np.nan_to_num(t[i, j], nan=64.0)), 2.0, 64.0)
    return i, j


def regrown(ground: Ground, share: Shares, U: Array) -> tuple[Array, Array]:
    """Directions and columns whose z1 was shortened too far, as a solution that was none made it; grown in place.

    An error of the answer counts 1 / |z1| times.
    """
    t = np.abs(share.scores(ground, U))
    full = share.head.size * HEADS.first_length
    i, j = np.nonzero((share.size < full / 2) & (t < HEADS.first_timid))
    share.size[i, j] = np.minimum(full, share.size[i, j] * (1 / np.maximum(t[i, j], 1e-300)))
    return i, j


def lengthened(ground: Ground, share: Shares, columns: Array) -> tuple[Array, Array]:
    """All directions of these columns with a longer z2, which leaves less room for a second solution.

    Coarse answers lose in a long z2 what it gains: there it is turned and shortened.
    """
    columns = columns[columns < share.y.shape[1]]
    share.second[columns] *= -HEADS.second_lengthened if ground.noise < HEADS.coarse_noise else -CORE.shortened
    i, j = np.indices((len(share.y), len(columns))).reshape(2, -1)
    return i, columns[j]


def solve_column(
    ground: Ground, v: Array, U: Array, shares: list[Shares | None], j: int, warm: bool
) -> tuple[Array, bool]:
    """W_h b_j for all heads, (H, d): `U` (H, d) holds the known free parts; heads with shares get their bound part.

    Newton's method with halved steps on one equation per unknown, from U itself if `warm`; the flag says whether it
    arrived. v (H, d).
    """
    active = [h for h, s in enumerate(shares) if s is not None and s.y.shape[0]]
    if not active:
        return U, True
    members = [s for s in shares if s is not None and s.y.shape[0]]
    tokens = np.concatenate([s.tokens[:, j] for s in members])
    b = tokens[:, 2]
    z = (tokens[:, :2] - b[:, None]) / ground.stretch
    answers = (np.concatenate([s.y[:, j] for s in members]) - b @ ground.V) / ground.stretch
    if ground.zero is not None:
        answers = answers - (z @ ground.zero).sum(axis=1) / 3
    values = z @ v.T
    # Rounding in the target is relative to all values, its own and those it should not see.
    weight = 1 / (np.linalg.norm(z, axis=2).max(axis=1) * np.linalg.norm(v, axis=1).sum())
    sizes = np.concatenate([s.size[:, j] for s in members])
    U = U.copy() if warm else _first_guess(z, values, U, answers, members, active)
    best, residual, J = np.inf, *_linearised(z, values, U, answers, weight, members, active)
    for _ in range(60):
        best = float(np.linalg.norm(residual))
        step = _newton_step(J, residual)
        if step is None:
            break
        step *= min(1.0, HEADS.longest_step / max(float((np.abs(step) * sizes).max()), 1e-300))
        for halving in range(12):
            trial = U.copy()
            parts = np.split(step * 0.5**halving, np.cumsum([len(s.y) for s in members])[:-1])
            for h, s, part in zip(active, members, parts, strict=True):
                trial[h] += s.head.bound.T @ part
            r, K = _linearised(z, values, trial, answers, weight, members, active)
            if np.linalg.norm(r) < best:
                break
        else:
            break
        U, residual, J = trial, r, K
        if np.linalg.norm(residual) > best / 4 and best < 1e3 * ground.noise * len(residual):
            break
    return U, bool(np.linalg.norm(residual) < max(HEADS.solved, 1e4 * ground.noise) * len(residual))


def _newton_step(J: Array, residual: Array) -> Array | None:
    """J^-1 residual, by least squares where J is singular; None where even that has no finite answer."""
    if not (np.isfinite(J).all() and np.isfinite(residual).all()):
        return None
    try:
        step = np.linalg.solve(J, residual)
    except np.linalg.LinAlgError:
        step = np.full(J.shape[1], np.inf)
    if not (np.abs(step) <= HEADS.singular_step).all():
        # J is singular to the last bit: of its many solutions the shortest is meant.
        step = np.linalg.lstsq(J, residual, rcond=None)[0]
    return np.asarray(step) if (np.abs(step) <= HEADS.singular_step).all() else None


def _shown(z: Array, values: Array, U: Array) -> tuple[Array, Array]:
    """Attention (n, 2, H) of z1 and z2, and what every head answers (n, H)."""
    t = np.einsum("nkd,hd->nkh", z, U)
    top = np.maximum(t.max(axis=1, keepdims=True), 0.0)
    e = np.exp(t - top)
    alpha = e / (e.sum(axis=1, keepdims=True) + np.exp(-top))
    return alpha, np.einsum("nkh,nkh->nh", alpha, values)


def answered(z: Array, v: Array, U: Array) -> tuple[Array, Array]:
    """What all heads answer to z1 and z2 (n, 2, d) at one query token, (n,), and its slopes along U (H, d)."""
    values = z @ v.T
    alpha, shown = _shown(z, values, U)
    return shown.sum(axis=1), np.einsum("nkh,nkd->nhd", alpha * (values - shown[:, None]), z)


def _first_guess(z: Array, values: Array, U: Array, answers: Array, members: list[Shares], active: list[int]) -> Array:
    """Each head as if those with smaller values were silent, y = (A1 e1 + A2 e2) / (1 + e1 + e2) solved for e1."""
    U = U.copy()
    ends = np.cumsum([len(s.y) for s in members])
    strength = [float(np.linalg.norm(s.head.v)) for s in members]
    rest = answers
    for i in np.argsort(strength, kind="stable")[::-1]:
        h, s, k = active[i], members[i], slice(ends[i] - len(members[i].y), ends[i])
        A1, A2, e2 = values[k, 0, h], values[k, 1, h], np.exp(np.clip(z[k, 1] @ U[h], -30, 30))
        with np.errstate(divide="ignore", invalid="ignore"):
            e1 = (A2 * e2 - rest[k] * (1 + e2)) / (rest[k] - A1)
        t1 = np.log(np.clip(np.nan_to_num(e1, nan=1.0), 1e-3, 1e3))
        U[h] += s.head.bound.T @ (t1 / np.linalg.norm(z[k, 0], axis=1))
        rest = rest - _shown(z, values, U)[1][:, h]
    return U


def _linearised(
    z: Array, values: Array, U: Array, answers: Array, weight: Array, members: list[Shares], active: list[int]
) -> tuple[Array, Array]:
    """Weighted residual (n,) and its Jacobian (n, unknowns) in the bound coordinates of the active heads."""
    alpha, shown = _shown(z, values, U)
    residual = (answers - shown.sum(axis=1)) * weight
    columns = []
    for h, s in zip(active, members, strict=True):
        slope = alpha[:, :, h] * (values[:, :, h] - shown[:, None, h])
        columns.append(np.einsum("nk,nkd->nd", slope, z) @ s.head.bound.T)
    return residual, np.hstack(columns) * weight[:, None]
