"""Which rows and columns of gaps to read: pivots by what is still unexplained, and readable.

Theory: docs/theory/token-access.md, "Token access", method.
"""

from __future__ import annotations

import numpy as np

from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.tokens.completion import complete
from unsoftmax.learners.tokens.constants import TOKEN_HEAD
from unsoftmax.learners.tokens.gaps import UNREAD, Gaps, Ladder, Reader, mend, read
from unsoftmax.probes.base import Array
from unsoftmax.solvers.gap_cross import Cross, Fit


def read_cross(reader: Reader, rank: int | None, rng: np.random.Generator, *, diagonal: bool = True) -> Asking[Cross]:
    """Rows and columns of gaps until every token is explained, or `rank` of each beside the reference row.

    `diagonal`: G_jj = 0 is known. Entries asked for the first time are phase "main", again "repair", tests "pilot".
    """
    n = len(reader.values)
    none = np.zeros((0, n))
    cross = Cross([], none, none, [], none.T, none.T)
    yield from _read_row(reader, cross, int(np.argmax(_extremeness(reader))), diagonal)
    settled = False
    implied: tuple[Cross, Cross] | None = None
    while rank is None or len(cross.queries) < rank:
        fit = cross.fit()
        key = yield from next_key(reader, cross, fit, rng, diagonal)
        if key is None and not settled:
            # With the last entries mended there may be more to see.
            before = cross.copy()
            yield from complete(reader, cross, rng, diagonal=diagonal)
            implied = before, cross.copy()
            settled = True
            continue
        if key is None:
            break
        settled = False
        yield from _read_row(reader, cross, key, diagonal)
        query = _next_query(reader, cross, fit, key)
        if query is None:
            cross.keys.pop()
            cross.rows, cross.row_radii = cross.rows[:-1], cross.row_radii[:-1]
            break
        if implied is not None:
            # These entries followed from a rank that turned out too small.
            cross.restore(*implied)
            implied = None
        yield from _read_column(reader, cross, query, diagonal)
    if not settled:
        yield from complete(reader, cross, rng, diagonal=diagonal)
    return cross


def next_key(reader: Reader, cross: Cross, fit: Fit, rng: np.random.Generator, diagonal: bool) -> Asking[int | None]:
    """A token whose gaps the cross does not explain yet; None if there is none.

    The zero diagonal tests every token for free; only when it holds are some entries asked.
    """
    n = len(reader.values)
    if len(cross.keys) == n:
        return None
    every = np.arange(n)
    fresh = np.setdiff1d(every, cross.keys)
    if diagonal:
        residual = np.abs(fit.diagonal())
        unexplained = residual > 2 * fit.bounds(every, every) + 64 * reader.eps
        unexplained[cross.keys] = False
        readable = unexplained & (cross.column_radii <= 16 * reader.goal).all(axis=1)
        if unexplained.any():
            return _pivot(reader, cross, np.where(readable if readable.any() else unexplained, residual, 0.0))
    keys, queries = _unseen(cross, fresh, rng, diagonal)
    if len(keys) == 0:
        return None
    ladder = Ladder(np.array(cross.keys), cross.rows[:, queries], cross.row_radii[:, queries])
    predicted = fit.at(keys, queries)
    seen = yield from read(reader, keys, queries, predicted, ladder, "pilot")
    residual = np.abs(seen.level - predicted)
    wrong = (residual > 2 * (fit.bounds(keys, queries) + seen.radius)) & (seen.radius < UNREAD)
    return int(keys[np.argmax(np.where(wrong, residual, 0.0))]) if wrong.any() else None


def _unseen(cross: Cross, fresh: Array, rng: np.random.Generator, diagonal: bool) -> tuple[Array, Array]:
    """Entries (keys, queries) outside the cross that test it: inside it every entry is explained by construction.

    A token whose column was read but not its row has its diagonal entry inside, so each such token gets an entry of
    its own. Where less is left than one row holds, everything is asked: a rank near the vocabulary hides there.
    """
    read_columns = np.array(cross.queries, dtype=np.int64)
    columns = np.setdiff1d(np.arange(cross.rows.shape[1]), read_columns)
    if len(fresh) * len(columns) <= max(TOKEN_HEAD.cross_tests, cross.rows.shape[1]):
        keys, queries = (x.ravel() for x in np.meshgrid(fresh, columns, indexing="ij"))
    else:
        untested = np.intersect1d(fresh, read_columns) if diagonal else fresh[:0]
        keys = np.concatenate([untested, rng.choice(fresh, TOKEN_HEAD.cross_tests)])
        queries = rng.choice(columns, len(keys))
    proper = keys != queries if diagonal else np.ones(len(keys), dtype=bool)
    return keys[proper], queries[proper]


def _read_row(reader: Reader, cross: Cross, key: int, diagonal: bool) -> Asking[None]:
    known = Gaps(cross.columns[key], cross.column_radii[key])
    level, radius, asked = _line(reader, key, cross.queries, known, diagonal)
    ladder = Ladder(np.array(cross.keys, dtype=np.int64), cross.rows[:, asked], cross.row_radii[:, asked])
    keys = np.full(len(asked), key)
    seen = yield from read(reader, keys, asked, _expected(cross, keys, asked), ladder, "main")
    level[asked], radius[asked] = seen.level, seen.radius
    cross.add_row(key, level, radius)
    yield from mend_rows(reader, cross)


