"""The same targets as on several kinds of processor: status, stated errors, and what a resumed run pays again.

Run before a release. Every learner of benchmarks/subjects.py meets a target of its own for every seed, and every
contract case its one target with so many seeds of the learner, under every kind that this machine has, in one process
per kind; `python -m benchmarks.portability SEEDS [FIRST]` prints the results of one, as the benchmark asks for. A run
takes 20 to 30 ms of processor time, so that the large sweep, 5,586 drawn targets and 6,271 runs of contract cases, is a
matter of minutes for each kind.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import unsoftmax as us
from benchmarks.base import Row
from benchmarks.number_formats import FORMATS, asked, worst_of_stated
from benchmarks.subjects import SUBJECTS
from scripts.kernels import available, environment
from tests.contracts.registry import Case, collect
from tests.contracts.resuming import jobs

_SEEDS, _SEEDS_LARGE = 3, 114
"""Seeds of each learner and of each contract case; with 49 learners the large run draws 5,586 targets."""

_LARGEST_CASE = "Membership-paper"
"""Theorem B.1 asks 74,000 sequences for each target: one seed says as much as all."""


def swept(seeds: range) -> Iterator[dict[str, Any]]:
    """Status and worst error beside what is stated (contract cases: beside their bar), on this process's kind."""
    for seed in seeds:
        for subject in SUBJECTS:
            truth = subject.truth(subject.target(seed))
            far = partial(worst_of_stated, truth=truth)
            yield _run(f"drawn, {subject.name}", asked(subject, FORMATS[0], False, seed), subject.learner, seed, far)
        for case in collect():
            if case.name != _LARGEST_CASE or seed == seeds[0]:
                target = case.target()
                yield _run(case.name, case.oracle(target), case.learner, seed, partial(_beside_bar, case, target))


def _beside_bar(case: Case, target: Any, recovery: us.Recovery) -> float:
    return us.models.distance(recovery.model, target) / case.error


def _run(name: str, oracle: Any, learner: Any, seed: int, far: Callable[[us.Recovery], float]) -> dict[str, Any]:
    try:
        recovery = us.recover(oracle, learner, seed=seed)
    except us.errors.UnsoftmaxError as refusal:
        return {"run": f"{name} {seed}", "status": type(refusal).__name__, "excess": 0.0}
    return {"run": f"{name} {seed}", "status": recovery.status.name, "excess": far(recovery)}


def rows(large: bool) -> Iterator[Row]:
    kinds = available()
    if len(kinds) < 2:
        return
    seeds = _SEEDS_LARGE if large else _SEEDS
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(lambda kind: _child(kind, "benchmarks.portability", str(seeds)), kinds))
    first, *others = found
    unequal = [a["run"] for other in others for a, b in zip(first, other, strict=True) if a["status"] != b["status"]]
    refused = sum(run["status"] not in us.Status.__members__ for run in first)
    meaning = f"runs whose status differs between {', '.join(kinds)}, of {len(first)}"
    yield Row("portability, status", float(len(unequal)), 0.0, meaning, {"unequal": unequal[:20], "refused": refused})
    worst = max((run for runs in found for run in runs), key=lambda run: run["excess"])
    meaning = "largest error / what is stated or the bar of its case, over all kinds"
    yield Row("portability, error", worst["excess"], 1.0, meaning, {"run": worst["run"]})
    for way in ((kinds[0], kinds[-1]), (kinds[-1], kinds[0])):
        yield from _resumed(way, 12 if large else 1)


def _resumed(kinds: tuple[str, str], seeds: int) -> Iterator[Row]:
    """Share of the queries paid again by runs begun as on one kind and finished as on another."""
    listed = ",".join(map(str, range(seeds)))
    with tempfile.TemporaryDirectory() as folder:
        _child(kinds[0], "tests.contracts.resuming", "begin", folder, listed)
        runs = _child(kinds[1], "tests.contracts.resuming", "finish", folder, listed)
    for name in (job.name for job in jobs()):
        some = [run for run in runs if run["case"] == name]
        if some:
            share = sum(max(run["again"], 0) for run in some) / sum(run["whole"] for run in some)
            meaning = f"queries paid again / queries, begun as on {kinds[0]}, finished as on {kinds[1]}"
            yield Row(f"resumed elsewhere, {name}", share, 0.01, meaning, {"seeds": len(some)})


def _child(kind: str, module: str, *arguments: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", module, *arguments]
    root = Path(__file__).parent.parent
    done = subprocess.run(command, env=environment(kind), cwd=root, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


if __name__ == "__main__":
    count, start = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    for run in swept(range(start, start + count)):
        print(json.dumps(run), flush=True)
