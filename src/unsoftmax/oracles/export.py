"""Ledgers as tables for other tools: CSV with every digit, Parquet with pyarrow."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from unsoftmax.oracles.ledger import Ledger
from unsoftmax.probes.base import Array


def to_csv(ledger: Ledger, path: str | Path) -> int:
    """phase, address (32 hexadecimal digits), answer_0, ... ; numbers read back to the same float64."""
    written = 0
    with open(path, "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        for phase, addresses, answers in _wide(ledger):
            if written == 0:
                table.writerow(["phase", "address", *_columns(answers)])
            for address, answer in zip(_names(addresses), answers.tolist(), strict=True):
                table.writerow([phase, address, *map(repr, answer)])
            written += len(answers)
    return written


def to_parquet(ledger: Ledger, path: str | Path) -> int:
    """The same columns; answers as doubles, one row group per chunk."""
    import pyarrow as pa
    from pyarrow import parquet

    written = 0
    writer = None
    try:
        for phase, addresses, answers in _wide(ledger):
            columns = {name: answers[:, i] for i, name in enumerate(_columns(answers))}
            table = pa.table({"phase": [phase] * len(answers), "address": _names(addresses), **columns})
            writer = writer or parquet.ParquetWriter(str(path), table.schema)
            writer.write_table(table)
            written += len(answers)
    finally:
        if writer is not None:
            writer.close()
    return written


def _wide(ledger: Ledger) -> Iterator[tuple[str, Array, Array]]:
    for phase, addresses, answers in ledger.chunks():
        yield phase, addresses, answers.reshape(len(addresses), -1)


def _columns(answers: Array) -> list[str]:
    return [f"answer_{i}" for i in range(answers.shape[1])]


def _names(addresses: Array) -> list[str]:
    return [np.ascontiguousarray(address).tobytes().hex() for address in addresses]
