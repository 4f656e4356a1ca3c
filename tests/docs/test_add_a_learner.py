"""The documented way: where things are is where the page says, and its learner lands with one file and one case."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "add-a-learner.md"


def pointed() -> list[tuple[str, str]]:
    """(file, name) of every row of the table that names something inside a file."""
    return re.findall(r"\]\(\.\./([\w/]+\.py)\)[^|`\[]*, `(\w+)`", PAGE.read_text())


def test_what_the_table_points_to_is_there() -> None:
    assert len(pointed()) >= 6
    for file, name in pointed():
        assert re.search(rf"^(def|class) {name}\b|^{name}\b.* = ", (ROOT / file).read_text(), re.MULTILINE), (
            file,
            name,
        )


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_the_learner_of_the_page_passes_the_contract_suite(tmp_path) -> None:
    for folder in ("src", "tests", "docs", "benchmarks", "scripts"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__", "reference"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    head, case = blocks("text")
    body = blocks("python")[0].split("weights = ")[0].replace("import unsoftmax as us\n", "")
    learners = tmp_path / "src" / "unsoftmax" / "learners"
    (learners / "mean_pooling.py").write_text(f"{head}\nfrom __future__ import annotations\n\n{body}")
    (tmp_path / "tests" / "contracts" / "cases" / "mean_pooling.py").write_text(case)
    exports = (learners / "__init__.py").read_text()
    (learners / "__init__.py").write_text(
        f"{exports}\nfrom unsoftmax.learners.mean_pooling import MeanPooling as MeanPooling\n"
    )
    tests = [sys.executable, "-m", "pytest", "-q", "tests/contracts", "tests/verify/test_plans.py"]
    chosen = ["-m", "not long", "-k", "MeanPooling or mean_pooling or layering or thresholds"]
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "src")}
    done = subprocess.run([*tests, *chosen], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) >= 20
