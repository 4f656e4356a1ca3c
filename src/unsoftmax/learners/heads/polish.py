"""Last digits: spare queries where they say most, and one fit of everything in extended precision.

Candidates are isolated pairs, three-token shares and random triples, improved by small changes; the greedy choice
lowers the summed variance of the parameters in relative units. Without placed queries the fit gains little: the
weak directions are those that no query so far has shown.

Theory: docs/theory/multi-head.md, "Generic heads", polish.
"""

from __future__ import annotations

import numpy as np

from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.heads.constants_fits import FITS
from unsoftmax.learners.heads.records import Records
from unsoftmax.learners.heads.units import Room
from unsoftmax.probes.base import Array
from unsoftmax.probes.scales import held
from unsoftmax.probes.sphere import sphere
from unsoftmax.solvers.heads_fit import gauss_newton, left_over, linearised
from unsoftmax.solvers.placement import choose, covariance, gains
from unsoftmax.spec import OracleSpec


def polished(
    W: Array, v: Array, records: Records, spare: int, room: Room, spec: OracleSpec, rng: np.random.Generator
) -> Asking[tuple[Array, Array]]:
    """W, v after `spare` placed queries and a fit of all that was asked."""
    W, v = _stepped(W, v, records, room, 3)
    rounds = 3 if spare >= 90 else 1
    for part in range(rounds):
        number = spare * (part + 1) // rounds - spare * part // rounds
        tokens, copies = _placed(W, v, records, number, room, spec, rng)
        for width in (2, 3):
            rows = (copies > 0).sum(axis=1) == width
            if rows.any():
                yield from records.ask(tokens[rows][:, -width:], copies[rows][:, -width:], "polish")
    return _stepped(W, v, records, room, 4)


def _stepped(W: Array, v: Array, records: Records, room: Room, steps: int) -> tuple[Array, Array]:
    """W, v after whole steps, or as they were where these lead astray: a fit that noise leaves open has no end."""
    data, noise = records.data(), 0.6 * room.noise
    ended = gauss_newton(W, v, data, noise, steps)
    rests = left_over(*ended, data, noise) <= max(FITS.at_rest, left_over(W, v, data, noise))
    return ended if rests else (W, v)


