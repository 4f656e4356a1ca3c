"""Logs from files: the fields of `Log` out of .npz, Parquet, JSON lines or a ledger.

.npz      arrays tokens (or ids), answers, and lengths, table, tolerance, dtype where they are needed
Parquet   one row per record: column tokens (list of lists of numbers) or ids (list of integers), column answer
.ledger   the ledger of a recovery that kept its tokens
.jsonl    one object per line: {"tokens": [[...], ...], "answer": 0.5} or {"ids": [...], "answer": [...]}
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from unsoftmax.errors import FileFormatError, UnsoftmaxError
from unsoftmax.oracles.ledger import Ledger

_JUNK = (ValueError, KeyError, TypeError, EOFError, MemoryError, RuntimeError, BadZipFile, zlib.error)
"""What bytes that are no log raise: cut or changed archives, members that are encrypted or packed in another way
(RuntimeError, of which deep nesting is one, too)."""


def read(path: str | Path) -> dict[str, Any]:
    """Arguments of `Log` from a file, by its suffix; only typed errors whatever the bytes."""
    path = Path(path)
    try:
        match path.suffix.lower():
            case ".npz":
                return _arrays(path)
            case ".parquet":
                return _records(path, _parquet(path))
            case ".jsonl" | ".ndjson":
                return _records(path, _lines(path))
            case ".ledger":
                return _ledger(path)
            case other:
                raise FileFormatError(
                    f"{path} has the suffix {other!r}; logs are read from .npz, .parquet, .jsonl and .ledger files."
                )
    except OSError as error:
        raise FileFormatError(f"{path} cannot be read ({error.strerror or error}); check the path.") from error
    except _JUNK as error:
        raise FileFormatError(f"{path} does not hold a log ({error}).") from error


def _arrays(path: Path) -> dict[str, Any]:
    names = {"tokens", "answers", "lengths", "table", "tolerance", "dtype"}
    with np.load(path, allow_pickle=False) as file:
        found = {name: file[name] for name in file.files}
    if "ids" in found:
        found["tokens"] = found.pop("ids")
    missing, foreign = {"tokens", "answers"} - found.keys(), found.keys() - names
    if missing or foreign:
        wrong = [f"lacks {', '.join(sorted(missing))}"] * bool(missing)
        wrong += [f"has {', '.join(sorted(foreign))} beside it"] * bool(foreign)
        raise FileFormatError(f"{path} {' and '.join(wrong)}; a log has arrays tokens (or ids) and answers.")
    return {name: value.item() if value.ndim == 0 else value for name, value in found.items()}


def _records(path: Path, records: Iterator[dict[str, Any]]) -> dict[str, Any]:
    tokens, answers, kinds = [], [], set()
    for number, record in enumerate(records, 1):
        kind = "ids" if isinstance(record, dict) and "ids" in record else "tokens"
        if not isinstance(record, dict) or kind not in record or "answer" not in record:
            raise FileFormatError(f"{path}: record {number} lacks tokens (or ids) or answer.")
        kinds.add(kind)
        tokens.append(np.asarray(record[kind]))
        answers.append(record["answer"])
    if len(kinds) != 1:
        raise FileFormatError(f"{path} must hold records of one kind, tokens or ids (got {len(tokens)} records).")
    return {"tokens": tokens, "answers": np.array(answers)}


def _ledger(path: Path) -> dict[str, Any]:
    """Sequences and answers of a ledger that keeps its tokens, copies of a row written out."""
    if not path.is_file():
        raise FileFormatError(f"{path} cannot be read (no such file); check the path.")
    tokens: list[Any] = []
    answers: list[Any] = []
    with Ledger(path) as ledger:
        total = len(ledger)
        for asked, counts, answered in ledger.records():
            copies = np.ones(asked.shape[:2], dtype=np.int64) if counts is None else counts
            tokens += [np.repeat(rows, n, axis=0) for rows, n in zip(asked, copies, strict=True)]
            answers.append(answered)
    if not tokens:
        raise FileFormatError(
            f"{path} keeps {total} answers without their sequences; record with keep_tokens=True (--keep-tokens)."
        )
    return {"tokens": tokens, "answers": np.concatenate(answers)}


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with open(path, encoding="utf-8-sig") as file:
        for line in file:
            if line.strip():
                yield json.loads(line)


def _parquet(path: Path) -> Iterator[dict[str, Any]]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise UnsoftmaxError('Parquet files need the extra "parquet": pip install "unsoftmax[parquet]".') from error
    try:
        file = parquet.ParquetFile(path)
        for batch in file.iter_batches():
            yield from batch.to_pylist()
    except ArrowException as error:
        raise FileFormatError(f"{path} is not a Parquet file ({error}).") from error
