"""The command line as a user meets it."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

import unsoftmax as us
from unsoftmax.cli.app import app

run = CliRunner().invoke


def test_version() -> None:
    shown = run(app, ["--version"])
    assert shown.exit_code == 0
    assert us.__version__ in shown.output


def test_help_says_for_which_models() -> None:
    assert "own or are permitted to test" in " ".join(run(app, ["--help"]).output.split())


def test_the_name_alone_says_what_to_do_next() -> None:
    shown = run(app, [])
    assert shown.exit_code == 0
    for words in ("What does my model give away", "unsoftmax demo", "unsoftmax audit", "unsoftmax compare", "--help"):
        assert words in shown.output


@pytest.mark.parametrize("drawn", [True, False], ids=["with the extra", "bare install"])
def test_demo_recovers_audits_and_compares(drawn, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    if not drawn:
        found = importlib.util.find_spec
        monkeypatch.setattr(importlib.util, "find_spec", lambda n, *a: None if n == "vl_convert" else found(n, *a))
    shown = run(app, ["demo", "--dim", "16"])
    assert shown.exit_code == 0, shown.output
    words = " ".join(shown.output.split())
    assert "272 (d + d² = 272)" in words
    assert "holds" in words
    assert "moved by 0.001: sparse." in words
    assert "unsoftmax audit TARGET" in words
    assert (tmp_path / "out" / "demo.html").exists() == drawn
    assert ("unsoftmax[report]" in words) != drawn


def test_experiments_list_and_unknown_names() -> None:
    assert "theorem-4.1" in run(app, ["experiments", "--list"]).output
    wrong = run(app, ["experiments", "nonsense"])
    assert wrong.exit_code == 2


def test_experiments_end_with_a_code_of_their_own_if_a_claim_falls(tmp_path, monkeypatch) -> None:
    from unsoftmax import experiments
    from unsoftmax.experiments.base import Verdict

    known = experiments.available()["section-4.1"]
    small = replace(known, points=lambda quick: list(known.points(True))[:1])
    for holds, code in ((True, 0), (False, 13)):
        judged = replace(small, judge=lambda rows, holds=holds: Verdict(holds, "so it was judged."))
        monkeypatch.setattr(experiments, "available", lambda judged=judged: {"section-4.1": judged})
        done = run(app, ["experiments", "section-4.1", "--output", str(tmp_path), "--json"])
        assert done.exit_code == code, done.output
        assert json.loads(done.stdout)[0]["holds"] is holds
        assert ("does not hold: section-4.1" in done.stderr) is not holds
