"""Finish built pages: formulas become MathML (no script, no network), names of files become links to their source."""

from __future__ import annotations

import html
import re
from functools import cache
from pathlib import Path

from latex2mathml.converter import convert

from scripts.docs.reference import PACKAGE, source_page

FORMULA = re.compile(r'<(span|div) class="arithmatex">\s*\\([(\[])(.*?)\\[)\]]\s*</\1>', re.DOTALL)
HREF = re.compile(r'href="(?:\.\./)*(?:src/)(unsoftmax/[\w/]+\.py)"')
CODE = re.compile(r"(<a\b[^>]*>.*?</a>|<pre\b.*?</pre>)|<code>([\w./]+\.py|us\.theory\.\w+)</code>", re.DOTALL)
NOTEBOOK = re.compile(r'href="[\w./-]*?([\w-]+)\.ipynb"')
RAW = re.compile(r"\\(?:frac|cdot|sum|sigma|hat|top|le|ge|mathrm|sqrt|log|square)\b")


def finish(site: Path) -> None:
    for page in sorted(site.rglob("*.html")):
        root = "../" * (len(page.relative_to(site).parts) - 1)
        text = with_links(with_formulas(page.read_text()), root)
        if "reference" not in page.relative_to(site).parts:
            text = NOTEBOOK.sub(lambda found, root=root: f'href="{root}reference/notebooks/{found[1]}/"', text)
        raw = RAW.search(re.sub(r"<(code|pre|script)\b.*?</\1>", "", text, flags=re.DOTALL))
        if raw:
            raise ValueError(f"{page.relative_to(site)}: {raw[0]} is left; set displayed formulas off by empty lines")
        page.write_text(text)


def with_formulas(text: str) -> str:
    """Every formula of a page as MathML; one that cannot be read raises."""
    return FORMULA.sub(lambda found: mathml(html.unescape(found[3]), found[2] == "["), text)


@cache
def mathml(formula: str, block: bool) -> str:
    return convert(formula.strip(), display="block" if block else "inline")


def with_links(text: str, root: str) -> str:
    """Links into the source tree, and names of source files and closed forms, lead to the pages that show them."""

    def linked(found: re.Match[str]) -> str:
        if found[1] is not None:
            return found[1]
        target = page_of(found[2])
        return found[0] if target is None else f'<a href="{root}{target}">{found[0]}</a>'

    text = HREF.sub(lambda found: f'href="{root}{page_of(found[1])}"', text)
    return CODE.sub(linked, text)


@cache
def page_of(name: str) -> str | None:
    """Address, from the site's root, of the page about a file (any tail of its path) or a function of us.theory."""
    if name.startswith("us.theory."):
        return f"reference/theory/#{name.removeprefix('us.theory.')}"
    tail = Path(name.removeprefix("src/").removeprefix("unsoftmax/"))
    found = [PACKAGE / tail] if (PACKAGE / tail).is_file() else sorted(PACKAGE.rglob(str(tail)))
    return f"reference/source/{source_page(found[0])}/" if len(found) == 1 else None
