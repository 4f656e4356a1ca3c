"""A log: recorded sequences and their answers. It answers nothing new, so no learner's program runs against it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np

from unsoftmax.arguments import real, whole
from unsoftmax.errors import InvalidArgument
from unsoftmax.probes.base import Array

_FORMATS = ("float64", "float32", "float16")
"""Number formats whose rounding an answer may carry, as in `us.oracle`."""


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
        return Log(self.tokens[rows], self.answers[records], sizes, self.table, self.tolerance, self.dtype)

    @classmethod
    def read(cls, path: str | Path, **declared: Any) -> Self:
        """A log from a .npz, .parquet, .jsonl or .ledger file; see `fitting.readers`.

        `declared`: table, tolerance and dtype, where the file does not hold them.
        """
        from unsoftmax.fitting.readers import read

        return cls(**(read(path) | {name: value for name, value in declared.items() if value is not None}))


def _numbers(name: str, value: Any) -> Array:
    if np.ma.is_masked(value):
        raise InvalidArgument(f"`{name}` must not be masked; leave such records out.")
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise InvalidArgument(f"`{name}` must be a rectangular array of numbers ({error}).") from error
    if array.dtype.kind not in "fiu":
        raise InvalidArgument(f"`{name}` must be real numbers (got dtype {array.dtype}).")
    array = array if array.dtype == np.float32 and name == "tokens" else array.astype(np.float64, copy=False)
    if not np.isfinite(array).all():
        raise InvalidArgument(f"`{name}` must be finite (got NaN or infinity); leave such records out.")
    return array


def _flat(tokens: Any, lengths: Any, ids: bool) -> tuple[Array, Array]:
    """Rows of all sequences one after the other, (total, d) or (total,), and lengths (n,)."""
    if lengths is None and isinstance(tokens, (list, tuple)):
        parts = [_rows(part, ids) for part in tokens]
        if not parts or min(map(len, parts)) < 1:
            raise InvalidArgument("every sequence needs at least one token.")
        if len({part.shape[1:] for part in parts}) > 1:
            raise InvalidArgument("all sequences must have tokens of one dimension.")
        return np.concatenate(parts), np.array([len(part) for part in parts], dtype=np.int64)
    rows = _ids(tokens) if ids else _numbers("tokens", tokens)
    flat = 1 if ids else 2
    if rows.ndim not in (flat, flat + 1):
        shapes = "(n, N) or (total,) ids" if ids else "(n, N, d) or (total, d) numbers"
        raise InvalidArgument(f"`tokens` must be {shapes}, or a list of sequences (got shape {rows.shape}).")
    if rows.ndim == flat and lengths is None:
        raise InvalidArgument(
            "`lengths` (n,) are needed to cut rows that stand one after the other; ids (n, N) need a `table` (V, d)."
        )
    if lengths is None:
        return rows.reshape(-1, *rows.shape[2:]), np.full(len(rows), rows.shape[1], dtype=np.int64)
    return _cut(rows, lengths, flat)


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
        wanted = "(N,) ids" if ids else "(N, d) numbers"
        raise InvalidArgument(f"every sequence in `tokens` must be {wanted} (got shape {rows.shape}).")
    return rows


def _ids(value: Any) -> Array:
    array = np.asarray(value)
    if array.dtype.kind not in "iu":
        raise InvalidArgument(f"`tokens` beside a `table` must be integer ids (got dtype {array.dtype}).")
    return array.astype(np.int64, copy=False)
