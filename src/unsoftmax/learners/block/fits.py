"""Values of all directions: one fit of a few unknowns for every token, once it is known where heads write.

What heads write of one token, read in front of a table's cells.

A token x before a cell adds E = e^(score of x) to the denominators: every head's curve 1 / (1 + E + others) over the
cells must lie in the row space of the answers, a scalar root each (`solvers.score_roots`), and P_h x follows.

Theory: docs/theory/attention-layer.md, "Behind a network", values.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.learners.block.constants import BLOCK
from unsoftmax.learners.block.infinity import Infinity, Level
from unsoftmax.learners.block.quiet import Quiet
from unsoftmax.learners.block.table import Table
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.rotary.values import independent
from unsoftmax.probes.base import Array
from unsoftmax.solvers.gauss_newton import FEW_STEPS
from unsoftmax.solvers.score_roots import Written, score_roots


@dataclass(frozen=True, eq=False)
class Chosen:
    """Cells of a table in which heads weigh as independently as possible; whole (d,) = sum_h P_h q."""

    table: Table
    cells: Array
    others: Array

    @property
    def whole(self) -> Array:
        return np.asarray(self.table.own.sum(axis=1))


@dataclass(frozen=True, eq=False)
class Spans:
    """O (H, d, s) = P_h X for s tokens X (s, d) on the sphere; group (H,): who shares values."""

    X: Array
    O: Array
    group: Array
    misfit: float

    @property
    def width(self) -> int:
        return self.O.shape[2]

    @property
    def groups(self) -> int:
        return int(self.group.max()) + 1

    def values(self, v: Array) -> Array:
        """P_h x (H, d) of a token with values v (G s,)."""
        return np.einsum("hds,hs->hd", self.O, v.reshape(-1, self.width)[self.group])


@dataclass(frozen=True, eq=False)
class Fits:
    """V (G s, d): values of tokens, stacked by group; scores (H, d + 1): scores of front tokens over that of q, where
    they are affine in the token; misfit relative to the answers. Of one token V (G s,) and scores (H,) are its own."""

    V: Array
    scores: Array
    misfit: float


def fit_tokens(far: Infinity, table: Table, spans: Spans, start: Array, level: Level) -> Asking[Fits]:
    """V in all directions: a fit per token to its answers before two cells, from V (G s, d) at the `start`."""
    d, chosen = far.dim, choose(table, BLOCK.cells_per_fit)
    tokens = far.radius * np.vstack([np.eye(d), -np.ones(d) / np.sqrt(d)])
    Y = yield from ask_before(far, chosen, far.frozen(tokens), "main", level)
    fits = [_fitted(far, chosen, spans, y, start @ x) for x, y in zip(tokens, Y, strict=True)]
    V = np.linalg.lstsq(tokens, np.stack([fit.V for fit in fits]), rcond=None)[0].T
    right = np.column_stack([tokens, np.ones(len(tokens))])
    scores = np.linalg.lstsq(right, np.stack([fit.scores for fit in fits]), rcond=None)[0].T
    return Fits(V, scores, max(fit.misfit for fit in fits))


def rough_values(quiet: Quiet, spans: Spans) -> Array:
    """V (G s, d) stacked by group, to the accuracy of the rough maps."""
    far, parts = quiet.far, []
    for rough in quiet.rough:
        see = far.visible(rough.q)
        seen = see @ spans.O
        wanted = see @ rough.D @ spans.X.T
        alpha = np.linalg.lstsq(seen.reshape(len(seen), -1).T, wanted.reshape(-1), rcond=None)[0]
        weighed = alpha[:, None, None] * seen
        together = np.hstack([weighed[spans.group == g].sum(axis=0) for g in range(spans.groups)])
        parts.append(np.linalg.lstsq(together, see @ rough.D, rcond=None)[0])
    # Neither map shows its own query token, and these are at right angles.
    q = quiet.rough[0].q / far.radius
    return np.asarray(parts[0] + np.outer(parts[1] @ q, q))


def moved_values(fits: Fits, spans: Spans) -> Array:
    """V (G s, d) as seen from the tokens of other spans, which are the unit there."""
    V = fits.V.reshape(spans.groups, spans.width, -1)
    return np.vstack([np.linalg.solve(part @ spans.X.T, part) for part in V])


def _fitted(far: Infinity, chosen: Chosen, spans: Spans, y: Array, v: Array) -> Fits:
    """v (G s,) = V_g x of a token and its scores (H,) from its answers y (C, d) before the cells."""
    see, own, others = far.visible(chosen.table.q), chosen.table.own, chosen.others
    H, C = others.shape
    written = see @ spans.values(v).T
    # Given v, answers are linear in g = 1 / (1 + E + others): E g = 1 - (1 + others) g.
    g = np.linalg.lstsq(own - written * (1 + others[:, 0]), y[0] - written.sum(axis=1), rcond=None)[0]
    scores = np.log(np.maximum(1 / np.maximum(g, 1e-12) - 1 - others[:, 0], 1e-6))
    O = (see @ spans.O).transpose(1, 0, 2)
    member = np.eye(spans.groups)[spans.group]
    misfit = np.inf
    for _ in range(FEW_STEPS):
        E, written = np.exp(scores), see @ spans.values(v).T
        rows, gaps = [], []
        for c in range(C):
            g = 1 / (1 + E + others[:, c])
            gaps.append(y[c] - (own + written * E) @ g)
            by_value = np.einsum("dhs,h,hg->dgs", O, E * g, member).reshape(len(own), -1)
            rows.append(np.hstack([(written - (own + written * E) * g) * g * E, by_value]))
        gap = np.concatenate(gaps)
        before, misfit = misfit, float(np.linalg.norm(gap) / np.linalg.norm(y))
        if misfit > 0.5 * before:
            break
        step = np.linalg.lstsq(np.vstack(rows), gap, rcond=None)[0]
        scores, v = scores + np.clip(step[:H], -1, 1), v + step[H:]
    return Fits(v, scores, misfit)


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
    return Written(found.columns + (found.columns - chosen.table.own) / E, E, found.residual, found.errors)


def read_everywhere(far: Infinity, tables: list[Table], x: Array, level: Level) -> Asking[tuple[Array, float]]:
    """P_h x (H, d) of a token on the sphere, and the misfit; from two tables where a query token hides a part."""
    parts, worst = [], 0.0
    for table in tables:
        found = yield from read_columns(
            far, choose(table, table.heads + BLOCK.cells_per_reading), far.frozen(x), "main", level
        )
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
