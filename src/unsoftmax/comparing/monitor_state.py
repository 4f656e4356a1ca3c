"""The state of a monitor: a small JSON file that survives crashes and calls at the same time."""

from __future__ import annotations

import json
import math
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from unsoftmax.errors import FileFormatError, InvalidArgument
from unsoftmax.models.base import Array

STATE_FORMAT = "unsoftmax-monitor/1"
_NOTHING = -1e300
"""Logarithm of a wealth of 0, in a file that has no infinity."""
_MEMORY = threading.Lock()
"""Held while a state that lives in memory is changed: the changes take microseconds."""


@dataclass(frozen=True)
class State:
    """Calls begun and ended, and the logarithm of every bet's wealth."""

    begun: int
    calls: int
    log_wealth: tuple[float, ...]

    @classmethod
    def new(cls, bets: int) -> State:
        return cls(0, 0, (_NOTHING,) * bets)


@dataclass
class Held:
    """The state while it is locked; changed here, written on release."""

    value: State

    def begin(self) -> int:
        """The number of a new call: no two have the same, so that no two ask the same."""
        self.value = replace(self.value, begun=self.value.begun + 1)
        return self.value.begun

    def add(self, gained: Array) -> None:
        """Enter the logarithms of a call's e-values."""
        t = self.value.calls + 1
        stake = np.logaddexp(np.array(self.value.log_wealth), -math.log(t * (t + 1)))
        self.value = replace(self.value, calls=t, log_wealth=tuple(float(x) for x in stake + gained))


@contextmanager
def kept(path: str | Path | None, memory: list[State], name: str, alpha: float, bets: int) -> Iterator[Held]:
    """The state of a file (or of memory), locked while it is held and written whole when it is released."""
    if path is None:
        with _MEMORY:
            held = Held(memory[0])
            yield held
            memory[0] = held.value
        return
    file = Path(path)
    with _locked(file):
        held = Held(_read(file, name, alpha, bets))
        yield held
        _write(file, {"format": STATE_FORMAT, "reference": name, "alpha": alpha, **asdict(held.value)})


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """A lock that the system releases when its holder ends, however it ends."""
    try:
        handle = os.open(file.with_name(f"{file.name}.lock"), os.O_CREAT | os.O_RDWR)
    except OSError as error:
        raise InvalidArgument(
            f"the monitor's state {file} cannot be kept ({error.strerror}); its folder must exist and be writable."
        ) from error
    try:
        _hold(handle)
        yield
    finally:
        os.close(handle)


def _hold(handle: int) -> None:
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        msvcrt.locking(handle, msvcrt.LK_LOCK, 1)  # type: ignore[attr-defined]
        return
    fcntl.flock(handle, fcntl.LOCK_EX)


def _read(file: Path, name: str, alpha: float, bets: int) -> State:
    if not file.exists():
        return State.new(bets)
    try:
        data: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        found = State(int(data["begun"]), int(data["calls"]), tuple(float(x) for x in data["log_wealth"]))
        kind, bound = data["format"], (data["reference"], data["alpha"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise FileFormatError(f"{file} is not the state of a monitor ({error}); name another file.") from error
    if kind != STATE_FORMAT or len(found.log_wealth) != bets:
        raise FileFormatError(f"{file} has the format {kind!r}, not {STATE_FORMAT!r}; name another file.")
    if bound != (name, alpha):
        raise InvalidArgument(
            f"{file} belongs to a monitor of another reference or alpha; a new reference needs a new file."
        )
    return found


def _write(file: Path, data: dict[str, Any]) -> None:
    """Atomically: a reader, or a crash, sees the old state or the whole new one."""
    handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=file.name, suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            json.dump(data, out)
            out.flush()
            os.fsync(out.fileno())
        os.replace(temporary, file)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
