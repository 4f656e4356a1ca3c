"""The command line as a user meets it."""

from __future__ import annotations

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


def test_demo_recovers_and_shows_the_counts() -> None:
    shown = run(app, ["demo", "--dim", "16"])
    assert shown.exit_code == 0
    assert "272 (d + d² = 272)" in shown.output
    assert "holds" in shown.output


def test_experiments_list_and_unknown_names() -> None:
    assert "theorem-4.1" in run(app, ["experiments", "--list"]).output
    wrong = run(app, ["experiments", "nonsense"])
    assert wrong.exit_code == 2
