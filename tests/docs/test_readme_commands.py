"""Every command of the README runs as printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import unsoftmax as us
from unsoftmax.cli.app import app

ROOT = Path(__file__).parents[2]
SHELL = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
BLOCKS = SHELL.findall((ROOT / "README.md").read_text())
LINES = [line.split("#")[0].strip() for block in BLOCKS for line in block.splitlines()]
COMMANDS = [line.split()[1:] for line in LINES if line.startswith("unsoftmax ")]
TARGETS = [line.split()[1] for line in LINES if line.startswith("make ")]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_unsoftmax_commands(command, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    head = us.models.SingleHead.random(8, norm=2.0, seed=0)
    head.save("head.safetensors")
    us.recover(us.oracle(head)).save("copy.safetensors")
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("target", TARGETS)
def test_make_targets_exist(target) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_the_two_commands_come_first() -> None:
    assert TARGETS[:2] == ["demo", "test"]
