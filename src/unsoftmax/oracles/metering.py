"""Stages that never change answers: dispatching, counting, budgets, domain."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field

import numpy as np

from unsoftmax.errors import BudgetExceeded, DomainError, InvalidArgument, OracleError, UnsoftmaxError
from unsoftmax.oracles.base import Oracle, Stage
from unsoftmax.probes.base import Array, Probes
from unsoftmax.result import Usage
from unsoftmax.spec import OracleSpec


@dataclass
class Meter:
    """Running counters of one run; `snapshot` freezes them."""

    asked: int = 0
    billed: int = 0
    tokens: int = 0
    numbers: int = 0
    rounds: int = 0
    target_seconds: float = 0.0
    started: float = field(default_factory=time.perf_counter)
    phases: dict[str, int] = field(default_factory=dict)

    def snapshot(self) -> Usage:
        seconds = time.perf_counter() - self.started
        return Usage(
            self.asked,
            self.billed,
            self.tokens,
            self.numbers,
            self.rounds,
            seconds,
            self.target_seconds,
            dict(self.phases),
        )


@dataclass(frozen=True)
class Budget:
    """Limits on everything billed, verification included; None means no limit.

    `price_per_query` and `price_per_token` turn `cost` into a limit as well.
    """

    queries: int | None = None
    tokens: int | None = None
    seconds: float | None = None
    cost: float | None = None
    price_per_query: float = 0.0
    price_per_token: float = 0.0

    def __post_init__(self) -> None:
        for name in ("queries", "tokens", "seconds", "cost"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise InvalidArgument(f"budget `{name}` must not be negative (got {value}).")

    def price(self, queries: int, tokens: int) -> float:
        return queries * self.price_per_query + tokens * self.price_per_token

    def refuse(self, queries: int, tokens: int, what: str, seconds: float = 0.0) -> None:
        """Raise BudgetExceeded if this many queries and tokens in all, after this long, do not fit."""
        cost = self.price(queries, tokens)
        for name, need, limit in (
            ("queries", queries, self.queries),
            ("tokens", tokens, self.tokens),
            ("seconds", seconds, self.seconds),
            ("cost", cost, self.cost),
        ):
            if limit is not None and need > limit:
                raise BudgetExceeded(
                    f"{what} needs {need:g} {name} in all and the budget allows {limit:g}; "
                    f"raise the budget to at least {need:g} {name}. Nothing beyond it was sent.",
                    needed=queries,
                    limit=limit,
                )


@dataclass
class Dispatched:
    """Calls the oracle chunk by chunk, through an executor if there is one, and checks every answer."""

    oracle: Oracle
    meter: Meter
    executor: Executor | None = None
    in_flight: int = 8

    def ask(self, chunks: Iterable[Probes]) -> Iterator[Array]:
        if self.executor is None:
            for chunk in chunks:
                start = time.perf_counter()
                answer = _call(self.oracle, chunk)
                self.meter.target_seconds += time.perf_counter() - start
                yield checked(answer, chunk, self.oracle.spec)
            return
        waiting: deque[tuple[Probes, Future[Array]]] = deque()
        refusal: UnsoftmaxError | None = None
        source = iter(chunks)
        try:
            while True:
                try:
                    probes: Probes | None = next(source, None)
                except UnsoftmaxError as error:
                    # What is in flight is paid for: hand it on before saying that no more may be sent.
                    refusal, probes = error, None
                if probes is None:
                    break
                waiting.append((probes, self.executor.submit(_call, self.oracle, probes)))
                if len(waiting) >= self.in_flight:
                    yield self._next(waiting)
            while waiting:
                yield self._next(waiting)
        finally:
            for _, future in waiting:
                future.cancel()
        if refusal is not None:
            raise refusal

    def _next(self, waiting: deque[tuple[Probes, Future[Array]]]) -> Array:
        probes, future = waiting.popleft()
        try:
            answer = future.result()
        except UnsoftmaxError:
            raise
        except Exception as error:
            raise OracleError(f"the executor failed on {where(probes)}: {error!r}.") from error
        return checked(answer, probes, self.oracle.spec)


def _call(oracle: Oracle, probes: Probes) -> Array:
    try:
        return oracle(probes)
    except UnsoftmaxError:
        raise
    except Exception as error:
        raise OracleError(
            f"the target raised {type(error).__name__} on {where(probes)}: {error}. Answers before it are kept."
        ) from error


def where(probes: Probes, row: int | None = None) -> str:
    """Name a probe in a message."""
    if row is not None:
        return f"probe {probes.offset + row} of phase {probes.phase!r} ({probes.tokens.shape[1]} tokens)"
    return f"probes {probes.offset}..{probes.offset + len(probes) - 1} of phase {probes.phase!r}"


def checked(answer: Array, probes: Probes, spec: OracleSpec) -> Array:
    """The answer as float64 of shape (batch,) or (batch, outputs), or an OracleError that names the probe."""
    y = np.asarray(answer)
    wanted = (len(probes),) if spec.outputs is None else (len(probes), spec.outputs)
    if spec.outputs is None and y.shape == (len(probes), 1):
        y = y[:, 0]
    if y.shape != wanted:
        raise OracleError(
            f"the target answered with shape {y.shape} where {wanted} was required on {where(probes)}; "
            "return one number per sequence, or declare outputs=."
        )
    if y.dtype.kind not in "fiub":
        raise OracleError(f"the target answered with dtype {y.dtype} on {where(probes)}; real numbers are required.")
    y = y.astype(np.float64, copy=False)
    bad = ~np.isfinite(y)
    if bad.any():
        row = int(np.argwhere(bad)[0][0])
        raise OracleError(
            f"the target answered {y[row]} on {where(probes, row)}; finite numbers are required. "
            "If large inputs overflow, declare max_norm=."
        )
    return y


@dataclass
class Guarded:
    """Refuses probes outside the declared domain before they are sent: a learner's slip must not reach the target."""

    inner: Stage
    spec: OracleSpec

    def ask(self, chunks: Iterable[Probes]) -> Iterator[Array]:
        return self.inner.ask(self._inside(probes) for probes in chunks)

    def _inside(self, probes: Probes) -> Probes:
        domain = self.spec.domain
        if domain.max_length is not None and probes.lengths.max(initial=0) > domain.max_length:
            raise DomainError(f"{where(probes)} have {probes.lengths.max()} tokens; max_length is {domain.max_length}.")
        if domain.max_norm is not None and probes.tokens.ndim == 3:
            largest = float(np.sqrt(np.einsum("bnd,bnd->bn", probes.tokens, probes.tokens).max(initial=0.0)))
            if largest > domain.max_norm * (1 + 4e-16 * self.spec.dim):
                raise DomainError(f"{where(probes)} have token norm {largest:g}; max_norm is {domain.max_norm:g}.")
        return probes


