"""LayerNorm before attention: tokens stay in a ball, nothing saturates, so heads are told apart by eigenvalues."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from unsoftmax.errors import ModelMismatch
from unsoftmax.learners.core.base import Asking, Program
from unsoftmax.learners.layer.assembly import outcome
from unsoftmax.learners.layer.ball import Ball, read_ball
from unsoftmax.learners.layer.keys import read_keys
from unsoftmax.learners.layer.presets import Preset
from unsoftmax.learners.layer.ranges import Heads
from unsoftmax.learners.layer.scores import TYPICAL, Reader, find_scales
from unsoftmax.probes.around import orthonormal
from unsoftmax.probes.base import Array, Probes
from unsoftmax.solvers.mixing_newton import Data, Mixing, refine
from unsoftmax.solvers.orthogonal import solve_orthogonal
from unsoftmax.solvers.pencil import Clusters, annihilators, find_clusters, left_null
from unsoftmax.solvers.subspace import column_range
from unsoftmax.spec import Domain, OracleSpec

_EDGE = 0.95
"""Length of the longest tokens, as a share of the ball's radius."""

_STEP = 1e-7
"""Step of a one-sided difference along a direction of typical effect, as a share of the radius."""

_LEFT_OUT = 24
"""One in so many directions is left out of the differences at first."""

_SHOWN = 4
"""Pairs of tokens of which one at least shows a dimension that single tokens do not."""

_DRAWS = 6
"""How often heads are told apart anew, from other tokens."""

_NOISY = 1e-6
"""Noise over the answers from which on it is the answers' own, which drawing other tokens does not change."""

_NOISY_DRAWS = 3
"""Draws of tokens spent where noise is above that, in place of `_DRAWS`: more would cost queries and gain nothing."""

_OPPOSITE = 4
"""Displacements asked in both directions; the mean of each pair is the answer at the middle token, and four of them
average its noise."""

_SPARE = 8
"""Random displacements at the same logits, which enter the data of the refinement alone: equations beyond its
unknowns."""


def pre_norm(spec: OracleSpec, preset: Preset, rng: np.random.Generator) -> Program:
    """The whole program."""
    ball = yield from read_ball(spec, rng)
    return (yield from in_ball(ball, spec, preset, rng, norm="pre", eps=ball.eps))


def in_ball(ball: Ball, spec: OracleSpec, preset: Preset, rng: np.random.Generator, **around: Any) -> Program:
    """Heads, scores and the model from tokens in a ball; `around` says what stands around them."""
    q = _of_length(_room(ball), ball, rng)
    heads, u = yield from _told_apart(q, ball, preset, rng)
    reader = Reader(heads, ball.alone, ball.noise, embed=ball.tokens)
    inner = replace(spec, dim=len(ball.U), domain=Domain(max_length=spec.domain.max_length))
    units = orthonormal(rng, inner.dim, min(reader.tokens(preset.tokens(heads.slots)), 16))
    # Displaced tokens must stay inside the ball whatever their direction.
    scales = yield from find_scales(reader, units, rng, 4 * _room(ball))
    keys = yield from read_keys(reader, scales, preset, inner, rng, known=(q, u))
    U = ball.U
    keys = replace(keys, K=[k @ U for k in keys.K], Q=[k @ U for k in keys.Q], c=[c @ U for c in keys.c])
    reader.heads = Heads(heads.O, [z @ U for z in heads.Z], heads.error)
    return outcome(keys, reader, ball.constant, spec, residual=ball.residual, **around)


def _room(ball: Ball) -> float:
    """Length of query tokens and displacements whose sums stay inside the ball, random directions being far apart."""
    aligned = min(1.0, 4.5 / np.sqrt(len(ball.U)))
    return float(ball.radius * np.sqrt(0.46 / (1 + aligned)))


def _of_length(length: float, ball: Ball, rng: np.random.Generator) -> Array:
    w = rng.standard_normal(len(ball.U))
    return np.asarray(w * (length / np.linalg.norm(w)))


@dataclass(frozen=True, eq=False)
class _At:
    """Sequences that end in one query token q (D,), answered above q alone, in the coordinates B of all ranges."""

    q: Array
    ball: Ball
    B: Array

    def ask(self, w: Array, phase: str) -> Asking[Array]:
        """Answers (n, rank) to [w_1, ..., w_m, q], w (n, m, D)."""
        last = np.broadcast_to(self.q, (len(w), 1, len(self.q)))
        y = yield Probes(self.ball.tokens(np.concatenate([w, last], axis=1)), phase=phase)
        return (y - self.ball.alone(self.q[None])) @ self.B


