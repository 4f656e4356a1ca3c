"""Peers of served models in one run: who sees that a model changed, who learns from logs, who reads an output layer.

A line for each question and peer: what no method can do better than (the limit), the peer's figure, ours. Peers of
comparison are run on the same changed models: allclose and the cosine of canary answers on random sequences, the MMD
two-sample test, and a sequential test of coarse answers as fingerprinting tools run it (Wald's, on labels). Counts for
output layers are published ones, by formula.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy import stats

import unsoftmax as us
from benchmarks.base import Row
from benchmarks.compare import head, moved, served, stored, two_sample
from benchmarks.logs import gap
from unsoftmax.comparing import statistics
from unsoftmax.comparing.constants import COMPARING
from unsoftmax.comparing.detection import TIES, plan
from unsoftmax.comparing.references import reference_of

_DIM, _ALPHA = 32, 1e-3
_SEEN = 0.9
"""Share of the changed models that a method has to see; there are at least ten, so that one may be missed."""

_SIZES = tuple(10.0**k for k in range(-15, 2))
"""Changes of W, relative to its norm, that are tried from small to large."""

_MOST = 400
"""Queries that the sequential test may ask; others have those of the near ties."""

_RIGHT = 1e-8
"""Relative error of W up to which a copy from logs counts as right."""

_FEW, _MANY = (1.3, 1.6, 2, 3, 5), (3, 10, 30, 100, 300)
"""Records per unknown that fits and students are given, from few to many."""

Line = dict[str, Any]
Method = Callable[[Any, Any, Any, np.random.Generator], bool]


def rows(large: bool) -> Iterator[Row]:
    yield from changes(50 if large else 10)
    yield from logs(16 if large else 8)
    yield from output_layers()


def changes(count: int) -> Iterator[Row]:
    """The smallest change that nine in ten changed models show, and how many unchanged ones alarm."""
    peers: dict[str, Method] = {
        "allclose, rtol 1e-5": _allclose,
        "canary cosine, 1 - 1e-6": _cosine,
        "MMD two-sample": _mmd,
        "sequential test of labels": _sequential,
    }
    for kind in ("float64", "float32"):
        limit, found, alarms = _limit(kind), _smallest(_ties, kind, count), _alarms(_ties, kind, count)
        lines, best = [], math.inf
        for name, method in peers.items():
            theirs, false = _smallest(method, kind, count), _alarms(method, kind, count)
            task = f"change of W seen, {kind}, {_MOST if method is _sequential else COMPARING.directions} queries"
            lines.append(_line(task, name, limit, theirs, found, f"false alarms {false}, ours {alarms}, of {count}"))
            best = min(best, theirs)
        figures = {"lines": lines}
        yield Row(f"change of W seen, {kind}", found / best, 1.0, "smallest change seen, ours / best peer", figures)


def _line(task: str, peer: str, limit: float, theirs: float, ours: float, remark: str = "") -> Line:
    told = "none that was tried" if math.isinf(theirs) else theirs
    return {"task": task, "limit": limit, "peer": peer, "peer's figure": told, "ours": ours, "remark": remark}


def _smallest(method: Method, kind: str, count: int) -> float:
    """The least of `_SIZES` of which nine in ten changed models are seen; inf if none."""
    for size in _SIZES:
        if sum(_once(method, kind, size, seed) for seed in range(count)) >= _SEEN * count:
            return size
    return math.inf


def _alarms(method: Method, kind: str, count: int) -> int:
    return sum(_once(method, kind, 0.0, seed) for seed in range(count))


def _once(method: Method, kind: str, size: float, seed: int) -> bool:
    """Whether a method says that the model, moved by `size` and computed in that format, differs."""
    rng = np.random.default_rng([seed, 77])
    model = stored(head(seed), kind)
    return method(kind, model, served(moved(model, size, rng) if size else model, kind), rng)


def _group(kind: str, model: Any, seed: int = 0) -> Any:
    spec = us.oracle(model).spec
    return next(g for g in plan(reference_of(model, spec), spec, kind, _ALPHA, None, seed).groups if g.name == TIES)


def _ties(kind: str, model: Any, target: Any, rng: np.random.Generator) -> bool:
    ties = _group(kind, model)
    return bool(statistics.tail(statistics.energy(ties.z(np.asarray(target(ties.X), dtype=float)))) < _ALPHA)


def _answers(model: Any, target: Any, rng: np.random.Generator, n: int = COMPARING.directions) -> tuple[Any, Any]:
    X = rng.standard_normal((n, 8, _DIM))
    return np.asarray(target(X), dtype=float), model(X)


def _allclose(kind: str, model: Any, target: Any, rng: np.random.Generator) -> bool:
    y, y0 = _answers(model, target, rng)
    return not np.allclose(y, y0, rtol=1e-5)


def _cosine(kind: str, model: Any, target: Any, rng: np.random.Generator) -> bool:
    y, y0 = _answers(model, target, rng)
    return bool(y @ y0 / np.linalg.norm(y) / np.linalg.norm(y0) < 1 - 1e-6)


def _mmd(kind: str, model: Any, target: Any, rng: np.random.Generator) -> bool:
    y, _ = _answers(model, target, rng)
    return two_sample(y, model(rng.standard_normal((COMPARING.directions, 8, _DIM))), rng) <= _ALPHA


def _sequential(kind: str, model: Any, target: Any, rng: np.random.Generator) -> bool:
    """Wald's test of whether labels agree 99.9 of 100 times, or 95; it differs if the second is borne out."""
    y, y0 = _answers(model, target, rng, _MOST)
    weight = 0.0
    for same in (y > 0) == (y0 > 0):
        weight += math.log(0.95 / 0.999) if same else math.log(0.05 / 0.001)
        if weight >= math.log(1 / _ALPHA):
            return True
        if weight <= math.log(_ALPHA):
            return False
    return False


