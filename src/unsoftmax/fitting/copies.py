"""Which records ask the same: equal query tokens, and equal shares of equal tokens; and which nearly do.

No class here knows an order, and weights add up to 1: every head answers a sequence by its query token and by the share
that each token has of it, so alike when every token comes twice. Such records say one thing. Answers to them show
noise, but neither determine more unknowns nor test a fit of one another. Records that nearly ask the same (tokens
computed on another machine, or rounded) may determine more, by how little their answers differ; but any smooth fit of
the one agrees with the other, so that they test nothing either.
"""

from __future__ import annotations

import numpy as np

from unsoftmax.fitting.constants import FITTING
from unsoftmax.fitting.log import Log
from unsoftmax.probes.base import Array

_FARTHEST = 2.0**60
"""Derived: a place beyond any grid that whole numbers of 64 bits hold."""


def distinct(log: Log) -> tuple[Array, Array]:
    """The first record of every different sequence (k,), and for each record which of the k it is (n,)."""
    seen: dict[tuple[int, frozenset[tuple[int, int]]], int] = {}
    number = np.empty(len(log), dtype=np.int64)
    names = _names(log.tokens) if log.table is None else _names(log.table)[log.tokens]
    first: list[int] = []
    for i, rows in enumerate(np.split(names, log.starts[1:])):
        tokens, copies = np.unique(rows, return_counts=True)
        shares = zip(tokens.tolist(), (copies // np.gcd.reduce(copies)).tolist(), strict=True)
        number[i] = seen.setdefault((int(rows[-1]), frozenset(shares)), len(first))
        first += [i] if number[i] == len(first) else []
    return np.array(first), number


def _names(vectors: Array) -> Array:
    """A whole number for each vector (k, d), the same for equal ones."""
    return np.array([hash((row + 0).tobytes()) for row in vectors])  # -0 becomes 0


def groups(log: Log, first: Array, number: Array) -> Array:
    """For each record which group of nearly equal sequences it belongs to (n,); `first`, `number` as `distinct` gives.

    Sequences are near where 12 numbers agree that depend on the query token and on shares of tokens alone; grids find
    them without comparing every pair.
    """
    rng = np.random.default_rng(0)
    directions = rng.standard_normal((log.dim, FITTING.copy_directions)) / np.sqrt(log.dim)
    shown = (log.tokens if log.table is None else log.table) @ directions
    rows = shown if log.table is None else shown[log.tokens]
    rows = rows / (float(np.median(np.abs(rows))) or 1.0)
    last = rows[log.starts + log.lengths - 1]
    means, squares = (np.add.reduceat(part, log.starts) / log.lengths[:, None] for part in (rows, rows**2))
    seen = np.concatenate([last, means, squares], axis=1)[first]
    # Medians: a few tokens of another size do not make the others alike.
    spread = np.median(np.abs(seen - np.median(seen, axis=0)), axis=0)
    least = FITTING.near_copy * float(np.median(np.abs(seen), axis=0).max())
    return cells(seen / (FITTING.near_copy * np.maximum(spread, least + 1e-300)), rng)[number]


def cells(places: Array, rng: np.random.Generator) -> Array:
    """Numbers 0, 1, ... of groups (k,) of places (k, m) that are nearer than 1 to another of their group in all m."""
    from scipy.sparse import coo_array  # slow imports, and a log is read once
    from scipy.sparse.csgraph import connected_components

    k, places, found = len(places), np.clip(places, -_FARTHEST, _FARTHEST), []
    for _ in range(FITTING.copy_grids):
        whole = np.floor(places + rng.random(places.shape[1])).astype(np.int64).astype(np.uint64)
        mixed = (whole * rng.integers(1, 2**63, places.shape[1], dtype=np.uint64)).sum(axis=1, dtype=np.uint64)
        found.append(np.unique(mixed, return_inverse=True)[1])
    offsets = np.concatenate([cell + k * (i + 1) for i, cell in enumerate(found)])
    edges = coo_array(
        (np.ones(k * FITTING.copy_grids), (np.tile(np.arange(k), FITTING.copy_grids), offsets)),
        shape=[k * (FITTING.copy_grids + 1)] * 2,
    )
    labels = connected_components(edges, directed=False)[1][:k]
    return np.asarray(np.unique(labels, return_inverse=True)[1])
