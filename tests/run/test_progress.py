"""Progress in a log: what is known of the end is said, what is not is not."""

from __future__ import annotations

import time

from unsoftmax.run import progress
from unsoftmax.run.engine import Progress


def lines(states: list[Progress], needed: int, monkeypatch) -> list[str]:
    """What a log shows of these states, one second apart."""
    clock = iter(range(0, 10_000, 20))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    written: list[str] = []
    show = progress._plain(written.append, needed)
    for state in states:
        show(state)
    return written


def test_the_end_is_never_promised_mid_run(monkeypatch) -> None:
    asked = [Progress("pilot", 50, 50, 50, 50), Progress("main", 10, 90, 300, 300), Progress("main", 90, 90, 380, 380)]
    shown = lines(asked, 100, monkeypatch)
    assert "50 of 100 queries" in shown[0]
    assert "300 of 380 queries" in shown[1]
    assert "of" not in shown[2].split("queries")[0]
    assert not any(" 0 s left" in line for line in shown)
