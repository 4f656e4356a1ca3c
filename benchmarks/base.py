"""A benchmark row: one ratio, what it may be, and the figures behind it."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Row:
    """`ratio` should not exceed `limit` (None: reported only). `figures` are the raw numbers it came from."""

    name: str
    ratio: float
    limit: float | None
    meaning: str
    figures: dict[str, Any] = field(default_factory=dict)

    @property
    def met(self) -> bool | None:
        return None if self.limit is None else self.ratio <= self.limit


class Timed:
    """A target that knows how long it worked and how many sequences it received."""

    accepts_counts = True

    def __init__(self, target: Any, clock: Callable[[], float] = time.perf_counter) -> None:
        self.target, self.clock, self.seconds, self.received = target, clock, 0.0, 0
        self.dim, self.outputs = target.dim, getattr(target, "outputs", None)

    def __call__(self, tokens: Any, counts: Any = None) -> Any:
        start = self.clock()
        answer = self.target(tokens, counts)
        self.seconds += self.clock() - start
        self.received += len(tokens)
        return answer


def seconds_of(work: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> tuple[float, Any]:
    """Wall-clock seconds (or another clock's) of a call and its value."""
    start = clock()
    value = work()
    return clock() - start, value


def peak_memory(work: Callable[[], Any]) -> tuple[float, Any]:
    """Peak MiB allocated by a call (numpy included) and its value; slows the call a little, so time it apart."""
    tracemalloc.start()
    try:
        value = work()
        return tracemalloc.get_traced_memory()[1] / 2**20, value
    finally:
        tracemalloc.stop()
