"""Heads without saturation: short tokens and short sequences, or heads that saturation cannot tell apart.

At one query token b0 all heads together are a small nonlinear fit in (w_h, v_h), H growing until nothing is left;
then isolation by the values, then three-token queries and a joint fit of everything that was asked.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.errors import ModelMismatch
from unsoftmax.inversion import logits
from unsoftmax.learners.base import Asking
from unsoftmax.learners.heads.ground import Ground
from unsoftmax.learners.heads.isolation import independence, isolate
from unsoftmax.learners.heads.records import Records
from unsoftmax.probes.base import Array
from unsoftmax.solvers.heads_fit import levenberg
from unsoftmax.solvers.sigmoid_units import Units, fit_units

_PILOT = 8
_MOST_HEADS = 12
_STARTS = 10
_EXPLAINED = 2e-13
_ISOLATED_LOGIT = 1.0
_DEPENDENT = 1e-4
_ROUNDS = 2
_ATTEMPTS = 3


@dataclass(frozen=True, eq=False)
class Room:
    """How long tokens and sequences may be: `radius` of x, `longest` sequence, and the noise of an answer."""

    radius: float
    longest: int
    noise: float


def fit_heads(
    ground: Ground, room: Room, heads: int | None, records: Records, rng: np.random.Generator
) -> Asking[tuple[Array, Array]]:
    """W (H, d, d), v (H, d) from queries inside `room`; all of them are kept in `records`."""
    b0 = yield from _query_token(ground, room, records, rng)
    for attempt in range(_ATTEMPTS):
        try:
            units = yield from _units(ground, room, b0, heads, records, rng)
            if len(units.v) == 0:
                return np.zeros((0, ground.dim, ground.dim)), np.zeros((0, ground.dim))
            W, unseen = yield from _isolated(ground, room, b0, units, records, rng)
            length = float(np.linalg.norm(b0))
            return (yield from _joint(ground, room, W, units.v, length, unseen, records, rng))
        except ModelMismatch:
            if attempt == _ATTEMPTS - 1:
                raise
            b0 = b0 / 2
    raise AssertionError


def _query_token(ground: Ground, room: Room, records: Records, rng: np.random.Generator) -> Asking[Array]:
    """b0 (d,), as long as the room allows while attention still answers in proportion to it."""
    direction = unit_vectors(rng, (1, ground.dim))[0]
    x = unit_vectors(rng, (_PILOT, ground.dim)) * room.radius
    length, before = room.radius, np.inf
    for _ in range(60):
        b = np.broadcast_to(direction * length, x.shape)
        y = yield from records.ask(np.stack([x, b], axis=1), None, "pilot")
        # What attention adds to the mean of the two tokens: proportional to b until it saturates.
        apart = np.maximum(np.linalg.norm(x - b, axis=1), 1e-6 * room.radius)
        tilt = float(np.linalg.norm((y - (x + b) @ ground.V / 2) / apart)) * room.radius
        if before < np.inf and before > 2.2 * tilt:
            return direction * length * 4
        if tilt <= 1e2 * room.noise:
            return direction * (room.radius if before == np.inf else length * 4)
        before, length = tilt, length / 4
    raise ModelMismatch("attention stays saturated however short the query token is; no softmax head does that.")


def _units(
    ground: Ground, room: Room, b0: Array, heads: int | None, records: Records, rng: np.random.Generator
) -> Asking[Units]:
    """w = W b0 and v of all heads: H = 1, 2, ... until the answers at b0 are explained."""
    d = ground.dim
    z, shift, F = np.zeros((0, d)), np.zeros(0), np.zeros(0)
    for H in range(1 if heads is None else max(heads, 1), _MOST_HEADS + 1):
        number = 5 * H * d + 20 - len(z)
        x = unit_vectors(rng, (number, d)) * (room.radius * rng.uniform(0.5, 1.0, (number, 1)))
        many = rng.integers(1, room.longest, number)
        copies = np.where(
            rng.random((number, 1)) < 0.5, np.stack([many, many * 0 + 1], 1), np.stack([many * 0 + 1, many], 1)
        )
        y = yield from records.ask(np.stack([x, np.broadcast_to(b0, x.shape)], axis=1), copies, "discovery")
        z, shift = np.vstack([z, x - b0]), np.append(shift, np.log(copies[:, 1] / copies[:, 0]))
        F = np.append(F, y - b0 @ ground.V)
        tolerance = max(2 * room.noise, _EXPLAINED * float(np.abs(F).max()))
        if np.sqrt(np.mean(F**2)) <= tolerance:
            return Units(np.zeros((0, d)), np.zeros((0, d)), 0.0)
        found = fit_units(z, shift, F, H, tolerance, rng, starts=3 if H == 1 else _STARTS)
        if found.rms <= tolerance:
            return _pruned(z, shift, F, found, tolerance, rng)
    raise ModelMismatch(
        f"up to {_MOST_HEADS} heads do not explain the answers at one query token (left: {found.rms:.1g}, allowed "
        f"{tolerance:.1g}); the target is outside the class, noisier than declared, or has more heads."
    )


def _pruned(z: Array, shift: Array, F: Array, units: Units, tolerance: float, rng: np.random.Generator) -> Units:
    """The same without heads that the fit does not need."""
    while len(units.v) > 1:
        for h in np.argsort(np.linalg.norm(units.v, axis=1)):
            first = np.delete(units.w, h, axis=0)
            fewer = fit_units(z, shift, F, len(first), tolerance, rng, starts=1, first=first)
            if fewer.rms <= tolerance:
                units = fewer
                break
        else:
            break
    return units


def _isolated(
    ground: Ground, room: Room, b0: Array, units: Units, records: Records, rng: np.random.Generator
) -> Asking[tuple[Array, int]]:
    """W (H, d, d): exact along free directions, elsewhere what w = W b0 tells; and how many entries that leaves."""
    d = ground.dim
    base = np.linalg.qr(np.column_stack([b0, rng.standard_normal((d, d - 1))]))[0].T
    longest = float(np.linalg.norm(b0))
    W = np.zeros((len(units.v), d, d))
    unseen = 0
    for h, (w, v) in enumerate(zip(units.w, units.v, strict=True)):
        others = np.delete(units.v, h, axis=0)
        if len(others) >= d or independence(np.vstack([v, others])) < _DEPENDENT:
            W[h] = np.outer(w, b0) / longest**2
            unseen += d * d
            continue
        head = isolate(v, others)
        reach = room.radius / np.sqrt(2)
        length = min(reach, _ISOLATED_LOGIT * np.sqrt(d) * longest / (reach * max(float(np.linalg.norm(w)), 1e-300)))
        T = yield from _entries(ground, room, head.free, v, base, length, records)
        bound = np.outer(head.bound @ w, b0) / longest**2
        basis = np.vstack([head.bound, head.free])
        W[h] = np.linalg.solve(basis, np.vstack([bound, T @ base]))
        unseen += len(others) * d
    return W, unseen


def _entries(
    ground: Ground, room: Room, rows: Array, v: Array, base: Array, length: float, records: Records
) -> Asking[Array]:
    """row'W base' (p, d) for rows that see one head of value v; columns of length `length`, shorter if saturated."""
    T = np.full((len(rows), len(base)), np.nan)
    size = np.full(T.shape, length)
    for attempt in range(8):
        i, j = np.nonzero(np.isnan(T))
        if len(i) == 0:
            break
        b = base[j] * size[i, j, None]
        along = np.einsum("nd,nd->n", rows[i], b)
        turn = np.where(along > 0, -1.0, 1.0)
        # As long as z + b may be: z and b point apart.
        far = np.abs(along) + np.sqrt(along**2 + room.radius**2 - size[i, j] ** 2)
        z = rows[i] * (turn * far * (1 - 1e-9))[:, None]
        y = yield from records.ask(np.stack([z + b, b], axis=1), None, "main" if attempt == 0 else "repair")
        t = logits(y, z @ v, b @ ground.V).t
        good = np.abs(np.nan_to_num(t, nan=np.inf)) < 4.0
        T[i[good], j[good]] = (t / (turn * far * size[i, j]))[good]
        size[i, j] = np.where(good, size[i, j], size[i, j] / 2.5)
    return np.nan_to_num(T)


def _joint(
    ground: Ground,
    room: Room,
    W: Array,
    v: Array,
    length: float,
    unseen: int,
    records: Records,
    rng: np.random.Generator,
) -> Asking[tuple[Array, Array]]:
    """Random three-token queries for what isolation cannot see, then one fit of everything."""
    H, d = v.shape
    # Rounding of rough models is overstated a little, so that the fit is not led by its own last digits.
    noise = max(0.6 * room.noise, 1e-12 * room.radius * float(np.linalg.norm(v, axis=1).max()))
    for _ in range(_ROUNDS):
        number = int(1.5 * unseen) + 20
        tokens = three_tokens(room, length, number, d, rng)
        copies = rng.integers(1, 3, (number, 3)) if room.longest >= 6 else None
        yield from records.ask(tokens, copies, "main")
        data = records.data()
        for start in (W, 0 * W):
            found = levenberg(start, v, data, noise)
            if found[2] < 3:
                found = levenberg(found[0], found[1], data, 0.6 * room.noise, 30, 1e-9)
                return found[0], found[1]
    raise ModelMismatch(
        f"{H} heads explain the answers at one query token but not elsewhere (left: {found[2]:.2g} times the noise); "
        "the target is outside the class, or noisier than declared."
    )


def three_tokens(room: Room, length: float, number: int, d: int, rng: np.random.Generator) -> Array:
    """Random sequences (number, 3, d): two tokens up to the radius, a query token up to `length`."""
    x = unit_vectors(rng, (number, 2, d)) * (room.radius * rng.uniform(0.5, 1.0, (number, 2, 1)))
    b = unit_vectors(rng, (number, 1, d)) * (length * rng.uniform(0.3, 1.0, (number, 1, 1)))
    return np.concatenate([x, b], axis=1)


def unit_vectors(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Random directions along the last axis."""
    x = rng.standard_normal(shape)
    return np.asarray(x / np.linalg.norm(x, axis=-1, keepdims=True))
