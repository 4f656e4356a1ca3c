"""`recover`: oracle in, verified model out.

Where a result was computed: versions and processor, because last digits depend on both.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Sized
from concurrent.futures import Executor
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from unsoftmax import verify as verification
from unsoftmax.diagnosis.automatic import Automatic
from unsoftmax.errors import InvalidArgument
from unsoftmax.learners.core.base import Forecast, Learner, configuration
from unsoftmax.oracles.base import Oracle, of_source
from unsoftmax.oracles.metering import Budget
from unsoftmax.oracles.rechecking import Recheck
from unsoftmax.oracles.recording import MemoryStore, Store
from unsoftmax.oracles.stack import Stack
from unsoftmax.results.recovery import Recovery, plain
from unsoftmax.run.attempt import Attempt
from unsoftmax.run.engine import ProgressCallback
from unsoftmax.run.surroundings import installed_version, opened, working
from unsoftmax.spec import OracleSpec


@cache
def environment() -> dict[str, Any]:
    """Versions, linear algebra library, machine, and the vector instructions NumPy found."""
    built: Any = np.show_config(mode="dicts") or {}
    blas = built.get("Build Dependencies", {}).get("blas", {})
    facts = {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "blas": f"{blas.get('name', 'unknown')} {blas.get('version', '')}".strip(),
        "machine": platform.machine(),
        "vectors": " ".join(built.get("SIMD Extensions", {}).get("found", [])),
        "kernel": os.environ.get("OPENBLAS_CORETYPE", ""),
    }
    return {name: value for name, value in facts.items() if value}


_REMOTE_FACTOR = 2
"""A remote target without a budget gets this many times the upper end of the forecast: room for retries, none for a
runaway."""


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
    recheck: Recheck | None = None,
    keep_tokens: bool = False,
) -> Recovery:
    """Recover the model behind an oracle.

    learner    which class to learn; None diagnoses the target, chooses one and says why.
    budget     queries (or a `Budget`) for everything billed, verification included; refused before the first query
               if the learner's closed form does not fit.
    ledger     a path (SQLite, bound to this target, configuration and seed) or a Store: every answer is kept there
               before it is used, and running again with it resumes without paying twice.
    executor   any concurrent.futures.Executor; chunks of a round are then evaluated in parallel.
    verify     check on fresh queries; raises ModelMismatch (carrying `.recovery`) when they disagree.
    progress   True shows a progress line, a callable receives `engine.Progress`.
    recheck    a `Recheck`: a sample of sequences is asked again at intervals, to notice a target that drifts or answers
               at random; None: remote targets only.
    keep_tokens  the ledger (a path) keeps the sequences beside their answers: `us.Log.read` then reads it as a log.
    """
    require_run(oracle, learner, seed)
    if not (recheck is None or isinstance(recheck, Recheck)):
        raise InvalidArgument(f"`recheck` must be a us.Recheck or None (got {recheck!r}).")
    if not (ledger is None or isinstance(ledger, (str, Path)) or hasattr(ledger, "put")):
        raise InvalidArgument(f"`ledger` must be a path or a store (got {type(ledger).__name__}).")
    notes: tuple[str, ...] = ()
    if learner is None:
        learner = Automatic()
    forecast = learner.forecast(oracle.spec)
    fresh, most_fresh = verification.interval(forecast, oracle.spec)
    needed = forecast.minimum + (fresh if verify else 0)
    limits = budget if isinstance(budget, Budget) else Budget(queries=budget)
    if of_source(oracle, "remote", False):
        recheck = recheck or Recheck()
        if budget is None:
            limits = Budget(queries=_allowed(forecast, most_fresh, recheck, oracle.spec))
            notes += (f"no budget was given for a remote target: {limits.queries} queries were allowed.",)
    if recheck is not None and recheck.then == "approximate" and ledger is None:
        # Starting over must not pay twice.
        ledger = MemoryStore()
    name = "a diagnosis with the learner it chooses" if isinstance(learner, Automatic) else type(learner).__name__
    what = f"{name} at dim {oracle.spec.dim}"
    if ledger is None or (isinstance(ledger, (str, Path)) and not Path(ledger).exists()):
        limits.refuse(needed, needed, what)
    if keep_tokens and not isinstance(ledger, (str, Path)):
        raise InvalidArgument(f"`keep_tokens` needs the path of a ledger (got ledger={ledger!r}).")
    with opened(ledger, oracle, configuration(learner), seed, keep_tokens) as store:
        # What the ledger holds is paid for: only the rest must fit.
        rest = max(0, needed - (len(store) if isinstance(store, Sized) else 0))
        limits.refuse(rest, rest, what)
        concurrency = int(of_source(oracle, "concurrency", 1))
        with working(executor, concurrency) as workers, _watching(progress, needed) as watch:
            in_flight = max(concurrency, 1 if executor is None else 8)
            stack = Stack(oracle, limits, store, workers, recheck, in_flight=in_flight)
            provenance = _provenance(oracle, learner, seed)
            return Attempt(stack, learner, seed, provenance, notes, fresh=fresh, watch=watch).finish(verify)


def _allowed(forecast: Forecast, fresh: int, recheck: Recheck, spec: OracleSpec) -> int:
    """Queries allowed to a remote target for which no budget was given."""
    most = forecast.maximum
    if most is None:
        # A cost that depends on the target is allowed the order of d^2 unknowns.
        most = forecast.minimum + max(forecast.minimum + fresh, 4 * spec.dim**2)
    again = 2 * recheck.sample * (2 + (most + fresh) // recheck.every)
    return _REMOTE_FACTOR * (most + fresh + again)


def require_run(oracle: Any, learner: Any, seed: Any) -> None:
    """Refuse what is no oracle, no learner or no seed before anything is asked."""
    if not isinstance(oracle, Oracle):
        raise InvalidArgument(
            f"`oracle` must be an oracle (got {type(oracle).__name__}); wrap a callable with us.oracle(fn, dim)."
        )
    if isinstance(learner, type) or not (learner is None or hasattr(learner, "program")):
        raise InvalidArgument(
            f"`learner` must be a learner such as us.learners.SingleHead() or None (got {learner!r})."
        )
    if not isinstance(seed, (int, np.integer)) or isinstance(seed, bool) or seed < 0:
        raise InvalidArgument(f"`seed` must be an integer of at least 0 (got {seed!r}).")


def _provenance(oracle: Oracle, learner: Learner, seed: int) -> dict[str, Any]:
    facts: dict[str, Any] = plain(
        {
            "version": installed_version(),
            "environment": environment(),
            "spec": asdict(oracle.spec),
            "configuration": configuration(learner),
            "seed": seed,
        }
    )
    return facts


def _watching(progress: bool | ProgressCallback, needed: int) -> Any:
    from unsoftmax.run.progress import watching

    return watching(progress, needed)
