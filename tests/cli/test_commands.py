"""Commands against real files: results, exit codes, one-sentence errors."""

from __future__ import annotations

import importlib.util
import json

import pytest
from typer.testing import CliRunner

import unsoftmax as us
from unsoftmax.cli.app import app

HEAD = us.models.SingleHead.random(6, norm=2.0, seed=1)


def run(*arguments) -> object:
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture
def head(tmp_path):
    HEAD.save(tmp_path / "head.safetensors")
    return tmp_path / "head.safetensors"


@pytest.fixture
def factory(tmp_path):
    def write(body: str, name: str = "make") -> str:
        path = tmp_path / "target.py"
        path.write_text(f"import numpy as np\nimport unsoftmax as us\n{body}\n")
        return f"{path}:{name}"

    return write


def test_recover_saves_a_file_both_loaders_read(head, tmp_path) -> None:
    out, page = tmp_path / "copy.safetensors", tmp_path / "page.html"
    done = run("recover", head, "--learner", "SingleHead", "--output", out, "--report", page)
    assert done.exit_code == 0, done.output
    assert us.models.distance(us.models.load(out), HEAD) < 1e-13
    assert us.load(out).status is us.Status.RECOVERED
    assert "true W" in page.read_text()


def test_recover_as_json(head) -> None:
    data = json.loads(run("recover", head, "--learner", "SingleHead", "--json").output)
    assert data["status"] == "recovered"
    assert data["usage"]["phases"]["main"] == 36


def test_learner_parameters_and_toml_with_flags_above_it(head, tmp_path) -> None:
    config = tmp_path / "run.toml"
    config.write_text('learner = "SingleHead"\nseed = 3\nbudget = 10\n')
    assert run("recover", head, "--config", config).exit_code == 4
    done = run("recover", head, "--config", config, "--budget", 1000, "--set", "probes=coordinate", "--json")
    assert done.exit_code == 0, done.output
    config.write_text("nonsense = 1\n")
    wrong = run("recover", head, "--config", config)
    assert wrong.exit_code == 2
    assert "unknown options nonsense" in wrong.output


def test_a_factory_is_a_target(factory) -> None:
    target = factory("make = lambda: us.models.SingleHead.random(5, norm=2.0, seed=0)")
    assert run("recover", target, "--learner", "SingleHead").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["missing.safetensors"], 2, "does not exist"),
        (["{tmp}/x.txt"], 2, "unknown file type"),
        (["{tmp}/x.safetensors"], 2, "not a safetensors file"),
        (["{tmp}/target.py"], 2, "needs a factory"),
        (["{tmp}/target.py:absent"], 2, "no function"),
        (["{tmp}/target.py:fails"], 5, "ZeroDivisionError"),
        (["{tmp}/target.py:two_lines"], 5, "ValueError: one two; mend"),
        (["{tmp}/target.py:breaks"], 5, "the target raised"),
        (["{tmp}/target.py:two_heads", "--learner", "SingleHead"], 3, "contradict"),
        (["{tmp}/target.py:zero"], 3, "0"),
        (["{tmp}/target.py:works", "--learner", "Nonsense"], 2, "--learner"),
        (["{tmp}/target.py:works", "--learner", "SingleHead", "--budget", "5"], 4, "budget"),
        (["http://127.0.0.1:9/nothing"], 2, "does not name a model"),
        (["http://127.0.0.1:9/v2/models/m"], 5, ""),
    ],
)
def test_errors_are_one_sentence_with_the_right_code(arguments, code, words, tmp_path) -> None:
    (tmp_path / "x.txt").write_text("?")
    (tmp_path / "x.safetensors").write_text("?")
    (tmp_path / "target.py").write_text(
        "import numpy as np\nimport unsoftmax as us\n"
        "def fails(): return 1 / 0\n"
        "def two_lines(): raise ValueError('one\\ntwo')\n"
        "def breaks(): return us.oracle(lambda X: 1 / 0, 4)\n"
        "def two_heads(): return us.models.MultiHead.random(5, 2, norm=2.0)\n"
        "def zero(): return us.models.SingleHead(np.eye(4), np.zeros(4))\n"
        "def works(): return us.models.SingleHead.random(5)\n"
    )
    shown = run("recover", *[a.format(tmp=tmp_path) for a in arguments])
    assert shown.exit_code == code, shown.output
    assert words in shown.output
    assert "Traceback" not in shown.output


