"""The experiment interface: rows resume, claims come from data, and a wrong constant flips the verdict."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from unsoftmax.errors import FileFormatError
from unsoftmax.experiments import available, run
from unsoftmax.experiments.base import Figure, Verdict
from unsoftmax.experiments.theorem_4_1 import EXPERIMENT


@pytest.fixture
def small():
    points = [p for p in EXPERIMENT.points(True) if p["d"] <= 8]
    return replace(EXPERIMENT, points=lambda quick: points)


def test_theorem_4_1_holds_and_leaves_its_files(small, tmp_path) -> None:
    report = run(small, tmp_path)
    assert report.verdict.holds
    assert "holds" in (tmp_path / "claim.md").read_text()
    assert (tmp_path / "rows.csv").read_text().count("\n") == len(report.rows) + 1


def test_a_wrong_constant_flips_the_verdict(small, tmp_path) -> None:
    wrong = replace(small, row=lambda point: {**EXPERIMENT.row(point), "theorem": point["d"] ** 2})
    report = run(wrong, tmp_path)
    assert not report.verdict.holds
    assert "does not hold" in report.paragraph


def test_rows_already_measured_are_not_measured_again(small, tmp_path) -> None:
    calls = []

    def stops_early(point):
        if len(calls) == 5:
            raise KeyboardInterrupt
        calls.append(point)
        return EXPERIMENT.row(point)

    with pytest.raises(KeyboardInterrupt):
        run(replace(small, row=stops_early), tmp_path)
    again = []
    report = run(replace(small, row=lambda p: again.append(p) or EXPERIMENT.row(p)), tmp_path)
    assert len(again) == len(report.rows) - 5
    assert report.verdict.holds


def test_interrupted_torn_or_parallel_the_files_are_the_same(small, tmp_path) -> None:
    run(small, tmp_path / "whole")
    calls = []

    def stops_early(point):
        if len(calls) == 7:
            raise KeyboardInterrupt
        calls.append(point)
        return EXPERIMENT.row(point)

    with pytest.raises(KeyboardInterrupt):
        run(replace(small, row=stops_early), tmp_path / "torn")
    rows = tmp_path / "torn" / "rows.csv"
    rows.write_bytes(rows.read_bytes()[:-9])  # died in the middle of a row
    run(small, tmp_path / "torn")
    with ThreadPoolExecutor(2) as pool:
        run(small, tmp_path / "parallel", executor=pool)
    names = sorted(path.name for path in (tmp_path / "whole").iterdir())
    assert {"claim.md", "rows.csv", "summary.csv"} <= set(names)
    for name in names:
        whole = (tmp_path / "whole" / name).read_bytes()
        assert (tmp_path / "torn" / name).read_bytes() == whole, name
        assert (tmp_path / "parallel" / name).read_bytes() == whole, name


def test_text_is_plain_and_reads_as_it_was(tmp_path) -> None:
    names = [
        "householder",
        "by hand, twice",
        'a "word"',
        "true",
        "NaN",
        "12",
        "",
        "\u00e9t\u00e9",
        "two\nlines",
        None,
        0.1,
    ]
    points = [{"seed": n, "name": name, "d": 1} for n, name in enumerate(names)]
    told = Verdict(True, "it is")
    plain = replace(
        EXPERIMENT,
        points=lambda quick: points,
        row=lambda p: {"y": 1.0},
        judge=lambda rows: told,
        figure=Figure("d", "y"),
    )
    assert [row["name"] for row in run(plain, tmp_path).rows] == names
    written = (tmp_path / "rows.csv").read_bytes()
    assert b"0,householder,1,1.0" in written
    again = []
    found = run(replace(plain, row=lambda p: again.append(p) or {"y": 1.0}), tmp_path)
    assert not again
    assert [row["name"] for row in found.rows] == names
    assert (tmp_path / "rows.csv").read_bytes() == written


def test_a_damaged_file_is_named(small, tmp_path) -> None:
    run(small, tmp_path)
    path = tmp_path / "rows.csv"
    path.write_text(path.read_text().replace("householder", "[house", 1))
    with pytest.raises(FileFormatError, match=r"rows\.csv is damaged"):
        run(small, tmp_path)


@pytest.mark.parametrize("experiment", available().values(), ids=lambda e: e.name)
def test_every_experiment_is_complete(experiment) -> None:
    quick, full = experiment.points(True), experiment.points(False)
    assert 0 < len(quick) <= len(full)
    assert experiment.claim.endswith(".")
    assert {"seed"} <= set(quick[0])


def test_theorem_b_1_draws_both_methods_over_the_floor(tmp_path) -> None:
    from unsoftmax.experiments import theorem_b_1

    kept = [p for p in theorem_b_1.EXPERIMENT.points(True) if p["seed"] == 0 and p["accuracy"] != 0.1]
    kept += [
        p for p in theorem_b_1.EXPERIMENT.points(True) if p["accuracy"] == 0.1 and p["method"] != theorem_b_1.BY_HAND
    ]
    small = replace(theorem_b_1.EXPERIMENT, points=lambda quick: kept)
    report = run(small, tmp_path)
    assert report.verdict.holds
    assert {r["method"] for r in report.rows} == {theorem_b_1.STATED, theorem_b_1.BY_HAND, theorem_b_1.BISECTION}
    dearer = replace(small, row=lambda p: {**theorem_b_1.row(p), "floor": 1e-3 * theorem_b_1.row(p)["floor"]})
    assert not run(dearer, tmp_path / "dearer").verdict.holds
