"""The sequences behind recorded answers: where in its program each was asked, and with which tokens.

A program is deterministic up to rounding, and rounding depends on the processor: the same run on another machine asks
tokens that differ in their last digits, which no content address finds. So a ledger keeps, beside the addresses, the
tokens themselves and their place (round, row). Tokens that fit float32 are left out: they were rounded to a grid so
coarse that last digits do not show, and large designs are of this kind.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import xxhash

from unsoftmax.probes.base import Array, Probes

TABLE = (
    "CREATE TABLE sequences (id INTEGER PRIMARY KEY, round INTEGER, checksum INTEGER, "
    "places BLOB, addresses BLOB, tokens BLOB, counts BLOB)"
)
CACHED = 4
"""Chunks of tokens held in memory: a round is replayed in order, and chunks in flight may reach into the one before."""


@dataclass(frozen=True, eq=False)
class Sequences:
    """`rows` (n,) of one round with their content addresses (n, 2), tokens (n, N, d) and counts (n, N) or None."""

    rows: Array
    addresses: Array
    tokens: Array
    counts: Array | None

    def take(self, index: Array) -> Sequences:
        counts = None if self.counts is None else self.counts[index]
        return Sequences(self.rows[index], self.addresses[index], self.tokens[index], counts)


def unrepeatable(probes: Probes) -> Array:
    """Which sequences (n,) another processor may ask with other last digits: vectors that do not fit float32."""
    if probes.tokens.ndim != 3:
        return np.zeros(len(probes), dtype=bool)
    with np.errstate(over="ignore"):
        short = probes.tokens.astype(np.float32)
    return np.asarray((short != probes.tokens).any(axis=(1, 2)))


class _Chunk(NamedTuple):
    """A row of the table: its number, and the lowest, the highest and all rows of the round that it holds."""

    number: int
    low: int
    high: int
    rows: Array


class SequenceTable:
    """The table in a ledger's file; which rows of which round it holds is known in memory."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._rounds: dict[int, list[_Chunk]] = {}
        self._recent: dict[int, Sequences] = {}
        for number, at, places in connection.execute("SELECT id, round, places FROM sequences"):
            self._remember(number, at, np.frombuffer(places, dtype="<i8")[2:])

    def put(self, at: int, asked: Sequences) -> None:
        """Keep what was asked in round `at`."""
        blobs = _blobs(asked)
        cursor = self._connection.execute(
            "INSERT INTO sequences (round, checksum, places, addresses, tokens, counts) VALUES (?, ?, ?, ?, ?, ?)",
            (at, _checksum(blobs), *blobs),
        )
        self._remember(int(cursor.lastrowid or 0), at, asked.rows)

    def places(self, at: int, rows: Array) -> Array:
        """Which of these rows (n,) of round `at` are kept."""
        held = [chunk.rows for chunk in self._around(at, rows)]
        return np.isin(rows, np.concatenate(held)) if held else np.zeros(len(rows), dtype=bool)

    def at(self, at: int, rows: Array) -> list[Sequences]:
        """What was asked at some of these rows of round `at`, chunk by chunk, in the order it was paid."""
        return [self._chunk(chunk.number) for chunk in self._around(at, rows)]

    def all(self) -> Iterator[Sequences]:
        """Everything that is kept, round by round."""
        for chunks in self._rounds.values():
            for chunk in chunks:
                yield self._chunk(chunk.number)

    def _around(self, at: int, rows: Array) -> list[_Chunk]:
        if at not in self._rounds or not len(rows):
            return []
        low, high = int(rows[0]), int(rows[-1])
        return [chunk for chunk in self._rounds[at] if chunk.low <= high and chunk.high >= low]

    def _remember(self, number: int, at: int, rows: Array) -> None:
        self._rounds.setdefault(at, []).append(_Chunk(number, int(rows.min()), int(rows.max()), rows))

    def damaged(self) -> list[int]:
        """Chunks whose checksum does not agree."""
        found = []
        for chunks in self._rounds.values():
            for chunk in chunks:
                try:
                    self._chunk(chunk.number)
                except ValueError:
                    found.append(chunk.number)
        return found

    def _chunk(self, number: int) -> Sequences:
        if number in self._recent:
            return self._recent[number]
        row = self._connection.execute(
            "SELECT checksum, places, addresses, tokens, counts FROM sequences WHERE id = ?", (number,)
        ).fetchone()
        checksum, *blobs = (0, None) if row is None else row
        if len(blobs) != 4 or not all(isinstance(blob, bytes) for blob in blobs) or checksum != _checksum(blobs):
            raise ValueError(f"the tokens of chunk {number} are not what was written")
        self._recent[number] = _sequences(*blobs)
        while len(self._recent) > CACHED:
            self._recent.pop(next(iter(self._recent)))
        return self._recent[number]


def _blobs(asked: Sequences) -> tuple[bytes, bytes, bytes, bytes]:
    shape = np.array(asked.tokens.shape[1:], dtype="<i8")
    places = np.concatenate([shape, np.asarray(asked.rows, dtype="<i8")]).astype("<i8").tobytes()
    counts = b"" if asked.counts is None else np.ascontiguousarray(asked.counts, dtype="<i8").tobytes()
    tokens = np.ascontiguousarray(asked.tokens, dtype="<f8").tobytes()
    return places, np.ascontiguousarray(asked.addresses, dtype="<u8").tobytes(), tokens, counts


def _sequences(places: bytes, addresses: bytes, tokens: bytes, counts: bytes) -> Sequences:
    length, dim, *rows = np.frombuffer(places, dtype="<i8").tolist()
    n = len(rows)
    return Sequences(
        np.array(rows, dtype=np.int64),
        np.frombuffer(addresses, dtype="<u8").reshape(n, 2),
        np.frombuffer(tokens, dtype="<f8").reshape(n, length, dim),
        np.frombuffer(counts, dtype="<i8").reshape(n, length) if counts else None,
    )


def _checksum(blobs: Any) -> int:
    """64 bits, signed as SQLite stores integers."""
    state = xxhash.xxh3_64()
    for blob in blobs:
        state.update(blob)
    return int.from_bytes(state.digest(), "big", signed=True)
