"""Queries, time outside the target and peak memory against d, r, H and m, with fitted exponents.

Each series varies one size and keeps the others. The exponent of the queries is held against the closed form's own
exponent over the same sizes; those of time and memory are reported.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import unsoftmax as us
from benchmarks.base import Row, Timed, peak_memory, seconds_of

_LONG = 100_000
"""Queries of a run that is measured once."""
_RUNS = 3

Line = dict[str, Any]


def rows(large: bool) -> Iterator[Row]:
    heads = (64, 128, 256, 512, 1024, 2048, 4096) if large else (64, 128, 256, 512)
    yield from series("full head: d", heads, full_head)
    dims = (64, 256, 1024, 4096) if large else (64, 256, 1024)
    yield from series("rank 8: d", dims, lambda d: low_rank(d, 8))
    if large:
        yield from series("rank 64: d", (128, 512, 2048, 4096), lambda d: low_rank(d, 64))
    d, ranks = (1024, (2, 8, 32, 128, 256)) if large else (256, (2, 8, 32))
    yield from series(f"d = {d}: r", ranks, lambda r: low_rank(d, r))
    yield from series("d = 24: H", (1, 2, 4, 8) if large else (1, 2, 4), lambda H: multi_head(24, H))
    yield from series("H = 4: d", (8, 16, 32, 64, 128) if large else (8, 16, 32), lambda d: multi_head(d, 4))
    widths = (16, 64, 256, 1024) if large else (16, 32, 64, 128)
    yield from series("network, d = 32: m", widths, lambda m: network(32, m))
    yield from series("network, m = 64: d", (16, 64, 256) if large else (16, 32, 64), lambda d: network(d, 64))


def full_head(d: int) -> tuple[Any, Any, int]:
    """All d^2 + d unknowns asked for. That W has rank 8 is not used: it keeps the target, which is not timed, cheap."""
    return us.models.LowRankHead.random(d, 8, seed=d), us.learners.SingleHead(), us.theory.single_head_queries(d)


def low_rank(d: int, r: int) -> tuple[Any, Any, int]:
    return us.models.LowRankHead.random(d, r, seed=d), us.learners.LowRank(), us.theory.low_rank_queries(d, r)


def multi_head(d: int, H: int) -> tuple[Any, Any, int]:
    return us.models.MultiHead.random(d, H, seed=H), us.learners.MultiHead(), us.theory.multi_head_queries(d, H)


def network(d: int, m: int) -> tuple[Any, Any, int]:
    unknowns = us.theory.relu_network_unknowns(d, m)
    return us.models.ReluNetwork.random(d, m, seed=m), us.learners.ReluNetwork(), unknowns


def series(name: str, sizes: Sequence[int], case: Callable[[int], tuple[Any, Any, int]]) -> Iterator[Row]:
    lines = [measured(name, size, *case(size)) for size in sizes]
    fitted = {column: exponent(sizes, lines, column) for column in ("queries", "seconds", "MiB", "closed form")}
    figures = {"lines": lines, "exponents": fitted}
    excess = max(line["queries"] / line["closed form"] for line in lines[-1:])
    gap = abs(fitted["queries"] - fitted["closed form"])
    meaning = f"|exponent {fitted['queries']:.2f} - closed form's {fitted['closed form']:.2f}| / 0.25"
    yield Row(f"exponent of queries, {name}", gap / 0.25, 1.0, meaning, figures)
    yield Row(f"queries at the largest size, {name}", excess, None, "billed / closed form")
    yield Row(
        f"exponent of time, {name}",
        fitted["seconds"],
        None,
        "processor seconds outside the target grow with this power",
    )
    yield Row(f"exponent of memory, {name}", fitted["MiB"], None, "peak MiB grows with this power")


def measured(name: str, size: int, target: Any, learner: Any, closed_form: int) -> Line:
    def run() -> tuple[float, Any]:
        # Processor time: runs of minutes are not alone on a machine.
        timed = Timed(target, time.process_time)
        total, recovery = seconds_of(lambda: us.recover(us.oracle(timed), learner), time.process_time)
        return total - timed.seconds, recovery

    if closed_form > _LONG:
        # Few large allocations: tracing them is not felt, and a second run would be.
        peak, (outside, recovery) = peak_memory(run)
    else:
        outside, recovery = min((run() for _ in range(_RUNS)), key=lambda one: one[0])
        peak, _ = peak_memory(run)
    return {
        "series": name,
        "size": size,
        "queries": recovery.usage.billed,
        "closed form": closed_form,
        "seconds": max(outside, 1e-4),
        "MiB": peak,
    }


def exponent(sizes: Sequence[int], lines: Sequence[Line], column: str) -> float:
    """Slope in logarithms."""
    return float(np.polyfit(np.log(sizes), np.log([line[column] for line in lines]), 1)[0])
