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
from unsoftmax.learners.block.constants import BLOCK
from unsoftmax.learners.block.infinity import Level
from unsoftmax.learners.block.quiet import Quiet
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.core.settling import settle_list
from unsoftmax.probes.base import Array
from unsoftmax.solvers.sum_table import separate


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


def read_tables(quiet: Quiet, n: int) -> Asking[list[Table]]:
    """n tables at random query tokens, the best of some more; one fails where two heads happen to weigh alike."""
    pool = yield from quiet.tokens(BLOCK.quiet_tokens)
    found: list[Table] = []
    for attempt in range(CORE.repairs):
        q = quiet.far.on_sphere(quiet.rng.standard_normal(quiet.far.dim))
        table, pool = yield from _read(quiet, pool, q, "fair", "main" if attempt < BLOCK.tables_tried else "repair")
        found += [] if table is None else [table]
        if len(found) >= BLOCK.tables_tried:
            break
    tables = []
    for rough in sorted(found, key=lambda table: -table.contrast):
        table, pool = yield from _read(quiet, pool, rough.q, "full", "main")
        tables += [] if table is None else [table]
        if len(tables) == n:
            return tables
    raise ModelMismatch(
        f"at {CORE.repairs} query tokens the answers did not fall apart into heads whose softmax denominators add up "
        "token "
        "by token: more than one layer of softmax attention stands before the network, two heads have the same scores, "
        "or the answers are noisier than their digits."
    )


def _read(quiet: Quiet, pool: Array, q: Array, level: Level, phase: str) -> Asking[tuple[Table | None, Array]]:
    """A table at q or None, and the pool (n, d) of tokens that write nothing, longer where it had to be.

    Where cells are left over: two Jacobians along H empty directions, then the sum table.
    """
    far = quiet.far
    noise = far.noise if level == "full" else far.fair
    while True:
        keys = np.array([(j, i) for j in range(len(pool)) for i in range(len(pool))])
        y = yield from far.added(far.frozen(pool[keys]), np.broadcast_to(q, (len(keys), far.dim)), phase, level)
        s, Vt = np.linalg.svd(y, full_matrices=False)[1:]
        H = int((s > CORE.loud * noise * np.sqrt(len(keys))).sum())
        if len(keys) >= H + 2 * len(pool) + BLOCK.cells_to_spare:
            break
        if len(pool) > far.dim:
            raise ModelMismatch("the answers to one writing token have no clear rank: they are noisier than thought.")
        pool = np.vstack([pool, (yield from quiet.tokens(1))])
    if not 0 < H <= len(quiet.empty):
        return None, pool
    B = Vt[:H].T
    moved = far.on_sphere(pool[0] + BLOCK.difference_step * far.radius * quiet.unwritten(H))
    ends, J = np.vstack([pool[:1], moved]), []
    for j in (0, 1):
        cells = np.stack([np.broadcast_to(pool[j], ends.shape), ends], axis=1)
        Y = yield from far.added(far.frozen(cells), np.broadcast_to(q, ends.shape), phase, level="rough")
        J.append(((Y[1:] - Y[0]) @ B).T / (BLOCK.difference_step * far.radius))
    found = separate(J[0], J[1], -y @ B, keys, None)
    good = found is not None and found.residual <= CORE.loud * noise
    # Whether a draw serves may hang on last digits, and so does the order of its heads.
    kept = yield from settle_list("table", [B @ np.linalg.inv(found.rows), found.sums] if found and good else [])
    return (Table(q, kept[0], pool[keys], kept[1] - 1) if kept else None), pool
