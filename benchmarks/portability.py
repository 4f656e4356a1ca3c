"""The same targets as on several kinds of processor: status, bounds, and what a resumed run pays again.

Run before a release. Every configuration of the contract tests is tried on targets of its own under every kind that
this machine has; `python -m benchmarks.portability KIND` prints the results of one kind, as the benchmark asks for.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import unsoftmax as us
from benchmarks.base import Row
from scripts.kernels import available, environment
from tests.contracts.registry import collect

_TARGETS, _TARGETS_LARGE = 3, 150
"""Seeds of each configuration; with 37 of these the large run makes 5,550 runs under every kind."""

_LARGEST_CASE = "Membership-paper"
"""Theorem B.1 asks 74,000 sequences for each target: one seed says as much as all."""


def swept(seeds: int) -> Iterator[dict[str, Any]]:
    """Status and worst bound of every configuration and seed, on this process's kind."""
    for case in collect():
        for seed in range(1 if case.name == _LARGEST_CASE else seeds):
            target = case.target()
            try:
                recovery = us.recover(case.oracle(target), case.learner, seed=seed)
            except us.errors.UnsoftmaxError as error:
                yield {"run": f"{case.name} {seed}", "status": type(error).__name__, "excess": 0.0}
                continue
            error_seen = us.models.distance(recovery.model, target)
            yield {"run": f"{case.name} {seed}", "status": recovery.status.name, "excess": error_seen / case.error}


def rows(large: bool) -> Iterator[Row]:
    kinds = available()
    if len(kinds) < 2:
        return
    seeds = _TARGETS_LARGE if large else _TARGETS
    found = {kind: _child(kind, "benchmarks.portability", str(seeds)) for kind in kinds}
    first, *others = found.values()
    unequal = [a["run"] for other in others for a, b in zip(first, other, strict=True) if a["status"] != b["status"]]
    meaning = f"targets whose status differs between {', '.join(kinds)}, of {len(first)}"
    yield Row("portability, status", float(len(unequal)), 0.0, meaning, {"unequal": unequal[:20]})
    worst = max(run["excess"] for runs in found.values() for run in runs)
    yield Row("portability, error", worst, 1.0, "largest error / bar of its configuration, over all kinds")
    yield from _resumed(kinds, 12 if large else 1)


def _resumed(kinds: list[str], seeds: int) -> Iterator[Row]:
    """Share of the queries paid again by runs begun as on the oldest kind and finished as on the newest."""
    names = [case.name for case in collect() if case.name != _LARGEST_CASE]
    listed = ",".join(map(str, range(seeds)))
    with tempfile.TemporaryDirectory() as folder:
        _child(kinds[0], "tests.contracts.resuming", "begin", folder, listed, *names)
        runs = _child(kinds[-1], "tests.contracts.resuming", "finish", folder, listed, *names)
    for name in names:
        some = [run for run in runs if run["case"] == name]
        if some:
            share = sum(max(run["again"], 0) for run in some) / sum(run["whole"] for run in some)
            meaning = f"queries paid again / queries, begun as on {kinds[0]}, finished as on {kinds[-1]}"
            yield Row(f"resumed elsewhere, {name}", share, 0.01, meaning, {"seeds": len(some)})


def _child(kind: str, module: str, *arguments: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", module, *arguments]
    root = Path(__file__).parent.parent
    done = subprocess.run(command, env=environment(kind), cwd=root, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


if __name__ == "__main__":
    for run in swept(int(sys.argv[1])):
        print(json.dumps(run))
