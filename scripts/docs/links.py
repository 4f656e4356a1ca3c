"""Links inside a built site: every page, file and anchor they name must exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from html import unescape
from pathlib import Path
from urllib.parse import unquote

LINK = re.compile(r'<(?:a|img|link|script)\b[^>]*?\s(?:href|src)="?([^"\s>]+)')
ANCHOR = re.compile(r'\s(?:id|name)="?([^"\s>]+)')


def broken(site: Path) -> list[tuple[str, str]]:
    """(page, link) of every link that leads nowhere; links to other hosts are not followed."""
    return [
        (str(page.relative_to(site)), link) for page in sorted(site.rglob("*.html")) for link in _broken(page, site)
    ]


def _broken(page: Path, site: Path) -> Iterator[str]:
    for link in sorted({unescape(link) for link in LINK.findall(page.read_text())}):
        if re.match(r"[a-z]+:|//", link):
            continue
        address, _, anchor = link.partition("#")
        address = unquote(address.partition("?")[0])
        base = site if address.startswith("/") else page.parent
        target = (base / address.lstrip("/")).resolve() if address else page
        if target.is_dir():
            target = target / "index.html"
        if not target.is_file() or (anchor and target.suffix == ".html" and unquote(anchor) not in _anchors(target)):
            yield link


@cache
def _anchors(page: Path) -> frozenset[str]:
    return frozenset(unescape(found) for found in ANCHOR.findall(page.read_text()))
