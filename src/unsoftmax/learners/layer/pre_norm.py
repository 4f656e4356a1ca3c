"""LayerNorm before attention: tokens stay in a ball, nothing saturates, so heads are told apart by eigenvalues.

Theory: docs/theory/attention-layer.md, "LayerNorm before".
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from unsoftmax.errors import Code, ModelMismatch, NotIdentifiable
from unsoftmax.learners.core.base import Asking, Program
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.core.law import copies_count, require_affine
from unsoftmax.learners.core.settling import settle
from unsoftmax.learners.layer.assembly import outcome
from unsoftmax.learners.layer.ball import Ball
from unsoftmax.learners.layer.blurred import refusal
from unsoftmax.learners.layer.constants import LAYER
from unsoftmax.learners.layer.derivatives import At, clusters, of_length
from unsoftmax.learners.layer.keys import read_keys
from unsoftmax.learners.layer.presets import Preset
from unsoftmax.learners.layer.ranges import Heads
from unsoftmax.learners.layer.scores import Reader, find_scales
from unsoftmax.precision import SHORT_FORMAT
from unsoftmax.probes.around import orthonormal
from unsoftmax.probes.base import Array
from unsoftmax.solvers.mixing_newton import Data, Mixing, refine, where_ranges_meet
from unsoftmax.solvers.pencil import Clusters, left_null
from unsoftmax.solvers.singular import svd
from unsoftmax.solvers.subspace import column_range, solve_orthogonal
from unsoftmax.spec import Domain, OracleSpec


class SharedValuesError(ModelMismatch):
    """Heads share values, so that single tokens show their sum alone: small differences do not tell them apart."""


ALL_DRAWS, FIRST_DRAWS, LATER_DRAWS = slice(None), slice(LAYER.one_sided_draws), slice(LAYER.one_sided_draws, None)
"""Draws of tokens, made until heads fall apart: what the first ones miss may be heads that write into the same
directions."""


def in_ball(
    ball: Ball, spec: OracleSpec, preset: Preset, rng: np.random.Generator, part: slice = ALL_DRAWS, **around: Any
) -> Program:
    """Heads, scores and the model from tokens in a ball; `around`: what stands there, `part`: which draws are made."""
    q = of_length(_room(ball), ball, rng)
    heads, u = yield from _told_apart(q, ball, preset, rng, part)
    return (yield from of_heads(heads, ball, spec, preset, rng, known=(q, u), **around))


def of_heads(
    heads: Heads,
    ball: Ball,
    spec: OracleSpec,
    preset: Preset,
    rng: np.random.Generator,
    known: tuple[Array, Array] | None = None,
    **around: Any,
) -> Program:
    """Scores and the model, what the heads write being known, and key directions u (H, D) at a query token perhaps."""
    reader = Reader(heads, ball.alone, ball.noise, embed=ball.tokens)
    inner = replace(spec, dim=len(ball.U), domain=Domain(max_length=spec.domain.max_length))
    units = orthonormal(rng, inner.dim, min(reader.tokens(preset.tokens(heads.slots)), 16))
    # Displaced tokens must stay inside the ball whatever their direction.
    scales = yield from find_scales(reader, units, rng, 4 * _room(ball))
    keys = yield from read_keys(reader, scales, preset, inner, rng, known=known)
    U = ball.U
    keys = replace(keys, K=[k @ U for k in keys.K], Q=[k @ U for k in keys.Q], c=[c @ U for c in keys.c])
    reader.heads = Heads(heads.O, [z @ U for z in heads.Z], heads.error)
    return outcome(keys, reader, ball.constant, spec, residual=ball.residual, **around)


def _room(ball: Ball) -> float:
    """Length of query tokens and displacements whose sums stay inside the ball, random directions being far apart."""
    aligned = min(1.0, 4.5 / np.sqrt(len(ball.U)))
    return float(ball.radius * np.sqrt(0.46 / (1 + aligned)))


def _told_apart(
    q: Array, ball: Ball, preset: Preset, rng: np.random.Generator, part: slice
) -> Asking[tuple[Heads, Array]]:
    """What all heads write, and their key directions at q: eigenvalues, rough key directions, exact probes, Newton."""
    B = yield from _written_into(q, ball, rng)
    at, P = At(q, ball, B), B.T @ ball.M
    condition = float(np.linalg.cond(P))
    # Below rounding nothing is left of the weakest directions, whatever the draw.
    drowned = condition * ball.noise > 1
    weak = drowned or condition > LAYER.worst_condition
    most = 0 if drowned else 2 if weak else CORE.draws if ball.noise < LAYER.own_noise else LAYER.draws_of_noisy_heads
    near, logit, asked = 1.0, 1.0, False
    for draw in range(most)[part]:
        # Where one token has all the weight of most heads, the next two stand nearer to each other.
        near *= 1.0 if logit < LAYER.saturated_logit else LAYER.typical_logit / logit
        phase = "main" if draw == 0 else "repair"
        fine = draw >= LAYER.one_sided_draws or condition * ball.noise > LAYER.one_sided_rounding * LAYER.one_sided_step
        pencil, logit = yield from clusters(at, P, rng, phase, fine, near)
        if pencil is None:
            continue
        found, left = pencil
        u, data = yield from _rough_directions(left, found, at, preset, P, rng, phase)
        exact = yield from _exact_probes(u, found.rank, at, P, rng, phase)
        if exact is None:
            continue
        data = [*data, *exact[1]]
        mixing = refine(exact[0], u, P, data)
        if ball.noise > SHORT_FORMAT:
            mixing = where_ranges_meet(mixing, data, ball.noise * max(float(np.abs(y).max()) for _, y in data))
        if mixing.residual < max(1e-9, 3e3 * ball.noise):
            return _heads(mixing, B), mixing.u
        if not asked:
            yield from _require_weights(at, rng)
            yield from _require_scores(left, u, at, P, rng)
            asked = True
    if not asked and part.start is None:
        yield from _require_weights(at, rng)
    if weak:
        words = f"more than answers show ({1 / ball.noise:.0e})" if drowned else f"a factor of {condition:.0e}"
        raise NotIdentifiable(
            f"what the heads write differs by {words} between directions (the condition of the sum of all P_h): behind "
            "a LayerNorm or below a norm limit heads are told apart by small differences of answers, and "
            "rounding leaves nothing of those along the weakest directions."
        )
    raise refusal(
        f"in {most} draws the answers to two tokens did not fall apart into heads: heads of unequal rank, heads with "
        "the same scores, fewer than four dimensions per head, more behind the LayerNorm than attention, or noise "
        "beyond the rounding of the answers.",
        P,
        ball.noise,
        Code.OVERLAPPING,
    )


def _require_scores(left: list[Array], u: Array, at: At, P: Array, rng: np.random.Generator) -> Asking[None]:
    """Refuse scores that are not affine in a token.

    Heads fall apart by where they write, whatever their scores: sequences [q + e, q] show every head's weight where
    all others are annihilated, and how far that is from explaining the answer tells how well it is known. Of scores as
    assumed the logits at e_1 and e_2 add up to that at e_1 + e_2.
    """
    e = orthonormal(rng, len(at.q))[:2]
    step = min(0.6 * _room(at.ball), LAYER.typical_logit / max(float(np.abs(u @ e.T).max()), 1e-300))
    E = step * np.vstack([e, e.sum(axis=0)])
    y = yield from at.ask((at.q + E)[:, None], "repair")
    bent = off = 0.0
    for L in left:
        A, b = E @ (L.T @ P).T, y @ L
        alpha = (A * b).sum(axis=1) / (A * A).sum(axis=1)
        missed = np.linalg.norm(b - alpha[:, None] * A, axis=1) / np.linalg.norm(A, axis=1)
        spread = np.maximum(alpha * (1 - alpha), 1e-300)
        off = max(off, float((missed / spread).max()) if ((alpha > 0) & (alpha < 1)).all() else np.inf)
        t = np.log(alpha.clip(1e-300) / (1 - alpha).clip(1e-300))
        bent = max(bent, float(abs(t[2] - t[0] - t[1])))
    require_affine(bent, off, "where they write", "of two displacements miss that of their sum")


def _require_weights(at: At, rng: np.random.Generator) -> Asking[None]:
    """Refuse weights that do not add up to 1, or hang on the length of the sequence."""
    k, w = LAYER.copies_of_all, at.q + 0.6 * _room(at.ball) * orthonormal(rng, len(at.q))[:1]
    y = yield from at.ask(np.stack([at.q[None]] * 2 + [w] * 2), "repair", np.array([[1, 1], [k, k]] * 2))
    heard = CORE.stated_over_rounding * at.ball.noise * np.linalg.norm([*at.ball.M.T, at.ball.constant])
    of_one, of_both = np.linalg.norm(y[1::2] - y[::2], axis=1) > heard
    if of_one or of_both:
        raise ModelMismatch(copies_count(k, bool(of_one)), code=Code.LAW)


def _written_into(q: Array, ball: Ball, rng: np.random.Generator) -> Asking[Array]:
    """Orthonormal basis (outputs, n) of what all heads write into together."""
    span = column_range(ball.M, ball.noise, spare=0)
    whole = np.eye(len(ball.M))
    x = np.stack([of_length(CORE.edge * ball.radius, ball, rng) for _ in range(LAYER.shown_pairs)])
    y = yield from At(q, ball, whole).ask(x[:, None], "pilot")
    missed = np.linalg.norm(y - (y @ span.basis) @ span.basis.T, axis=1)
    if span.rank == ball.M.shape[1]:
        # Heads that fill the space have one dimension more than single tokens can show; two tokens show it.
        clearest = float((missed / np.maximum(np.linalg.norm(y, axis=1), 1e-300)).max())
        return span.basis if clearest < max(LAYER.exact_aside, LAYER.roundings_aside * ball.noise) else whole
    outside = np.linalg.norm(missed) / max(float(np.linalg.norm(y)), 1e-300)
    if outside > LAYER.shared_aside:
        raise SharedValuesError(
            f"two tokens are answered in directions that no single token is answered in ({outside:.0%} of the answer): "
            "heads that share their values (grouped heads), whose sum single tokens show alone, so that small "
            "differences of answers do not tell them apart."
        )
    return span.basis


def _heads(mixing: Mixing, B: Array) -> Heads:
    H = len(mixing.u)
    O = [B @ block for block in np.split(mixing.O, H, axis=1)]
    return Heads(O, list(mixing.Z), mixing.residual * float(np.linalg.cond(mixing.O)))


def _rough_directions(
    left: list[Array], found: Clusters, at: At, preset: Preset, P: Array, rng: np.random.Generator, phase: str
) -> Asking[tuple[Array, Data]]:
    """Key directions (H, D) at q through the annihilators, with the answers they came from."""
    D = P.shape[1]
    m = max(1, min(preset.tokens(found.rank), left[0].shape[1]))
    values = [L.T @ P for L in left]
    units, step = orthonormal(rng, D), 0.9 * _room(at.ball)
    # Exact answers show small logits too, and then a strong head is never cut off; noisy ones need large logits.
    least, most = (
        (1e-6, 1.25 * LAYER.typical_logit) if at.ball.noise < SHORT_FORMAT else (1e-3, 2 * LAYER.typical_logit)
    )
    for _ in range(6):
        E = units[None, :m] * step
        y = yield from at.ask(at.q + E, "pilot")
        size = float(np.sqrt((_logits(left, values, y, E, least) ** 2).mean(axis=2)).max())
        if size < most:
            break
        step *= max(0.2, LAYER.typical_logit / size)
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
    u: Array, s: int, at: At, P: Array, rng: np.random.Generator, phase: str
) -> Asking[tuple[Array, Data] | None]:
    """Square O (n, n) from tokens that give all heads chosen logits and move freely where no head's score changes.

    [x + r n, q] with u_h . (x - q) = t_h and n orthogonal to all u_h answers sum_h sigma(t_h) P_h (x - q + r n): linear
    in n, with one known factor per head.
    """
    H, D = u.shape
    N = svd(u)[2][H:]
    blocks: list[list[Array]] = [[] for _ in range(H)]
    data: Data = []
    # One set of logits leaves D - H columns; heads of small rank, or noise, need more to be told from the rest.
    used: list[Array] = []
    for _ in range((1 if s > H else 2) + 2 * (at.ball.noise > SHORT_FORMAT)):
        chosen = _spread(u, at, used, rng)
        if chosen is None:
            return None
        x, t = chosen
        used.append(t)
        r = np.sqrt((CORE.edge * at.ball.radius) ** 2 - x @ x)
        extra = rng.standard_normal((LAYER.spare_moves, D - H)) @ N
        extra *= r / np.linalg.norm(extra, axis=1, keepdims=True)
        k = min(LAYER.opposite_moves, D - H)
        # N is one basis of many, and u comes from differences over a small step: last digits are magnified in both.
        w, N, t, r = yield from settle("free tokens", x + np.vstack([r * N, -r * N[:k], extra]), N, t, r)
        y = yield from at.ask(w[:, None], phase)
        data.append(((w - at.q)[:, None], y))
        middle = (y[:k] + y[D - H : D - H + k]).mean(axis=0) / 2
        A = (y[: D - H] - middle).T / r
        for h in range(H):
            blocks[h].append(A - P @ N.T / (1 + np.exp(-t[h])))
    left = np.hstack([left_null(np.hstack(block), s) for block in blocks])
    O = np.linalg.inv(left.T)
    return np.hstack([np.linalg.qr(part)[0] for part in np.split(O, H, axis=1)]), data


def _spread(u: Array, at: At, used: list[Array], rng: np.random.Generator) -> tuple[Array, Array] | None:
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
