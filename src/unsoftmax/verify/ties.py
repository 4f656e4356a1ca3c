"""Near ties: sequences in which the recovered model gives several tokens about the same score.

Theory: docs/theory/verification.md, "Near ties".
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from unsoftmax.links import READABLE
from unsoftmax.models.base import Model
from unsoftmax.probes.base import Array
from unsoftmax.probes.sphere import sphere
from unsoftmax.spec import OracleSpec
from unsoftmax.verify.constants import VERIFY
from unsoftmax.verify.gaps import inside

Directions = Callable[[Array], Array]
"""Query tokens (n, d) -> key directions (H, n, d)."""


def faint(shape: tuple[int, ...], rng: np.random.Generator, eps: float = 0.0) -> Array:
    """Scores of tokens below the last one's that reach every size of small weights, evenly spread and in random order.

    Attention that drops small weights (pruned, sparse, cut off at a threshold) shows where a token lies just below its
    threshold, wherever that is, as long as the answers' rounding `eps` does not hide it.
    """
    number = math.prod(shape)
    lowest = max(VERIFY.faintest, math.log(VERIFY.seen_roundings * eps)) if eps else VERIFY.faintest
    places = (rng.permutation(number) + rng.random(number)) / max(number, 1)
    return np.asarray(lowest * places).reshape(shape)


def below_all(x: Array, directions: Array, q: Array, levels: Array, *, keep_norm: bool = False) -> Array:
    """x (batch, d) moved to score `levels` above q under every head, key directions (H, batch, d), as far as it can."""
    found = x.copy()
    for row, U, own, level in zip(found, directions.transpose(1, 0, 2), q, levels, strict=True):
        inverse = np.linalg.pinv(U, rcond=VERIFY.apart)
        norm = float(np.linalg.norm(row))
        along = inverse @ (U @ own + level)
        most = 0.9 * norm if keep_norm else 1e4 * norm
        along *= min(1.0, most / max(float(np.linalg.norm(along)), 1e-300))
        row -= inverse @ (U @ row)
        if keep_norm:
            row *= math.sqrt(norm**2 - float(along @ along)) / max(float(np.linalg.norm(row)), 1e-300)
        row += along
    return found


def near_ties(model: Model, spec: OracleSpec, rng: np.random.Generator) -> Array:
    """Sequences (batch, N, d) whose scores under one of the model's heads lie within +-1.5 of the last token's."""
    length = int(min(VERIFY.tie_length, spec.domain.length_limit))
    q = _readable_queries(model, spec, rng)
    tokens = sphere(rng, (VERIFY.near_ties, length, spec.dim)) * np.linalg.norm(q, axis=1)[:, None, None]
    tokens[:, -1] = q
    ordinary = 1e4 * float(np.linalg.norm(q, axis=1).max())
    longest = min(spec.domain.inside, ordinary, _readable_norm(model, spec, rng))
    directions = model.key_directions(q)
    if len(directions):
        turns = rng.integers(len(directions), size=VERIFY.near_ties)
        u = directions[turns, np.arange(VERIFY.near_ties)]
        size = np.einsum("bd,bd->b", u, u)
        levels = rng.uniform(-VERIFY.widest_score, VERIFY.widest_score, (VERIFY.near_ties, length - 1))
        levels[::3] = faint(levels[::3].shape, rng)
        target = np.einsum("bd,bd->b", u, q)[:, None] + levels
        excess = np.einsum("bnd,bd->bn", tokens[:, :-1], u) - target
        step = np.divide(excess, size[:, None], out=np.zeros_like(excess), where=size[:, None] > 0)
        # Where the scores are too weak to tie, the tokens stay of an ordinary size and in random directions.
        tokens[:, :-1] -= inside(step[:, :, None] * u[:, None, :], 0.5 * longest)
        # Noise is compared with errors along directions that do not depend on W, and hides small weights anyway.
        if length > 2 and longest < ordinary and spec.kind == "value" and spec.tolerance == 0:
            tokens[::3] = deep(model.key_directions, turns[::3, None], tokens[::3], longest, rng)
    return inside(tokens, longest)


def deep(directions: Directions, heads: Array, tokens: Array, limit: float, rng: np.random.Generator) -> Array:
    """Sequences (n, N, d) of tokens up to a norm, in random directions like `tokens`, whose weights under one of the
    `heads` (n, 1) each reach as far down as the norm allows: the first token takes nearly all the weight, the others
    but the last stand evenly spread below it."""
    q = spanning(directions, steepest(directions, tokens[:, -1], heads, None), heads, VERIFY.faintest, limit)
    u = directions(q)[heads[:, 0], np.arange(len(q))]
    sizes = np.linalg.norm(q, axis=1)[:, None] / np.linalg.norm(tokens, axis=2)
    tokens = tokens * sizes[:, :, None]
    levels = faint(tokens[:, 1:-1, 0].shape, rng) / VERIFY.faintest
    for i in range(tokens.shape[1] - 1):
        depth = np.minimum(-VERIFY.faintest, reach(tokens[:, i], u)) * (levels[:, i - 1] if i else 0.0)
        tokens[:, i] = at_depth(tokens[:, i], u, depth)
    tokens[:, -1] = q
    return tokens


def steepest(directions: Directions, q: Array, heads: Array, seen: Callable[[Array], Array] | None) -> Array:
    """q (n, d), of the same norms, with long key directions under its `heads` (n, g); `seen`: the norm before them."""
    norm = np.linalg.norm(q, axis=1, keepdims=True)
    unit = float(norm.mean())
    # W'q + c as a map of q; exact for plain heads, and near enough where features bend it.
    maps = (directions(unit * np.eye(q.shape[1])) - directions(np.zeros((1, q.shape[1])))) / unit
    for _ in range(VERIFY.power_steps):
        moved = np.einsum("ngd,nged->ne", directions(q)[heads, np.arange(len(q))[:, None]], maps[heads])
        moved *= norm / np.maximum(np.linalg.norm(moved, axis=1, keepdims=True), 1e-300)
        moved = moved if seen is None else seen(moved)
        q = np.where(_steepness(directions, moved, heads) > _steepness(directions, q, heads), moved, q)
    return q


def _steepness(directions: Directions, q: Array, heads: Array) -> Array:
    """Length (n, 1) of the shortest key direction of q's heads."""
    own = directions(q)[heads, np.arange(len(q))[:, None]]
    return np.asarray(np.linalg.norm(own, axis=2).min(axis=1, keepdims=True))


