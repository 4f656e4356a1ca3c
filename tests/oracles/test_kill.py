"""Runs killed by SIGKILL in the target call, in the commit and in the solve resume to the same bytes."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


@pytest.mark.parametrize(("kills", "seed"), [(12, 0), pytest.param(200, 1, marks=pytest.mark.long)])
def test_killed_runs_resume(kills, seed, tmp_path):
    command = [sys.executable, "-m", "tests.oracles.kill_driver", str(kills), str(seed), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)["killed"]
    assert sum(counts.values()) >= kills
    assert set(counts) == {"c", "p", "s"}, "every stage was hit"
