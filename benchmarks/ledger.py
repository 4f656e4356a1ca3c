"""The ledger: throughput beside bare SQLite, its share of a recovery, bytes per query."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import unsoftmax as us
from benchmarks.base import Row, seconds_of
from unsoftmax.oracles import Ledger
from unsoftmax.oracles.addresses import addresses
from unsoftmax.probes import Probes

_BATCH = 1024
_PLAIN = "CREATE TABLE answers (address BLOB, answer BLOB)"
_KEYED = "CREATE TABLE answers (address BLOB PRIMARY KEY, answer BLOB) WITHOUT ROWID"


def rows(large: bool) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        yield from throughput(Path(folder), 2000 if large else 200)
        yield from overhead(Path(folder))


def throughput(folder: Path, batches: int) -> Iterator[Row]:
    """Hashing, looking up and putting against executemany of the same rows, hashing not counted; d = 64."""
    rng = np.random.default_rng(0)
    tokens, answers = rng.standard_normal((_BATCH, 2, 64)), rng.standard_normal(_BATCH)
    ledger_seconds, batched = 0.0, []
    with Ledger(folder / "ledger.db") as ledger:
        for i in range(batches):
            probes = Probes(tokens + i)

            def record(probes: Probes = probes) -> np.ndarray:
                keys = addresses(probes)
                known, _ = ledger.get(keys)
                ledger.put(keys[~known], answers[~known], "main")
                return keys

            seconds, keys = seconds_of(record)
            ledger_seconds += seconds
            batched.append([(key.tobytes(), answer.tobytes()) for key, answer in zip(keys, answers, strict=True)])
    bare = {table: raw(folder / f"raw-{len(table)}.db", table, batched) for table in (_PLAIN, _KEYED)}
    rows = batches * _BATCH
    figures = {"rows": rows, "ledger_seconds": ledger_seconds, "raw_seconds": bare[_PLAIN], "keyed": bare[_KEYED]}
    meaning = "ledger time (hash, look up, put) / executemany time of the same rows, batches of 1024, d = 64, table"
    yield Row("ledger throughput", ledger_seconds / bare[_PLAIN], 2.0, f"{meaning} without index", figures)
    yield Row("ledger throughput, keyed", ledger_seconds / bare[_KEYED], 2.0, f"{meaning} addressable", figures)
    size = (folder / "ledger.db").stat().st_size / rows
    yield Row("ledger size", size / (64 * 1.1), 1.0, "bytes per query / (64 + 10 %)", {"bytes_per_query": size})


def raw(path: Path, table: str, batched: list[list[tuple[bytes, bytes]]]) -> float:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(table)

    def insert() -> None:
        for batch in batched:
            connection.execute("BEGIN")
            connection.executemany("INSERT INTO answers VALUES (?, ?)", batch)
            connection.execute("COMMIT")

    seconds, _ = seconds_of(insert)
    connection.close()
    return seconds


def overhead(folder: Path, d: int = 256) -> Iterator[Row]:
    """A recovery with and without a ledger, alternating; the medians of five."""
    oracle, learner = us.oracle(us.models.SingleHead.random(d, seed=d)), us.learners.SingleHead()
    times: dict[bool, list[float]] = {True: [], False: []}
    for i in range(5):
        for kept in (False, True):
            path = folder / f"recovery-{i}.db" if kept else None
            seconds, _ = seconds_of(lambda path=path: us.recover(oracle, learner, ledger=path))
            times[kept].append(seconds)
    with_ledger, without = float(np.median(times[True])), float(np.median(times[False]))
    figures = {"with_seconds": with_ledger, "without_seconds": without}
    yield Row(f"ledger overhead, d = {d}", with_ledger / without, 2.0, "recovery time with ledger= / without", figures)
    replay, _ = seconds_of(lambda: us.recover(oracle, learner, ledger=folder / "recovery-0.db"))
    yield Row(f"replay, d = {d}", replay / without, None, "recovery time from the ledger alone / without", {})
