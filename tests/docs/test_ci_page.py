"""The recipes of docs/ci.md run: the tests as pytest runs them, the commands of the pipelines as they are printed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
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


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_of_the_pipelines(command, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    head = us.models.SingleHead.random(6, norm=2.0, seed=0)
    for name in ("served", "shipped"):
        head.save(f"{name}.safetensors")
    done = CliRunner().invoke(app, command.split())
    assert done.exit_code == 0, done.output


def test_there_are_commands() -> None:
    assert len(COMMANDS) == 4
