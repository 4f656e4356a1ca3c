"""ReLU networks: queries for each unknown, error, rounds and time; and ART's extraction on the sizes it supports.

The peer is `FunctionallyEquivalentExtraction` of the Adversarial Robustness Toolbox (extra `peers`), which follows
Jagielski et al. 2020. To stand a chance it needs two outputs, the number of neurons, and a wrapper that hands answers
on in float64 (its own rounds them to float32, at which its slope tests fail); it is given all three, five attempts
with different seeds of which the best counts, and is stopped at four hundred queries for each unknown, for its search
may halve its step for ever. Ours gets neither the width nor a second output nor a second attempt: it learns the
outputs one by one, and both runs count.
"""

from __future__ import annotations

import importlib.util
import logging
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

import unsoftmax as us
from benchmarks.base import Row, Timed, seconds_of

Network = us.models.ReluNetwork

_SOLVED = 1e-2
_PEER_SIZES = [(3, 2), (4, 2), (4, 3), (5, 3), (5, 4), (6, 4), (8, 4), (8, 6)]
_PATIENCE = 400
_ATTEMPTS = 5


def rows(large: bool) -> Iterator[Row]:
    for dim, width, ratio, bar in [
        (8, 8, 2.5, 1e-10),
        (16, 64, 1.5, 1e-10),
        (32, 128, 1.35, 1e-9),
        (64, 256, 1.25, 1e-9),
    ]:
        yield from size(dim, width, ratio, bar, seeds=range(5 if width < 256 else 2))
    yield from size(128, 512, 1.25, 1e-8, seeds=range(1), seconds=30.0)
    yield biased(32, 128)
    if large:
        yield from size(256, 1024, 1.25, 1e-7, seeds=range(1))
    yield from peers()


def relative_error(found: Callable[[Any], Any], truth: Callable[[Any], Any], dim: int) -> float:
    x = np.random.default_rng(12345).standard_normal((10_000, dim))
    y = truth(x)
    return float(np.abs(found(x) - y).max() / np.sqrt(np.mean(y**2)))


def size(dim: int, width: int, ratio: float, bar: float, seeds: range, seconds: float | None = None) -> Iterator[Row]:
    """Worst of the seeds in queries, error and rounds; time outside the target if a limit is given."""
    queries, errors, rounds, times = [], [], [], []
    for seed in seeds:
        target = Timed(Network.random(dim, width, seed=700 + seed))
        total, recovery = seconds_of(
            lambda t=target, s=seed: us.recover(us.oracle(t), us.learners.ReluNetwork(), seed=s)
        )
        queries.append(recovery.usage.billed - recovery.usage.phases["verify"])
        errors.append(relative_error(recovery.model.of, target.target.of, dim))
        rounds.append(recovery.usage.rounds)
        times.append(total - target.seconds)
    name = f"d = {dim}, m = {width}"
    figures = {"queries": queries, "errors": errors, "rounds": rounds, "seconds_outside_target": times}
    yield Row(
        f"queries, {name}", max(queries) / (dim * width), ratio, "queries with polish / (m d), worst seed", figures
    )
    yield Row(f"error, {name}", max(errors) / bar, 1.0, f"largest error / {bar:g}, worst seed", figures)
    yield Row(f"rounds, {name}", max(rounds) / 120, 1.0, "rounds / 120, worst seed", figures)
    if seconds is not None:
        yield Row(f"time, {name}", max(times) / seconds, 1.0, f"seconds outside the target / {seconds:g}", figures)


def biased(dim: int, width: int) -> Row:
    target = Network.random(dim, width, bias=True, seed=700)
    recovery = us.recover(us.oracle(target), us.learners.ReluNetwork(bias=True))
    queries = recovery.usage.billed - recovery.usage.phases["verify"]
    figures = {"queries": queries, "error": relative_error(recovery.model.of, target.of, dim)}
    return Row(f"biases, d = {dim}, m = {width}", queries / (width * (dim + 1)), 2.0, "queries / (m (d + 1))", figures)


