"""Progress for people: one line on standard error, for fits that take more than two seconds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from unsoftmax.fitting.search import Watch

_PATIENCE = 2.0
"""Seconds before anything is said."""

_PAUSE = 10.0
"""Seconds between two lines where there is no terminal to rewrite one in."""


@contextmanager
def watching(progress: bool | Watch) -> Iterator[Watch | None]:
    """The callback of a search: None, the user's own, or a line on standard error."""
    if not isinstance(progress, bool):
        yield progress
        return
    if not progress:
        yield None
        return
    from rich.console import Console

    console = Console(stderr=True)
    began = last = time.monotonic()
    with console.status("fitting") if console.is_terminal else _quiet() as status:

        def show(what: str, attempts: int, residual: float) -> None:
            nonlocal last
            words = f"{what}: {attempts} attempts, best relative residual {residual:.1e}"
            now = time.monotonic()
            if status is not None:
                status.update(words)
            elif now - began > _PATIENCE and now - last > _PAUSE:
                last = now
                console.file.write(words + "\n")

        yield show


@contextmanager
def _quiet() -> Iterator[None]:
    yield None
