"""Someone who reads the logs: how many answers to ordinary traffic give a copy, without one chosen query."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unsoftmax.auditing.constants import AUDITING
from unsoftmax.diagnosis.choice import LogClass, in_logs
from unsoftmax.errors import NotIdentifiable
from unsoftmax.fitting import Log, fit
from unsoftmax.learners.core.base import Asking, Learner
from unsoftmax.oracles.base import Oracle
from unsoftmax.oracles.metering import Budget
from unsoftmax.oracles.stack import Stack
from unsoftmax.probes.base import Array, Probes
from unsoftmax.probes.scales import held
from unsoftmax.results.recovery import Recovery, Status
from unsoftmax.run.engine import ProgressCallback
from unsoftmax.run.engine import run as run_program
from unsoftmax.spec import OracleSpec


def read_logs(
    oracle: Oracle, base: Learner, unknowns: int, budget: Budget, seed: int, watch: ProgressCallback
) -> Recovery:
    """Fit more and more records of standard normal tokens; the bill is what had to be recorded."""
    model = in_logs(base)
    if model is None:
        raise NotIdentifiable(f"logs of the class {type(base).__name__} learns are not fitted by this version.")
    stack = Stack(oracle, budget)
    found = run_program(_traffic(oracle.spec, model, unknowns, seed), stack, watch)
    spent = stack.meter.snapshot()
    return replace(found, usage=replace(spent, phases=found.usage.phases))


def _traffic(spec: OracleSpec, model: LogClass, unknowns: int, seed: int) -> Asking[Recovery]:
    rng = np.random.default_rng([seed, 0x106])
    length = int(min(AUDITING.length, spec.domain.length_limit))
    # Standard normal tokens, shorter where the domain wants it.
    size = min(1.0, 0.5 * spec.domain.norm_limit / spec.dim**0.5)
    tokens: list[Array] = []
    answers: list[Array] = []
    found: Recovery | None = None
    for ratio in AUDITING.ratios:
        number = int(np.ceil(ratio * unknowns / (1 - AUDITING.held_out))) - sum(map(len, tokens))
        X = size * rng.standard_normal((number, length, spec.dim))
        tokens.append(held(X, spec.dtype))
        answers.append((yield Probes(tokens[-1], phase="recorded")))
        log = Log(np.concatenate(tokens), np.concatenate(answers), tolerance=spec.tolerance or None, dtype=spec.dtype)
        found = fit(log, model, holdout=AUDITING.held_out, seed=seed, starts=AUDITING.starts)
        if found.status is not Status.SURROGATE:
            break
    assert found is not None
    return found
