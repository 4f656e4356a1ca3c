"""Entries that cannot be read where the cross needs them, from entries that can be read elsewhere.

A key far below the query token never shows in that column: no sequence ends without the query token. The rank helps:
a column is fixed by any r + 1 readable keys, a key by any r readable columns. The zero diagonal is one more equation.

Theory: docs/theory/token-access.md, "Token access", strong heads.
"""

from __future__ import annotations

import numpy as np

from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.tokens.constants import TOKEN_HEAD
from unsoftmax.learners.tokens.gaps import UNREAD, Gaps, Ladder, Reader, read
from unsoftmax.probes.base import Array
from unsoftmax.solvers.cross import pivot_rows
from unsoftmax.solvers.gap_cross import Cross


def complete(reader: Reader, cross: Cross, rng: np.random.Generator, *, diagonal: bool) -> Asking[None]:
    """Replace poorly read entries of rows, then of columns, by what readable entries imply; phase "repair".

    Later rounds, with better estimates of what is visible where, attend only to what is still far from good.
    """
    limit = reader.goal
    for _ in range(TOKEN_HEAD.rounds if cross.queries else 0):
        yield from _complete_rows(reader, cross, rng, diagonal, limit)
        yield from _complete_columns(reader, cross, rng, diagonal, limit)
        cross.sync()
        limit = TOKEN_HEAD.radius_over_goal * reader.goal


def _complete_rows(
    reader: Reader, cross: Cross, rng: np.random.Generator, diagonal: bool, limit: float
) -> Asking[None]:
    fit = cross.fit()
    weights, slack = fit.weights, fit.weight_errors
    poor = cross.row_radii > reader.goal
    queries = np.flatnonzero((cross.row_radii > limit).any(axis=0))
    good_keys = np.setdiff1d(np.flatnonzero((cross.column_radii <= reader.goal).all(axis=1)), cross.keys)
    chosen: list[tuple[Array, Array]] = []
    for j in queries:
        keys = good_keys[good_keys != j]
        keys = _select(weights[:, poor[:, j]], weights[keys] @ cross.rows[:, j], keys, int(poor[:, j].sum()), rng)
        chosen.append((keys, np.full(len(keys), j)))
    seen, parts = yield from _read_extra(reader, cross, weights, chosen)
    for j, part in zip(queries, parts, strict=True):
        keys = chosen[part[0]][0]
        also = np.append(keys, j) if diagonal else keys
        A = np.vstack([np.eye(len(cross.keys)), weights[also]])
        b = np.concatenate([cross.rows[:, j], seen.level[part[1]], [0.0] * diagonal])
        size = np.concatenate([cross.row_radii[:, j], seen.radius[part[1]], [0.0] * diagonal])
        size[len(cross.keys) :] += slack[0][also] @ slack[1][:, j]
        x, radius = _least_squares(A, b, np.maximum(size, reader.goal / 1024), np.eye(len(cross.keys)))
        taken = poor[:, j] & (radius < cross.row_radii[:, j])
        cross.rows[taken, j], cross.row_radii[taken, j] = x[taken], radius[taken]