def test_audit_writes_everything_and_knows_when_it_is_too_cheap(head, tmp_path) -> None:
    files = {name: tmp_path / f"audit.{name}" for name in ("html", "json", "sarif")}
    arguments = ["audit", head, "--price", 0.01, "--folder", tmp_path / "cells", "--report", files["html"]]
    done = run(*arguments, "--output", files["json"], "--sarif", files["sarif"])
    assert done.exit_code == 0, done.output
    assert "Undefended" in done.output
    assert all(path.stat().st_size for path in files.values())
    assert "recovered W" in files["html"].read_text()
    assert run(*arguments, "--fail-if-cost-below", 1000).exit_code == 10
    assert run(*arguments, "--fail-if-cost-below", 0.01).exit_code == 0
    pages = run("report", files["json"], "--output", tmp_path / "pages")
    assert pages.exit_code == 0
    assert (tmp_path / "pages" / "audit.html").exists()


def test_a_suggested_link_is_an_option(factory) -> None:
    target = factory(
        "H = us.models.SingleHead.random(6, norm=2.0, seed=1)\ndef make():\n    return lambda X: np.tanh(H(X))"
    )
    refused = run("recover", target, "--dim", 6)
    assert refused.exit_code == 3
    assert "--link tanh" in refused.output
    done = run("recover", target, "--dim", 6, "--link", "tanh")
    assert done.exit_code == 0, done.output
    assert "before the link 'tanh'" in done.output


def test_an_audit_out_of_scope_is_no_success(factory) -> None:
    target = factory("def make():\n    return lambda X: X.max(axis=1).sum(axis=1)")
    done = run("audit", target, "--dim", 5)
    assert done.exit_code == 3
    assert "no proof that it is safe" in done.output


def test_theory_lists_and_evaluates() -> None:
    assert "single_head_queries(d: int)" in run("theory").output.replace("'", "")
    assert run("theory", "low_rank_unknowns", "d=4096", "r=128").output.strip() == "1036288"
    assert run("theory", "nonsense").exit_code == 2
    assert run("theory", "low_rank_unknowns", "d=4").exit_code == 2


@pytest.mark.parametrize("command", ["recover", "audit", "demo", "experiments", "report", "theory", "ledger", "serve"])
def test_help_teaches(command) -> None:
    shown = run(command, "--help")
    assert shown.exit_code == 0
    assert "unsoftmax" in shown.output


def test_a_torch_factory_and_an_onnx_file_are_targets(factory, tmp_path) -> None:
    pytest.importorskip("torch")
    target = factory(
        "import torch\n"
        "def make():\n"
        "    torch.manual_seed(0)\n"
        "    return torch.nn.MultiheadAttention(16, 2, batch_first=True, dtype=torch.float64)"
    )
    out = tmp_path / "layer.safetensors"
    done = run("recover", target, "--output", out)
    assert done.exit_code == 0, done.output
    us.models.load(out).to_onnx(tmp_path / "layer.onnx")
    shown = run("diagnose", tmp_path / "layer.onnx", "--json")
    assert json.loads(shown.output)["family"] == "attention layer"
    wrong = run("diagnose", tmp_path / "layer.onnx", "--kind", "membership")
    assert wrong.exit_code == 2
    assert "--kind does not apply" in wrong.output


