"""What a recovered token head can and cannot say: tokens that share a value, behave alike, or cannot be read.

Theory: docs/theory/token-access.md, "Token access", equal values.
"""

from __future__ import annotations

import numpy as np

from unsoftmax.learners.tokens.constants import TOKEN_HEAD
from unsoftmax.learners.tokens.gaps import Reader
from unsoftmax.probes.base import Array
from unsoftmax.solvers.gap_cross import Fit


def equal_values(reader: Reader) -> list[Array]:
    """Groups of tokens whose values agree within what noise lets us tell."""
    order = np.argsort(reader.values, kind="stable")
    breaks = np.flatnonzero(np.diff(reader.values[order]) > 2 * reader.noise) + 1
    return [np.sort(group) for group in np.split(order, breaks) if len(group) > 1]


def identical(reader: Reader, fit: Fit, groups: list[Array]) -> list[Array]:
    """Groups of tokens that nothing tells apart: equal value, equal as key, equal as query token."""
    found = []
    left, right = fit.errors
    slack = (left @ right.mean(axis=0))[:, None]
    radii = fit.cross.row_radii[: len(fit.rows)]
    for group in groups:
        rest = group
        while len(rest) > 1:
            first = rest[0]
            keys = np.abs((fit.weights[rest] - fit.weights[first]) @ fit.rows) <= 4 * (slack[rest] + slack[first])
            gap = np.abs(fit.rows[:, rest] - fit.rows[:, [first]])
            queries = gap <= 4 * (radii[:, rest] + radii[:, [first]]) + 64 * reader.eps
            same = keys.all(axis=1) & queries.all(axis=0)
            if same.sum() > 1:
                found.append(rest[same])
            rest = rest[~same]
    return found


def unreadable(reader: Reader, fit: Fit) -> Array:
    """Fewest tokens (greedily) without which every gap that can show in an answer is known."""
    n = len(reader.values)
    left, right = fit.errors
    suspects = np.flatnonzero(right @ left.max(axis=0) > TOKEN_HEAD.worthless_radius / 2)
    keys, queries = [], []
    for start in range(0, len(suspects), TOKEN_HEAD.report_columns):
        j = suspects[start : start + TOKEN_HEAD.report_columns]
        bound = left @ right[j].T + np.einsum("jm,jm->j", left[j], right[j])
        shows = (bound > TOKEN_HEAD.worthless_radius) & (fit.weights @ fit.rows[:, j] + bound > TOKEN_HEAD.hidden_key)
        shows[j, np.arange(len(j))] = False
        if not reader.chained:
            shows &= np.abs(reader.values[:, None] - reader.last[j]) > 2 * reader.noise
        i, column = np.nonzero(shows)
        keys.append(i)
        queries.append(j[column])
    if not keys:
        return np.zeros(0, dtype=np.int64)
    return _cover(np.concatenate(keys), np.concatenate(queries), n)


def _cover(keys: Array, queries: Array, n: int) -> Array:
    """Tokens that touch every pair, the busiest first."""
    chosen: list[int] = []
    while len(keys):
        busiest = int(np.argmax(np.bincount(keys, minlength=n) + np.bincount(queries, minlength=n)))
        chosen.append(busiest)
        kept = (keys != busiest) & (queries != busiest)
        keys, queries = keys[kept], queries[kept]
    return np.array(sorted(chosen), dtype=np.int64)


def notes(reader: Reader, fit: Fit, hidden: Array) -> tuple[str, ...]:
    """The findings in sentences, with the ids the target uses."""
    said = [f"the scores have rank {fit.weights.shape[1] - 1} (up to a constant per last token)."]
    if reader.rounded:
        said.append(
            f"the answers show few decimals: every one was taken to be right within {reader.rounded:.0e}, though no "
            "tolerance was declared."
        )
    groups = equal_values(reader)
    if groups:
        how = "told apart through a third token" if reader.chained else "pairs of them show nothing of their gaps"
        said.append(f"{_counted(groups)} share a value: {_shown(reader, groups)}; {how}.")
        same = identical(reader, fit, groups)
        if same:
            said.append(f"{_counted(same)} behave identically: {_shown(reader, same)}.")
    if not reader.chained:
        said.append("only pairs were asked: gaps between tokens of equal value rest on the rank alone.")
    if len(hidden):
        ids = ", ".join(map(str, reader.ids[hidden[: TOKEN_HEAD.ids_named]])) + (
            ", ..." if len(hidden) > TOKEN_HEAD.ids_named else ""
        )
        said.append(
            f"{len(hidden)} tokens cannot be read and are left out of the model (ids {ids}): their scores lie so far "
            "from the others that no allowed sequence shows the difference."
        )
    return tuple(said)


def _counted(groups: list[Array]) -> str:
    return f"{sum(map(len, groups))} tokens in {len(groups)} group{'s' if len(groups) > 1 else ''}"


def _shown(reader: Reader, groups: list[Array]) -> str:
    some = [
        "{"
        + ", ".join(map(str, reader.ids[g[: TOKEN_HEAD.ids_named]]))
        + (", ..." if len(g) > TOKEN_HEAD.ids_named else "")
        + "}"
        for g in groups
    ]
    return ", ".join(some[: TOKEN_HEAD.ids_named]) + (", ..." if len(some) > TOKEN_HEAD.ids_named else "")
