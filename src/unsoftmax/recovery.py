"""`recover`: oracle in, verified model out."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sized
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from unsoftmax import verify as verification
from unsoftmax.engine import ProgressCallback, run
from unsoftmax.errors import (
    BudgetExceeded,
    DomainError,
    InvalidArgument,
    ModelMismatch,
    NotIdentifiable,
    OracleError,
    UnsoftmaxError,
)
from unsoftmax.learners.base import Learner, Outcome, configuration
from unsoftmax.learners.single_head import SingleHead
from unsoftmax.oracles.base import Oracle, of_source
from unsoftmax.oracles.identity import identity
from unsoftmax.oracles.ledger import Ledger
from unsoftmax.oracles.metering import Budget
from unsoftmax.oracles.recording import Store
from unsoftmax.oracles.stack import Stack
from unsoftmax.result import Certificate, Recovery, Status
from unsoftmax.spec import OracleSpec

log = logging.getLogger("unsoftmax")

_REMOTE_FACTOR = 4
"""A remote target without a budget gets this many times the forecast: room for retries, none for a runaway."""


def recover(
    oracle: Oracle,
    learner: Learner | None = None,
    *,
    seed: int = 0,
    budget: int | Budget | None = None,
    ledger: str | Path | Store | None = None,
    executor: Executor | None = None,
    verify: bool = True,
    progress: bool | ProgressCallback = False,
) -> Recovery:
    """Recover the model behind an oracle.

    learner    which class to learn; None tries SingleHead and says so.
    budget     queries (or a `Budget`) for everything billed, verification included; refused before the first query
               if the learner's closed form does not fit.
    ledger     a path (SQLite, bound to this target, configuration and seed) or a Store: every answer is kept there
               before it is used, and running again with it resumes without paying twice.
    executor   any concurrent.futures.Executor; chunks of a round are then evaluated in parallel.
    verify     check on fresh queries; raises ModelMismatch (carrying `.recovery`) when they disagree.
    progress   True shows a progress line, a callable receives `engine.Progress`.
    """
    if not isinstance(oracle, Oracle):
        raise InvalidArgument(
            f"`oracle` must be an oracle (got {type(oracle).__name__}); wrap a callable with us.oracle(fn, dim)."
        )
    notes: tuple[str, ...] = ()
    if learner is None:
        learner = SingleHead()
        notes = ("no learner was given: SingleHead was tried.",)
    forecast = learner.forecast(oracle.spec)
    fresh = verification.queries(oracle.spec) if forecast.verification is None else forecast.verification
    needed = forecast.minimum + (fresh if verify else 0)
    limits = budget if isinstance(budget, Budget) else Budget(queries=budget)
    if budget is None and of_source(oracle, "remote", False):
        # A cost that depends on the target (how many heads?) is allowed the order of d^2 unknowns.
        extra = max(needed, oracle.spec.dim**2) if forecast.extra is None else forecast.extra
        limits = Budget(queries=_REMOTE_FACTOR * (needed + extra))
        notes += (f"no budget was given for a remote target: {limits.queries} queries were allowed.",)
    what = f"{type(learner).__name__} at dim {oracle.spec.dim}"
    if ledger is None or (isinstance(ledger, (str, Path)) and not Path(ledger).exists()):
        limits.refuse(needed, needed, what)
    with _opened(ledger, oracle, learner, seed) as store:
        # What the ledger holds is paid for: only the rest must fit.
        rest = max(0, needed - (len(store) if isinstance(store, Sized) else 0))
        limits.refuse(rest, rest, what)
        concurrency = int(of_source(oracle, "concurrency", 1))
        with _workers(executor, concurrency) as workers, _watching(progress, needed) as watch:
            stack = Stack(oracle, limits, store, workers, in_flight=max(concurrency, 1 if executor is None else 8))
            state = _Run(stack, _provenance(oracle, learner, seed), notes)
            return _recover(state, learner, oracle.spec, seed, verify, watch)


def _recover(
    state: _Run, learner: Learner, spec: OracleSpec, seed: int, verify: bool, watch: ProgressCallback | None
) -> Recovery:
    try:
        outcome = run(learner.program(spec, seed), state.stack, watch)
        state.learned(outcome)
        if not verify:
            return state.recovery(Status.UNVERIFIED)
        checking = verification.check(outcome.model, spec, seed, outcome.claims, outcome.precision)
        certificate = run(checking, state.stack, watch)
    except UnsoftmaxError as error:
        error.recovery = state.recovery(_status(error))
        raise
    except KeyboardInterrupt:
        log.warning(
            "interrupted after %d queries; run again with the same ledger to continue", state.stack.meter.billed
        )
        raise
    state.certificate = Certificate(outcome.claims + certificate.claims)
    if not state.certificate.holds:
        failed = "; ".join(
            f"{c.name}: {c.observed:.2g} where {c.bound:.2g} was allowed"
            for c in state.certificate.claims
            if not c.holds
        )
        mismatch = ModelMismatch(
            f"fresh queries contradict the recovered {type(outcome.model).__name__} ({failed}). The target is outside "
            f"the class {type(learner).__name__} learns, or noisier than declared; the rejected model is in .recovery."
        )
        mismatch.recovery = state.recovery(Status.MISMATCH)
        raise mismatch
    return state.recovery(Status.RECOVERED)


@contextmanager
def _workers(executor: Executor | None, concurrency: int) -> Iterator[Executor | None]:
    """The user's executor, or threads of our own if the target takes several calls at once."""
    if executor is not None or concurrency == 1:
        yield executor
        return
    with ThreadPoolExecutor(concurrency, thread_name_prefix="unsoftmax") as own:
        yield own