def test_part_and_position_are_options_and_every_output_says_them(factory, tmp_path) -> None:
    pytest.importorskip("torch")
    target = factory(
        "import torch\n"
        "def make():\n"
        "    torch.manual_seed(0)\n"
        "    return torch.nn.TransformerEncoderLayer(8, 2, batch_first=True, dtype=torch.float64).eval()"
    )
    words = "TransformerEncoderLayer, its part 'attention', at the first position"
    chosen = ("--part", "attention", "--position", "0")
    done = run("recover", target, *chosen, "--report", tmp_path / "page.html")
    assert done.exit_code == 0, done.output
    assert words in done.output
    page = (tmp_path / "page.html").read_text()
    assert words.replace("'", "&#x27;") in page
    assert "--part attention --position 0" in page
    audited = run("audit", target, *chosen, "--budget", "400", "--output", tmp_path / "audit.json")
    assert words in audited.output
    assert words in json.loads((tmp_path / "audit.json").read_text())["evidence"]["asked"]
    whole = run("recover", target)
    assert whole.exit_code == 3
    assert "--part" in whole.output
    (tmp_path / "run.toml").write_text('part = "attention"\nposition = -1\n')
    assert "at the last position" in run("recover", target, "--config", tmp_path / "run.toml").output


@pytest.mark.parametrize(
    "arguments",
    [
        ["recover", "{target}", "--output", "{target}"],
        ["recover", "{target}", "--ledger", "{tmp}/./head.safetensors"],
        ["recover", "{target}", "--output", "{tmp}/x", "--ledger", "{tmp}/x"],
        ["audit", "{target}", "--output", "{target}"],
        ["recover", "{tmp}/target.py:make", "--output", "{tmp}/target.py"],
        ["recover", "{target}", "--config", "{tmp}/run.toml", "--output", "{tmp}/run.toml"],
        ["audit", "{target}", "--truth", "{tmp}/other.safetensors", "--output", "{tmp}/other.safetensors"],
        ["compare", "{target}", "{tmp}/other.safetensors", "--output", "{target}"],
        ["compare", "{target}", "{tmp}/other.safetensors", "--report", "{tmp}/other.safetensors"],
    ],
)
def test_no_output_overwrites_the_target_or_another(arguments, head, factory, tmp_path) -> None:
    factory("def make():\n    return us.models.load('" + str(head) + "')")
    us.models.load(head).save(tmp_path / "other.safetensors")
    (tmp_path / "run.toml").write_text("seed = 1\n")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    refused = run(*(a.format(target=head, tmp=tmp_path) for a in arguments))
    assert refused.exit_code == 2
    assert "would be overwritten" in refused.output
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    "arguments", [["demo", "--report"], ["recover", "{head}", "--report"], ["audit", "{head}", "--report"]]
)
def test_a_missing_extra_is_said_before_the_run(arguments, head, tmp_path, monkeypatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n, *a: None if n == "vl_convert" else found(n, *a))
    refused = run(*(a.format(head=head) for a in arguments), tmp_path / "page.html")
    assert refused.exit_code == 2
    assert "unsoftmax[report]" in refused.output
    assert "queries" not in refused.output
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["recover", "{head}", "--config", "{tmp}/bad.toml"],
        ["report", "{tmp}/r.safetensors", "--output", "/proc/x"],
        ["audit", "{head}", "--fail-if-cost-below", "5"],
        ["ledger", "show", "{head}"],
    ],
)
def test_wrong_usage_is_a_sentence_and_code_2(arguments, head, tmp_path) -> None:
    (tmp_path / "bad.toml").write_text('seed = "abc"\n')
    us.recover(us.oracle(HEAD), us.learners.SingleHead()).save(tmp_path / "r.safetensors")
    shown = run(*[a.format(head=head, tmp=tmp_path) for a in arguments])
    assert shown.exit_code == 2, shown.output
    assert "Traceback" not in shown.output


def test_a_cost_budget_and_json_of_the_smaller_commands(head, tmp_path) -> None:
    cheap = run("recover", head, "--learner", "SingleHead", "--price", 1, "--max-cost", 5)
    assert cheap.exit_code == 4
    assert run("recover", head, "--max-cost", 5).exit_code == 2
    ledger, out = tmp_path / "run.ledger", tmp_path / "r.safetensors"
    done = run("recover", head, "--learner", "SingleHead", "--ledger", ledger, "--output", out)
    assert done.exit_code == 0, done.output
    assert json.loads(run("ledger", "show", ledger, "--json").output)["integrity"] == "whole"
    assert json.loads(run("report", out, "--json").output)["pages"] == [str(tmp_path / "r.html")]
