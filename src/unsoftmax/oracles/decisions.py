"""What a program settled, and where: a run that is resumed goes on from the same numbers on any processor.

A place is the number of rounds asked before, a name, and how often that name came up since. The latest entry counts.
"""

from __future__ import annotations

import sqlite3

import numpy as np
import xxhash

from unsoftmax.probes.base import Array

TABLE = (
    "CREATE TABLE decisions (id INTEGER PRIMARY KEY, round INTEGER, name TEXT, number INTEGER, "
    "checksum INTEGER, value BLOB)"
)
Place = tuple[int, str, int]


class DecisionTable:
    """The table in a ledger's file."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        rows = connection.execute("SELECT id, round, name, number FROM decisions ORDER BY id")
        self._rows: dict[Place, int] = {(at, name, number): row for row, at, name, number in rows}

    def put(self, place: Place, value: Array) -> None:
        """Keep what was settled."""
        blob = np.ascontiguousarray(value, dtype="<f8").tobytes()
        cursor = self._connection.execute(
            "INSERT INTO decisions (round, name, number, checksum, value) VALUES (?, ?, ?, ?, ?)",
            (*place, _checksum(blob), blob),
        )
        self._rows[place] = int(cursor.lastrowid or 0)

    def get(self, place: Place) -> Array | None:
        """What was settled there, if anything."""
        return self._value(self._rows[place]) if place in self._rows else None

    def damaged(self) -> list[int]:
        """Rows whose checksum does not agree."""
        found = []
        for row in self._rows.values():
            try:
                self._value(row)
            except ValueError:
                found.append(row)
        return found

    def _value(self, row: int) -> Array:
        found = self._connection.execute("SELECT checksum, value FROM decisions WHERE id = ?", (row,)).fetchone()
        checksum, blob = (0, None) if found is None else found
        if not isinstance(blob, bytes) or len(blob) % 8 or checksum != _checksum(blob):
            raise ValueError(f"what was settled in row {row} is not what was written")
        return np.frombuffer(blob, dtype="<f8")


def _checksum(blob: bytes) -> int:
    """64 bits, signed as SQLite stores integers."""
    return int.from_bytes(xxhash.xxh3_64(blob).digest(), "big", signed=True)
