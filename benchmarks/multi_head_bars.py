"""Bars of several heads on twenty models each (`--large`), kept as they are measured so that a run can stop and go on.

`python -m benchmarks.multi_head_bars [--minutes 9] [PART OF A NAME...]` runs what is missing in
out/multi_head_bars.jsonl (one line per model, dropped when the learner's code changes), then prints every bar.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

import unsoftmax as us
from benchmarks.base import Row
from unsoftmax.models import MultiHead

SEEDS = range(7000, 7020)
CELLS = [(16, 2), (16, 4), (32, 4), (32, 8), (64, 4), (64, 8)]
KEPT = Path("out/multi_head_bars.jsonl")


@dataclass(frozen=True)
class Bar:
    """`run(seed)` gives figures of one model; a limit is (statistic, figure, most it may be)."""

    name: str
    run: Callable[[int], dict[str, Any]]
    limits: list[tuple[str, str, float]]

    def rows(self, figures: list[dict[str, Any]]) -> Iterator[Row]:
        for statistic, figure, limit in self.limits:
            values = [one[figure] for one in figures]
            reached = median(values) if statistic == "median" else max(values)
            meaning = f"{statistic} {figure} over {len(values)} models / {limit:g}"
            yield Row(f"{self.name}, {figure}", reached / limit, 1.0, meaning, {figure: values})


def errors(found: MultiHead, target: MultiHead) -> tuple[float, float]:
    """Worst relative Frobenius error of W and of v over the heads, infinite if their number is wrong."""
    if found.heads != target.heads:
        return float("inf"), float("inf")
    gaps = np.array([[np.linalg.norm(a - b) / np.linalg.norm(b) for b in target.W] for a in found.W])
    i, j = linear_sum_assignment(gaps)
    v = np.linalg.norm(found.v[i] - target.v[j], axis=1) / np.linalg.norm(target.v[j], axis=1)
    return float(gaps[i, j].max()), float(v.max())


def measured(
    target: MultiHead, seed: int, oracle: Any = None, learner: Any = None, rank: int | None = None
) -> dict[str, Any]:
    """Errors and queries of one recovery; a refusal is an infinite error."""
    d, H = target.dim, target.heads
    learner = learner or us.learners.MultiHead()
    try:
        recovery = us.recover(us.oracle(target) if oracle is None else oracle, learner, seed=seed)
    except us.errors.UnsoftmaxError as error:
        nothing = dict.fromkeys(("W", "v", "dof", "published", "of theory"), float("inf"))
        return {"seed": seed, "refused": str(error)[:200], **nothing}
    W, v = errors(recovery.model, target)
    billed = recovery.usage.billed
    dof = billed / us.theory.multi_head_unknowns(d, H, rank)
    published = billed / us.theory.rational_queries(d, H)
    # Without pilot, repairs and verification: what a published count stands for.
    bare = sum(recovery.usage.phases.get(phase, 0) for phase in ("values", "main")) / us.theory.rational_queries(d, H)
    return {
        "seed": seed, "W": W, "v": v, "dof": dof, "published": published, "of theory": bare, "billed": billed
    }  # fmt: skip


def generic(d: int, H: int, low: bool) -> Bar:
    rank = d // H if low else None
    limits = [("median", "W", 1e-10), ("worst", "W", 1e-9), ("worst", "v", 1e-12), ("worst", "published", 1.0)]
    if not low:
        limits.append(("median", "dof", {16: 1.4, 32: 1.2, 64: 1.1}[d]))
    elif rank == 8 or d >= 64:
        limits.append(("median", "dof", 1.4 if d >= 64 else 1.6))

    def run(seed: int) -> dict[str, Any]:
        return measured(MultiHead.random(d, H, rank=rank, seed=seed), seed, rank=rank)

    return Bar(f"d = {d}, H = {H}" + (f", r = {rank}" if low else ""), run, limits)


def unequal(W_sizes: tuple[float, ...], v_sizes: tuple[float, ...], polish: bool, limits: Any) -> Bar:
    """Gaussian heads of given sizes, d = 16."""

    def run(seed: int) -> dict[str, Any]:
        rng = np.random.default_rng(seed)
        W = rng.standard_normal((3, 16, 16)) * np.array(W_sizes)[:, None, None]
        target = MultiHead(W, rng.standard_normal((3, 16)) * np.array(v_sizes)[:, None])
        return measured(target, seed, learner=us.learners.MultiHead(polish=polish))

    sizes = f"W sizes {W_sizes}" if len(set(W_sizes)) > 1 else f"v sizes {v_sizes}"
    return Bar(sizes + (", polished" if polish else ""), run, limits)


class Within:
    """A target that refuses tokens and sequences longer than it allows."""

    def __init__(self, target: MultiHead, norm: float, length: int) -> None:
        self.target, self.norm, self.length, self.dim = target, norm, length, target.dim

    def __call__(self, tokens: np.ndarray) -> np.ndarray:
        if tokens.shape[1] > self.length or np.linalg.norm(tokens, axis=2).max() > self.norm * (1 + 1e-12):
            raise ValueError("a token or a sequence is longer than allowed")
        return self.target(tokens)


def bounded(norm: float, tau: float, size: float, most: float, dof: float) -> Bar:
    def run(seed: int) -> dict[str, Any]:
        target = MultiHead.random(8, 4, norm=size, seed=seed)
        oracle: Any = us.oracle(Within(target, norm, 8), max_norm=norm, max_length=8)
        return measured(target, seed, us.oracles.Perturbed(oracle, tau) if tau else oracle)

    name = f"max_norm {norm:g}, |W| = {size:g}" + (f", tau = {tau:g}" if tau else "")
    return Bar(name, run, [("worst", "W", most), ("worst", "dof", dof)])


def last_digits() -> Bar:
    """The published figure for this size is 2^-51 = 4.4e-16 in a metric it does not state."""

    def run(seed: int) -> dict[str, Any]:
        rng = np.random.default_rng(seed)
        target = MultiHead(rng.standard_normal((6, 8, 8)), rng.standard_normal((6, 8)))
        return measured(target, seed, learner=us.learners.MultiHead(polish=True))

    return Bar(
        "polished, d = 8, H = 6", run, [("median", "W", 1e-15), ("worst", "W", 4e-15), ("worst", "published", 1)]
    )


def subspaces() -> Bar:
    def run(seed: int) -> dict[str, Any]:
        rng = np.random.default_rng(seed)
        bases = np.split(np.linalg.qr(rng.standard_normal((32, 32)))[0], 4, axis=1)
        W = [U @ rng.standard_normal((8, 8)) @ U.T for U in bases]
        target = MultiHead(np.array(W), np.array([U @ rng.standard_normal(8) for U in bases]))
        return measured(target, seed, learner=us.learners.OrthogonalHeads())

    return Bar("orthogonal subspaces, d = 32, H = 4", run, [("worst", "W", 1e-7), ("worst", "v", 1e-7)])


def degenerate(name: str) -> Bar:
    """Heads that share a hyperplane or show nowhere: the canonical form must come out, and the function."""

    def run(seed: int) -> dict[str, Any]:
        rng = np.random.default_rng(seed)
        A, B = rng.standard_normal((2, 5, 5)) / np.sqrt(5) * 2
        v, nothing = rng.standard_normal((3, 5)), np.zeros((5, 5))
        W, values = {
            "equal W": ([A, A, B], [*v]),
            "v = 0": ([A, B], [v[0], 0 * v[1]]),
            "cancelling pair": ([A, A, B], [v[0], -v[0], v[1]]),
            "W = 0": ([A, nothing, B], [*v]),
            "twice": ([A, 2 * A, B], [*v]),
            "1.3 times": ([A, 1.3 * A], [*v[:2]]),
            "opposite": ([A, -A, B], [*v]),
            "three proportional": ([A, 2 * A, -A], [*v]),
        }[name]
        target = MultiHead(np.array(W), np.array(values))
        try:
            recovery = us.recover(us.oracle(target), us.learners.MultiHead(), seed=seed)
        except us.errors.UnsoftmaxError as error:
            return {"seed": seed, "refused": str(error)[:200], "function": float("inf"), "form": float("inf")}
        X = rng.standard_normal((100, 6, 5))
        function = float(np.abs(recovery.model(X) - target(X)).max() / np.abs(target(X)).max())
        form = us.models.distance(recovery.model, target.canonical())
        return {"seed": seed, "function": function, "form": form, "billed": recovery.usage.billed}

    return Bar(f"degenerate, {name}", run, [("worst", "function", 1e-6), ("worst", "form", 1e-6)])


def rational(d: int, H: int) -> Bar:
    def run(seed: int) -> dict[str, Any]:
        target = MultiHead.random(d, H, norm=2.0, seed=seed)
        return measured(target, seed, learner=us.learners.MultiHead(method="rational"))

    return Bar(f"rational, d = {d}, H = {H}", run, [("worst", "W", 1e-6), ("worst", "of theory", 1.0)])


def bars() -> list[Bar]:
    scores, values, level = (1e3, 1.0, 1e-3), (1e3, 1.0, 1e-3), (1.0, 1.0, 1.0)
    found = [generic(d, H, low) for d, H in CELLS for low in (False, True)]
    found += [
        unequal(scores, level, False, [("worst", "W", 1e-10), ("worst", "dof", 1.5)]),
        unequal(scores, level, True, [("worst", "W", 1e-12), ("worst", "dof", 1.7)]),
        unequal(level, values, False, [("worst", "W", 1e-7)]),
        last_digits(),
        subspaces(),
        *[rational(d, H) for d, H in [(4, 1), (6, 2), (6, 3)]],
    ]
    kinds = "equal W", "v = 0", "cancelling pair", "W = 0", "twice", "1.3 times", "opposite", "three proportional"
    found += [degenerate(kind) for kind in kinds]
    for norm, exact, times in [(10.0, 1e-13, 1.0), (3.0, 1e-12, 20.0), (1.0, 1e-10, 3000.0)]:
        found.append(bounded(norm, 0.0, 2.0, exact, 3.0))
        found.append(bounded(norm, 1e-9, 2.0, times * 1e-9, 4.5))
    return found


def rows(large: bool) -> Iterator[Row]:
    for bar in bars() if large else ():
        yield from bar.rows([bar.run(seed) for seed in SEEDS])


def version() -> str:
    """Fingerprint of the code that learns and checks several heads."""
    root = Path(us.__file__).parent
    places = ["learners/multi_head.py", "learners/orthogonal_heads.py", "learners/heads", "solvers", "verify", "probes"]
    files = sorted(
        f for place in places for f in ([root / place] if place.endswith(".py") else (root / place).glob("*.py"))
    )
    return hashlib.sha256(b"".join(f.read_bytes() for f in files)).hexdigest()[:12]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of names of bars (default: all)")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after this time and go on next time")
    parser.add_argument("--kept", type=Path, default=KEPT)
    options = parser.parse_args()
    end, code = time.monotonic() + 60 * options.minutes, version()
    options.kept.parent.mkdir(parents=True, exist_ok=True)
    lines = options.kept.read_text().splitlines() if options.kept.exists() else []
    known = {(one["bar"], one["seed"]): one for one in map(json.loads, lines) if one["code"] == code}
    for bar in bars():
        if options.names and not any(part in bar.name for part in options.names):
            continue
        for seed in SEEDS:
            if (bar.name, seed) in known or time.monotonic() > end:
                continue
            known[bar.name, seed] = {"bar": bar.name, "code": code, **bar.run(seed)}
            with options.kept.open("a") as file:
                file.write(json.dumps(known[bar.name, seed]) + "\n")
        figures = [known[bar.name, seed] for seed in SEEDS if (bar.name, seed) in known]
        for row in bar.rows(figures) if figures else ():
            print(f"{row.name}: {row.ratio:.3g} ({row.meaning}) {'met' if row.met else 'NOT MET'}")


if __name__ == "__main__":
    main()
