"""`unsoftmax fit` against real files: results, pages, exit codes."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import unsoftmax as us
from tests.fitting.logs import head, tokens
from unsoftmax.cli.app import app

TRUE, X = head(6, seed=1), tokens(120, dim=6)


def run(*arguments) -> object:
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture
def log(tmp_path):
    np.savez(tmp_path / "log.npz", tokens=X, answers=TRUE(X))
    return tmp_path / "log.npz"


def test_a_log_becomes_a_model_and_a_page_with_its_curve(log, tmp_path) -> None:
    out, page = tmp_path / "copy.safetensors", tmp_path / "page.html"
    done = run("fit", log, "--output", out, "--report", page)
    assert done.exit_code == 0, done.output
    assert "no query" in done.output
    assert us.models.distance(us.models.load(out), TRUE) < 1e-8
    text = page.read_text()
    assert "Error against records" in text
    assert "Error bars" in text
    assert f"unsoftmax fit {log}" in text
    assert run("report", out, "--output", tmp_path / "again").exit_code == 0


def test_what_the_log_does_not_show_is_on_the_page(tmp_path) -> None:
    fixed = np.concatenate([X[:, :-1], np.repeat(X[:1, -1:], 120, axis=0)], axis=1)
    np.savez(tmp_path / "log.npz", tokens=fixed, answers=TRUE(fixed))
    done = run("fit", tmp_path / "log.npz", "--report", tmp_path / "page.html")
    assert done.exit_code == 0, done.output
    assert "What the log does not show" in (tmp_path / "page.html").read_text()


def test_ids_with_a_table_as_json(tmp_path) -> None:
    table, rng = tokens(1, dim=6, length=40)[0], np.random.default_rng(0)
    ids = rng.integers(40, size=(120, 7))
    lines = [json.dumps({"ids": i.tolist(), "answer": float(TRUE(table[i][None])[0])}) for i in ids]
    (tmp_path / "log.jsonl").write_text("\n".join(lines))
    np.save(tmp_path / "table.npy", table)
    done = run("fit", tmp_path / "log.jsonl", "--table", tmp_path / "table.npy", "--json")
    data = json.loads(done.output)
    assert data["status"] == "recovered"
    assert data["records"] == {"fitted": 102, "held out": 18}
    assert data["undetermined"] == 0


@pytest.mark.parametrize("model", ["low rank", "low-rank"])
def test_json_counts_what_stays_open_where_no_basis_is_held(tmp_path, model: str) -> None:
    narrow = X[:, :, :4] @ np.random.default_rng(2).standard_normal((4, 30))
    head = us.models.LowRankHead.random(30, 2, seed=1)
    np.savez(tmp_path / "log.npz", tokens=narrow, answers=head(narrow))
    data = json.loads(run("fit", tmp_path / "log.npz", "--model", model, "--rank", 2, "--json").output)
    assert data["undetermined"] == data["found"]["undetermined"] > 0


def test_a_surrogate_has_an_exit_code_of_its_own(tmp_path) -> None:
    np.savez(tmp_path / "log.npz", tokens=X, answers=TRUE(X) + 1)
    done = run("fit", tmp_path / "log.npz", "--starts", 3)
    assert done.exit_code == 3
    assert "surrogate" in done.output


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--model", "x"), 2),
        (("--holdout", 2), 2),
        (("--heads", 3), 2),
        (("--output", "no/such/folder.safetensors"), 2),
    ],
)
def test_wrong_usage_is_one_sentence(log, arguments, code) -> None:
    done = run("fit", log, *arguments)
    assert done.exit_code == code
    assert "Traceback" not in done.output


def test_files_that_are_no_logs_are_named(tmp_path) -> None:
    (tmp_path / "log.txt").write_text("x")
    done = run("fit", tmp_path / "log.txt")
    assert done.exit_code == 2
    assert ".npz" in done.output
    few = tmp_path / "few.npz"
    np.savez(few, tokens=X[:40], answers=TRUE(X[:40]))
    assert run("fit", few).exit_code == 3
