"""`Monitor`: the comparison repeated for as long as a model is served, with one rate of false alarms for all calls.

M_t = e_t (M_t-1 + 1 / t(t + 1)), e_t the e-value of the answers of call t: the mean of M_t never exceeds the sum of the
entries, 1, while nothing has changed, so that 1/alpha is reached with probability alpha at most, whenever one looks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import special

from unsoftmax.comparing import designs, statistics
from unsoftmax.comparing.compare import check_settings, digest
from unsoftmax.comparing.designs import SINGLES, TIES, Asked
from unsoftmax.comparing.detection import Group, group, plan, written_in
from unsoftmax.comparing.monitor_state import State, kept
from unsoftmax.comparing.noise import Noise
from unsoftmax.comparing.references import Reference, reference_of
from unsoftmax.errors import InvalidArgument
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

QUERIES = 8
"""Queries of a call: near ties but for one, which is a single token and a longer sequence in turn."""
PHASE = "monitor"


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
        object.__setattr__(self, "_memory", [State.new(statistics.bets())])

    def step(self, oracle: Oracle, *, budget: int | Budget | None = None) -> Step:
        """Ask eight questions and add what they say."""
        require_run(oracle, None, 0)
        check_settings(oracle.spec, self.arithmetic, self.alpha, None)
        known = reference_of(self.reference, oracle.spec)
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
        log_e = float(special.logsumexp(np.array(total)) - math.log(len(total)))
        return Step(log_e >= -math.log(self.alpha), math.exp(min(log_e, 700.0)), stack.meter.snapshot(), calls)

    def _kept(self, name: str) -> Any:
        return kept(self.state, self._memory, name, self.alpha, statistics.bets())  # type: ignore[attr-defined]


def _call(known: Reference, spec: OracleSpec, arithmetic: str | None, number: int) -> Asking[Array]:
    """Logarithms of the e-values of one call, (bets,); every call asks in new directions."""
    groups = _questions(known, spec, known.coarser(arithmetic or spec.dtype, spec), number)
    answers = []
    for item in groups:
        answers.append((yield Probes(item.X, phase=PHASE)))
    if arithmetic is None and spec.dtype == "float64" and written_in(np.concatenate(answers)) != "float64":
        groups = _questions(known, spec, "float32", number)
    energies = [statistics.energy(item.z(y)) for item, y in zip(groups, answers, strict=True)]
    return statistics.log_bets(np.concatenate(energies))


def _questions(known: Reference, spec: OracleSpec, arithmetic: str, number: int) -> list[Group]:
    """Near ties of a plan that is the same for every call, in directions that are not."""
    asked, noise = Asked(spec, arithmetic), Noise(known, arithmetic, spec.tolerance)
    made = plan(known, spec, arithmetic, 1e-3, None, 0, whole=False)
    rng = np.random.default_rng([number, 0x3041])
    found = [group(TIES, designs.near_ties(known, asked, QUERIES - 1, made.norm, rng), noise, made.constant, rng)]
    usual = designs.usual_norm(known, asked, rng)
    longer = designs.longer(known, asked, usual, rng)
    if number % 2 and longer:
        X = longer[int(rng.integers(len(longer)))][:1]
    else:
        X = designs.singles(known, asked, 1, usual, rng)
    constant = max(made.constant, noise.constant(lambda: X, rng))
    return [*found, group(SINGLES, X, noise, constant, rng)]
