"""The command line: one file per command; each parses, calls the library, prints."""

from __future__ import annotations


def main() -> None:
    """Entry point of `unsoftmax`."""
    from unsoftmax.cli.app import app

    app()
