"""Theorem 4.1: time against the bare target's, memory, error against the bar, and the coordinate baseline beside it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import unsoftmax as us
from benchmarks.base import Row, Timed, peak_memory, seconds_of


def rows(large: bool) -> Iterator[Row]:
    yield time_ratio(256, limit=1.5)
    yield time_ratio(1024, limit=1.3)
    yield memory_ratio(1024)
    yield from errors()


def time_ratio(d: int, limit: float) -> Row:
    """Total time of a recovery over the time its target spent answering those very probes; best of three or one."""
    runs = []
    for _ in range(3 if d <= 256 else 1):
        target = Timed(us.models.SingleHead.random(d, seed=d))
        total, recovery = seconds_of(lambda target=target: us.recover(us.oracle(target), us.learners.SingleHead()))
        runs.append((total / target.seconds, total, target.seconds, recovery.usage.billed))
    ratio, total, bare, billed = min(runs)
    figures = {"total_seconds": total, "target_seconds": bare, "queries": billed}
    return Row(f"time, d = {d}", ratio, limit, "recovery time / time inside the bare target", figures)


def memory_ratio(d: int) -> Row:
    target = us.models.SingleHead.random(d, seed=d)
    peak, _ = peak_memory(lambda: us.recover(us.oracle(target), us.learners.SingleHead()))
    return Row(f"peak memory, d = {d}", peak / 1536, 1.0, "peak MiB / 1536 MiB", {"peak_mib": peak})


def errors() -> Iterator[Row]:
    """Worst error of both probe designs on the same targets; the baseline's failures are shown, not hidden."""
    for probes in ("householder", "coordinate"):
        for kind in ("dense", "sparse", "tiny entries"):
            found = [error(probes, kind, norm, seed) for norm in (1e-3, 1.0, 1e3) for seed in range(5)]
            solved = [e for e in found if e is not None]
            yield Row(
                f"error, {probes}, v {kind}",
                max(solved, default=np.nan) / 1e-13 if len(solved) == len(found) else np.inf,
                1.0 if probes == "householder" else None,
                "worst relative error / 1e-13 at d = 64 over |W| = 1e-3, 1, 1e3 (inf: a run was refused)",
                {"refused": len(found) - len(solved), "runs": len(found), "worst": max(solved, default=None)},
            )


def error(probes: str, kind: str, norm: float, seed: int) -> float | None:
    target = us.models.SingleHead.random(64, norm=norm, sparsity=0.9 if kind == "sparse" else 0.0, seed=seed)
    if kind == "tiny entries":
        target = us.models.SingleHead(target.W, target.v * np.geomspace(1, 1e-9, 64))
    try:
        found = us.recover(us.oracle(target), us.learners.SingleHead(probes))
    except us.errors.UnsoftmaxError:
        return None
    return us.models.distance(found.model, target)
