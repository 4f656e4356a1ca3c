"""`Monitor`: the comparison repeated for as long as a model is served, with one rate of false alarms for all calls.

M_t = e_t (M_t-1 + s_t), e_t the e-value of the answers of call t: the mean of M_t never exceeds the sum of the stakes
s_t, 1, while nothing has changed, so that 1/alpha is reached with probability alpha at most, whenever one looks. Near
ties are bet on apart from the other questions, which may not show what they show.

The state of a monitor: a small JSON file that survives crashes and calls at the same time.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import special

from unsoftmax.comparing import designs, statistics
from unsoftmax.comparing.compare import check_settings, digest
from unsoftmax.comparing.constants import COMPARING
from unsoftmax.comparing.designs import SINGLES, TIES, Asked
from unsoftmax.comparing.detection import plan, written_in
from unsoftmax.comparing.noise import Group, Noise, group
from unsoftmax.comparing.references import Reference, reference_of
from unsoftmax.errors import FileFormatError, InvalidArgument
from unsoftmax.learners.core.base import Asking
from unsoftmax.models.base import Array
from unsoftmax.models.output_layer import OutputLayer
from unsoftmax.oracles.base import Oracle
from unsoftmax.oracles.metering import Budget
from unsoftmax.oracles.stack import Stack
from unsoftmax.probes.base import Probes
from unsoftmax.results.recovery import Usage
from unsoftmax.run.engine import run
from unsoftmax.run.recovery import require_run
from unsoftmax.spec import OracleSpec

PHASE = "monitor"

STATE_FORMAT = "unsoftmax-monitor/2"

_NOTHING = -1e300
"""Defined: logarithm of a wealth of 0, in a file that has no infinity."""

_STAKES = 2.11
"""Derived: the sum of 1 / (t + 1) log(t + 1)^2 over t = 1, 2, ...: stakes in this ratio are 1 in all, and fall so
slowly that a change of twice the noise takes four calls (median) after five thousand quiet ones, where 1 / t(t + 1)
took five."""
_LOG_SHARES = np.concatenate(
    [math.log(part) + statistics.log_shares() for part in (COMPARING.bet_on_ties, 1 - COMPARING.bet_on_ties)]
)
"""Logarithm of what every bet begins with."""
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
        stake = np.logaddexp(np.array(self.value.log_wealth), -math.log(_STAKES * (t + 1) * math.log(t + 1) ** 2))
        self.value = replace(self.value, calls=t, log_wealth=tuple(float(x) for x in stake + gained))


@dataclass(frozen=True)
class Step:
    """One call: `alarm` if the evidence so far is beyond 1/alpha, that evidence, and what the call cost."""

    alarm: bool
    e_value: float
    usage: Usage
    calls: int


@dataclass(frozen=True, eq=False)
class Monitor:
    """Watches targets that should be the reference; `state` is the path of a small JSON file, None keeps it in memory.

    The file is bound to the reference and alpha. Calls may overlap or crash: each adds its evidence under a lock, and
    one that did not end adds nothing.
    """

    reference: Any
    alpha: float = 1e-3
    state: str | Path | None = None
    arithmetic: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "_memory", [State.new(len(_LOG_SHARES))])

    def step(self, oracle: Oracle, *, budget: int | Budget | None = None, target_error: float = 0.0) -> Step:
        """Ask eight questions and add what they say.

        target_error: how far this target's own weights may be off, relative to their size, where it is a recovery.
        """
        require_run(oracle, None, 0)
        check_settings(oracle.spec, self.arithmetic, self.alpha, None)
        known = reference_of(self.reference, oracle.spec).beside(target_error)
        if isinstance(known.model, OutputLayer):
            raise InvalidArgument(
                "a monitor holds answers against those of its reference, and an output layer alone has none; use "
                "us.compare, which holds logits against its row space."
            )
        name = digest(self.reference, known)
        with self._kept(name) as held:
            number = held.begin()
        limits = budget if isinstance(budget, Budget) else Budget(queries=budget)
        stack = Stack(oracle, limits)
        gained = run(_call(known, oracle.spec, self.arithmetic, number), stack)
        with self._kept(name) as held:
            held.add(gained)
            total, calls = held.value.log_wealth, held.value.calls
        log_e = log_evidence(total)
        return Step(log_e >= -math.log(self.alpha), math.exp(min(log_e, 700.0)), stack.meter.snapshot(), calls)

    def _kept(self, name: str) -> Any:
        return kept(self.state, self._memory, name, self.alpha, len(_LOG_SHARES))  # type: ignore[attr-defined]


def log_evidence(log_wealth: Sequence[float] | Array) -> float:
    """Logarithm of the wealth of all bets together: on near ties, then on the other questions."""
    return float(special.logsumexp(np.asarray(log_wealth) + _LOG_SHARES))


def _call(known: Reference, spec: OracleSpec, arithmetic: str | None, number: int) -> Asking[Array]:
    """Logarithms of the e-values of one call, (bets,); every call asks in new directions."""
    groups = _questions(known, spec, known.coarser(arithmetic or spec.dtype, spec), number)
    answers = []
    for item in groups:
        answers.append((yield Probes(item.X, phase=PHASE)))
    if arithmetic is None and spec.dtype == "float64" and written_in(np.concatenate(answers)) != "float64":
        groups = _questions(known, spec, "float32", number)
    energies = [statistics.energy(item.z(y)) for item, y in zip(groups, answers, strict=True)]
    return np.concatenate([statistics.log_bets(part) for part in energies])


def _questions(known: Reference, spec: OracleSpec, arithmetic: str, number: int) -> list[Group]:
    """Near ties of a plan that is the same for every call, in directions that are not."""
    asked, noise = Asked(spec, arithmetic), Noise(known, arithmetic, spec.tolerance)
    made = plan(known, spec, arithmetic, 1e-3, None, 0, whole=False)
    rng = np.random.default_rng([number, 0x3041])
    found = [
        group(
            TIES,
            designs.near_ties(known, asked, COMPARING.queries_of_a_call - 1, made.norm, rng),
            noise,
            made.constant,
            rng,
        )
    ]
    usual = designs.usual_norm(known, asked, rng)
    longer = designs.longer(known, asked, usual, rng)
    if number % 2 and longer:
        X = longer[int(rng.integers(len(longer)))][:1]
    else:
        X = designs.singles(asked, 1, usual, rng)
    constant = max(made.constant, noise.constant(lambda: X, rng))
    return [*found, group(SINGLES, X, noise, constant, rng)]


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
