"""The ledger: a SQLite file (WAL) that keeps every paid answer under its content address.

One row per chunk of answers: the addresses (16 bytes each), the answers (8 bytes per number), a checksum. A row is
one transaction, committed before its answers are used; appending never touches old pages, so the cost per answer
does not grow with the file. Single answers are found through an index in memory, built when the ledger is opened.
Sequences whose last digits are one processor's are kept as such too (`oracles.sequences`), and so is what programs
settle (`oracles.decisions`).
A killed process loses at most the call in flight. The writer holds the file exclusively.
"""

from __future__ import annotations

import json
import sqlite3
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np
import xxhash

from unsoftmax.errors import LedgerError
from unsoftmax.oracles import decisions
from unsoftmax.oracles.addresses import AddressIndex
from unsoftmax.oracles.decisions import DecisionTable, Place
from unsoftmax.oracles.identity import flattened
from unsoftmax.oracles.sequences import CACHED, TABLE, Sequences, SequenceTable
from unsoftmax.oracles.sqlite_errors import troubles
from unsoftmax.probes.base import Array

FORMAT = "unsoftmax-ledger/1"
_APPLICATION = 0x756E736D
"""SQLite's application id of a ledger, the letters "unsm": a database of something else is refused, not written to."""

_TABLES = {
    "binding": "CREATE TABLE binding (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    "chunks": "CREATE TABLE chunks (id INTEGER PRIMARY KEY, phase TEXT, size INTEGER, checksum INTEGER, "
    "addresses BLOB, answers BLOB)",
    "sequences": TABLE,
    "decisions": decisions.TABLE,
}
_LATER = ("sequences", "decisions")
"""Tables that the first ledgers do not have: they are added to such a file."""

_LARGEST_VALUE = 2**28
"""Bytes of the largest value SQLite may read, 256 MB: a damaged or hostile file cannot ask for more memory."""

_ROW_BITS = 28
"""A place is chunk << 28 | row: 2^28 rows per chunk, 2^35 chunks."""


class Ledger:
    """A `Store` on disk. `binding` says whose answers these are; a file bound to something else is refused.

    `keep_tokens`: the sequences are kept beside their answers, and `records` reads both.
    """

    def __init__(self, path: str | Path, binding: dict[str, Any] | None = None, *, keep_tokens: bool = False) -> None:
        self.path = Path(path)
        self.keep_tokens = keep_tokens
        self._index = AddressIndex()
        self._recent: OrderedDict[int, tuple[Array, Array]] = OrderedDict()
        with troubles(self.path):
            # isolation_level None: every statement outside BEGIN is its own transaction, committed on return.
            self._connection = sqlite3.connect(self.path, timeout=1.0, isolation_level=None)
            try:
                self._open(None if binding is None else flattened(binding))
            except BaseException:
                self._connection.close()
                raise

    def get(self, keys: Array) -> tuple[Array, Array]:
        places = self._index.find(keys)
        known = places >= 0
        if not known.any():
            return known, np.empty(0)
        rows = np.flatnonzero(known)
        chunk, row = places[rows] >> _ROW_BITS, places[rows] & (2**_ROW_BITS - 1)
        parts: list[tuple[Array, Array]] = []
        for number in np.unique(chunk):
            stored, answers = self._chunk(int(number))
            here = rows[chunk == number]
            at = row[chunk == number]
            if at.max() >= len(stored):
                # Two rows under one number: the file has been damaged since it was written.
                raise self._damaged(int(number))
            same = (stored[at] == keys[here]).all(axis=1)
            known[here[~same]] = False
            parts.append((here[same], answers[at[same]]))
        order = np.argsort(np.concatenate([here for here, _ in parts]), kind="stable")
        return known, np.concatenate([answers for _, answers in parts])[order]

    def put(self, keys: Array, answers: Array, phase: str = "") -> None:
        if len(keys) == 0:
            return
        addresses = np.ascontiguousarray(keys, dtype="<u8").tobytes()
        values = np.ascontiguousarray(answers, dtype="<f8").tobytes()
        with troubles(self.path):
            cursor = self._connection.execute(
                "INSERT INTO chunks (phase, size, checksum, addresses, answers) VALUES (?, ?, ?, ?, ?)",
                (phase, len(keys), _checksum(addresses, values), addresses, values),
            )
        self._remember(int(cursor.lastrowid or 0), keys)

    def note(self, at: int, asked: Sequences) -> None:
        """Keep the sequences of round `at` themselves, so that another processor finds them."""
        with troubles(self.path):
            self._sequences.put(at, asked)

    def noted(self, at: int, rows: Array) -> list[Sequences]:
        """What was asked at some of these rows of round `at`, the latest last."""
        with troubles(self.path):
            return self._sequences.at(at, rows)

    def places(self, at: int, rows: Array) -> Array:
        """Which of these rows (n,) of round `at` are kept with their sequences."""
        return self._sequences.places(at, rows)

    def settle(self, place: Place, value: Array) -> None:
        """Keep what the program settled at a place."""
        with troubles(self.path):
            self._decisions.put(place, value)

    def settled(self, place: Place) -> Array | None:
        """What was settled at a place, None if nothing was."""
        with troubles(self.path):
            return self._decisions.get(place)

    def __len__(self) -> int:
        return len(self._index)

    @property
    def binding(self) -> dict[str, Any]:
        """What the ledger is bound to: name -> value, nested names joined by a dot."""
        with troubles(self.path):
            return {name: json.loads(value) for name, value in self._connection.execute("SELECT * FROM binding")}

    def chunks(self) -> Iterator[tuple[str, Array, Array]]:
        """(phase, addresses (n, 2), answers (n,) or (n, outputs)) in the order they were paid."""
        with troubles(self.path):
            identifiers = [
                (int(i), str(phase)) for i, phase in self._connection.execute("SELECT id, phase FROM chunks")
            ]
        for number, phase in identifiers:
            yield phase, *self._chunk(number)

    def records(self) -> Iterator[tuple[Array, Array | None, Array]]:
        """(tokens (n, N, d), counts (n, N) or None, answers (n,) or (n, outputs)) of the sequences that were kept."""
        for asked in self._sequences.all():
            known, answers = self.get(asked.addresses)
            if known.any():
                kept = asked.take(np.flatnonzero(known))
                yield kept.tokens, kept.counts, answers

    def check(self) -> list[str]:
        """Problems of the file: empty if SQLite finds it whole and every checksum agrees."""
        with troubles(self.path):
            found = [str(row[0]) for row in self._connection.execute("PRAGMA integrity_check")]
            numbers = [int(row[0]) for row in self._connection.execute("SELECT id FROM chunks")]
            tokens = self._sequences.damaged()
            settled = self._decisions.damaged()
        problems = [] if found == ["ok"] else found
        problems += [f"the tokens of chunk {number} are not what was written" for number in tokens]
        problems += [f"what was settled in row {number} is not what was written" for number in settled]
        for number in numbers:
            try:
                self._chunk(number)
            except LedgerError as error:
                problems.append(str(error))
        return problems

    def close(self) -> None:
        """Fold the write-ahead log into the file and release it."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self, binding: dict[str, Any] | None) -> None:
        run = self._connection.execute
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LARGEST_VALUE)
        # Small pages keep small ledgers small; it holds for new files only.
        run("PRAGMA page_size = 1024")
        run("PRAGMA trusted_schema = OFF")
        run("PRAGMA cell_size_check = ON")
        run("PRAGMA locking_mode = EXCLUSIVE")
        run("BEGIN EXCLUSIVE")
        tables = dict(run("SELECT name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_autoindex%'"))
        application = run("PRAGMA application_id").fetchone()[0]
        if not tables and application in (0, _APPLICATION):
            for statement in _TABLES.values():
                run(statement)
            run(f"PRAGMA application_id = {_APPLICATION}")
            bound = {"format": FORMAT, **(binding or {})}
            self._connection.executemany(
                "INSERT INTO binding VALUES (?, ?)", [(name, json.dumps(value)) for name, value in bound.items()]
            )
        elif {**{name: _TABLES[name] for name in _LATER}, **tables} != _TABLES or application != _APPLICATION:
            raise LedgerError(f"{self.path} is a database but not an unsoftmax ledger; pass another path.")
        else:
            for name in _LATER:
                if name not in tables:
                    run(_TABLES[name])
        run("COMMIT")
        run("PRAGMA journal_mode = WAL")
        # NORMAL does not wait for the disk at each commit: the system keeps what a killed process wrote; only a power
        # failure can lose the last commits, never the file.
        run("PRAGMA synchronous = NORMAL")
        run("PRAGMA wal_autocheckpoint = 4096")
        self._compare(binding)
        self._sequences = SequenceTable(self._connection)
        self._decisions = DecisionTable(self._connection)
        for number, size, addresses in run("SELECT id, size, addresses FROM chunks"):
            self._remember(number, self._addresses(number, size, addresses))

    def _compare(self, binding: dict[str, Any] | None) -> None:
        bound = self.binding
        if bound.pop("format", None) != FORMAT:
            raise LedgerError(f"{self.path} is not of the format {FORMAT!r}; this version cannot read it.")
        if binding is None or bound == binding:
            return
        differences = [
            f"{name} is {bound.get(name, 'absent')!r} in the ledger and {binding.get(name, 'absent')!r} in this run"
            for name in sorted(bound.keys() | binding.keys())
            if bound.get(name, _ABSENT) != binding.get(name, _ABSENT)
        ]
        raise LedgerError(
            f"{self.path} belongs to another run: {'; '.join(differences)}. Its answers are not valid here: pass "
            "another path, or the target and configuration it was made with (name= declares the identity of a target)."
        )

    def _remember(self, number: int, keys: Array) -> None:
        self._index.add(keys, (number << _ROW_BITS) + np.arange(len(keys), dtype=np.int64))

    def _addresses(self, number: int, size: Any, blob: Any) -> Array:
        if not (0 < number < 2**35 and isinstance(size, int) and 0 < size < 2**_ROW_BITS and isinstance(blob, bytes)):
            raise self._damaged(number)
        if len(blob) != 16 * size:
            raise self._damaged(number)
        return np.frombuffer(blob, dtype="<u8").reshape(size, 2)

    def _chunk(self, number: int) -> tuple[Array, Array]:
        """Addresses and answers of one row, checked; the last few are kept in memory."""
        if number in self._recent:
            self._recent.move_to_end(number)
            return self._recent[number]
        with troubles(self.path):
            row = self._connection.execute(
                "SELECT size, checksum, addresses, answers FROM chunks WHERE id = ?", (number,)
            ).fetchone()
        if row is None:
            raise self._damaged(number)
        size, checksum, addresses, values = row
        keys = self._addresses(number, size, addresses)
        if not isinstance(values, bytes) or len(values) == 0 or len(values) % (8 * size):
            raise self._damaged(number)
        if checksum != _checksum(addresses, values):
            raise self._damaged(number)
        answers = np.frombuffer(values, dtype="<f8")
        width = len(answers) // size
        self._recent[number] = keys, answers.reshape(size, width) if width > 1 else answers
        if len(self._recent) > CACHED:
            self._recent.popitem(last=False)
        return self._recent[number]

    def _damaged(self, number: int) -> LedgerError:
        return LedgerError(
            f"{self.path} is damaged: chunk {number} is not what was written. Restore a copy, or start a new ledger."
        )


_ABSENT = object()


def _checksum(addresses: bytes, values: bytes) -> int:
    """64 bits, signed as SQLite stores integers."""
    state = xxhash.xxh3_64(addresses)
    state.update(values)
    return int.from_bytes(state.digest(), "big", signed=True)
