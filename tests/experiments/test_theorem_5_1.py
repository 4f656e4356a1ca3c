"""The phase transition: the verdict follows the rows."""

from __future__ import annotations

from dataclasses import replace

from unsoftmax.experiments import available, run
from unsoftmax.experiments.theorem_5_1 import EXPERIMENT


def test_three_methods_and_their_constants(tmp_path) -> None:
    points = [p for p in EXPERIMENT.points(True) if p["seed"] < 2 and p["ratio"] in (1.0, 2.0, 4.0)]
    report = run(replace(EXPERIMENT, points=lambda quick: points), tmp_path)
    assert report.verdict.holds
    few = [r for r in report.rows if r["method"] == "nuclear" and r["ratio"] == 1.0]
    assert few
    assert not any(r["success"] for r in few)
    assert all(r["per_unknown"] == 1.0 for r in report.rows if r["method"] == "cross")
    assert available()["theorem-5.1"] is EXPERIMENT


def test_failures_flip_the_verdict(tmp_path) -> None:
    points = [p for p in EXPERIMENT.points(True) if p["seed"] == 0 and p["ratio"] in (1.0, 4.0)]
    wrong = replace(EXPERIMENT, points=lambda quick: points, row=lambda p: {"error": 1.0, "success": 0.0})
    assert not run(wrong, tmp_path).verdict.holds