def _line(reader: Reader, own: int, read: list[int], known: Gaps, diagonal: bool) -> tuple[Array, Array, Array]:
    """Levels and radii (n,) of the row or column of a token, as `known` at tokens `read`, and the tokens not known."""
    n = len(reader.values)
    level, radius = np.zeros(n), np.full(n, UNREAD)
    if diagonal:
        radius[own] = 0.0
    level[read], radius[read] = known.level, known.radius
    return level, radius, np.setdiff1d(np.arange(n), [own, *read])


def mend_rows(reader: Reader, cross: Cross) -> Asking[None]:
    """Ask poor entries of all rows again: each new row is a new helper for the older ones."""
    p, queries = np.nonzero(cross.row_radii > reader.goal)
    keys = np.array(cross.keys)[p]
    proper = keys != queries
    p, queries, keys = p[proper], queries[proper], keys[proper]
    ladder = Ladder(np.array(cross.keys), cross.rows[:, queries], cross.row_radii[:, queries])
    known = Gaps(cross.rows[p, queries], cross.row_radii[p, queries])
    better = yield from mend(reader, keys, queries, known, ladder)
    cross.rows[p, queries], cross.row_radii[p, queries] = better.level, better.radius
    cross.sync()


def _read_column(reader: Reader, cross: Cross, query: int, diagonal: bool) -> Asking[None]:
    known = Gaps(cross.rows[:, query], cross.row_radii[:, query])
    level, radius, asked = _line(reader, query, cross.keys, known, diagonal)
    queries = np.full(len(asked), query)
    ladder = Ladder(np.array(cross.keys), cross.rows[:, [query]], cross.row_radii[:, [query]])
    seen = yield from read(reader, asked, queries, _expected(cross, asked, queries), ladder, "main")
    level[asked], radius[asked] = seen.level, seen.radius
    rungs = _rungs(reader, Gaps(level, radius))
    ladder = Ladder(rungs, level[rungs, None], radius[rungs, None])
    better = yield from mend(reader, asked, queries, seen, ladder)
    level[asked], radius[asked] = better.level, better.radius
    cross.add_column(query, level, radius)
    cross.sync()


def _rungs(reader: Reader, column: Gaps) -> Array:
    """Well read tokens of one column at evenly spaced levels, the smallest and the largest value of each level."""
    good = np.flatnonzero(column.radius <= reader.goal)
    if len(good) == 0:
        return good
    level = column.level[good]
    bins = np.floor((level - level.min()) / (np.ptp(level) / TOKEN_HEAD.helper_levels + 1e-300)).astype(int)
    chosen: set[int] = set()
    for b in np.unique(bins):
        members = good[bins == b]
        values = reader.values[members]
        chosen |= {int(members[np.argmin(values)]), int(members[np.argmax(values)])}
    return np.array(sorted(chosen), dtype=np.int64)


def _expected(cross: Cross, keys: Array, queries: Array) -> Array:
    """What is known of a gap before it is asked: the column's centre and how far the key usually lies above it."""
    _, centre = _centre(cross)
    p = len(cross.queries)
    if not p:
        return np.asarray(centre[queries])
    lift = ((cross.columns - centre[cross.queries]) * (cross.column_radii < UNREAD)).sum(axis=1) / (p + 2)
    return np.asarray(centre[queries] + lift[keys])


def _centre(cross: Cross) -> tuple[Array, Array]:
    """Which entries of the rows are readable, and the mean of those of every column, drawn towards 0."""
    readable = cross.row_radii < UNREAD
    return readable, (cross.rows * readable).sum(axis=0) / (1 + readable.sum(axis=0))


def _next_query(reader: Reader, cross: Cross, fit: Fit, key: int) -> int | None:
    """The column in which the new row is least explained; None if it is explained everywhere."""
    every = np.arange(len(reader.values))
    keys = np.full(len(every), key)
    residual = np.abs(cross.rows[-1] - fit.at(keys, every))
    radius = cross.row_radii.max(axis=0)
    significant = residual > 2 * (fit.bounds(keys, every) + cross.row_radii[-1]) + 64 * reader.eps
    significant[cross.queries] = False
    if not significant.any():
        return None
    score = np.where(significant, residual, 0.0)
    readable = significant & (radius <= 16 * reader.goal)
    return _pivot(reader, cross, np.where(readable, score, 0.0) if readable.any() else score, _depth(cross))


def _depth(cross: Cross) -> Array:
    """How far the lower keys of each column are expected to lie below what can be seen beside the query token."""
    readable, centre = _centre(cross)
    deviation = float(np.sqrt(np.mean((cross.rows - centre)[readable] ** 2)))
    return np.maximum(0.0, 1.5 * deviation - TOKEN_HEAD.least_visible_gap - centre)


def _pivot(reader: Reader, cross: Cross, score: Array, depth: Array | float = 0.0) -> int:
    """A token of nearly the largest score, not used yet if possible, readable: not deep, value far from the others."""
    unused = score.copy()
    unused[cross.used] = 0.0
    if unused.max() > 0.1 * score.max():
        score = unused
    candidates = score >= TOKEN_HEAD.near_best_pivot * score.max()
    return int(np.argmax(np.where(candidates, _extremeness(reader) / reader.spread - depth, -np.inf)))


def _extremeness(reader: Reader) -> Array:
    return np.abs(reader.values - np.median(reader.values))
