"""Peers on the same targets in the same run: error against queries and seconds.

A line per method. Nobody verifies here (verify=False, the peers do not either); a pilot is part of the queries. The
coordinate algorithm and the alternating minimisation are the literature's methods in this package's own code, the
nuclear-norm program is CVXPY's, distillation is PyTorch, extraction of networks is ART's (see relu_network.py).
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import unsoftmax as us
from benchmarks import relu_network
from benchmarks.base import Row, seconds_of
from benchmarks.distillation import distil_head
from unsoftmax.inversion import logits
from unsoftmax.models.distance import relative

OURS = "unsoftmax"
_ROUNDING = 1e-14
_BRIEF, _PATIENCE = 10.0, 2.0
"""Seconds: what counts as brief, and how long a brief method is repeated."""
Line = dict[str, Any]


def rows(large: bool) -> Iterator[Row]:
    for d in (32, 64) if large else (32,):
        for smallest in (1.0, 1e-5):
            task = f"head, d = {d}" if smallest == 1.0 else f"head, d = {d}, one |v_i| = 1e-5"
            target = full_target(d, smallest)
            yield from compared(task, list(full_head(target)))
            yield from compared(f"{task}, size of W told", list(size_told(target)))
    for d, r in ((24, 2), (48, 2)) if large else ((24, 2),):
        yield from compared(f"head of rank {r}, d = {d}", list(low_rank_head(d, r)))
    yield from compared("ReLU network, d = 4, m = 3, two outputs", list(network(4, 3)))


def compared(task: str, lines: list[Line]) -> Iterator[Row]:
    """Ours over the best peer in queries, error and seconds; all lines are in the figures of the first row.

    Errors below 1e-14 are rounding and count as 1e-14.
    """
    ours, *peers = [{"task": task, **line} for line in lines]
    done = [line for line in peers if line["error"] is not None]
    for column, limit in (("queries", 1.0), ("error", 1.0), ("seconds", 2.0)):
        best = min(done, key=lambda line, column=column: line[column])
        floor = _ROUNDING if column == "error" else 0.0
        ratio = max(ours[column], floor) / max(best[column], floor)
        lacking = "" if ratio <= limit else f"; {best['method']} has less here, at error {best['error']:.1g}"
        figures = {"lines": [ours, *peers]} if column == "queries" else {}
        yield Row(f"{column}, {task}", ratio, limit, f"ours / least of the peers{lacking}", figures)


def line(method: str, work: Callable[[], tuple[int, float]], remark: str = "") -> Line:
    """`work` gives queries and error; a failure is a line too. If it is brief, the least of many times after the first.

    Processor time: other work on the machine does not count. The first call may import or warm up.
    """
    try:
        seconds, (queries, error) = seconds_of(work, time.process_time)
        if seconds < _BRIEF:
            again = [seconds_of(work, time.process_time)[0]]
            while sum(again) < _PATIENCE:
                again.append(seconds_of(work, time.process_time)[0])
            seconds = min(again)
    except us.errors.UnsoftmaxError as failure:
        asked = failure.recovery.usage.billed if failure.recovery else 0
        return {"method": method, "queries": asked, "error": None, "seconds": None, "remark": str(failure)[:100]}
    return {"method": method, "queries": queries, "error": error, "seconds": seconds, "remark": remark}


def absent(method: str, extra: str) -> Line:
    remark = f"not installed: pip install 'unsoftmax[{extra}]'"
    return {"method": method, "queries": None, "error": None, "seconds": None, "remark": remark}


def by_learner(target: Any, learner: Any) -> tuple[int, float]:
    found = us.recover(us.oracle(target), learner, verify=False)
    return found.usage.billed, max(relative(found.model.W, target.W), relative(found.model.v, target.v))


def distilled(target: Any, d: int, queries: int, rank: int | None = None) -> Iterator[Line]:
    """At as many queries as ours, and at a hundred times as many."""
    if importlib.util.find_spec("torch") is None:
        yield absent("distillation", "torch")
        return

    def work(count: int) -> tuple[int, float]:
        W, v = distil_head(target, d, count, seed=0, rank=rank)
        return count, max(relative(W, target.W), relative(v, target.v))

    for factor in (1, 100):
        name = "distillation (PyTorch)" if factor == 1 else "distillation, 100 x the queries"
        yield line(name, lambda factor=factor: work(factor * queries), "Adam on random sequences")


def full_target(d: int, smallest: float) -> us.models.SingleHead:
    """A random head; trained ones have entries of v as small as 1e-5, so a second one has one."""
    drawn = us.models.SingleHead.random(d, norm=2.0, seed=d)
    v = drawn.v.copy()
    v[0] *= smallest if smallest == 1.0 else smallest / abs(v[0])
    return us.models.SingleHead(drawn.W, v)


def coordinate_algorithm(target: Any) -> Line:
    learner = us.learners.SingleHead(probes="coordinate")
    return line("coordinate algorithm (Theorem 4.1)", lambda: by_learner(target, learner), "d + d^2, W of order one")


def full_head(target: us.models.SingleHead) -> Iterator[Line]:
    ours = line(OURS, lambda: by_learner(target, us.learners.SingleHead()), "d + d^2 and a pilot")
    yield ours
    yield coordinate_algorithm(target)
    yield from distilled(target, target.dim, ours["queries"])


def size_told(target: us.models.SingleHead) -> Iterator[Line]:
    """The coordinate algorithm has no pilot because it takes W to be of order one; told as much, ours has none."""
    told = us.learners.SingleHead(W_bound=float(np.linalg.norm(target.W)))
    yield line(OURS, lambda: by_learner(target, told), "d + d^2, ||W||_F told")
    yield coordinate_algorithm(target)


def low_rank_head(d: int, r: int) -> Iterator[Line]:
    target = us.models.LowRankHead.random(d, r, norm=2.0, seed=d)
    ours = line(OURS, lambda: by_learner(target, us.learners.LowRank()), "rank not given")
    yield ours
    yield coordinate_algorithm(target)
    if importlib.util.find_spec("cvxpy") is None:
        yield absent("nuclear norm (CVXPY)", "convex")
    else:
        yield line("nuclear norm (CVXPY, SCS)", lambda: convex(target, d, r), "Theorem 5.1, 4 per unknown")
    altmin = us.learners.LowRank(rank=r, method="altmin")
    yield line("alternating minimisation", lambda: by_learner(target, altmin), "rank given")
    yield from distilled(target, d, ours["queries"], rank=r)


def convex(target: Any, d: int, r: int) -> tuple[int, float]:
    """Theorem 5.1 as a user of CVXPY would do it: Gaussian pairs, logits, the program."""
    import cvxpy as cp

    rng = np.random.default_rng(0)
    v = target(np.eye(d)[:, None])
    m = us.theory.nuclear_norm_measurements(d, r)
    A, B = rng.standard_normal((2, m, d)) / np.sqrt(d)
    read = logits(target(np.stack([A + B, B], axis=1)), A @ v, B @ v).t
    kept = np.isfinite(read)
    W = cp.Variable((d, d))
    seen = cp.sum(cp.multiply(A[kept] @ W, B[kept]), axis=1)
    cp.Problem(cp.Minimize(cp.normNuc(W)), [seen == read[kept]]).solve(solver=cp.SCS, eps=1e-7)
    return d + m, max(relative(W.value, target.W), relative(v, target.v))


def network(d: int, m: int) -> Iterator[Line]:
    """Largest error relative to the root mean square, of both outputs."""
    rng = np.random.default_rng(2)
    A, b = rng.standard_normal((d, m)), rng.standard_normal(m)
    w, b_o = rng.standard_normal((m, 2)), rng.standard_normal(2)

    def target(x: Any) -> Any:
        return np.maximum(x @ A + b, 0) @ w + b_o

    def told(result: dict[str, Any]) -> Line:
        return {key: result[key] for key in ("queries", "error", "seconds")}

    yield {
        "method": OURS,
        **told(relu_network.ours(target, d, m, 2)),
        "remark": "width not given, one output at a time",
    }
    if importlib.util.find_spec("art") is None:
        yield absent("ART extraction", "peers")
    else:
        found = relu_network.theirs(target, d, m, 2)
        remark = f"float64 patch, width given; {found['endings'][-1]}"
        yield {"method": "ART extraction", **told(found), "remark": remark}
    yield regression(target, d)


def regression(target: Callable[[Any], Any], d: int) -> Line:
    """A student network of ten times the width, Adam on 20 000 random vectors."""
    if importlib.util.find_spec("torch") is None:
        return absent("distillation", "torch")
    import torch

    def work() -> tuple[int, float]:
        torch.manual_seed(0)
        x = torch.randn(20_000, d, dtype=torch.float64)
        y = torch.from_numpy(target(x.numpy()))
        layers = torch.nn.Linear(d, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2)
        student = torch.nn.Sequential(*layers).double()
        optimiser = torch.optim.Adam(student.parameters(), lr=0.02)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 1500)
        for _ in range(1500):
            some = torch.randint(len(x), (512,))
            optimiser.zero_grad()
            ((student(x[some]) - y[some]) ** 2).mean().backward()
            optimiser.step()
            schedule.step()
        error = relu_network.relative_error(lambda z: student(torch.from_numpy(z)).detach().numpy(), target, d)
        return len(x), error

    return line("distillation (PyTorch)", work, "Adam, width 32")
