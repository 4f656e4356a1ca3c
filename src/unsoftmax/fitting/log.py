"""A log: recorded sequences and their answers. It answers nothing new, so no learner's program runs against it.

Logs from files: the fields of `Log` out of .npz, Parquet, JSON lines or a ledger.

.npz      arrays tokens (or ids), answers, and lengths, table, tolerance, dtype where they are needed
Parquet   one row per record: column tokens (list of lists of numbers) or ids (list of integers), column answer
.ledger   the ledger of a recovery that kept its tokens
.jsonl    one object per line: {"tokens": [[...], ...], "answer": 0.5} or {"ids": [...], "answer": [...]}
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from zipfile import BadZipFile

import numpy as np

from unsoftmax.arguments import real, whole
from unsoftmax.errors import FileFormatError, InvalidArgument, UnsoftmaxError
from unsoftmax.oracles.ledger import Ledger
from unsoftmax.probes.base import Array

_FORMATS = ("float64", "float32", "float16")
"""Number formats whose rounding an answer may carry, as in `us.oracle`."""

_JUNK = (ValueError, KeyError, TypeError, EOFError, MemoryError, RuntimeError, BadZipFile, zlib.error)
"""What bytes that are no log raise: cut or changed archives, members that are encrypted or packed in another way
(RuntimeError, of which deep nesting is one, too)."""


@dataclass(frozen=True, eq=False)
class Log:
    """n recorded sequences and what was answered; the last row of a sequence is its query token.

    `tokens`: vectors (n, N, d), or integer ids (n, N) with `table` (V, d); or a list of sequences of different
    lengths, (N_i, d) or (N_i,) each; or all rows one after the other, (sum N_i, d) or (sum N_i,), with `lengths`.
    `lengths` (n,): of a padded array the first lengths[i] rows of sequence i count. `answers`: (n,) or (n, outputs).
    `tolerance`: the declared noise, as a standard deviation (a bound serves as well); None if none is declared.
    `dtype`: the number format the answers were computed in.
    Kept flat: `tokens` holds the rows of all sequences, ids stay ids and are looked up in blocks.
    """

    tokens: Any
    answers: Any
    lengths: Any = None
    table: Any = None
    tolerance: float | None = None
    dtype: str = "float64"
    notes: tuple[str, ...] = ()
    """What is to be said about these records, beside every result."""
    starts: Array = field(init=False, repr=False)
    """(n,): the row of `tokens` where each sequence begins."""

    def __post_init__(self) -> None:
        if not isinstance(self.dtype, str) or self.dtype not in _FORMATS:
            raise InvalidArgument(f"`dtype` must be 'float64', 'float32' or 'float16' (got {self.dtype!r}).")
        if self.tolerance is not None:
            real("tolerance", self.tolerance, closed=True)
            if not np.isfinite(self.tolerance):
                raise InvalidArgument("`tolerance` must be finite (got inf); leave it out if the noise is not known.")
        answers = _numbers("answers", self.answers)
        if answers.ndim not in (1, 2) or not answers.size:
            raise InvalidArgument(f"`answers` must have shape (n,) or (n, outputs), n >= 1 (got {answers.shape}).")
        table = None if self.table is None else _numbers("table", self.table)
        if table is not None and (table.ndim != 2 or not table.size):
            raise InvalidArgument(f"`table` must have shape (V, d) (got {table.shape}).")
        rows, lengths = _flat(self.tokens, self.lengths, ids=table is not None)
        if len(lengths) != len(answers):
            raise InvalidArgument(
                f"every sequence needs one answer (got {len(lengths)} sequences and {len(answers)} answers)."
            )
        if table is not None and (rows.min() < 0 or rows.max() >= len(table)):
            raise InvalidArgument(f"ids must lie in 0..{len(table) - 1} (got {rows.min()}..{rows.max()}).")
        starts = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64)
        for name, value in (("tokens", rows), ("answers", answers), ("lengths", lengths), ("table", table)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "starts", starts)

    def __len__(self) -> int:
        return len(self.answers)

    @property
    def dim(self) -> int:
        """Dimension d of a token."""
        return int((self.tokens if self.table is None else self.table).shape[1])

    @property
    def outputs(self) -> int | None:
        """Width of the answers; None for scalar ones."""
        return None if self.answers.ndim == 1 else int(self.answers.shape[1])

    def vectors(self, rows: Array) -> Array:
        """Tokens (..., d) at places `rows` of the flat list, in float64."""
        found = self.tokens[rows] if self.table is None else self.table[self.tokens[rows]]
        return np.asarray(found, dtype=np.float64)

    @property
    def queries(self) -> Array:
        """Query tokens (n, d)."""
        return self.vectors(self.starts + self.lengths - 1)

    def take(self, records: Array) -> Log:
        """The log of these records (k,) alone, in this order."""
        whole("records", len(records))
        records = np.asarray(records)
        sizes = self.lengths[records]
        ends = np.cumsum(sizes)
        rows = np.arange(ends[-1]) - np.repeat(ends - sizes, sizes) + np.repeat(self.starts[records], sizes)
        return Log(self.tokens[rows], self.answers[records], sizes, self.table, self.tolerance, self.dtype, self.notes)

    @classmethod
    def read(cls, path: str | Path, **declared: Any) -> Self:
        """A log from a .npz, .parquet, .jsonl or .ledger file; see `read` in `fitting.log`.

        `declared`: table, tolerance and dtype, where the file does not hold them.
        """
        return cls(**(read(path) | {name: value for name, value in declared.items() if value is not None}))


def _numbers(name: str, value: Any, finite: bool = True) -> Array:
    if np.ma.is_masked(value):
        raise InvalidArgument(f"`{name}` must not be masked; leave such records out.")
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise InvalidArgument(f"`{name}` must be a rectangular array of numbers ({error}).") from error
    if array.dtype.kind not in "fiu":
        raise InvalidArgument(f"`{name}` must be real numbers (got dtype {array.dtype}).")
    array = array if array.dtype == np.float32 and name == "tokens" else array.astype(np.float64, copy=False)
    if finite and not np.isfinite(array).all():
        raise InvalidArgument(f"`{name}` must be finite (got NaN or infinity); leave such records out.")
    return array


def _flat(tokens: Any, lengths: Any, ids: bool) -> tuple[Array, Array]:
    """Rows of all sequences one after the other, (total, d) or (total,), and lengths (n,)."""
    if lengths is None and isinstance(tokens, (list, tuple)):
        parts = [_rows(part, ids) for part in tokens]
        if not parts or min(map(len, parts)) < 1:
            raise InvalidArgument("every sequence needs at least one token.")
        if 0 in parts[0].shape[1:]:
            raise InvalidArgument("`tokens` must have at least one dimension (got 0).")
        if len({part.shape[1:] for part in parts}) > 1:
            raise InvalidArgument("all sequences must have tokens of one dimension.")
        return np.concatenate(parts), np.array([len(part) for part in parts], dtype=np.int64)
    # Padding counts for nothing, whatever numbers it is made of: what is left must be finite.
    rows = _ids(tokens) if ids else _numbers("tokens", tokens, finite=lengths is None)
    flat = 1 if ids else 2
    if 0 in rows.shape:
        raise InvalidArgument(f"`tokens` must hold at least one token of at least one dimension (got {rows.shape}).")
    if rows.ndim not in (flat, flat + 1):
        shapes = "(n, N) or (total,) ids" if ids else "(n, N, d) or (total, d) numbers"
        raise InvalidArgument(f"`tokens` must be {shapes}, or a list of sequences (got shape {rows.shape}).")
    if rows.ndim == flat and lengths is None:
        raise InvalidArgument(
            "`lengths` (n,) are needed to cut rows that stand one after the other; ids (n, N) need a `table` (V, d)."
        )
    if lengths is None:
        return rows.reshape(-1, *rows.shape[2:]), np.full(len(rows), rows.shape[1], dtype=np.int64)
    rows, lengths = _cut(rows, lengths, flat)
    return rows if ids else _numbers("tokens", rows), lengths


def _cut(rows: Array, lengths: Any, flat: int) -> tuple[Array, Array]:
    lengths = np.asarray(lengths)
    if lengths.ndim != 1 or lengths.dtype.kind not in "iu" or not len(lengths) or lengths.min() < 1:
        raise InvalidArgument("`lengths` must be (n,) whole numbers of at least 1.")
    lengths = lengths.astype(np.int64)
    if rows.ndim == flat:
        if lengths.sum() != len(rows):
            raise InvalidArgument(f"`lengths` must add up to the {len(rows)} rows given (got {lengths.sum()}).")
        return rows, lengths
    if len(lengths) != len(rows) or lengths.max() > rows.shape[1]:
        raise InvalidArgument(
            f"`lengths` must be {len(rows)} numbers up to {rows.shape[1]} (got {len(lengths)}, up to {lengths.max()})."
        )
    return rows[np.arange(rows.shape[1]) < lengths[:, None]], lengths


def _rows(part: Any, ids: bool) -> Array:
    rows = _ids(part) if ids else _numbers("tokens", part)
    if rows.ndim != (1 if ids else 2):
        wanted = "(N,) ids" if ids else "(N, d) numbers, or ids with a `table` (V, d)"
        raise InvalidArgument(f"every sequence in `tokens` must be {wanted} (got shape {rows.shape}).")
    return rows


def _ids(value: Any) -> Array:
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise InvalidArgument(f"ids must be a rectangular array of whole numbers ({error}).") from error
    if array.dtype.kind not in "iu":
        raise InvalidArgument(f"`tokens` beside a `table` must be integer ids (got dtype {array.dtype}).")
    return array.astype(np.int64, copy=False)


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
        try:
            tokens.append(_ids(record[kind]) if kind == "ids" else _numbers(f"tokens of record {number}", record[kind]))
            answers.append(_numbers(f"answer of record {number}", record["answer"]))
        except InvalidArgument as error:
            raise FileFormatError(f"{path}: {error}") from error
        if answers[-1].shape != answers[0].shape:
            raise FileFormatError(f"{path}: the answer of record {number} is of another shape than that of the first.")
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
    kept = f"The ledger keeps the sequences of {len(tokens)} of its {total} answers: the others are not in this log."
    notes = (f"{kept} Record with keep_tokens=True (--keep-tokens).",) if len(tokens) < total else ()
    return {"tokens": tokens, "answers": np.concatenate(answers), "notes": notes}


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with open(path, encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            try:
                if line.strip():
                    yield json.loads(line)
            except json.JSONDecodeError as error:
                raise FileFormatError(f"{path}: line {number} is no JSON object ({error.msg}).") from error


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
