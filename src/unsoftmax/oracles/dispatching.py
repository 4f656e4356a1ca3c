"""Calls the target chunk by chunk, through an executor if there is one, and checks every answer."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from unsoftmax.errors import BudgetExceeded, OracleError, UnsoftmaxError
from unsoftmax.oracles.base import Oracle, is_real
from unsoftmax.probes.base import Array, Probes
from unsoftmax.spec import OracleSpec

if TYPE_CHECKING:
    from unsoftmax.oracles.metering import Meter

Again = Callable[[int, int, float], None]
_PATIENCE = 60.0
"""Seconds to wait for calls in flight when a run is interrupted."""
_again: ContextVar[Again | None] = ContextVar("unsoftmax_again", default=None)


def before_sending_again(queries: int, tokens: int) -> None:
    """A source calls this before it sends sequences once more: they are billed, or BudgetExceeded is raised."""
    again = _again.get()
    if again is not None:
        again(queries, tokens, 0.0)


def before_waiting(seconds: float) -> None:
    """A source calls this before it waits for its target: BudgetExceeded if the budget ends before the wait does."""
    again = _again.get()
    if again is not None:
        again(0, 0, seconds)


@dataclass
class Tally:
    """Counts what is sent once more where the meter is out of reach (another process, another machine).

    Under a budget nothing may be sent there without asking the meter, so it refuses.
    """

    limited: bool
    queries: int = 0
    tokens: int = 0

    def __call__(self, queries: int, tokens: int, seconds: float) -> None:
        if self.limited and queries:
            raise BudgetExceeded(
                f"{queries} sequences failed in another process, where a budget cannot be asked to pay for sending "
                "them once more.",
                advice="use a ThreadPoolExecutor for remote targets, or run again to continue.",
            )
        self.queries += queries
        self.tokens += tokens


@dataclass
class _Sent:
    """A chunk in flight."""

    number: int
    probes: Probes
    future: Future[tuple[Array, Tally | None]]
    answer: Array | None = None
    failure: UnsoftmaxError | None = None

    @property
    def pending(self) -> bool:
        return self.answer is None and self.failure is None


@dataclass
class Dispatched:
    """The innermost stage. With an executor, up to `in_flight` chunks are out at once.

    `on_arrival(number, answer)` hears of every answer the moment it is there, in whatever order, also when another
    chunk has failed: what was paid for is kept. `again` bills what a source sends once more.
    """

    oracle: Oracle
    meter: Meter
    executor: Executor | None = None
    in_flight: int = 8
    on_arrival: Callable[[int, Array], None] = lambda number, answer: None
    again: Again = lambda queries, tokens, seconds: None
    limited: bool = False

    def ask(self, chunks: Iterable[Probes]) -> Iterator[Array]:
        if self.executor is not None:
            yield from self._through(self.executor, iter(chunks))
            return
        for chunk in chunks:
            start = time.perf_counter()
            answer, _ = call(self.oracle, chunk, self.again)
            self.meter.target_seconds += time.perf_counter() - start
            yield checked(answer, chunk, self.oracle.spec)

    def _through(self, executor: Executor, source: Iterator[Probes]) -> Iterator[Array]:
        sent: deque[_Sent] = deque()
        failure: UnsoftmaxError | None = None
        exhausted, number = False, 0
        local = isinstance(executor, ThreadPoolExecutor)
        try:
            while sent or not (exhausted or failure):
                while not (exhausted or failure) and len(sent) < self.in_flight:
                    try:
                        probes = next(source, None)
                    except UnsoftmaxError as error:
                        # What is in flight is paid for: it is awaited before saying that no more may be sent.
                        failure, probes = error, None
                    if probes is None:
                        exhausted = True
                    else:
                        again = self.again if local else Tally(self.limited)
                        future = _submit(executor, self.oracle, probes, again)
                        sent.append(_Sent(number, probes, future))
                        number += 1
                if sent and sent[0].pending:
                    wait([item.future for item in sent if item.pending], return_when=FIRST_COMPLETED)
                failure = self._collect(sent) or failure
                if sent and sent[0].failure is not None:
                    failure = sent[0].failure
                    break
                if sent and sent[0].answer is not None:
                    yield sent.popleft().answer  # type: ignore[misc]
            if failure is not None:
                wait([item.future for item in sent if item.pending])
                raise failure
        finally:
            # Calls that run cannot be stopped: what they bring is paid for, so it is awaited (within reason) and kept.
            running = [item.future for item in sent if item.pending and not item.future.cancel()]
            wait(running, timeout=_PATIENCE)
            self._collect(sent)

    def _collect(self, sent: Iterable[_Sent]) -> UnsoftmaxError | None:
        """Take what has arrived; the first failure, if any."""
        for item in sent:
            if item.pending and item.future.done() and not item.future.cancelled():
                try:
                    answer, tally = item.future.result()
                    self._note(tally)
                    item.answer = checked(answer, item.probes, self.oracle.spec)
                    self.on_arrival(item.number, item.answer)
                except UnsoftmaxError as error:
                    self._note(getattr(error, "tally", None))
                    item.failure = error
                except Exception as error:
                    item.failure = OracleError(f"the executor failed on {where(item.probes)}: {error!r}.")
                    item.failure.__cause__ = error
        return next((item.failure for item in sent if item.failure is not None), None)

    def _note(self, tally: Tally | None) -> None:
        if tally is not None and tally.queries:
            self.again(tally.queries, tally.tokens, 0.0)


def _submit(executor: Executor, oracle: Oracle, probes: Probes, again: Any) -> Future[tuple[Array, Tally | None]]:
    try:
        return executor.submit(call, oracle, probes, again)
    except Exception as error:
        raise OracleError(
            f"the executor does not accept work ({error!r}); pass one that is running. Answers before it are kept."
        ) from error


def call(oracle: Oracle, probes: Probes, again: Again | Tally) -> tuple[Array, Tally | None]:
    """One call of the target: its answer, and what was sent once more if that could not be billed at once.

    A target may work in place on what it is handed, and may answer in a buffer that its next call overwrites: copies
    go out, and a copy is what comes back.
    """
    tally = again if isinstance(again, Tally) else None
    token = _again.set(again)
    counts = None if probes.counts is None else probes.counts.copy()
    try:
        return np.array(oracle(replace(probes, tokens=probes.tokens.copy(), counts=counts))), tally
    except UnsoftmaxError as error:
        error.tally = tally  # type: ignore[attr-defined]
        raise
    except Exception as error:
        failure = OracleError(
            f"the target raised {type(error).__name__} on {where(probes)}: {error}. Answers before it are kept."
        )
        failure.tally = tally  # type: ignore[attr-defined]
        raise failure from error
    finally:
        _again.reset(token)


def where(probes: Probes, row: int | None = None) -> str:
    """Name a probe in a message."""
    if row is not None:
        return f"probe {probes.offset + row} of phase {probes.phase!r} ({probes.tokens.shape[1]} tokens)"
    return f"probes {probes.offset}..{probes.offset + len(probes) - 1} of phase {probes.phase!r}"


def checked(answer: Array, probes: Probes, spec: OracleSpec) -> Array:
    """The answer as float64 of shape (batch,) or (batch, outputs), or an OracleError that names the probe."""
    y = np.asarray(answer)
    length = probes.tokens.shape[1]
    # How many heads show their attention is the target's to say.
    maps = max(1, (y.shape[1] - 1) // length) if y.ndim == 2 else 1
    wanted = spec.shape(len(probes), length, maps)
    if len(wanted) == 1 and y.shape == (len(probes), 1):
        y = y[:, 0]
    if not is_real(y):
        kind = f"dtype {y.dtype}" if y.shape else repr(y.item())[:40]
        raise OracleError(
            f"the target answered with {kind} on {where(probes)}; real numbers (or labels 0 and 1) are required."
        )
    if y.shape != wanted:
        raise OracleError(
            f"the target answered with shape {y.shape} where {wanted} was required on {where(probes)}; "
            "return one number per sequence, or declare outputs=."
        )
    y = y.astype(np.float64, copy=False)
    # Behind a link +-inf is what a saturated answer says of f; whether that is of use is the program's to know.
    bad = ~np.isfinite(y) if spec.link is None else np.isnan(y)
    if bad.any():
        row, *_ = place = tuple(np.argwhere(bad)[0])
        several = f" in {bad[row].sum()} of {y[row].size} numbers" if y[row].size > 1 else ""
        raise OracleError(
            f"the target answered {y[place]}{several} on {where(probes, int(row))}; finite numbers are required. "
            'If large inputs overflow, declare the number format it computes in (dtype="float32") or max_norm=; if '
            "weights are divided by a sum that can be 0 (linear, ReLU attention), name learners.KernelHead()."
        )
    return y
