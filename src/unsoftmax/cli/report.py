"""`unsoftmax report FILES...`: pages from saved results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from unsoftmax.cli import settings
from unsoftmax.cli.exits import one_sentence


def report(
    files: Annotated[list[Path], typer.Argument(help="Saved recoveries (.safetensors) or audits (.json).")],
    output: Annotated[Path | None, typer.Option(help="Folder for the pages (default: beside each file).")] = None,
    as_json: settings.Json = False,
    debug: settings.Debug = False,
) -> None:
    """Write an HTML page for each saved result; the target is not asked anything.

    Example: unsoftmax report copy.safetensors audit.json
    """
    from unsoftmax.audit_result import load_audit
    from unsoftmax.report import audit_page, recovery_page, write
    from unsoftmax.result import load

    pages: list[str] = []
    with one_sentence(debug, as_json):
        for file in files:
            html = audit_page(load_audit(file)) if file.suffix == ".json" else recovery_page(load(file))
            page = (output or file.parent) / f"{file.stem}.html"
            page.parent.mkdir(parents=True, exist_ok=True)
            write(html, page)
            pages.append(str(page))
    typer.echo(json.dumps({"pages": pages}) if as_json else "\n".join(pages))