def spanning(directions: Directions, q: Array, heads: Array, faintest: float, limit: float) -> Array:
    """q (n, d) as long as tokens of its length need to be for scores down to `faintest`, as far as the limit allows."""
    norm = np.linalg.norm(q, axis=1, keepdims=True)
    rate = _steepness(directions, q, heads) / norm
    wanted = np.sqrt(-faintest / (2 * VERIFY.extreme * np.maximum(rate, 1e-300)))
    return np.asarray(q / norm * np.minimum(wanted, limit))


def reach(x: Array, u: Array) -> Array:
    """How far apart (n,) scores of tokens as long as x (n, d) can be under key directions u (n, d)."""
    return np.asarray(2 * VERIFY.extreme * np.linalg.norm(x, axis=1) * np.linalg.norm(u, axis=1))


def at_depth(x: Array, u: Array, depth: Array) -> Array:
    """x (n, d) turned to score `depth` (n,) below the most that its length allows under key directions u (n, d)."""
    lengths = np.maximum(np.linalg.norm(u, axis=1), 1e-300)
    wanted = VERIFY.extreme * np.linalg.norm(x, axis=1) - np.maximum(depth, 0.0) / lengths
    return with_component(x, u / lengths[:, None], wanted, keep_norm=True)


def _readable_queries(model: Model, spec: OracleSpec, rng: np.random.Generator) -> Array:
    """Query tokens (batch, d), the better half of twice as many: where W q is small, ties need enormous tokens."""
    q = sphere(rng, (2 * VERIFY.near_ties, spec.dim))
    directions = model.key_directions(q)
    size = np.linalg.norm(directions, axis=-1).min(axis=0) if len(directions) else np.arange(len(q))
    return np.asarray(q[np.argsort(size, kind="stable")[VERIFY.near_ties :]] * typical_norm(model, spec, rng))


def typical_norm(model: Model, spec: OracleSpec, rng: np.random.Generator) -> float:
    """Token norm at which scores are of order one: |W q| |x| = 1 for |q| = |x|; inside the domain."""
    q = sphere(rng, (8, spec.dim))
    directions = model.key_directions(q)
    size = float(np.linalg.norm(directions, axis=-1).max(initial=0.0))
    norm = 1.0 if size == 0 else size**-0.5
    norm = min(max(norm, 1e-6), 1e6, spec.domain.with_room)
    return min(norm, _readable_norm(model, spec, rng))


def _readable_norm(model: Model, spec: OracleSpec, rng: np.random.Generator) -> float:
    """Token norm below which answers stay where the oracle's link, if any, is steep."""
    if math.isinf(READABLE[spec.link]):
        return math.inf
    rate = float(np.sqrt(np.mean(model(sphere(rng, (32, 1, spec.dim))) ** 2))) * math.sqrt(spec.dim)
    return READABLE[spec.link] / rate if rate else math.inf


def with_component(x: Array, unit: Array, wanted: Array, *, keep_norm: bool) -> Array:
    """x (batch, d) with its component along `unit` replaced; on its sphere if the norm is to be kept."""
    norm = np.linalg.norm(x, axis=1)
    most = norm * (VERIFY.extreme if keep_norm else 1e4)
    wanted = np.clip(wanted, -most, most)
    rest = x - np.einsum("bd,bd->b", x, unit)[:, None] * unit
    if keep_norm:
        rest *= (np.sqrt(norm**2 - wanted**2) / np.maximum(np.linalg.norm(rest, axis=1), 1e-300))[:, None]
    return np.asarray(rest + wanted[:, None] * unit)
