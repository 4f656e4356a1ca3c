"""The order of the stages: position decides what is counted.

source and semantic wrappers (one Oracle) <- dispatched <- counted <- budgeted <- guarded <- recorded

A recorded answer costs no budget and is not billed; a probe outside the domain is refused before it is counted.
With an executor answers arrive in any order: each is recorded on arrival, and served in order.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sized
from concurrent.futures import Executor
from dataclasses import dataclass, field

from unsoftmax.oracles.base import Oracle, Stage, of_source
from unsoftmax.oracles.metering import Budget, Budgeted, Counted, Dispatched, Guarded, Meter
from unsoftmax.oracles.nearness import Nearness, Notes
from unsoftmax.oracles.rechecking import Recheck, Rechecker
from unsoftmax.oracles.recording import Recorded, Store
from unsoftmax.probes.base import Array, Probes
from unsoftmax.spec import OracleSpec


def _nothing() -> None:
    """Without a store no place needs to be known."""


def _own(name: str, value: Array) -> Array:
    """Without a store nothing was settled before."""
    return value


@dataclass
class Stack:
    """An oracle with its metering around it; what the engine talks to."""

    oracle: Oracle
    budget: Budget = field(default_factory=Budget)
    store: Store | None = None
    executor: Executor | None = None
    recheck: Recheck | None = None
    meter: Meter = field(default_factory=Meter)
    in_flight: int = 8
    reserved: int = 0
    """Queries that follow the program: its verification."""

    def __post_init__(self) -> None:
        owed = of_source(self.oracle, "owed", None)
        if owed is not None:
            owed.settled(self.meter)
        dispatched = Dispatched(
            self.oracle, self.meter, self.executor, self.in_flight, again=self._again, limited=self.budget.limited
        )
        budgeted = Budgeted(Counted(dispatched, self.meter), self.budget, self.meter)
        stage: Stage = Guarded(budgeted, self.spec)
        self.room = budgeted.room
        self.near: Nearness | None = None
        self.rewind: Callable[[], None] = _nothing
        self.settle: Callable[[str, Array], Array] = _own
        if self.store is not None:
            self.near = Nearness(self.store) if isinstance(self.store, Notes) else None
            recorded = Recorded(stage, self.store, budgeted.room, self.near)
            dispatched.on_arrival = recorded.keep
            self.rewind, self.settle = recorded.rewind, recorded.settle
            stage = recorded
        self._outermost = stage
        # What is asked again goes to the target itself: neither the ledger nor the order of chunks is concerned.
        beside = Dispatched(self.oracle, self.meter, again=self._again)
        repeating = Budgeted(Counted(beside, self.meter), self.budget, self.meter)
        self.rechecker = Rechecker(repeating, self.spec, self.meter, self.recheck)

    def _again(self, queries: int, tokens: int, seconds: float) -> None:
        self.meter.again(self.budget, queries, tokens, seconds)

    def admit(self, ahead: int) -> None:
        """Refuse a plan that does not fit the budget, before any of it is sent; what is recorded costs nothing."""
        if ahead > 0:
            recorded = len(self.store) - self.meter.asked if isinstance(self.store, Sized) else 0
            more = max(0, ahead - max(0, recorded)) + self.reserved
            self.budget.refuse(
                self.meter.billed + more,
                self.meter.tokens + more,
                f"what the answers show to be needed, {ahead} queries more and {self.reserved} to verify,",
                time.perf_counter() - self.meter.started,
            )

    @property
    def spec(self) -> OracleSpec:
        return self.oracle.spec

    def ask(self, chunks: Iterable[Probes]) -> Iterator[Array]:
        return self.rechecker.watch(chunks, self._outermost)
