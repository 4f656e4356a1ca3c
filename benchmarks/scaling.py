"""Queries, time outside the target and peak memory against d, r, H and m, with fitted exponents.

Each series varies one size and keeps the others. The exponent of the queries is held against the closed form's own
exponent over the same sizes; those of time and memory are reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import unsoftmax as us
from benchmarks.base import Row, Timed, peak_memory, seconds_of

Line = dict[str, Any]


def rows(large: bool) -> Iterator[Row]:
    heads = (64, 128, 256, 512) if large else (64, 128, 256)
    yield from series("single head: d", heads, single_head)
    dims = (64, 256, 1024, 4096) if large else (64, 256, 1024)
    yield from series("rank 8: d", dims, lambda d: low_rank(d, 8))
    ranks = (2, 8, 32, 128) if large else (2, 8, 32)
    yield from series("d = 256: r", ranks, lambda r: low_rank(256, r))
    yield from series("d = 24: H", (1, 2, 4, 8) if large else (1, 2, 4), lambda H: multi_head(24, H))
    widths = (16, 64, 256, 512) if large else (16, 32, 64, 128)
    yield from series("d = 32: m", widths, lambda m: network(32, m))


def single_head(d: int) -> tuple[Any, Any, int]:
    return us.models.SingleHead.random(d, seed=d), us.learners.SingleHead(), us.theory.single_head_queries(d)


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
    yield Row(f"exponent of time, {name}", fitted["seconds"], None, "seconds outside the target grow with this power")
    yield Row(f"exponent of memory, {name}", fitted["MiB"], None, "peak MiB grows with this power")


def measured(name: str, size: int, target: Any, learner: Any, closed_form: int) -> Line:
    timed = Timed(target)
    total, recovery = seconds_of(lambda: us.recover(us.oracle(timed), learner))
    # Tracing slows every allocation: memory is measured in a run of its own.
    peak, _ = peak_memory(lambda: us.recover(us.oracle(target), learner))
    return {
        "series": name,
        "size": size,
        "queries": recovery.usage.billed,
        "closed form": closed_form,
        "seconds": max(total - timed.seconds, 1e-4),
        "MiB": peak,
    }


def exponent(sizes: Sequence[int], lines: Sequence[Line], column: str) -> float:
    """Slope in logarithms."""
    return float(np.polyfit(np.log(sizes), np.log([line[column] for line in lines]), 1)[0])
