"""The notebooks: whole, with outputs, and (long) every cell runs."""

from __future__ import annotations

import json

import pytest

from scripts.docs.notebooks import FOLDER, executed, page

NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def test_there_are_five() -> None:
    assert len(NOTEBOOKS) == 5


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_cells_compile_and_were_run(path) -> None:
    notebook = json.loads(path.read_text())
    assert notebook["nbformat"] == 4
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(code, 1):
        compile("".join(cell["source"]), path.name, "exec")
        assert cell["execution_count"] == number
        assert cell["outputs"], f"cell {number} prints nothing"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_pages_hold_text_code_and_output(path) -> None:
    text = page(path)
    assert text.startswith("# ")
    code = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    assert text.count("````py\n") == text.count("````text\n") == len(code)
    assert f"[{path.name}](../../notebooks/{path.name})" in text


@pytest.mark.long
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_every_cell_runs(path) -> None:
    if "layer" in path.stem:
        pytest.importorskip("torch")
    executed(path)