@contextmanager
def _opened(ledger: str | Path | Store | None, oracle: Oracle, learner: Learner, seed: int) -> Iterator[Store | None]:
    """The store behind `ledger`; a file is bound to this run and held while it lasts."""
    if not isinstance(ledger, (str, Path)):
        yield ledger
        return
    spec = {name: value for name, value in asdict(oracle.spec).items() if name not in ("max_batch", "name")}
    # How sequences are batched does not change their answers.
    target = identity(oracle)
    binding = {"target": target, "spec": spec, "configuration": configuration(learner), "seed": seed}
    with Ledger(ledger, binding) as store:
        yield store


class _Run:
    """What is known so far, so that any ending can report it."""

    def __init__(self, stack: Stack, provenance: dict[str, Any], notes: tuple[str, ...]) -> None:
        self.stack, self.provenance, self.notes = stack, provenance, notes
        self.model: Any = None
        self.certificate = Certificate()

    def learned(self, outcome: Outcome) -> None:
        self.model = outcome.model
        self.notes += outcome.notes
        self.certificate = Certificate(outcome.claims)

    def recovery(self, status: Status) -> Recovery:
        usage = self.stack.meter.snapshot()
        return Recovery(self.model, status, usage, self.certificate, self.provenance, self.notes)


def _status(error: UnsoftmaxError) -> Status:
    match error:
        case BudgetExceeded():
            return Status.BUDGET_EXHAUSTED
        case OracleError() | DomainError():
            return Status.TARGET_FAILED
        case NotIdentifiable():
            return Status.NOT_IDENTIFIABLE
        case ModelMismatch():
            return Status.MISMATCH
        case _:
            return Status.FAILED


def _provenance(oracle: Oracle, learner: Learner, seed: int) -> dict[str, Any]:
    return {
        "version": version("unsoftmax"),
        "spec": asdict(oracle.spec),
        "configuration": configuration(learner),
        "seed": seed,
    }


def _watching(progress: bool | ProgressCallback, needed: int) -> Any:
    from unsoftmax.progress import watching

    return watching(progress, needed)
