"""unsoftmax compare: the sentence, the files, the exit code."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import unsoftmax as us
from unsoftmax.cli import exits
from unsoftmax.cli.app import app


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    head = us.models.SingleHead.random(12, norm=2.0, seed=1)
    head.save(tmp_path / "shipped.safetensors")
    head.astype("float32").save(tmp_path / "float32.safetensors")
    W = np.array(head.W)
    W[2, 3] += 0.01
    us.models.SingleHead(W, head.v).save(tmp_path / "changed.safetensors")
    return tmp_path


def run(folder: Path, target: str, *options: str) -> tuple[int, str]:
    done = CliRunner().invoke(
        app, ["compare", str(folder / target), str(folder / "shipped.safetensors"), *options], catch_exceptions=False
    )
    return done.exit_code, done.stdout


def test_the_same_model_ends_with_0(folder: Path) -> None:
    for target in ("shipped.safetensors", "float32.safetensors"):
        code, text = run(folder, target)
        assert code == 0
        assert text.startswith("same: ")


@pytest.mark.parametrize("seed", range(4))
def test_a_recovered_copy_is_the_same_on_either_side(tmp_path: Path, seed: int) -> None:
    head = us.models.SingleHead.random(16, norm=2.0, seed=seed)
    head.save(tmp_path / "shipped.safetensors")
    us.recover(us.oracle(head), us.learners.SingleHead(), seed=seed).save(tmp_path / "copy.safetensors")
    for target, reference in (("copy", "shipped"), ("shipped", "copy")):
        names = [str(tmp_path / f"{name}.safetensors") for name in (target, reference)]
        done = CliRunner().invoke(app, ["compare", *names], catch_exceptions=False)
        assert done.exit_code == 0, done.stdout
        assert done.stdout.startswith("same: ")
        assert "the error that the recovery states" in done.stdout
        watched = [*names, "--monitor", str(tmp_path / f"{target}.json")]
        for _ in range(3):
            done = CliRunner().invoke(app, ["compare", *watched], catch_exceptions=False)
        assert done.exit_code == 0, done.stdout


def test_a_change_beyond_what_a_recovered_copy_states_is_seen(tmp_path: Path) -> None:
    head = us.models.SingleHead.random(16, norm=2.0, seed=5)
    us.recover(us.oracle(head), us.learners.SingleHead()).save(tmp_path / "copy.safetensors")
    W = np.array(head.W)
    W[2, 3] *= 1 + 1e-3
    us.models.SingleHead(W, head.v).save(tmp_path / "shipped.safetensors")
    assert run(tmp_path, "copy.safetensors")[0] == exits.Exit.DIFFERS


def test_a_changed_model_ends_with_11_and_leaves_files(folder: Path) -> None:
    pytest.importorskip("vl_convert")
    files = {name: folder / f"out.{name}" for name in ("report", "sarif", "output")}
    options = [word for name, path in files.items() for word in (f"--{name}", str(path))]
    code, text = run(folder, "changed.safetensors", *options)
    assert code == exits.Exit.DIFFERS == 11
    assert text.startswith("sparse: 1 entry changed: W[2, 3] by 0.01.")
    assert "change of W" in files["report"].read_text()
    assert json.loads(files["sarif"].read_text())["runs"][0]["results"]
    kept = us.load(files["output"])
    assert (kept.verdict, kept.provenance["reference"]) == ("sparse", str(folder / "shipped.safetensors"))
    again = CliRunner().invoke(app, ["report", str(files["output"]), "--output", str(folder / "pages")])
    assert again.exit_code == 0, again.output


def test_json_and_undecided(folder: Path) -> None:
    code, text = run(folder, "shipped.safetensors", "--json", "--budget", "10")
    assert code == exits.Exit.UNDECIDED == 12
    assert json.loads(text)["verdict"] == "undecided"
    code, text = run(folder, "float32.safetensors", "--json", "--smallest", "1e-12")
    assert (code, json.loads(text)["differs"]) == (12, None)


def test_the_monitor_adds_up_and_alarms(folder: Path) -> None:
    state = str(folder / "state.json")
    assert run(folder, "shipped.safetensors", "--monitor", state)[0] == 0
    assert run(folder, "shipped.safetensors", "--monitor", state, "--report", str(folder / "page.html"))[0] == 2
    code, text = run(folder, "changed.safetensors", "--monitor", state, "--json")
    assert code == 11
    step = json.loads(text)
    assert (step["alarm"], step["calls"], step["usage"]["billed"]) == (True, 2, 8)


def test_wrong_usage_is_a_sentence(folder: Path) -> None:
    code, _ = run(folder, "shipped.safetensors", "--alpha", "0.9")
    assert code == exits.Exit.USAGE


def test_the_file_of_a_recovery_is_held_to_the_error_it_states(tmp_path: Path) -> None:
    head = us.models.SingleHead.random(6, norm=2.0, seed=1)
    head.astype("float32").save(tmp_path / "served.safetensors")
    oracle = us.oracle(head.astype("float32"), dtype="float32")
    us.recover(oracle, us.learners.SingleHead()).save(tmp_path / "shipped.safetensors")
    code, text = run(tmp_path, "served.safetensors")
    assert (code, text.split(":")[0]) == (0, "same")
    assert "states" in text


def test_a_module_as_reference_is_known_by_its_weights(tmp_path: Path) -> None:
    """Not by its answers alone: what changed is placed."""
    pytest.importorskip("torch")
    source = tmp_path / "shipped.py"
    source.write_text(
        "import torch\n"
        "def shipped():\n"
        "    torch.manual_seed(0)\n"
        "    return torch.nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True).eval()\n"
        "def served():\n"
        "    made = shipped()\n"
        "    with torch.no_grad():\n"
        "        made.linear1.weight[3, 4] += 0.05\n"
        "    return made\n"
    )
    found = CliRunner().invoke(app, ["compare", f"{source}:served", f"{source}:shipped", "--json"])
    assert found.exit_code == 11
    said = json.loads(found.stdout)
    assert said["verdict"] == "sparse"
    assert "linear1.weight[3, 4]" in said["sentence"]
