"""Ways to attack one cell, tried in turn: fresh noise is declared, then averaged away; explanations are left aside.

Someone who reads the logs chooses no query at all: how many answers to ordinary traffic give a copy?
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from unsoftmax.auditing.constants import AUDITING
from unsoftmax.diagnosis.choice import LogClass, in_logs
from unsoftmax.errors import BudgetExceeded, NotIdentifiable, UnsoftmaxError
from unsoftmax.fitting import Log, fit
from unsoftmax.learners.core.base import Asking, Learner
from unsoftmax.oracles.base import Oracle
from unsoftmax.oracles.metering import Budget
from unsoftmax.oracles.semantic import Stochastic, noisy
from unsoftmax.oracles.stack import Stack
from unsoftmax.probes.base import Array, Probes
from unsoftmax.probes.scales import held
from unsoftmax.results.audit import CLOSE
from unsoftmax.results.recovery import Recovery, Status, Usage
from unsoftmax.run.engine import ProgressCallback
from unsoftmax.run.engine import run as run_program
from unsoftmax.spec import OracleSpec


@dataclass(frozen=True)
class Averaged:
    """The mean of `times` askings, declared to be off by at most `AUDITING.sure` of its own deviations."""

    inner: Oracle
    times: int
    deviation: float

    @property
    def spec(self) -> OracleSpec:
        spec = self.inner.spec
        left = AUDITING.sure * self.deviation / self.times**0.5
        return replace(spec, kind=noisy(spec), tolerance=spec.tolerance + left)

    def __call__(self, probes: Probes) -> Array:
        return np.asarray(np.mean(self._asked(probes), axis=0))

    def _asked(self, probes: Probes) -> list[Array]:
        """Every asking is on the attacker's bill; noise that is added here needs no fresh answers below it."""
        if isinstance(self.inner, Stochastic):
            return self.inner.repeated(probes, self.times)
        return [self.inner(probes) for _ in range(self.times)]


Attack = Callable[[Oracle, int], Recovery]
"""Recovers from an oracle whose every answer is so many queries."""


@dataclass(frozen=True)
class Way:
    """One way to attack: what it asks, how many queries each answer is, and what a reader should know of it."""

    target: Oracle
    run: Attack
    times: int = 1
    note: str = ""


def in_turn(ways: Iterable[Way], spent: Usage) -> Recovery:
    """The first recovery that states a close copy, else the last; the bill has every query of every way."""
    left = list(ways)
    for number, way in enumerate(left, 1):
        try:
            recovery = way.run(way.target, way.times)
        except BudgetExceeded:
            raise
        except UnsoftmaxError as failure:
            spent = _sum(spent, failure.recovery, way.times)
            if number < len(left):
                continue
            if failure.recovery is not None:
                failure.recovery = replace(failure.recovery, usage=spent)
            raise
        spent = _sum(spent, recovery, way.times)
        stated = recovery.certificate.stated_error
        if number == len(left) or (stated is not None and stated <= CLOSE):
            return replace(recovery, usage=spent, notes=(*([way.note] if way.note else []), *recovery.notes))
    raise AssertionError("the last way returns or raises")


def averaged_ways(defended: Oracle, seed: int, run: Attack) -> tuple[list[Way], Usage]:
    """Against fresh noise: declared first, then averaged; and what measuring its deviation took."""
    deviation = _measured(defended, seed)
    notes = {1: "the noise was measured and declared"}
    ways = [
        Way(
            Averaged(defended, times, deviation),
            run,
            times,
            notes.get(times, f"each sequence was asked {times} times, and their mean declared"),
        )
        for times in AUDITING.askings
    ]
    return ways, Usage(asked=AUDITING.looks, billed=AUDITING.looks, tokens=AUDITING.looks)


def _measured(oracle: Oracle, seed: int) -> float:
    """Deviation of the answers to one token, asked again and again."""
    spec = oracle.spec
    rng = np.random.default_rng([seed, 0xA7E])
    if spec.vocabulary is not None:
        token: Array = np.full((1, 1), spec.allowed[0])
    else:
        direction = rng.standard_normal(spec.dim)
        token = (min(1.0, spec.domain.norm_limit) * direction / np.linalg.norm(direction))[None, None]
        token = held(token, spec.dtype)
    answers = np.array([oracle(Probes(token)) for _ in range(AUDITING.looks)])
    return float(np.sqrt(np.mean(np.var(answers.reshape(AUDITING.looks, -1), axis=0, ddof=1))))


def _sum(spent: Usage, recovery: Recovery | None, times: int) -> Usage:
    if recovery is None:
        return spent
    new = recovery.usage
    return replace(
        new,
        asked=spent.asked + times * new.asked,
        billed=spent.billed + times * new.billed,
        tokens=spent.tokens + times * new.tokens,
        numbers=spent.numbers + times * new.numbers,
        rounds=spent.rounds + times * new.rounds,
    )


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
