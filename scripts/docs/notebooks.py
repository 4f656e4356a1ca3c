"""`python -m scripts.docs.notebooks`: run the notebooks' code cells and keep what they print; and pages made of them.

Plain execution in one namespace: the notebooks use no kernel features, so no kernel is needed to check them.
"""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"


def executed(path: Path) -> dict[str, Any]:
    """The notebook with fresh outputs; an exception in a cell is raised with the cell's number."""
    notebook: dict[str, Any] = json.loads(path.read_text())
    namespace: dict[str, Any] = {"__name__": "__notebook__"}
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(cells, 1):
        shown = io.StringIO()
        with redirect_stdout(shown):
            exec(compile("".join(cell["source"]), f"{path.name}, cell {number}", "exec"), namespace)
        text = shown.getvalue().splitlines(keepends=True)
        cell["execution_count"] = number
        cell["outputs"] = [{"name": "stdout", "output_type": "stream", "text": text}] if text else []
    return notebook


def page(path: Path) -> str:
    """A notebook as Markdown: its text, its code, and what the code printed."""
    parts = []
    for cell in json.loads(path.read_text())["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"````py\n{text}\n````")
        printed = "".join(line for output in cell.get("outputs", []) for line in output["text"])
        if printed:
            parts.append(f"````text\n{printed}````")
    parts.insert(1, f"As a file: [{path.name}](../../notebooks/{path.name}).")
    return "\n\n".join(parts) + "\n"


def write(folder: Path) -> None:
    """A page per notebook in `folder`."""
    folder.mkdir(parents=True)
    for path in sorted(FOLDER.glob("*.ipynb")):
        (folder / f"{path.stem}.md").write_text(page(path))


def main() -> None:
    for path in sorted(FOLDER.glob("*.ipynb")):
        path.write_text(json.dumps(executed(path), indent=1) + "\n")


if __name__ == "__main__":
    main()