def _told_apart(q: Array, ball: Ball, preset: Preset, rng: np.random.Generator) -> Asking[tuple[Heads, Array]]:
    """What all heads write, and their key directions at q: eigenvalues, rough key directions, exact probes, Newton."""
    B = yield from _written_into(q, ball, rng)
    at, P = _At(q, ball, B), B.T @ ball.M
    draws = _DRAWS if ball.noise < _NOISY else _NOISY_DRAWS
    for draw in range(draws):
        phase = "main" if draw == 0 else "repair"
        pencil = yield from _pencil(at, P, rng, phase)
        if pencil is None:
            continue
        found, left = pencil
        u, data = yield from _rough_directions(left, found, at, preset, P, rng, phase)
        exact = yield from _exact_probes(u, found.rank, at, P, rng, phase)
        if exact is None:
            continue
        mixing = refine(exact[0], u, P, [*data, *exact[1]])
        if mixing.residual < max(1e-9, 3e3 * ball.noise):
            return _heads(mixing, P, B), mixing.u
    raise ModelMismatch(
        f"in {draws} draws the answers to two tokens did not fall apart into heads: heads of unequal rank, heads with "
        "the same scores, fewer than four dimensions per head, more behind the LayerNorm than attention, or noise "
        "beyond the rounding of the answers."
    )


def _written_into(q: Array, ball: Ball, rng: np.random.Generator) -> Asking[Array]:
    """Orthonormal basis (outputs, n) of what all heads write into together."""
    span = column_range(ball.M, ball.noise, spare=0)
    if span.rank < ball.M.shape[1]:
        return span.basis
    # Heads that fill the space have one dimension more than single tokens can show; two tokens show it.
    whole = np.eye(len(ball.M))
    x = np.stack([_of_length(_EDGE * ball.radius, ball, rng) for _ in range(_SHOWN)])
    y = yield from _At(q, ball, whole).ask(x[:, None], "pilot")
    outside = np.linalg.norm(y - (y @ span.basis) @ span.basis.T) / np.linalg.norm(y)
    return span.basis if outside < max(1e-12, 30 * ball.noise) else whole


def _heads(mixing: Mixing, P: Array, B: Array) -> Heads:
    H = len(mixing.u)
    Z = np.split(np.linalg.solve(mixing.O, P), H)
    O = [B @ block for block in np.split(mixing.O, H, axis=1)]
    return Heads(O, Z, mixing.residual * float(np.linalg.cond(mixing.O)))


