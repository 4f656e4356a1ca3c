"""A ledger begun on one kind of processor is finished on another: nothing is paid twice, and the model is as good."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import unsoftmax as us
from scripts.kernels import THREE, available, environment, openblas, share_of
from tests.contracts.registry import Case, collect
from tests.contracts.resuming import jobs
from tests.contracts.shaken import WIDE, paid_again
from unsoftmax.learners.core import settling

HERE = available()
several = pytest.mark.skipif(len(HERE) < 2, reason="this machine stands for one kind of processor only")

SOME = [
    "LowRank-cross",
    "Membership",
    "MultiHead",
    "MultiHead-bounded",
    "OrthogonalHeads",
    "AttentionBehind-heads",
    "ReluNetwork-bias",
    "AttentionLayer-pre",
    "AttentionLayer-llama",
    "AttentionLayer-filling",
    "compare, rank one",
    "drawn, Transformer, limit",
]
"""One of every way to go wrong: tokens off values, steps of 1e-7, bases of a subspace, kinks, labels, ties."""

ALL = [job.name for job in jobs()]

AGAIN = 0.01
"""Share of the queries of twelve runs that a decision which hangs on a last digit may cost again."""


def resumed(kinds: tuple[str, str], folder: Path, seeds: str, names: list[str]) -> list[dict]:
    """Runs begun on the first kind and finished on the second."""
    for what, kind in zip(("begin", "finish"), kinds, strict=True):
        command = [sys.executable, "-m", "tests.contracts.resuming", what, str(folder), seeds, *names]
        done = subprocess.run(command, env=environment(kind), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def as_promised(runs: list[dict]) -> None:
    for run in runs:
        assert run["after"] == run["before"], run
        assert run["error"] <= run["bar"], run
    share = sum(max(run["again"], 0) for run in runs) / sum(run["whole"] for run in runs)
    assert share <= AGAIN, runs


@pytest.mark.parametrize("cases", [1, 2, 3, 7])
def test_three_kinds_run_every_case_between_them(cases: int) -> None:
    for test in ("tests/a.py::test_one", "tests/a.py::test_two", "tests/b.py::test_one"):
        shares = [share_of(kind, test, cases, 3) for kind in THREE]
        assert set().union(*shares) == set(range(cases))
        assert all(0 < len(share) <= -(-cases // 3) for share in shares)


@pytest.mark.skipif(not HERE, reason="kinds have no names here")
@pytest.mark.parametrize("threads", [1, 2])
def test_products_take_the_threads_that_are_asked_for(threads: int) -> None:
    if openblas() is None:
        pytest.skip("NumPy brings no OpenBLAS here")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    look = "from scripts.kernels import openblas; print(openblas().scipy_openblas_get_num_threads64_())"
    asked = environment(HERE[0], threads=threads)
    done = subprocess.run([sys.executable, "-c", look], env=asked, capture_output=True, text=True, check=True)
    assert int(done.stdout) == min(threads, cores)


@pytest.mark.parametrize("case", [case for case in collect() if case.name != "Membership-paper"], ids=str)
def test_fresh_queries_are_settled(case: Case, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(settling, "UNDECIDED", WIDE)
    oracle = case.oracle(case.target())
    model = us.recover(oracle, case.learner, seed=3, verify=False).model
    asked, again = paid_again(model, oracle, tmp_path / "ledger.db", 3)
    assert asked > 0
    assert again == 0


@several
def test_nothing_is_paid_twice_on_another_processor(tmp_path) -> None:
    runs = resumed((HERE[0], HERE[-1]), tmp_path, "0", SOME)
    assert [run["case"] for run in runs] == [name for name in ALL if name in SOME]
    for run in runs:
        as_promised([run])


@several
@pytest.mark.long
@pytest.mark.parametrize("kinds", [(HERE[0], HERE[-1]), (HERE[-1], HERE[0])] if len(HERE) > 1 else [], ids=str)
@pytest.mark.parametrize("name", ALL)
def test_everything_that_asks_resumes_on_another_processor(name: str, kinds: tuple[str, str], tmp_path) -> None:
    runs = resumed(kinds, tmp_path, ",".join(map(str, range(12))), [name])
    assert len(runs) == 12
    as_promised(runs)
