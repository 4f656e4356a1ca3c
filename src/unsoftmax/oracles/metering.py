"""Stages that never change answers: counting, budgets, domain. Dispatching has its own file."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from unsoftmax.arguments import real
from unsoftmax.errors import BudgetExceeded, DomainError, InvalidArgument
from unsoftmax.oracles.base import Stage
from unsoftmax.oracles.dispatching import Dispatched, checked, where
from unsoftmax.probes.base import Array, Probes
from unsoftmax.results.recovery import Usage
from unsoftmax.spec import OracleSpec

__all__ = ["Budget", "Budgeted", "Counted", "Dispatched", "Guarded", "Meter", "Owed", "checked", "where"]

RETRY = "retry"
"""Phase of sequences that a source had to send once more."""


MEASURING = "tolerance"
"""Phase of sequences that an adapter sent before the run, to see how far answers to one question lie apart."""


@dataclass
class Owed:
    """Sequences and tokens that were sent before any run; the first run is billed for them, and no other."""

    queries: int = 0
    tokens: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, queries: int, tokens: int) -> None:
        with self._lock:
            self.queries, self.tokens = self.queries + queries, self.tokens + tokens

    def settled(self, meter: Meter) -> None:
        with self._lock:
            if self.queries:
                meter.bill(self.queries, self.tokens, MEASURING)
            self.queries = self.tokens = 0

    def __reduce__(self) -> Any:
        return Owed, (self.queries, self.tokens)


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
    admitted: tuple[int, int] = (0, 0)
    """Sequences and tokens that the budget has let pass and that are not yet billed."""
    lock: threading.RLock = field(default_factory=threading.RLock, repr=False)

    def bill(self, queries: int, tokens: int, phase: str) -> None:
        with self.lock:
            self.admitted = (0, 0)
            self.billed += queries
            self.tokens += tokens
            self.phases[phase] = self.phases.get(phase, 0) + queries

    def again(self, budget: Budget, queries: int, tokens: int, seconds: float = 0.0) -> None:
        """Bill sequences that a source is about to send once more, `seconds` from now; BudgetExceeded if they do not
        fit."""
        with self.lock:
            waiting = self.admitted
            budget.refuse(
                self.billed + waiting[0] + queries,
                self.tokens + waiting[1] + tokens,
                f"sending {queries or 'the same'} sequences once more after a failure",
                time.perf_counter() - self.started + seconds,
            )
            if queries:
                self.bill(queries, tokens, RETRY)
                self.admitted = waiting

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
        for name in ("queries", "tokens", "seconds", "cost", "price_per_query", "price_per_token"):
            value = getattr(self, name)
            if value is not None:
                real(f"budget {name}", value, closed=True)
        if self.cost is not None and self.price_per_query == self.price_per_token == 0:
            raise InvalidArgument("budget `cost` needs a price: pass price_per_query= or price_per_token=.")

    @property
    def limited(self) -> bool:
        """Whether what is sent is limited at all."""
        return not (self.queries is None and self.tokens is None and self.cost is None)

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
                    f"{what} needs at least {need:g} {name} in all and the budget allows {limit:g}.",
                    advice=f"raise the budget to at least {need:g} {name}. Nothing beyond it was sent.",
                    needed=queries,
                    limit=limit,
                )


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
        if self.spec.vocabulary is not None:
            self._known_ids(probes, self.spec.vocabulary)
        return probes

    def _known_ids(self, probes: Probes, vocabulary: int) -> None:
        ids = probes.tokens
        if ids.ndim != 2 or ids.dtype.kind not in "iu":
            raise DomainError(f"{where(probes)} are not integer ids (batch, N), which a token oracle takes.")
        if ids.size and not (ids.min() >= 0 and ids.max() < vocabulary):
            raise DomainError(f"{where(probes)} have ids outside 0..{vocabulary - 1}.")
        if self.spec.domain.forbidden and np.isin(ids, self.spec.domain.forbidden).any():
            raise DomainError(f"{where(probes)} hold a forbidden id.")


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
                self.meter.bill(len(probes), probes.total_length, probes.phase)
                yield probes

        for answer in self.inner.ask(noting()):
            sent.popleft()
            self.meter.numbers += answer.size
            yield answer


@dataclass
class Budgeted:
    """Refuses a whole chunk before it is sent if the budget cannot pay for it."""

    inner: Stage
    budget: Budget
    meter: Meter

    def ask(self, chunks: Iterable[Probes]) -> Iterator[Array]:
        return self.inner.ask(self._affordable(probes) for probes in chunks)

    def _affordable(self, probes: Probes) -> Probes:
        tokens = probes.total_length
        with self.meter.lock:
            self.budget.refuse(
                self.meter.billed + len(probes),
                self.meter.tokens + tokens,
                f"the next call ({where(probes)})",
                time.perf_counter() - self.meter.started,
            )
            self.meter.admitted = (len(probes), tokens)
        return probes

    def room(self) -> float:
        """How many one-token sequences may still be sent: no chunk that fits is larger."""
        budget, meter = self.budget, self.meter
        rooms = [
            math.inf if budget.queries is None else budget.queries - meter.billed,
            math.inf if budget.tokens is None else budget.tokens - meter.tokens,
        ]
        return max(0, min(rooms))
