"""Comparison with a reference: detectable change beside peers, entries, low rank.

False alarms are counted by `compare_kernels`, number formats by `compare_formats`, calls of the monitor by
`compare_monitor`.

Default sizes are reduced; --large runs the number of targets that the stated rates need.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy import stats

import unsoftmax as us
from benchmarks.base import Row
from benchmarks.compare_kernels import ALPHA, alarmed
from unsoftmax.comparing import statistics
from unsoftmax.comparing.arithmetic import computed, to_bfloat16
from unsoftmax.comparing.constants import COMPARING
from unsoftmax.comparing.detection import TIES, plan
from unsoftmax.comparing.heads import heads_of
from unsoftmax.comparing.references import reference_of

_DIM = 32


def rows(large: bool) -> Iterator[Row]:
    yield from detection(200 if large else 24)
    yield from missed(1_000 if large else 64)
    yield single_query(288 if large else 24)
    yield from places(100 if large else 6)


def head(seed: int) -> us.models.SingleHead:
    return us.models.SingleHead.random(_DIM, norm=2.0, seed=seed)


def missed(count: int) -> Iterator[Row]:
    """Changes of the stated smallest size, and of three times that, that are called the same."""
    for factor, allowed in ((1.0, 0.01), (3.0, 0.0)):
        same = tried = 0
        for seed in range(count // 8 + 1):
            model = us.models.MultiHead.random(16, 1 + seed % 3, norm=2.0, seed=40_000 + seed)
            spec, rng = us.oracle(model).spec, np.random.default_rng([seed, 3])
            made = plan(reference_of(model, spec), spec, "float64", ALPHA, None, seed)
            for i in range(8):
                size = factor * made.detectable["dense" if i % 2 else "rank one in one head"]
                same += not alarmed(made, _changed(model, size, rng, dense=bool(i % 2)), seed)
                tried += 1
        limit = max(allowed * tried, 1.0 if allowed else 0.0)
        figures = {"changes": tried, "called the same": same}
        yield Row(f"called the same at {factor:g} x detectable", float(same), limit, "changes", figures)


def _changed(model: us.models.MultiHead, size: float, rng: np.random.Generator, *, dense: bool) -> us.models.MultiHead:
    """All scores changed, or those of one head by rank one, by that part of the norm of all."""
    change = np.zeros(model.W.shape)
    if dense:
        change = rng.standard_normal(model.W.shape)
    else:
        change[rng.integers(len(change))] = np.outer(*rng.standard_normal((2, model.dim)))
    return us.models.MultiHead(model.W + change * (size * np.linalg.norm(model.W) / np.linalg.norm(change)), model.v)


def single_query(count: int) -> Row:
    """A change of 1e-9 in float64: near ties that show it, each alone."""
    unseen, rng = 0, np.random.default_rng(6)
    for seed in range(count // COMPARING.directions + 1):
        model = head(50_000 + seed)
        spec = us.oracle(model).spec
        ties = next(
            g for g in plan(reference_of(model, spec), spec, "float64", ALPHA, None, seed).groups if g.name == TIES
        )
        z = ties.z(moved(model, 1e-9, rng)(ties.X))
        unseen += int((stats.chi2.sf(z**2, 1) > ALPHA).sum())
    asked = COMPARING.directions * (count // COMPARING.directions + 1)
    limit = 0.01 * asked
    return Row(
        "1e-9 not seen by one query", unseen / limit, 1.0, "part unseen / 1 %", {"queries": asked, "unseen": unseen}
    )


def moved(model: us.models.SingleHead, size: float, rng: np.random.Generator) -> us.models.SingleHead:
    change = rng.standard_normal(model.W.shape)
    return us.models.SingleHead(model.W + size * np.linalg.norm(model.W) / np.linalg.norm(change) * change, model.v)


def stored(model: us.models.SingleHead, kind: str) -> us.models.SingleHead:
    """Its weights as that format has them, in float64."""
    if kind == "bfloat16":
        return us.models.SingleHead(to_bfloat16(np.array(model.W)), to_bfloat16(np.array(model.v)))
    return model.astype(kind).astype("float64")


def served(model: us.models.SingleHead, kind: str) -> Callable[[Any], Any]:
    """Computed in that format; in bfloat16 every intermediate is rounded, weights are not."""
    if kind == "bfloat16":
        heads = heads_of(model)
        assert heads is not None
        return lambda X: computed(heads, to_bfloat16(X), kind, 1)
    return model.astype(kind)


def detection(count: int) -> Iterator[Row]:
    """Dense changes: those of the stated size seen by 24 near ties, and by peers on 24 random sequences."""
    rng = np.random.default_rng(5)
    for kind, size in (("float64", 2e-15), ("float32", 1e-6), ("bfloat16", 2e-2)):
        seen = dict.fromkeys(("near ties", "allclose", "cosine", "MMD"), 0)
        for seed in range(count):
            model, target = stored(head(seed), kind), served(moved(stored(head(seed), kind), size, rng), kind)
            spec = us.oracle(model).spec
            ties = next(
                g for g in plan(reference_of(model, spec), spec, kind, 1e-3, None, seed).groups if g.name == TIES
            )
            seen["near ties"] += statistics.tail(statistics.energy(ties.z(target(ties.X)))) < 1e-3
            X = rng.standard_normal((COMPARING.directions, 8, _DIM))
            y, y0 = np.asarray(target(X), dtype=float), model(X)
            seen["allclose"] += not np.allclose(y, y0, rtol=1e-5)
            seen["cosine"] += float(y @ y0 / np.linalg.norm(y) / np.linalg.norm(y0)) < 1 - 1e-6
            seen["MMD"] += two_sample(y, model(rng.standard_normal((COMPARING.directions, 8, _DIM))), rng) < 1e-3
        missed = 1 - seen["near ties"] / count
        figures = {"changes": count, **{name: n / count for name, n in seen.items()}}
        yield Row(f"missed, {size:g} of |W| in {kind}", missed / 0.01, 1.0, "part missed / 1 %", figures)


def two_sample(a: Any, b: Any, rng: np.random.Generator) -> float:
    """p-value of the MMD permutation test with a Gaussian kernel of median bandwidth (Gretton et al. 2012)."""
    z = np.concatenate([a, b])
    gaps = (z[:, None] - z[None]) ** 2
    kernel = np.exp(-gaps / np.median(gaps[gaps > 0]))
    sign = np.concatenate([np.ones(len(a)), -np.ones(len(b))])
    drawn = np.array([s @ kernel @ s for s in (rng.permutation(sign) for _ in range(999))])
    return float((1 + (drawn >= sign @ kernel @ sign).sum()) / 1000)


def places(count: int) -> Iterator[Row]:
    """One entry and rank one: queries by phase and in all, verification excluded, and the error."""
    d = 64
    entry, whole, delta, total, error = [], [], [], [], []
    for seed in range(count):
        rng = np.random.default_rng([seed, 9])
        model = us.models.SingleHead.random(d, norm=2.0, seed=30_000 + seed)
        W = np.array(model.W)
        W.flat[rng.integers(d * d)] += 0.1 * np.linalg.norm(W) / d
        one = us.compare(us.oracle(us.models.SingleHead(W, model.v)), model)
        entry.append(one.usage.phases.get("locate", math.inf) if one.verdict == "sparse" else math.inf)
        whole.append(one.usage.billed - one.usage.phases.get("verify", 0))
        change = np.outer(*rng.standard_normal((2, d)))
        change *= 1e-2 * np.linalg.norm(model.W) / np.linalg.norm(change)
        low = us.compare(us.oracle(us.models.SingleHead(model.W + change, model.v)), model)
        right = (low.verdict, low.rank) == ("low rank", 1)
        delta.append(low.usage.phases.get("delta", math.inf) if right else math.inf)
        total.append(low.usage.billed - low.usage.phases.get("verify", 0))
        error.append(float(np.linalg.norm(low.delta - change) / np.linalg.norm(change)) if right else math.inf)
    free = 2 * d - 1
    yield Row("one entry, located", max(entry) / 10, 1.0, "worst queries of phase locate / 10", {"worst": max(entry)})
    yield Row("one entry, in all", max(whole) / 260, 1.0, "worst queries / 260", {"worst": max(whole)})
    yield Row("rank one, delta", max(delta) / free, 1.25, "worst queries of phase delta / unknowns", {"unknowns": free})
    yield Row("rank one, in all", max(total) / (250 + 1.25 * free), 1.0, "worst queries / bar", {"worst": max(total)})
    bound = 100 * 2.0**-53 / 1e-2
    yield Row("rank one, error", max(error) / bound, 1.0, f"worst relative error / {bound:.1e}", {"worst": max(error)})