def _limit(kind: str) -> float:
    """What a test that knows the change sees with 99 % power from the same queries: a matched filter on the ties."""
    model = stored(head(0), kind)
    ties, size = _group(kind, model), 1e-9 if kind == "float64" else 1e-3
    change = np.linalg.norm(ties.z(moved(model, size, np.random.default_rng(1))(ties.X)))
    return float(size * (stats.norm.isf(_ALPHA) + stats.norm.isf(0.01)) / change)


def logs(d: int) -> Iterator[Row]:
    """Records from which a head comes out right to 1e-8, beside distillation, whose students get more and more."""
    if importlib.util.find_spec("torch") is None:
        return
    from benchmarks.distillation import distil_head, random_sequences

    target = us.models.SingleHead.random(d, norm=2.0, seed=9001)
    unknowns = us.theory.single_head_unknowns(d)

    def fitted(records: int) -> float:
        groups = random_sequences(d, records, np.random.default_rng(9001))
        log = us.Log([x for X in groups for x in X], np.concatenate([target(X) for X in groups]))
        return gap(us.fit(log).model, target)

    def distilled(records: int) -> float:
        W, _ = distil_head(target, d, records, 9001)
        return float(np.linalg.norm(W - target.W) / np.linalg.norm(target.W))

    needed = {
        name: next((int(t * unknowns) for t in times if method(int(t * unknowns)) <= _RIGHT), math.inf)
        for name, method, times in (("ours", fitted, _FEW), ("peer", distilled, _MANY))
    }
    task = f"records for W right to {_RIGHT:g}, d = {d}"
    remark = "held-out records included; fewer than unknowns determine nothing"
    line = _line(task, "distillation (PyTorch, Adam)", unknowns, needed["peer"], needed["ours"], remark)
    ratio = needed["ours"] / needed["peer"]
    yield Row(f"records from logs, d = {d}", ratio, 1 / 3, "ours / distillation", {"lines": [line]})


def output_layers() -> Iterator[Row]:
    """Requests for the width and row space of an output layer, beside the count of arXiv 2403.06634."""
    lines = []
    for d, V, k in ((576, 49_152, None), (1_024, 50_257, 5), (2_048, 50_257, 5)):
        ours = us.theory.output_layer_requests(d) if k is None else us.theory.output_layer_chosen_requests(V, d, k)
        each = 1 if k is None else -(-V // (k - 1))
        task = f"requests, d = {d}, V = {V}, " + ("all logits" if k is None else f"top {k} with bias")
        remark = "both by formula; ours has the prompts that make the rank certain"
        lines.append(_line(task, "d + 1 prompts (arXiv 2403.06634)", d * each, (d + 1) * each, ours, remark))
    worst = max(line["ours"] / line["peer's figure"] for line in lines)
    yield Row("requests for output layers", worst, 1.06, "ours / published count, worst", {"lines": lines})
