"""The site: formulas, links to code, the link checker, and the whole build."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("latex2mathml")

from scripts.docs import links, pages, reference, tables

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FORMULA = re.compile(r"\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)
WRITTEN = [page for page in sorted(DOCS.rglob("*.md")) if "reference" not in page.parts]


@pytest.mark.parametrize("page", WRITTEN, ids=lambda p: str(p.relative_to(DOCS)))
def test_every_formula_becomes_mathml(page) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for inline, block in FORMULA.findall(text):
        assert "<math" in pages.mathml(inline or block, bool(block))


def test_formulas_and_file_names_of_a_page() -> None:
    text = (
        '<p><span class="arithmatex">\\(x &lt; 1\\)</span> <code>learners/single_head.py</code> '
        '<a href="../../../src/unsoftmax/theory/values.py">x</a> <code>us.theory.single_head_queries</code> '
        "<code>nowhere.py</code></p>"
    )
    done = pages.with_links(pages.with_formulas(text), "../../")
    assert "arithmatex" not in done
    assert '<a href="../../reference/source/learners.single_head/"><code>' in done
    assert 'href="../../reference/source/theory.values/"' in done
    assert 'href="../../reference/theory/#single_head_queries"' in done
    assert "<code>nowhere.py</code></p>" in done


def test_broken_links_are_found(tmp_path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "index.html").write_text(
        '<h1 id="top"></h1><a href="a/">x</a><a href="a/#y">x</a><a href="b.html">x</a>'
    )
    (tmp_path / "a" / "index.html").write_text('<a href="../#top">x</a><a href="https://example.org">x</a>')
    assert links.broken(tmp_path) == [("index.html", "a/#y"), ("index.html", "b.html")]


def leaves(nav):
    for item in nav:
        for value in item.values():
            yield from [value] if isinstance(value, str) else leaves(value)


def test_navigation_names_every_written_page() -> None:
    named = set(leaves(tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"]))
    written = {str(page.relative_to(DOCS)) for page in WRITTEN}
    assert named - {"reference/index.md"} == written


def test_every_theorem_page_leads_to_its_code() -> None:
    for page in [*(DOCS / "theory").glob("*.md"), *(DOCS / "theory" / "notes").glob("*.md")]:
        named = re.findall(r"`([\w/]+\.py)`|src/(unsoftmax/[\w/]+\.py)\)", page.read_text())
        files = [pages.page_of(name) for pair in named for name in pair if name]
        assert any(files) or page.name == "index.md", page


SIDE_BY_SIDE = re.compile(r"^\\| mathematics \\| code \\|\n\\|---\\|---\\|\n((?:\\|.*\n)+)", re.MULTILINE)
THEOREMS = ("single-head", "transformer", "low-rank", "approximate", "membership", "orthogonal-heads")


@pytest.mark.parametrize("name", THEOREMS)
def test_code_beside_the_mathematics_is_the_code(name) -> None:
    source = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    table = SIDE_BY_SIDE.search((DOCS / "theory" / f"{name}.md").read_text())
    assert table is not None
    shown = re.findall(r"`([^`]+)` \|$", table[1], re.MULTILINE)
    assert len(shown) >= 2
    assert [line for line in shown if line not in source] == []


def test_every_lemma_has_a_test() -> None:
    for note in (DOCS / "theory" / "notes").glob("*.md"):
        lemmas = re.findall(r"\*\*Lemma (\d)", note.read_text())
        tests = ROOT / "tests" / "theory_notes" / f"test_{note.stem.replace('-', '_')}.py"
        for number in lemmas:
            assert re.search(rf"def test_lemma_{number}_", tests.read_text()), (note.name, number)
        assert lemmas or note.name == "index.md"


def test_tables_of_the_pages_come_from_the_json() -> None:
    """Filling them again changes nothing."""
    for page in WRITTEN:
        text = page.read_text()
        for head, name, _ in tables.MARK.findall(text):
            assert head + tables.table(DOCS / "benchmarks" / name) in text


def test_reference_covers_the_public_names(tmp_path) -> None:
    reference.write(tmp_path / "reference")
    text = (tmp_path / "reference" / "unsoftmax.md").read_text()
    for name in ("recover", "oracle", "Recovery"):
        assert f"### {name}\n" in text
    assert "### SingleHead" in (tmp_path / "reference" / "learners.md").read_text()
    assert "0x" not in text


def test_figures_are_what_the_script_draws(tmp_path) -> None:
    pytest.importorskip("matplotlib")
    runpy.run_path(str(DOCS / "figures" / "draw.py"))["main"](tmp_path)
    drawn = {file.name for file in tmp_path.iterdir()}
    assert drawn == {file.name for file in (DOCS / "figures").glob("*.svg")}
    shown = (DOCS / "concepts.md").read_text() + (DOCS / "index.md").read_text()
    for name in drawn:
        assert f"figures/{name}" in shown


@pytest.mark.long
def test_the_whole_site_builds_without_a_warning_or_a_broken_link() -> None:
    pytest.importorskip("zensical")
    done = subprocess.run([sys.executable, "-m", "scripts.docs"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken links" in done.stdout
    assert "No issues found" in done.stdout + done.stderr
