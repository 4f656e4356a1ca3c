"""What heads write of one token, read in front of a table's cells.

A token x before a cell adds E = e^(score of x) to the denominators: every head's curve 1 / (1 + E + others) over the
cells must lie in the row space of the answers, a scalar root each (`solvers.score_roots`), and P_h x follows.

Theory: docs/theory/attention-layer.md, "Behind a network", values.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.learners.block.infinity import Infinity, Level
from unsoftmax.learners.block.table import Table
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.rotary.values import independent
from unsoftmax.probes.base import Array
from unsoftmax.solvers.score_roots import Written, score_roots

CELLS = 8
"""Cells beyond H before which a token is read; a root needs one, and the others average rounding: errors of what heads
write were 1e-9 with three and 3e-10 with eight."""


@dataclass(frozen=True, eq=False)
class Chosen:
    """Cells of a table in which heads weigh as independently as possible; whole (d,) = sum_h P_h q."""

    table: Table
    cells: Array
    others: Array

    @property
    def whole(self) -> Array:
        return np.asarray(self.table.own.sum(axis=1))


def choose(table: Table, n: int) -> Chosen:
    """n cells of a table."""
    chosen = independent(1 + table.others, n)
    return Chosen(table, table.cells[chosen], table.others[:, chosen])


def ask_before(far: Infinity, chosen: Chosen, x: Array, phase: str, level: Level = "full") -> Asking[Array]:
    """Attention's answers (n, C, d) to tokens x (n, d), as sent, before every cell, as far as visible."""
    n, C, d = len(x), len(chosen.cells), far.dim
    front = np.broadcast_to(x[:, None, None], (n, C, 1, d))
    cells = np.broadcast_to(far.frozen(chosen.cells), (n, C, 2, d))
    context = np.concatenate([front, cells], axis=2).reshape(n * C, 3, d)
    y = yield from far.added(context, np.broadcast_to(chosen.table.q, (n * C, d)), phase, level)
    return y.reshape(n, C, d) + chosen.whole


def read_columns(far: Infinity, chosen: Chosen, x: Array, phase: str, level: Level = "full") -> Asking[Written]:
    """P_h x (d, H) of a token x (d,), as far as visible, e^(its score) over that of q, and the misfit."""
    y = yield from ask_before(far, chosen, x[None], phase, level)
    found = score_roots(y[0], None, chosen.others, np.zeros((chosen.table.heads, 0)))
    # A head's column is (P_h q + E P_h x) / (1 + E), and e^s of the roots is 1 + E.
    E = found.exps - 1
    return Written(found.columns + (found.columns - chosen.table.own) / E, E, found.residual)


def read_everywhere(far: Infinity, tables: list[Table], x: Array, level: Level) -> Asking[tuple[Array, float]]:
    """P_h x (H, d) of a token on the sphere, and the misfit; from two tables where a query token hides a part."""
    parts, worst = [], 0.0
    for table in tables:
        found = yield from read_columns(far, choose(table, table.heads + CELLS), far.frozen(x), "main", level)
        parts.append(found.columns)
        worst = max(worst, found.residual)
    return (parts[0] if len(parts) == 1 else _glued(tables, parts)).T, worst


def _glued(tables: list[Table], parts: list[Array]) -> Array:
    """P_h x (d, H) from its parts across two query tokens, heads in the order of the first."""
    a, b = tables[0].q, tables[1].q
    across = np.linalg.svd(np.stack([a, b]))[2][2:]
    gaps = np.linalg.norm((across @ parts[0])[:, :, None] - (across @ parts[1])[:, None, :], axis=0)
    seen = [np.eye(len(q)) - np.outer(q, q) / (q @ q) for q in (a, b)]
    return np.asarray(np.linalg.solve(seen[0] + seen[1], parts[0] + parts[1][:, gaps.argmin(axis=1)]))