def _placed(
    W: Array, v: Array, records: Records, number: int, room: Room, spec: OracleSpec, rng: np.random.Generator
) -> tuple[Array, Array]:
    """`number` sequences (tokens (n, 3, d), copies (n, 3), the first 0 for pairs) chosen from an evolving pool."""
    data = records.data()
    units = _relative_units(W, v)

    def rows(tokens: Array, copies: Array) -> Array:
        _, J, rounding = linearised(W, v, tokens, copies)
        return np.asarray(J / np.hypot(rounding, 0.6 * room.noise)[:, None] * units)

    P = covariance(rows(data.tokens, data.copies))
    tokens, copies = _inside(*candidates(W, v, 3 * FITS.candidates, room, rng), room, spec)
    A = rows(tokens, copies)
    for _ in range(FITS.generations):
        gain = np.where(np.isfinite(A).all(axis=1), gains(A, P), -1.0)
        best = np.argsort(-gain, kind="stable")[: FITS.candidates]
        tokens, copies, A = tokens[best], copies[best], A[best]
        new = _inside(*_varied(tokens[: FITS.candidates // 2], copies[: FITS.candidates // 2], room, rng), room, spec)
        tokens, copies = np.concatenate([tokens, new[0]]), np.concatenate([copies, new[1]])
        A = np.concatenate([A, rows(*new)])
    good = np.isfinite(A).all(axis=1)
    tokens, copies, A = tokens[good], copies[good], A[good]
    chosen, _ = choose(A, P, number)
    return tokens[chosen], copies[chosen]


def _relative_units(W: Array, v: Array) -> Array:
    """Typical size of every unknown, so that errors are counted relative to their head."""
    d = v.shape[1]
    sizes = [np.full(d * d, np.linalg.norm(Wh) / d) for Wh in W] + [np.full(d, np.linalg.norm(vh) / d**0.5) for vh in v]
    return np.maximum(np.concatenate(sizes), 1e-300)


def candidates(W: Array, v: Array, number: int, room: Room, rng: np.random.Generator) -> tuple[Array, Array]:
    """Sequences (number, 3, d) that show single heads, and their copies (the first 0 for pairs)."""
    H, d = v.shape
    tokens, copies = np.empty((number, 3, d)), np.ones((number, 3), dtype=np.int64)
    free = [_free(v, h) for h in range(H)]
    most = min(FITS.most_copies, room.longest - 2)
    for n in range(number):
        h = int(rng.integers(H))
        b = sphere(rng, (d,))
        u = W[h] @ b
        rate = max(float(np.linalg.norm(u)) / float(np.sqrt(d)), 1e-300)
        z1 = rng.standard_normal(d) / np.sqrt(d) * (rng.uniform(0.3, 3) / rate)
        z2 = free[h] @ rng.standard_normal(d)
        z2 *= rng.uniform(0.5, 8) / (rate * max(float(np.linalg.norm(z2)), 1e-300))
        if rng.random() < 0.5:
            # Off the scores of the head: long values, small logits.
            along = free[h] @ u
            z2 = z2 - along * ((z2 @ u) - rng.uniform(-2, 2)) / max(float(along @ u), 1e-300)
        if rng.random() < 0.4:
            copies[n] = (0, *_ratio(most, rng))
            z1 = np.zeros(d)
        elif room.longest >= 6:
            copies[n] = rng.integers(1, min(4, room.longest // 3 + 1), 3)
        stretch = 2.0 ** rng.integers(3, 8) if np.isinf(room.radius) else _fit(room, z1, z2, rng)
        tokens[n] = np.stack([z1 * stretch + b / stretch, z2 * stretch + b / stretch, b / stretch])
    return tokens, copies


def _fit(room: Room, z1: Array, z2: Array, rng: np.random.Generator) -> float:
    """The stretch that brings the longest token near the radius."""
    longest = max(float(np.linalg.norm(z1)), float(np.linalg.norm(z2)), 1e-300)
    return float(rng.uniform(0.5, 1.0)) * room.radius / longest


def _ratio(most: int, rng: np.random.Generator) -> tuple[int, int]:
    many = int(rng.integers(1, max(most, 1) + 1))
    return (many, 1) if rng.random() < 0.5 else (1, many)


def _free(v: Array, h: int) -> Array:
    """Projector (d, d) off the other values, the identity if that leaves nothing of v_h."""
    others = np.delete(v, h, axis=0)
    Q = np.linalg.svd(others, full_matrices=False)[2] if len(others) else np.zeros((0, v.shape[1]))
    P = np.eye(v.shape[1]) - Q.T @ Q
    return np.asarray(P) if np.linalg.norm(P @ v[h]) > 1e-6 * np.linalg.norm(v[h]) else np.eye(v.shape[1])


def _varied(tokens: Array, copies: Array, room: Room, rng: np.random.Generator) -> tuple[Array, Array]:
    """Small random changes of lengths, directions and copies."""
    n, _, d = tokens.shape
    b = tokens[:, -1:].copy()
    z = tokens - b
    kind = rng.random((n, 1, 1))
    z = z * np.where(kind < 0.4, np.exp(0.3 * rng.standard_normal((n, 3, 1))), 1.0)
    size = 10 ** rng.uniform(-2.5, -0.3, (n, 1, 1)) / np.sqrt(d)
    turned = rng.standard_normal(z.shape) * np.linalg.norm(z, axis=2, keepdims=True) * size
    z = np.where((kind > 0.3) & (kind < 0.8), z + turned, z)
    b = np.where(kind > 0.7, b + rng.standard_normal(b.shape) * np.linalg.norm(b, axis=2, keepdims=True) * size, b)
    changed = np.where((rng.random((n, 3)) < 0.2) & (copies > 0), copies + rng.integers(-2, 3, (n, 3)), copies)
    changed = np.where(copies > 0, np.maximum(changed, 1), 0)
    changed = np.where(changed.sum(axis=1, keepdims=True) <= min(room.longest, 2 * FITS.most_copies), changed, copies)
    new = np.where((changed > 0)[:, :, None], z + b, b)
    new[:, -1:] = b
    return new, changed


def _inside(tokens: Array, copies: Array, room: Room, spec: OracleSpec) -> tuple[Array, Array]:
    """Shortened to the radius where too long, in the target's number format."""
    longest = np.linalg.norm(tokens, axis=2).max(axis=1)
    shrink = np.minimum(1.0, room.radius * (1 - 1e-9) / np.maximum(longest, 1e-300))
    return held(tokens * shrink[:, None, None], spec.dtype), copies
