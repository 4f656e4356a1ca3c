"""Every Python block of the README and the docs runs, in order, in one namespace per page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# docs/reference is generated from the docstrings when the site is built.
WRITTEN = (page for page in sorted((ROOT / "docs").rglob("*.md")) if "reference" not in page.parts)
PAGES = [ROOT / "README.md", *WRITTEN]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[tuple[int, str]]:
    text = page.read_text()
    return [(text[: m.start()].count("\n") + 2, m.group(1)) for m in BLOCK.finditer(text)]


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p)], ids=lambda p: str(p.relative_to(ROOT)))
def test_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "__docs__"}
    for line, code in blocks(page):
        # Padding keeps line numbers of tracebacks those of the page.
        exec(compile("\n" * (line - 1) + code, str(page), "exec"), namespace)


def test_there_is_something_to_run() -> None:
    assert len(blocks(ROOT / "README.md")) >= 4


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_local_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text())
    missing = [link for link in links if not (page.parent / link).exists()]
    assert missing == []