def peers() -> Iterator[Row]:
    """Both tools on the same small networks with biases and two outputs."""
    art = importlib.util.find_spec("art") is not None
    for name, solve in [("unsoftmax", ours), *([("ART", theirs)] if art else [])]:
        results = []
        for seed, (dim, width) in enumerate(_PEER_SIZES):
            rng = np.random.default_rng(seed)
            A, b = rng.standard_normal((dim, width)), rng.standard_normal(width)
            w, b_o = rng.standard_normal((width, 2)), rng.standard_normal(2)

            def target(x: Any, A: Any = A, b: Any = b, w: Any = w, b_o: Any = b_o) -> Any:
                return np.maximum(x @ A + b, 0) @ w + b_o

            results.append({"d": dim, "m": width, "unknowns": width * (dim + 3) + 2, **solve(target, dim, width, seed)})
        solved = [r for r in results if r["error"] is not None and r["error"] <= _SOLVED]
        per_unknown = [r["queries"] / r["unknowns"] for r in solved]
        yield Row(
            f"{name}: networks not solved",
            1 - len(solved) / len(results),
            0.0 if name == "unsoftmax" else None,
            f"of {len(results)} small networks with two outputs; solved: largest relative error at most {_SOLVED:g}",
            {"runs": results},
        )
        yield Row(
            f"{name}: queries for each unknown",
            float(np.median(per_unknown)) if per_unknown else float("inf"),
            None,
            "median over the networks solved (small networks: kinks weigh more than gradients)",
            {
                "worst_error": max((r["error"] for r in solved), default=None),
                "seconds": [r["seconds"] for r in results],
            },
        )
    if not art:
        yield Row("ART", float("nan"), None, "not installed: pip install 'unsoftmax[peers]'")


def ours(target: Callable[[Any], Any], dim: int, width: int, seed: int) -> dict[str, Any]:
    """One recovery per output."""

    def run() -> tuple[float, int]:
        errors, queries = [], 0
        for output in (0, 1):
            oracle = us.oracle(lambda X, k=output: target(X[:, 0])[:, k], dim, max_length=1)
            recovery = us.recover(oracle, us.learners.ReluNetwork(bias=True), seed=seed)
            errors.append(relative_error(recovery.model.of, lambda x, k=output: target(x)[:, k], dim))
            queries += recovery.usage.billed
        return max(errors), queries

    seconds, (error, queries) = seconds_of(run, time.process_time)
    return {"error": error, "queries": queries, "seconds": seconds}


class _OutOfPatienceError(Exception):
    pass


def theirs(target: Callable[[Any], Any], dim: int, width: int, seed: int) -> dict[str, Any]:
    """ART with the number of neurons given and answers in float64; its failures are errors, wrong models or no end."""
    endings, best, queries, seconds = [], None, 0, 0.0
    for attempt in range(_ATTEMPTS):
        attempt_of = partial(_attempt, target, dim, width, [seed, attempt])
        took, (error, asked, ending) = seconds_of(attempt_of, time.process_time)
        endings.append(ending)
        queries, seconds = queries + asked, seconds + took
        if error is not None and (best is None or error < best):
            best = error
        if best is not None and best <= _SOLVED:
            break
    return {"error": best, "queries": queries, "seconds": seconds, "endings": endings}


def _attempt(target: Callable[[Any], Any], dim: int, width: int, seed: list[int]) -> tuple[float | None, int, str]:
    from art.attacks.extraction import FunctionallyEquivalentExtraction
    from art.estimators.classification.blackbox import BlackBoxClassifierNeuralNetwork

    logging.getLogger("art").setLevel(logging.ERROR)
    asked, limit = 0, _PATIENCE * (width * (dim + 3) + 2)

    class Exact(BlackBoxClassifierNeuralNetwork):
        def predict(self, x: Any, batch_size: int = 128, **kwargs: Any) -> Any:
            nonlocal asked
            asked += len(x)
            if asked > limit:
                raise _OutOfPatienceError
            return target(np.asarray(x, dtype=np.float64))

    np.random.seed(seed)  # noqa: NPY002 - the peer draws from numpy's global state
    classifier = Exact(target, input_shape=(dim,), nb_classes=2, clip_values=None)
    samples = np.random.default_rng(seed).standard_normal((100, dim))
    try:
        with np.errstate(all="ignore"):
            found = FunctionallyEquivalentExtraction(classifier, width).extract(samples)
        error = relative_error(lambda x: _of(found, x), target, dim)
        return (error if np.isfinite(error) else None), asked, f"relative error {error:.1g}"
    except _OutOfPatienceError:
        return None, asked, "no end in sight"
    except Exception as failure:
        return None, asked, f"{type(failure).__name__}: {str(failure)[:80]}"


def _of(found: Any, x: Any) -> Any:
    """The extracted function in full precision: its public `predict` rounds to float32."""
    return found._predict_fn(x) if hasattr(found, "_predict_fn") else found.predict(x)
