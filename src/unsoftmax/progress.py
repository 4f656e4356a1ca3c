"""A progress line for people; nothing is drawn for runs that end within two seconds or outside a terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from unsoftmax.engine import Progress, ProgressCallback

_PATIENCE = 2.0


@contextmanager
def watching(progress: bool | ProgressCallback, needed: int) -> Iterator[ProgressCallback | None]:
    """The callback for the engine: None, the user's own, or a line on standard error."""
    if progress is False:
        yield None
        return
    if callable(progress):
        yield progress
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("queries"),
        TimeRemainingColumn(),
    )
    bar = Bar(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task("starting", total=needed)
    started = time.monotonic()

    def show(state: Progress) -> None:
        bar.update(task, description=state.phase, completed=state.asked, total=max(needed, state.asked))
        if not bar.live.is_started and time.monotonic() - started > _PATIENCE:
            bar.start()

    try:
        yield show
    finally:
        bar.stop()
