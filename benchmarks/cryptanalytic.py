"""The public code of cryptanalytic extraction (arXiv 2003.04884) on the same network as ours, where it is at hand.

`CRYPTANALYTIC` names a checkout of it and `CRYPTANALYTIC_PYTHON` an interpreter with its dependencies (jax, networkx);
nothing is installed here. Two imports that JAX has moved since, and a pool of at least one process, are mended in a
copy. Queries are its own count in the main process, which leaves out those of its workers.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import unsoftmax as us
from benchmarks.base import Row

_SIZES = (10, 15, 1)
_SEED = 42
_MOVED = (
    ("src/global_vars.py", "from jax.config import config", "import jax\nconfig = jax.config"),
    ("src/global_vars.py", "max(mp.cpu_count(),1)", "max(mp.cpu_count(),4)"),
    ("src/refine_precision.py", "jax.experimental.optimizers", "jax.example_libraries.optimizers"),
)
_PATIENCE = 1800
"""Seconds after which the peer is given up."""


def rows(large: bool) -> Iterator[Row]:
    folder = os.environ.get("CRYPTANALYTIC")
    if not folder:
        return
    A, B = network()
    theirs, error = extracted(Path(folder), A, B)

    def target(X: Any) -> Any:
        return (np.maximum(X[:, -1] @ A[0] + B[0], 0) @ A[1] + B[1])[:, 0]

    recovery = us.recover(us.oracle(target, _SIZES[0]), us.learners.ReluNetwork(bias=True))
    x = np.random.default_rng(1).standard_normal((10_000, 1, _SIZES[0]))
    x /= np.linalg.norm(x, axis=2, keepdims=True)
    gap = float(np.abs(recovery.model(x) - target(x)).max())
    unknowns = (_SIZES[0] + 1) * _SIZES[1] + 1  # the scale of a neuron moves freely between its layers
    line = {
        "task": f"queries for a ReLU network, {'-'.join(map(str, _SIZES))} with biases",
        "limit": unknowns,
        "peer": "cryptanalytic extraction (arXiv 2003.04884)",
        "peer's figure": theirs,
        "ours": recovery.usage.billed,
        "remark": f"largest error on the unit sphere {error:.0e}, ours {gap:.0e}; its workers' queries are not counted",
    }
    yield Row("queries, ReLU network", recovery.usage.billed / theirs, 1.0, "ours / public code", {"lines": [line]})


def network() -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Weights and biases of a random network, layer by layer."""
    rng = np.random.default_rng(0)
    pairs = list(pairwise(_SIZES))
    return [rng.standard_normal(p) / np.sqrt(p[0]) for p in pairs], [0.3 * rng.standard_normal(p[1]) for p in pairs]


def extracted(folder: Path, A: list[np.ndarray], B: list[np.ndarray]) -> tuple[int, float]:
    """Queries that the public code counted, and its largest error on the unit sphere."""
    held = np.empty((2, len(A)), dtype=object)
    for i, (a, b) in enumerate(zip(A, B, strict=True)):
        held[0, i], held[1, i] = a, b
    name = "-".join(map(str, _SIZES))
    with tempfile.TemporaryDirectory() as place:
        home = Path(place) / "code"
        shutil.copytree(folder, home)
        for file, old, new in _MOVED:
            (home / file).write_text((home / file).read_text().replace(old, new))
        (home / "models").mkdir(exist_ok=True)
        np.save(home / "models" / f"{_SEED}_{name}.npy", held, allow_pickle=True)
        words = [os.environ.get("CRYPTANALYTIC_PYTHON", sys.executable), "extract.py", name, str(_SEED)]
        done = subprocess.run(words, cwd=home, capture_output=True, text=True, timeout=_PATIENCE)
    counts = re.findall(r"Total query count (\d+)", done.stdout)
    errors = re.findall(r"Maximum logit loss on the unit sphere (\S+)", done.stdout)
    if not counts or not errors:
        raise RuntimeError(f"the public code did not end: {done.stderr[-300:]}")
    return int(counts[-1]), float(errors[-1])
