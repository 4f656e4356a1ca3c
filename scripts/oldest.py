"""An environment with the oldest version of every dependency that is allowed: `python -m scripts.oldest DIR`.

Every `name>=version` becomes `name==version`; tools of the tests themselves stay as new as they are. Of the extras
those are taken whose oldest versions have wheels for this Python.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

EXTRAS = ("http", "serve", "parquet", "report")
"""Extras whose oldest versions are installed too; the others are heavy, or pinned."""

TOOLS = ("pytest", "pytest-xdist", "hypothesis", "jsonschema", "ruff")


def oldest(root: Path) -> list[str]:
    """Requirements with every lower bound as the version."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = [*project["dependencies"], *(one for extra in EXTRAS for one in project["optional-dependencies"][extra])]
    return [re.sub(r">=", "==", requirement) for requirement in named]


def main(folder: str) -> int:
    """Make the environment at `folder`, or renew what is installed there."""
    root = Path(__file__).parent.parent
    python = Path(folder) / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip = [str(python), "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, *oldest(root), *TOOLS], check=True)
    return subprocess.run([*pip, "--no-deps", "-e", str(root)], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
