"""Heads told apart by the weight of the last token itself, which needs no sum of what all heads write.

Before a query token q that writes, tokens that write nothing take weight from it: the answer changes by
-sum_h (1 - alpha_h) P_h q, and 1/alpha_h adds up token by token (see `solvers.sum_table`). How 1 - alpha bends sets the
scale of every head.

Theory: docs/theory/attention-layer.md, "Behind a network", tables without M.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.errors import ModelMismatch
from unsoftmax.learners.block.infinity import Infinity, Level
from unsoftmax.learners.block.quiet import STEP, Quiet, quiet_tokens
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.noise import LOUD
from unsoftmax.learners.core.settling import settle_list
from unsoftmax.probes.base import Array
from unsoftmax.solvers.sum_table import separate

_TRIES = 12
"""Query tokens that are tried at most: one fails where two heads happen to weigh alike there."""

_CANDIDATES = 4
"""Tables read fairly well, of which the best are read in full: under a random query token one head of eight often
looks at that token alone."""

_SIDE = 6
"""Tokens that write nothing, on either side of a table, at first; more until cells are left over."""

_SPARE = 6
"""Cells beyond the unknowns of one head: H, and two sides."""


@dataclass(frozen=True, eq=False)
class Table:
    """Under the query token q (d,): own (d, H) = P_h q as far as visible; cells (C, 2, d) pairs of tokens that write
    nothing; others (H, C): e^(score) of both together over that of q."""

    q: Array
    own: Array
    cells: Array
    others: Array

    @property
    def heads(self) -> int:
        return self.own.shape[1]

    @property
    def contrast(self) -> float:
        """How well the head that shows worst is seen: the query token's weight times the others', 1/4 at best."""
        middle = np.exp(np.log(self.others).mean(axis=1))
        return float((middle / (1 + middle) ** 2).min())


def read_tables(far: Infinity, quiet: Quiet, n: int, rng: np.random.Generator) -> Asking[list[Table]]:
    """n tables at random query tokens, the best of some more."""
    pool = yield from quiet_tokens(far, quiet, _SIDE, rng)
    found: list[Table] = []
    for attempt in range(_TRIES):
        q = far.on_sphere(rng.standard_normal(far.dim))
        table, pool = yield from _read(far, quiet, pool, q, "fair", rng, "main" if attempt < _CANDIDATES else "repair")
        found += [] if table is None else [table]
        if len(found) >= _CANDIDATES:
            break
    tables = []
    for rough in sorted(found, key=lambda table: -table.contrast):
        table, pool = yield from _read(far, quiet, pool, rough.q, "full", rng, "main")
        tables += [] if table is None else [table]
        if len(tables) == n:
            return tables
    raise ModelMismatch(
        f"at {_TRIES} query tokens the answers did not fall apart into heads whose softmax denominators add up token "
        "by token: more than one layer of softmax attention stands before the network, two heads have the same scores, "
        "or the answers are noisier than their digits."
    )


def _read(
    far: Infinity, quiet: Quiet, pool: Array, q: Array, level: Level, rng: np.random.Generator, phase: str
) -> Asking[tuple[Table | None, Array]]:
    """A table at q or None, and the pool (n, d) of tokens that write nothing, longer where it had to be."""
    noise = far.noise if level == "full" else far.fair
    while True:
        keys = np.array([(j, i) for j in range(len(pool)) for i in range(len(pool))])
        y = yield from far.added(far.frozen(pool[keys]), np.broadcast_to(q, (len(keys), far.dim)), phase, level)
        s = np.linalg.svd(y, compute_uv=False)
        H = int((s > LOUD * noise * np.sqrt(len(keys))).sum())
        if len(keys) >= H + 2 * len(pool) + _SPARE:
            return (yield from _separated(far, quiet, pool, keys, q, -y, H, noise, rng, phase)), pool
        if len(pool) > far.dim:
            raise ModelMismatch("the answers to one writing token have no clear rank: they are noisier than thought.")
        pool = np.vstack([pool, (yield from quiet_tokens(far, quiet, 1, rng))])


def _separated(
    far: Infinity,
    quiet: Quiet,
    pool: Array,
    keys: Array,
    q: Array,
    F: Array,
    H: int,
    noise: float,
    rng: np.random.Generator,
    phase: str,
) -> Asking[Table | None]:
    """Two Jacobians along H empty directions, then the sum table."""
    if H == 0 or len(quiet.empty) < H:
        return None
    B = np.linalg.svd(F, full_matrices=False)[2][:H].T
    steps = np.linalg.qr(rng.standard_normal((len(quiet.empty), H)))[0].T @ quiet.empty
    moved = far.on_sphere(pool[0] + STEP * far.radius * steps)
    J = []
    for j in (0, 1):
        ends = np.vstack([pool[:1], moved])
        cells = np.stack([np.broadcast_to(pool[j], ends.shape), ends], axis=1)
        y = yield from far.added(far.frozen(cells), np.broadcast_to(q, ends.shape), phase, level="rough")
        J.append(((y[1:] - y[0]) @ B).T / (STEP * far.radius))
    found = separate(J[0], J[1], F @ B, keys, None)
    good = found is not None and found.residual <= LOUD * noise
    # Whether a draw serves may hang on last digits, and so does the order of its heads.
    kept = yield from settle_list("table", [B @ np.linalg.inv(found.rows), found.sums] if found and good else [])
    return Table(q, kept[0], pool[keys], kept[1] - 1) if kept else None
