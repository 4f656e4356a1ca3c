"""Error against tolerance and against digits: the verdicts come from the rows and can fall."""

from __future__ import annotations

from dataclasses import replace

import pytest

from unsoftmax.experiments import available, run


@pytest.mark.parametrize(("name", "worse"), [("theorem-6.1", {"stated": 1e-12}), ("digits-kept", {"expected": 1e-20})])
def test_holds_on_a_small_sweep_and_falls_on_a_wrong_constant(name, worse, tmp_path) -> None:
    whole = available()[name]
    points = [p for p in whole.points(True) if p["d"] == 8 and p["seed"] == 0]
    small = replace(whole, points=lambda quick: points)
    assert run(small, tmp_path / "right").verdict.holds
    assert (tmp_path / "right" / "claim.md").read_text()
    wrong = replace(small, row=lambda point: {**whole.row(point), **worse})
    assert not run(wrong, tmp_path / "wrong").verdict.holds
