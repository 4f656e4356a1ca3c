"""Progress for people: a line in a terminal, a plain line now and then elsewhere; nothing for runs of two seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from unsoftmax.run.engine import Progress, ProgressCallback

_PATIENCE = 2.0
"""Seconds before a bar appears in a terminal: shorter runs are over before one could be read."""

_PAUSE = 10.0
"""Seconds between two plain lines."""


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

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _plain(console.file.write, needed)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("queries {task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    bar = Bar(*columns, console=console, transient=True)
    task = bar.add_task("starting", total=needed, rate="")
    started = time.monotonic()

    def show(state: Progress) -> None:
        passed = time.monotonic() - started
        rate = f"{state.asked / passed:,.0f}/s" if passed > 0 else ""
        bar.update(
            task,
            description=state.phase,
            completed=state.asked,
            total=_total(needed, state),
            rate=rate,
        )
        if not bar.live.is_started and passed > _PATIENCE:
            bar.start()

    try:
        yield show
    finally:
        bar.stop()


def _total(needed: int, state: Progress) -> int | None:
    """Queries of the whole run as far as is known; None once the known ones are spent and the run goes on."""
    total = max(needed, state.asked + max(state.ahead, state.size - state.done))
    return total if total > state.asked else None


def _plain(write: Callable[[str], object], needed: int) -> ProgressCallback:
    """Lines for a log: phase, queries used and needed, rate, time left."""
    started = last = time.monotonic()

    def show(state: Progress) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last < _PAUSE:
            return
        last = now
        rate = state.asked / (now - started)
        total = _total(needed, state)
        if total is None:
            # More is coming, but not how much: a program that adapts to its answers cannot say.
            write(f"{state.phase}: {state.asked:,} queries, {rate:,.0f}/s\n")
            return
        left = (total - state.asked) / rate if rate else float("inf")
        write(f"{state.phase}: {state.asked:,} of {total:,} queries, {rate:,.0f}/s, {max(left, 1.0):,.0f} s left\n")

    return show
