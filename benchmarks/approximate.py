"""Bars of approximate answers: Theorem 6.1, the default against it, stated bounds, number formats, cost of averages.

`python -m benchmarks.approximate --seed 5000` measures all of them on targets of one's own choice. Every target refuses
tokens outside its declared domain.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import unsoftmax as us
from benchmarks.base import Row
from unsoftmax.learners.core.noise import known_noise, sigmas
from unsoftmax.oracles.stack import Stack
from unsoftmax.run.engine import run

Head = us.models.SingleHead
Errors = Callable[[Head, Any, Any], Any]


def head_of(dim: int, norm: float, seed: int, zeros: int = 0) -> Head:
    """Gaussian W with ||W||_F = norm, v uniform on the unit sphere, its first `zeros` entries 0."""
    rng = np.random.default_rng([seed, dim])
    W, v = rng.standard_normal((dim, dim)), rng.standard_normal(dim)
    v[:zeros] = 0
    return Head(W * (norm / np.linalg.norm(W)), v / np.linalg.norm(v))


def inflating(head: Head, tokens: Any, f: Any) -> Any:
    """Signs that make v longer and scores larger."""
    if tokens.shape[1] == 1:
        return np.sign(f)
    gap = np.einsum("bd,de,be->b", tokens[:, 0] - tokens[:, -1], head.W, tokens[:, -1])
    return np.sign(gap * ((tokens[:, 0] - tokens[:, -1]) @ head.v))


ADVERSARIES: list[Errors] = [
    inflating,
    lambda head, tokens, f: -inflating(head, tokens, f),
    lambda head, tokens, f: np.ones(len(f)),
    lambda head, tokens, f: np.sign(f) if tokens.shape[1] == 1 else -inflating(head, tokens, f),
]


def noisy(head: Head, tau: float, limit: float | None, errors: Errors | None, seed: int, declared: float) -> Any:
    """An oracle off by +-tau, signs by `errors` or at random, that refuses tokens beyond `limit`."""
    rng = np.random.default_rng(seed)

    def service(tokens: Any) -> Any:
        assert limit is None or np.linalg.norm(tokens, axis=2).max() <= limit * (1 + 1e-15)
        f = head(tokens)
        return f + tau * (rng.uniform(-1, 1, len(f)) if errors is None else errors(head, tokens, f))

    return us.oracle(service, head.dim, "approximate", tolerance=declared, max_norm=limit)


def wrong(recovery: us.Recovery, head: Head) -> tuple[float, float]:
    return float(np.linalg.norm(recovery.model.W - head.W)), float(np.linalg.norm(recovery.model.v - head.v))


def stated(recovery: us.Recovery) -> tuple[float, float]:
    found = {claim.name: claim.bound for claim in recovery.certificate.claims}
    return found["error of W"], found["error of v"]


def theorem_6_1(seeds: range) -> Iterator[Row]:
    for name, adversaries in (("random", [None]), ("adversarial", ADVERSARIES)):
        worst = 0.0
        for seed in seeds:
            dim, zeros, eps = 8 + seed % 25, seed % 4, (0.05, 0.5, 0.9)[seed % 3]
            head = head_of(dim, 2.0, seed, zeros)
            v = np.sign(head.v) * np.maximum(np.abs(head.v), 0.5 / dim)
            head = Head(head.W, v / np.linalg.norm(v))
            margin = float(np.abs(head.v[head.v != 0]).min())
            tau = us.theory.approximate_tolerance(dim, 2.0, margin, eps, eps, zeros=zeros > 0)
            learner = us.learners.Approximate(method="paper", W_bound=2.0, margin=margin, accuracy=eps)
            oracle = noisy(head, tau, None, adversaries[seed % len(adversaries)], seed, tau)
            worst = max(worst, *(e / eps for e in wrong(us.recover(oracle, learner, seed=seed), head)))
        yield Row(f"Theorem 6.1, {name} errors", worst, 1.0, f"largest error / eps, {len(seeds)} targets, d = 8..32")


def against_the_paper(dim: int, norm: float, least: float, seeds: range) -> Row:
    gains = []
    for seed in seeds:
        head = head_of(dim, norm, seed)
        oracle = noisy(head, 1e-5, 1.0, ADVERSARIES[seed % 4], seed, 1e-5)
        paper = us.learners.Approximate(method="paper", W_bound=norm, margin=float(np.abs(head.v).min()))
        ours, theirs = (us.recover(oracle, which, verify=False) for which in (us.learners.Approximate(), paper))
        assert ours.usage.billed == theirs.usage.billed
        gains.append(wrong(theirs, head)[0] / wrong(ours, head)[0])
    gain = float(np.median(gains))
    return Row(f"default against paper, d = {dim}", least / gain, 1.0, f"{least:g} / median gain", {"gain": gain})


def unlimited(seeds: range) -> Row:
    worst = 0.0
    for seed in seeds:
        head = head_of(32, 4.0, seed)
        oracle = noisy(head, 1e-3, None, ADVERSARIES[seed % 4], seed, 1e-3)
        worst = max(worst, *wrong(us.recover(oracle, us.learners.Approximate(), seed=seed), head))
    return Row("unlimited norms, d = 32", worst / 1e-8, 1.0, f"largest error / 1e-8, tau = 1e-3, {len(seeds)} targets")


def bounds(seeds: range) -> Iterator[Row]:
    worst, loose = 0.0, []
    for seed in seeds:
        rng = np.random.default_rng([seed, 1])
        head = head_of(int(rng.integers(1, 25)), 10 ** rng.uniform(-1, 1.5), seed)
        tau, limit = 10 ** rng.uniform(-9, -4), (None, 1.0, 3.0)[seed % 3]
        errors = (None, *ADVERSARIES)[seed % 5]
        declared = tau if errors is not None or seed % 2 else 0.0
        recovery = us.recover(noisy(head, tau, limit, errors, seed, declared), us.learners.Approximate(), seed=seed)
        ratios = [e / b for e, b in zip(wrong(recovery, head), stated(recovery), strict=True)]
        worst, loose = max(worst, *ratios), [*loose, 1 / ratios[0]]
    yield Row("stated bounds", worst, 1 + 1e-9, f"largest error / bound over {len(seeds)} noisy targets")
    yield Row("stated bounds, how loose", float(np.median(loose)) / 100, 1.0, "median bound / error, over 100")


def formats(seeds: range) -> Iterator[Row]:
    kinds: dict[str, Callable[[Any], Any]] = {
        **{f"{k} decimals": lambda f, k=k: np.round(f, k) for k in (3, 6, 9)},
        "float32": lambda f: f.astype(np.float32).astype(float),
        "float16": lambda f: f.astype(np.float16).astype(float),
    }
    for name, kept in kinds.items():
        worst = over = 0.0
        for seed in seeds:
            d, limit = (4, 8, 16, 32)[seed % 4], (1.0, None)[seed // 4 % 2]
            head = head_of(d, 3.0, seed)
            oracle = us.oracle(lambda X, head=head, kept=kept: kept(head(X)), d, max_norm=limit)
            recovery = us.recover(oracle, us.learners.Approximate(), seed=seed)
            noise, _, _ = run(known_noise(oracle.spec, np.random.default_rng(seed)), Stack(oracle))
            if limit is None:
                predicted = 3 * math.sqrt(3) * 3.0 * noise.relative / sigmas(d)
            else:
                error = (noise.absolute + noise.relative * limit / math.sqrt(3)) / sigmas(d)
                predicted = us.theory.norm_budget_error(d, error, limit, 1.0)
            error_W, error_v = wrong(recovery, head)
            worst = max(worst, error_W / predicted)
            over = max(over, error_W / stated(recovery)[0], error_v / stated(recovery)[1])
        yield Row(f"{name}, undeclared", worst / 10, 1.0, "largest error / what noise floor and design predict / 10")
        yield Row(f"{name}, stated", over, 1.0, "largest error / stated bound")


def averages(seeds: range) -> Iterator[Row]:
    over, worst, reached = 0.0, 0.0, []
    for seed in seeds:
        d, norm = ((2, 10.0), (4, 3.0), (6, 2.0), (12, 6.0))[seed % 4]
        head = head_of(d, norm, seed)
        rng = np.random.default_rng(seed)
        oracle = us.oracle(
            lambda X, head=head, rng=rng: head(X) + 1e-3 * rng.standard_normal(len(X)),
            d,
            "approximate",
            tolerance=1e-3,
            max_norm=1.0,
        )
        learner = us.learners.Approximate(accuracy=0.03, W_bound=norm, margin=0.99)
        recovery, forecast = us.recover(oracle, learner, seed=seed), learner.forecast(oracle.spec)
        spent = recovery.usage.billed - recovery.usage.phases["verify"]
        over = max(over, spent / (forecast.minimum + (forecast.extra or 0)))
        worst = max(worst, *(e / b for e, b in zip(wrong(recovery, head), stated(recovery), strict=True)))
        reached.append(stated(recovery)[0] / 0.03)
    yield Row("averages, cost", over, 1.0, "largest queries / forecast, extra included")
    yield Row("averages, stated", worst, 1.0, "largest error / bound")
    yield Row("averages, reached", max(reached), 1.0, "largest bound / accuracy", {"median": float(np.median(reached))})


def rows(large: bool, first: int = 0) -> Iterator[Row]:
    many = 10 if large else 1
    yield from theorem_6_1(range(first, first + 10 * many))
    yield against_the_paper(16, 4.0, 250, range(first, first + 20))
    yield against_the_paper(64, 8.0, 2000, range(first, first + (20 if large else 3)))
    yield unlimited(range(first, first + 2 * many))
    yield from bounds(range(first, first + 100 * many))
    yield from formats(range(first, first + 4 * many))
    yield from averages(range(first, first + 4 * many))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Bars of approximate answers on targets of a seed.")
    parser.add_argument("--seed", type=int, default=0)
    for row in rows(True, parser.parse_args().seed):
        print(f"{row.name}: {row.ratio:.3g} ({'met' if row.met else 'NOT MET'}; {row.meaning}) {row.figures or ''}")
