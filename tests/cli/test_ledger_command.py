"""`unsoftmax ledger show|export`."""

from __future__ import annotations

import csv
import sqlite3

import numpy as np
import pytest
from typer.testing import CliRunner

import unsoftmax as us
from unsoftmax.cli.app import app
from unsoftmax.oracles import Ledger


@pytest.fixture
def ledger(tmp_path):
    path = tmp_path / "run.db"
    head = us.models.SingleHead.random(6, norm=2.0, seed=1)
    us.recover(us.oracle(head, name="mine"), us.learners.SingleHead(), ledger=path)
    return path


def run(*arguments):
    return CliRunner().invoke(app, ["ledger", *map(str, arguments)], env={"COLUMNS": "200"})


def test_show_says_whose_it_is_and_that_it_is_whole(ledger):
    shown = run("show", ledger)
    assert shown.exit_code == 0
    for word in ("target.name", "mine", "configuration.learner", "SingleHead", "answers of phase main", "36", "whole"):
        assert word in shown.output


def test_show_reports_damage(ledger):
    connection = sqlite3.connect(ledger)
    connection.execute("UPDATE chunks SET checksum = checksum + 1 WHERE id = 2")
    connection.commit()
    connection.close()
    shown = run("show", ledger)
    assert shown.exit_code == 2
    assert "chunk 2 is not what was written" in shown.output


def test_exports_hold_every_answer_exactly(ledger, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    assert run("export", ledger, tmp_path / "a.csv").exit_code == 0
    assert run("export", ledger, tmp_path / "a.parquet").exit_code == 0
    with Ledger(ledger) as opened:
        answers = np.concatenate([answers for _, _, answers in opened.chunks()])
    with open(tmp_path / "a.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    table = parquet.read_table(tmp_path / "a.parquet").to_pydict()
    assert np.array_equal([float(row["answer_0"]) for row in rows], answers)
    assert np.array_equal(table["answer_0"], answers)
    assert [row["address"] for row in rows] == table["address"]
    assert [row["phase"] for row in rows] == table["phase"]


def test_mistakes_are_told(ledger, tmp_path):
    assert "does not exist" in run("show", tmp_path / "none.db").output
    assert "must end in .csv or .parquet" in run("export", ledger, tmp_path / "a.xlsx").output
    with Ledger(ledger):
        shown = run("show", ledger)
    assert shown.exit_code == 2
    assert "in use by another run" in shown.output
