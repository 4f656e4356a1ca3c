"""Every module in learners, solvers and verify names the page and the section of the theory that it carries out."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("learners", "solvers", "verify")
LINK = re.compile(r'^Theory: (docs/[\w/-]+\.md), "([^"]+)"(?:, ([^.]+))?\.$', re.MULTILINE)


def modules() -> list[Path]:
    files = [path for room in ROOMS for path in sorted((ROOT / "src" / "unsoftmax" / room).rglob("*.py"))]
    return [path for path in files if path.name != "__init__.py"]


def section(page: str, heading: str) -> str | None:
    """Text below the heading that begins so, up to the next one; None if there is no such heading."""
    text = re.sub(r"```.*?```", "", page, flags=re.DOTALL)
    parts = re.split(r"^#+ (.*)$", text, flags=re.MULTILINE)
    named = dict(zip(parts[1::2], parts[2::2], strict=True))
    return next((body for name, body in named.items() if name.startswith(heading)), None)


def broken(link: tuple[str, str, str]) -> str:
    """What is wrong with a link, "" if it leads somewhere: to a heading and, if a step is named, to its words there."""
    page, heading, step = link
    if not (ROOT / page).exists():
        return f"{page} does not exist"
    body = section((ROOT / page).read_text(), heading)
    if body is None:
        return f'{page} has no heading that begins with "{heading}"'
    if step and not re.search(rf"(?:\*{{1,2}}(?:\d\. )?`?|`){re.escape(step)}", body, re.IGNORECASE):
        return f'"{heading}" of {page} has no step or paragraph called "{step}"'
    return ""


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT / "src" / "unsoftmax")))
def test_the_way_back_to_the_theory(path: Path) -> None:
    links = LINK.findall(ast.get_docstring(ast.parse(path.read_text())) or "")
    assert links, 'end the docstring of the module with: Theory: docs/theory/PAGE.md, "HEADING", STEP.'
    assert [problem for problem in map(broken, links) if problem] == []


@pytest.mark.parametrize(
    "link",
    [
        ("docs/theory/nowhere.md", "Method", ""),
        ("docs/theory/relu-network.md", "Madness", ""),
        ("docs/theory/relu-network.md", "Method", "kicks"),
    ],
)
def test_the_check_can_fail(link: tuple[str, str, str]) -> None:
    assert broken(link)
