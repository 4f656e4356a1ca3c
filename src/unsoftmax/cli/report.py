"""`unsoftmax report FILES...`: pages from saved results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from unsoftmax.cli import flags
from unsoftmax.cli.exits import one_sentence


def report(
    files: Annotated[
        list[Path] | None, typer.Argument(help="Saved recoveries or comparisons (.safetensors), or audits (.json).")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Folder for the pages (default: beside each file).")] = None,
    truth: Annotated[
        Path | None, typer.Option(help="The true model, to show recovered weights beside it (recoveries only).")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace pages that exist and differ.")] = False,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of saved audits and stop.")] = False,
    as_json: flags.Json = False,
    debug: flags.Debug = False,
) -> None:
    """Write an HTML page for each saved result; the target is not asked anything.

    A page of the same name that differs is left alone unless --force is given.

    Example: unsoftmax report copy.safetensors audit.json
    """
    from unsoftmax import models
    from unsoftmax.errors import InvalidArgument
    from unsoftmax.report import AUDIT_SCHEMA, audit_page, comparison_page, recovery_page, write
    from unsoftmax.results.audit import load_audit
    from unsoftmax.results.comparison import Comparison
    from unsoftmax.results.files import load

    with one_sentence(debug, as_json):
        if schema:
            typer.echo(json.dumps(AUDIT_SCHEMA, indent=1))
            return
        if not files:
            raise InvalidArgument("name at least one saved recovery (.safetensors) or audit (.json).")
        true_model = None if truth is None else models.load(truth)
        pages: dict[Path, str] = {}
        for file in files:
            audited = file.suffix == ".json"
            if audited:
                html = audit_page(load_audit(file))
            else:
                recovery = load(file)
            if not audited and isinstance(recovery, Comparison):
                html = comparison_page(recovery)
            elif not audited:
                found = None if recovery.model is None else recovery.model.dim
                if true_model is not None and found not in (None, true_model.dim):
                    raise InvalidArgument(
                        f"`--truth` {truth} has dimension {true_model.dim} but {file} holds a model of dimension "
                        f"{found}; name the model that was recovered."
                    )
                html = recovery_page(recovery, true_model)
            page = (output or file.parent) / f"{file.stem}.html"
            if page in pages:
                raise InvalidArgument(f"two files would become {page}; give them different names.")
            if not force and page.exists() and page.read_text(encoding="utf-8", errors="replace") != html:
                raise InvalidArgument(
                    f"{page} exists and is another page; pass --force to replace it, or --output for another folder."
                )
            pages[page] = html
        for page, html in pages.items():
            page.parent.mkdir(parents=True, exist_ok=True)
            write(html, page)
        shown = [str(page) for page in pages]
        typer.echo(json.dumps({"pages": shown}) if as_json else "\n".join(shown))
