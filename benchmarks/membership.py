"""Theorem B.1: labels per bit against the one-bit floor, and rounds."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

import unsoftmax as us
from benchmarks.base import Row, Timed


def rows(large: bool) -> Iterator[Row]:
    yield from full_rank(16, 1e-9, seeds=20)
    yield from full_rank(64, 1e-9, seeds=20 if large else 3)
    yield from full_rank(8, 1e-13, seeds=20)
    for rank in (4, None):
        yield from low_rank(64, 4, rank, 1e-9, seeds=20 if large else 3)


def recover(target: us.models.SingleHead, seed: int, **options: object) -> us.Recovery:
    oracle = us.oracle(Timed(target), kind="membership")
    return us.recover(oracle, us.learners.Membership(**options), seed=seed)  # type: ignore[arg-type]


def head(d: int, rank: int | None, seed: int) -> us.models.SingleHead:
    """Norm from 0.1 to 100, every other v half zeros."""
    norm = 10 ** np.random.default_rng(seed).uniform(-1, 2)
    return us.models.SingleHead.random(d, rank=rank, norm=norm, sparsity=0.5 * (seed % 2), seed=seed)


def full_rank(d: int, accuracy: float, seeds: int) -> Iterator[Row]:
    targets = [head(d, None, seed) for seed in range(seeds)]
    found = [recover(target, seed, accuracy=accuracy) for seed, target in enumerate(targets)]
    bar = 1.25 * us.theory.membership_floor(d, accuracy) + 20 * d
    yield from _rows(f"d = {d}, accuracy {accuracy:g}", targets, found, accuracy, bar, "1.25 floor + 20 d")


def low_rank(d: int, r: int, rank: int | None, accuracy: float, seeds: int) -> Iterator[Row]:
    targets = [head(d, r, seed) for seed in range(seeds)]
    found = [recover(target, seed, accuracy=accuracy, rank=rank) for seed, target in enumerate(targets)]
    bar = 1.4 * us.theory.low_rank_unknowns(d, r) * math.log2(1 / accuracy)
    name = f"d = {d}, r = {r} {'given' if rank else 'found'}, accuracy {accuracy:g}"
    yield from _rows(name, targets, found, accuracy, bar, "1.4 unknowns x bits")


def _rows(
    name: str, targets: list[us.models.SingleHead], found: list[us.Recovery], accuracy: float, bar: float, meaning: str
) -> Iterator[Row]:
    billed, rounds = max(f.usage.billed for f in found), max(f.usage.rounds for f in found)
    error = max(us.models.distance(f.model, t) for f, t in zip(found, targets, strict=True))
    allowed = 2 * math.log2(1 / accuracy) + 40
    yield Row(f"labels, {name}", billed / bar, 1.0, f"most billed / ({meaning})", {"billed": billed, "bar": bar})
    yield Row(f"rounds, {name}", rounds / allowed, 1.0, "most rounds / (2 bits + 40)", {"rounds": rounds})
    yield Row(f"error, {name}", error / accuracy, 1.0, "worst error / accuracy", {"worst": error})
