"""Theorem 5.1: queries, error and time of the cross scheme; the nuclear-norm solver beside CVXPY."""

from __future__ import annotations

import resource
from collections.abc import Iterator

import numpy as np

import unsoftmax as us
from benchmarks.base import Row, Timed, seconds_of
from unsoftmax.solvers.rank_one import RankOne, nuclear_norm


def rows(large: bool) -> Iterator[Row]:
    for d, r in ((256, 8), (512, 16), (1024, 32)):
        yield from unknown_rank(d, r)
    yield conditioned()
    yield float32()
    yield from against_cvxpy(48, 2)
    if large:
        yield from large_head(4096, 128)


def unknown_rank(d: int, r: int) -> Iterator[Row]:
    """Billed queries, verification included, and error with the rank unknown; worst of three seeds."""
    billed, errors = [], []
    for seed in range(3):
        target = us.models.LowRankHead.random(d, r, seed=seed)
        recovery = us.recover(us.oracle(target), us.learners.LowRank(), seed=seed)
        billed.append(recovery.usage.billed)
        errors.append(us.models.distance(recovery.model, target))
    unknowns = us.theory.low_rank_unknowns(d, r)
    name = f"d = {d}, r = {r}"
    figures = {"billed": max(billed), "unknowns": unknowns}
    limit = (1.02 * unknowns + 2 * (r + 64)) / unknowns
    yield Row(f"queries, rank unknown, {name}", max(billed) / unknowns, limit, "billed / unknowns", figures)
    yield Row(f"error, rank unknown, {name}", max(errors) / 1e-10, 1.0, "worst relative error / 1e-10")


def conditioned() -> Row:
    rng = np.random.default_rng(0)
    K, Q = (np.linalg.qr(rng.standard_normal((512, 16)))[0] for _ in range(2))
    target = us.models.LowRankHead(K * np.geomspace(1, 1e-3, 16), Q, rng.standard_normal(512))
    error = us.models.distance(us.recover(us.oracle(target), us.learners.LowRank()).model, target)
    return Row("error, condition number 1000", error / 1e-9, 1.0, "relative error / 1e-9 at d = 512, r = 16")


def float32() -> Row:
    target = us.models.LowRankHead.random(512, 16, seed=0)
    oracle = us.oracle(target.astype("float32"), dtype="float32")
    error = us.models.distance(us.recover(oracle, us.learners.LowRank()).model, target)
    return Row("error, float32 target", error / 1e-3, 1.0, "relative error / 1e-3 at d = 512, r = 16")


def against_cvxpy(d: int, r: int) -> Iterator[Row]:
    """The same instance of the program of Theorem 5.1, ours and CVXPY's default conic route (SCS)."""
    try:
        import cvxpy as cp
    except ImportError:
        return
    rng = np.random.default_rng(0)
    W = rng.standard_normal((d, r)) @ rng.standard_normal((r, d)) / d
    m = us.theory.nuclear_norm_measurements(d, r)
    measurements = RankOne(rng.standard_normal((m, d)), rng.standard_normal((m, d)))
    t = measurements(W)
    ours, found = seconds_of(lambda: nuclear_norm(measurements, t))
    X = cp.Variable((d, d))
    seen = cp.sum(cp.multiply(measurements.A @ X, measurements.B), axis=1)
    theirs, _ = seconds_of(lambda: cp.Problem(cp.Minimize(cp.normNuc(X)), [seen == t]).solve(solver=cp.SCS))
    size = np.linalg.norm(W)
    figures = {
        "our_seconds": ours,
        "cvxpy_seconds": theirs,
        "our_error": float(np.linalg.norm(found.W - W) / size),
        "cvxpy_error": float(np.linalg.norm(X.value - W) / size),
    }
    yield Row(f"nuclear norm against CVXPY/SCS, d = {d}, r = {r}", ours / theirs, 0.1, "our time / CVXPY's", figures)


def large_head(d: int, r: int) -> Iterator[Row]:
    """A large model's head: over a million unknowns."""
    target = Timed(us.models.LowRankHead.random(d, r, seed=0))
    total, recovery = seconds_of(lambda: us.recover(us.oracle(target), us.learners.LowRank()))
    error = us.models.distance(recovery.model, target.target)
    figures = {
        "total_seconds": total,
        "target_seconds": target.seconds,
        "billed": recovery.usage.billed,
        "unknowns": us.theory.low_rank_unknowns(d, r),
        "rank": recovery.model.rank,
        "error": error,
    }
    name = f"d = {d}, r = {r}"
    yield Row(f"time, {name}", total / target.seconds, 1.5, "recovery time / time inside the bare target", figures)
    yield Row(f"error, {name}", error / 1e-10, 1.0, "relative error / 1e-10")
    # The whole process, whatever ran before: an upper bound that costs no second run of minutes.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    yield Row(f"peak memory, {name}", peak / 4, 1.0, "peak GiB of the process / 4 GiB", {"peak_gib": peak})
