"""The one-method oracle. Sources and semantic wrappers implement it; metering works on streams of chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, runtime_checkable

import numpy as np

from unsoftmax.errors import OracleError
from unsoftmax.probes.base import Array, Probes
from unsoftmax.spec import OracleSpec


@runtime_checkable
class Oracle(Protocol):
    """Answers a chunk of sequences: (batch,) or (batch, outputs) float64. Pure: no counting, no caching."""

    @property
    def spec(self) -> OracleSpec: ...

    def __call__(self, probes: Probes) -> Array: ...


def of_source(oracle: Oracle, name: str, default: Any) -> Any:
    """An attribute of the target behind the wrappers (`concurrency`, `remote`), or the default."""
    layer: Any = oracle
    while layer is not None:
        if hasattr(layer, name):
            return getattr(layer, name)
        layer = getattr(layer, "inner", None) or getattr(layer, "fn", None)
    return default


def answered(fn: Callable[..., Any], probes: Probes) -> Array:
    """Answers of fn (batch, N, d) -> (batch, ...), which with `accepts_counts = True` is called as fn(tokens, counts).

    For others copies are written out; sequences of one length go together, for fn wants a rectangular array.
    """
    if getattr(fn, "accepts_counts", False):
        return np.asarray(fn(probes.tokens, probes.counts))
    if probes.counts is None:
        return np.asarray(fn(probes.tokens))
    lengths = probes.lengths
    parts: list[tuple[Array, Array]] = []
    for length in np.unique(lengths):
        rows = np.flatnonzero(lengths == length)
        expanded = np.stack([np.repeat(probes.tokens[i], probes.counts[i], axis=0) for i in rows])
        part = np.array(fn(expanded))  # a copy: the next length may be answered in the same buffer
        if part.shape[:1] != (len(rows),):
            raise OracleError(f"the target answered with shape {part.shape} for {len(rows)} sequences.")
        parts.append((rows, part))
    answer = np.empty((len(probes), *parts[0][1].shape[1:]), dtype=parts[0][1].dtype)
    for rows, part in parts:
        answer[rows] = part
    return answer


def is_real(answer: Array) -> bool:
    """Whether an answer holds numbers or booleans: not complex numbers, text or None."""
    return answer.dtype.kind in "fiub"


class Stage(Protocol):
    """One stage of the metered stack: consumes chunks in order, gives their answers in the same order.

    Streams, not calls, so that an executor can work ahead, an answer is recorded the moment it arrives, and a
    failure in chunk k leaves chunks 0..k-1 paid for and kept.
    """

    def ask(self, chunks: Iterable[Probes]) -> Iterator[Array]: ...