def _pencil(at: _At, P: Array, rng: np.random.Generator, phase: str) -> Asking[tuple[Clusters, list[Array]] | None]:
    """Clusters of eigenvalues, one per head, with the annihilators of all other heads; None if they are not clear.

    The directions that P shrinks most are left out at first: a head of large rank shows without them, and clearer.
    """
    n, exact = len(P), at.ball.noise < 1e-12
    sizes, V = np.linalg.svd(P, full_matrices=False)[1:]
    radius = at.ball.radius
    # Ranges do not depend on the query token: a long one spreads the eigenvalues.
    at = replace(at, q=_of_length(_EDGE * radius, at.ball, rng))
    x = _of_length((_EDGE if exact else 0.75) * radius, at.ball, rng)
    steps = _STEP * radius * np.sqrt(np.median(sizes) / sizes).clip(0.1, 100)
    base = (yield from at.ask(x[None, None], phase)) if exact else None
    J = np.zeros((n, 0))
    for part in np.split(np.arange(len(V)), [len(V) - n // _LEFT_OUT]):
        if len(part) == 0:
            continue
        if base is not None:
            J = np.hstack([J, (yield from _one_sided(x, V[part], steps[part], base, at, phase))])
        else:
            J = np.hstack([J, (yield from _central(x, V[part], 0.2 * radius, at, phase))])
        PT = P @ V[: J.shape[1]].T
        found = find_clusters(J, PT)
        if found is not None and found.contrast >= (8.0 if exact else 2.0):
            return found, annihilators(J, PT, found, max(1, found.rank - 1))
    return None


def _one_sided(x: Array, T: Array, steps: Array, base: Array, at: _At, phase: str) -> Asking[Array]:
    """Derivative (n, k) of the answers to [x, q] along the rows of T (k, D)."""
    y = yield from at.ask((x + steps[:, None] * T)[:, None], phase)
    return (y - base).T / steps


def _central(x: Array, T: Array, h: float, at: _At, phase: str) -> Asking[Array]:
    """The same from noisy answers: wide central differences at two widths, the third order cancelled."""
    y = yield from at.ask(np.concatenate([x + s * h * T for s in (0.5, -0.5, 1.0, -1.0)])[:, None], phase)
    near, back, far, far_back = np.split(y, 4)
    return (4 * (near - back) / h - (far - far_back) / (2 * h)).T / 3


def _rough_directions(
    left: list[Array], found: Clusters, at: _At, preset: Preset, P: Array, rng: np.random.Generator, phase: str
) -> Asking[tuple[Array, Data]]:
    """Key directions (H, D) at q through the annihilators, with the answers they came from."""
    D = P.shape[1]
    m = max(1, min(preset.tokens(found.rank), left[0].shape[1]))
    values = [L.T @ P for L in left]
    units, step = orthonormal(rng, D), 0.9 * _room(at.ball)
    # Exact answers show small logits too, and then a strong head is never cut off; noisy ones need large logits.
    least, most = (1e-6, 1.25 * TYPICAL) if at.ball.noise < 1e-12 else (1e-3, 2 * TYPICAL)
    for _ in range(6):
        E = units[None, :m] * step
        y = yield from at.ask(at.q + E, "pilot")
        size = float(np.sqrt((_logits(left, values, y, E, least) ** 2).mean(axis=2)).max())
        if size < most:
            break
        step *= max(0.2, TYPICAL / size)
    data: Data = []
    logits = []
    for part in np.array_split(units * step, -(-D // m)):
        y = yield from at.ask((at.q + part)[None], phase)
        data.append((part[None], y))
        logits.append(_logits(left, values, y, part[None], least)[0])
    return solve_orthogonal(units * step, np.hstack(logits).T).T, data


def _logits(left: list[Array], values: list[Array], y: Array, E: Array, least: float) -> Array:
    """Logits (n, H, m) of displacements E (n, m, D), each head read where all others are annihilated.

    values: L'P (count, D), what each head's annihilators L see of a displacement. Weights below `least` are cut off.
    """
    alpha = np.stack(
        [
            [np.linalg.lstsq(v @ e.T, L.T @ row, rcond=None)[0] for L, v in zip(left, values, strict=True)]
            for e, row in zip(E, y, strict=True)
        ]
    )
    last = np.maximum(1 - alpha.sum(axis=2, keepdims=True), least)
    return np.asarray(np.log(np.maximum(alpha, least)) - np.log(last))


def _exact_probes(
    u: Array, s: int, at: _At, P: Array, rng: np.random.Generator, phase: str
) -> Asking[tuple[Array, Data] | None]:
    """Square O (n, n) from tokens that give all heads chosen logits and move freely where no head's score changes.

    [x + r n, q] with u_h . (x - q) = t_h and n orthogonal to all u_h answers sum_h sigma(t_h) P_h (x - q + r n): linear
    in n, with one known factor per head.
    """
    H, D = u.shape
    N = np.linalg.svd(u)[2][H:]
    PN = P @ N.T
    blocks: list[list[Array]] = [[] for _ in range(H)]
    data: Data = []
    # One set of logits leaves D - H columns; heads of small rank, or noise, need more to be told from the rest.
    used: list[Array] = []
    for _ in range((1 if s > H else 2) + 2 * (at.ball.noise > 1e-12)):
        chosen = _spread(u, at, used, rng)
        if chosen is None:
            return None
        x, t = chosen
        used.append(t)
        r = float(np.sqrt((_EDGE * at.ball.radius) ** 2 - x @ x))
        extra = rng.standard_normal((_SPARE, D - H)) @ N
        extra *= r / np.linalg.norm(extra, axis=1, keepdims=True)
        k = min(_OPPOSITE, D - H)
        w = x + np.vstack([r * N, -r * N[:k], extra])
        y = yield from at.ask(w[:, None], phase)
        data.append(((w - at.q)[:, None], y))
        middle = (y[:k] + y[D - H : D - H + k]).mean(axis=0) / 2
        A = (y[: D - H] - middle).T / r
        for h in range(H):
            blocks[h].append(A - PN / (1 + np.exp(-t[h])))
    left = np.hstack([left_null(np.hstack(block), s) for block in blocks])
    O = np.linalg.inv(left.T)
    return np.hstack([np.linalg.qr(part)[0] for part in np.split(O, H, axis=1)]), data


def _spread(u: Array, at: _At, used: list[Array], rng: np.random.Generator) -> tuple[Array, Array] | None:
    """A first token x (D,) and logits t (H,), u_h . (x - q) = t_h, spread as widely as the ball allows.

    Logits like those `used` already, or opposite to them, would show the same once more.
    """
    H = len(u)
    inverse, uq = np.linalg.pinv(u).T, u @ at.q
    levels = np.linspace(-1, 1, H) if H > 1 else np.ones(1)
    # Weak scores: the ball only has room for small logits.
    for size in np.geomspace(2.2, 2e-3, 30):
        t = np.array([rng.permutation(levels) for _ in range(300)])
        if used:
            t = t + rng.uniform(-0.6, 0.6, t.shape) / H
            alike = np.abs(t @ np.array([v / np.linalg.norm(v) for v in used]).T).max(axis=1) / np.linalg.norm(
                t, axis=1
            )
            t = t[alike <= max(0.9, float(np.quantile(alike, 0.1)))]
        t = size * t
        x = (t + uq) @ inverse
        best = int(np.argmin(np.linalg.norm(x, axis=1)))
        if np.linalg.norm(x[best]) < 0.8 * at.ball.radius:
            return x[best], t[best]
    return None
