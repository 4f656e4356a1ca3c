"""`python -m scripts.docs`: generate the reference, build the site, render formulas, link code, check every link."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from scripts.docs import links, notebooks, pages, reference, tables

ROOT = Path(__file__).parents[2]


def main() -> int:
    tables.write(ROOT / "docs")
    reference.write(ROOT / "docs" / "reference")
    notebooks.write(ROOT / "docs" / "reference" / "notebooks")
    builder = Path(sys.executable).with_name("zensical")
    command = str(builder) if builder.exists() else (shutil.which("zensical") or "zensical")
    subprocess.run([command, "build", "--clean", "--strict"], cwd=ROOT, check=True)
    site = ROOT / "site"
    pages.finish(site)
    broken = links.broken(site)
    for page, link in broken:
        sys.stderr.write(f"broken link in {page}: {link}\n")
    sys.stdout.write(f"{len(list(site.rglob('*.html')))} pages, {len(broken)} broken links: {site / 'index.html'}\n")
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