def _complete_columns(
    reader: Reader, cross: Cross, rng: np.random.Generator, diagonal: bool, limit: float
) -> Asking[None]:
    weights = cross.fit().weights
    poor = cross.column_radii > reader.goal
    poor[cross.keys] = False
    keys = np.flatnonzero((poor & (cross.column_radii > limit)).any(axis=1))
    good_queries = np.flatnonzero((cross.row_radii <= reader.goal).all(axis=0))
    good_queries = np.setdiff1d(good_queries, cross.queries)
    slopes = (cross.rows[1:] - cross.rows[0]).T
    chosen: list[tuple[Array, Array]] = []
    for i in keys:
        queries = good_queries[good_queries != i]
        queries = _select(slopes, weights[i] @ cross.rows[:, queries], queries, int(poor[i].sum()), rng)
        chosen.append((np.full(len(queries), i), queries))
    seen, parts = yield from _read_extra(reader, cross, weights, chosen)
    at = slopes[cross.queries]
    for i, part in zip(keys, parts, strict=True):
        extra = chosen[part[0]][1]
        also = np.concatenate([cross.queries, extra, [i] * diagonal]).astype(np.int64)
        b = np.concatenate([cross.columns[i], seen.level[part[1]], [0.0] * diagonal]) - cross.rows[0, also]
        size = np.concatenate([cross.column_radii[i], seen.radius[part[1]], [0.0] * diagonal])
        size += np.abs(weights[i]) @ cross.row_radii[:, also]
        x, radius = _least_squares(slopes[also], b, np.maximum(size, reader.goal / 1024), at)
        taken = poor[i] & (radius < cross.column_radii[i])
        cross.columns[i, taken] = (at @ x + cross.rows[0, cross.queries])[taken]
        cross.column_radii[i, taken] = radius[taken]


def _select(A: Array, level: Array, tokens: Array, wanted: int, rng: np.random.Generator) -> Array:
    """Tokens whose equations A[tokens] are independent and readable: pivoted QR of rows weighted by visibility.

    `level` goes with `tokens`; the most visible tokens and as many random ones are considered.
    """
    if len(tokens) > 2 * TOKEN_HEAD.equations_considered:
        top = np.argpartition(-level, TOKEN_HEAD.equations_considered)[: TOKEN_HEAD.equations_considered]
        some = np.union1d(top, rng.choice(len(tokens), TOKEN_HEAD.equations_considered, replace=False))
        tokens, level = tokens[some], level[some]
    count = min(wanted + CORE.checks, len(tokens))
    if count == 0:
        return tokens[:0]
    visible = np.exp(np.clip(level, -30, 0))
    return np.asarray(tokens[pivot_rows(A[tokens] * visible[:, None])[:count]])


def _read_extra(
    reader: Reader, cross: Cross, weights: Array, chosen: list[tuple[Array, Array]]
) -> Asking[tuple[Gaps, list[tuple[int, slice]]]]:
    """All chosen entries in one go; where in the answer each list of them lies."""
    ends = np.cumsum([0, *(len(keys) for keys, _ in chosen)])
    parts = [(k, slice(int(ends[k]), int(ends[k + 1]))) for k in range(len(chosen))]
    if not ends[-1]:
        return Gaps(np.zeros(0), np.zeros(0)), parts
    keys, queries = (np.concatenate([pair[k] for pair in chosen]) for k in (0, 1))
    ladder = Ladder(np.array(cross.keys), cross.rows[:, queries], cross.row_radii[:, queries])
    expected = np.einsum("mp,pm->m", weights[keys], cross.rows[:, queries])
    seen = yield from read(reader, keys, queries, expected, ladder, "repair")
    return seen, parts


def _least_squares(A: Array, b: Array, size: Array, of: Array) -> tuple[Array, Array]:
    """x with A x = b up to errors of the given sizes, and the error bounds of the combinations `of` x.

    Equations that contradict each other by more than their errors say nothing: the rank behind them is too small.
    """
    useful = size < 1.0
    if not useful.any():
        return np.zeros(A.shape[1]), np.full(len(of), UNREAD)
    A, b, size = A[useful], b[useful], size[useful]
    inverse = np.linalg.pinv(A / size[:, None], rcond=1e-18) / size
    excess = np.abs(A @ (inverse @ b) - b) - 4 * np.abs(np.eye(len(A)) - A @ inverse) @ size
    if (excess > TOKEN_HEAD.excess_over_radius * (1 + np.abs(b))).any():
        return np.zeros(A.shape[1]), np.full(len(of), UNREAD)
    lost = np.abs(of - of @ (inverse @ A)).max(axis=1) > 1e-6
    return inverse @ b, np.where(lost, UNREAD, np.abs(of @ inverse) @ size)
