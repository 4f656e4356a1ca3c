"""The recipes of docs/ci.md run: the tests as pytest runs them, the commands of the pipelines as they are printed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import yaml
from typer.testing import CliRunner

import unsoftmax as us
from unsoftmax.cli.app import app

PAGE = (Path(__file__).parents[2] / "docs" / "ci.md").read_text()
COMMANDS = sorted(set(re.findall(r"- (?:run: )?unsoftmax (.+)", PAGE)))


def test_the_tests_of_the_page_pass(tmp_path) -> None:
    block = re.search(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert block
    (tmp_path / "test_model.py").write_text(block.group(1))
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout


def test_there_are_commands() -> None:
    assert len(COMMANDS) == 4


def pipelines() -> list[dict]:
    return [yaml.safe_load(text) for text in re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)]


def test_pipelines_run_step_by_step_and_leave_what_they_upload(tmp_path, monkeypatch) -> None:
    """Every step that is a command of ours, in order and in the one folder of its job."""
    github, gitlab = pipelines()
    jobs = {
        "github": [step["run"] for step in github["jobs"]["model"]["steps"] if "run" in step],
        "gitlab": gitlab["model"]["script"],
    }
    head = us.models.SingleHead.random(6, norm=2.0, seed=0)
    for name, steps in jobs.items():
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        for file in ("served", "shipped"):
            head.save(f"{file}.safetensors")
        assert steps[0] == "pip install unsoftmax"
        for step in steps[1:]:
            done = CliRunner().invoke(app, step.removeprefix("unsoftmax ").split())
            assert done.exit_code == 0, done.output
    for path in gitlab["model"]["artifacts"]["paths"]:
        assert (tmp_path / "gitlab" / path).exists()
    logs = sorted((tmp_path / "github").glob("*.sarif"))
    assert len(logs) == 2
    categories = {json.loads(log.read_text())["runs"][0]["automationDetails"]["id"] for log in logs}
    assert len(categories) == 2  # two logs of one category are refused by the service


def test_a_pipeline_fails_where_it_should(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    head = us.models.SingleHead.random(6, norm=2.0, seed=0)
    head.save("shipped.safetensors")
    us.models.SingleHead(1.01 * head.W, head.v).save("served.safetensors")
    github, _ = pipelines()
    compare, audit = (step["run"].split()[1:] for step in github["jobs"]["model"]["steps"][2:4])
    assert CliRunner().invoke(app, compare).exit_code == 11
    dearer = [word if word != "0.5" else "1000" for word in audit]
    assert CliRunner().invoke(app, dearer).exit_code == 10
    assert Path("leaks.sarif").exists()  # what failed is uploaded too
