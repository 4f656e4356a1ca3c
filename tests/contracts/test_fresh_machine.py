"""What `make` does on a machine that lacks something: it says so, and leaves nothing that passes for whole."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def program(place: Path, text: str) -> Path:
    place.write_text(f"#!/bin/sh\n{text}\n")
    place.chmod(0o755)
    return place


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
@pytest.mark.parametrize("user", [0, 1000])
@pytest.mark.parametrize("offered", [True, False], ids=["apt-get fails", "no apt-get"])
def test_a_browser_that_cannot_be_installed_is_said_and_fails_nothing(tmp_path, user, offered) -> None:
    program(tmp_path / "id", f"echo {user}")
    if offered:
        program(tmp_path / "apt-get", "exit 100")
    command = [str(shutil.which("bash")), str(ROOT / "scripts" / "install_browser.sh")]
    done = subprocess.run(command, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "browser tests will be skipped" in done.stdout


@pytest.mark.skipif(shutil.which("make") is None, reason="no make")
def test_half_an_environment_is_made_again(tmp_path) -> None:
    # As Debian's Python does without python3-venv: everything is there but pip.
    venv = tmp_path / "venv"
    python = program(tmp_path / "python", f"mkdir -p {venv}/bin && ln -s /bin/sh {venv}/bin/python; exit 1")
    command = ["make", "-C", str(ROOT), f"PYTHON={python}", f"VENV={venv}", "demo"]
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0
    assert not (venv / "bin" / "python").is_symlink()