@dataclass
class Counted:
    """Bills what the target answered, by phase."""

    inner: Stage
    meter: Meter

    def ask(self, chunks: Iterable[Probes]) -> Iterator[Array]:
        sent: deque[Probes] = deque()

        def noting() -> Iterator[Probes]:
            for probes in chunks:
                sent.append(probes)
                self._bill(probes)
                yield probes

        for answer in self.inner.ask(noting()):
            sent.popleft()
            self.meter.numbers += answer.size
            yield answer

    def _bill(self, probes: Probes) -> None:
        self.meter.billed += len(probes)
        self.meter.tokens += int(probes.lengths.sum())
        self.meter.phases[probes.phase] = self.meter.phases.get(probes.phase, 0) + len(probes)


@dataclass
class Budgeted:
    """Refuses a whole chunk before it is sent if the budget cannot pay for it."""

    inner: Stage
    budget: Budget
    meter: Meter

    def ask(self, chunks: Iterable[Probes]) -> Iterator[Array]:
        return self.inner.ask(self._affordable(probes) for probes in chunks)

    def _affordable(self, probes: Probes) -> Probes:
        self.budget.refuse(
            self.meter.billed + len(probes),
            self.meter.tokens + int(probes.lengths.sum()),
            f"the next call ({where(probes)})",
            time.perf_counter() - self.meter.started,
        )
        return probes
