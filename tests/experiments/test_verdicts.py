"""Every verdict comes from the rows: it holds on measured ones and falls when a constant is wrong."""

from __future__ import annotations

from functools import cache

import pytest

from unsoftmax.experiments import available, run
from unsoftmax.experiments.base import Row

EXPERIMENTS = available()

# Experiment -> what a wrong constant in the theory, or a method that fails, does to each row.
PLANTED = {
    "any-network": {"theorem": lambda x: x + 1, "error": lambda x: 1e-6},
    "cross": {"unknowns": lambda x: x + 1, "error": lambda x: 1e-6},
    "deep-stacks": {"error": lambda x: 1e-6, "kept": lambda x: False, "recovered": lambda x: not x},
    "digits-kept": {"expected": lambda x: x * 100, "error": lambda x: 100 * x, "stated": lambda x: x / 1000},
    "explanations": {"error": lambda x: 1e-6, "queries": lambda x: 2 * x},
    "other-kernels": {"error": lambda x: 1e-6, "named": lambda x: False, "off the form": lambda x: 1},
    "hessian-conjecture": {"found": lambda x: x - 1, "refused": lambda x: True},
    "membership": {"floor": lambda x: x / 2, "queries": lambda x: x / 2},
    "membership-heads": {"floor": lambda x: x / 2, "heads": lambda x: x + 1, "error": lambda x: 1.0},
    "multi-head": {"closed_form": lambda x: x - 1, "rational": lambda x: x / 4, "found": lambda x: x + 1},
    "probes": {"error": lambda x: 1e-6, "margin": lambda x: x**3},
    "proposition-c.2": {"theorem": lambda x: x + 1, "error": lambda x: 1e-6},
    "proposition-7.1": {"gap": lambda x: 1e-6, "same": lambda x: not x, "found": lambda x: 2},
    "real-layer": {"found": lambda x: x + 1, "per_unknown": lambda x: x / 3},
    "recorded-traffic": {"error": lambda x: 1e-6, "kept": lambda x: False, "per_unknown": lambda x: 4 * x},
    "relu-network": {"unknowns": lambda x: 3 * x, "width": lambda x: x - 1, "error": lambda x: 1e-3},
    "section-4.1": {"theorem": lambda x: x // 2, "whole": lambda x: 1e-3},
    "theorem-4.1": {"theorem": lambda x: x + 1, "error": lambda x: 1e-6},
    "theorem-5.1": {"success": lambda x: 0.0},
    "theorem-6.1": {"stated": lambda x: x / 20, "error": lambda x: x / 20, "queries": lambda x: x + 1},
    "theorem-b.1": {"floor": lambda x: x / 2, "queries": lambda x: x / 2, "error": lambda x: 1.0},
}
ANY = {"error": lambda x: 1.0}


@cache
def measured(name: str) -> tuple[Row, ...]:
    """The quick sweep's first seed at its smallest dimension."""
    experiment = EXPERIMENTS[name]
    points = [p for p in experiment.points(True) if p["seed"] == 0]
    smallest = min(p.get("d", 0) for p in points)
    return tuple({**p, **experiment.row(p)} for p in points if p.get("d", 0) == smallest)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_holds_on_what_was_measured(name) -> None:
    verdict = EXPERIMENTS[name].judge(measured(name))
    assert verdict.holds, verdict


@pytest.mark.parametrize(("name", "column"), [(n, c) for n in EXPERIMENTS for c in PLANTED.get(n, ANY)])
def test_a_planted_error_flips_it(name, column) -> None:
    plant = PLANTED.get(name, ANY)[column]
    wrong = [{**row, column: plant(row[column])} for row in measured(name)]
    verdict = EXPERIMENTS[name].judge(wrong)
    assert not verdict.holds
    assert str(verdict).startswith("does not hold: ")


@pytest.mark.long
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_quick_sweep(name, tmp_path) -> None:
    report = run(EXPERIMENTS[name], tmp_path, quick=True)
    assert report.verdict.holds, report.paragraph
    assert {"rows.csv", "summary.csv", "claim.md"} <= {file.name for file in tmp_path.iterdir()}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_verdicts_are_plain_truth_values(name) -> None:
    assert isinstance(EXPERIMENTS[name].judge(measured(name)).holds, bool)
