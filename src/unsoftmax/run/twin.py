"""What an exact layer of the recovered weights shows when it is learned and verified as the target was.

What a learner states of its precision follows from the worst that conditioning allows, and may be many digits coarser
than what came about: a change of the target hides in the difference. The twin is the recovered model itself as a
target, asked the same questions without a query: its gaps are what rounding leaves at these weights.

Theory: docs/theory/verification.md, "Vector answers", a twin.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from unsoftmax import verify as verification
from unsoftmax.errors import UnsoftmaxError
from unsoftmax.learners.core.base import Learner
from unsoftmax.models.attention_layer import AttentionLayer
from unsoftmax.models.attention_stack import AttentionStack
from unsoftmax.models.base import Model
from unsoftmax.oracles.base import answered
from unsoftmax.oracles.stack import Stack
from unsoftmax.probes.base import Array, Probes
from unsoftmax.results.recovery import Certificate, Claim
from unsoftmax.run.engine import run
from unsoftmax.spec import OracleSpec


@dataclass(frozen=True)
class TwinConstants:
    """When a twin is asked, and how far beyond its gaps those of a target of its class stay."""

    doubtful: float = 2.0**-26
    """Gap from which a twin is asked: half of the digits of float64. Where weights below 1e-6 are dropped, some answers
    are 1e-6 off."""
    over_twin: float = 300.0
    """Gap of the target over the largest of its twins. Of 24 runs on trained rotary layers one was 131 times a single
    twin's, the others up to 6 times; where gaps of twins spread over six decades one was 200 times those of eight."""
    twins: int = 8
    """Twins asked before a target is refused, each rounded in its own way: what rounding leaves has long tails."""


TWIN = TwinConstants()


def doubtful(certificate: Certificate, model: Model, spec: OracleSpec) -> bool:
    """Whether gaps are within what was allowed and yet so large that a change of the target may be in them."""
    exact = spec.kind == "value" and spec.dtype == "float64" and spec.tolerance == 0
    if not exact or not isinstance(model, (AttentionLayer, AttentionStack)):
        return False
    return any(claim.observed is not None and claim.observed > TWIN.doubtful for claim in certificate.claims)


def against_twin(certificate: Certificate, model: Model, spec: OracleSpec, learner: Learner, seed: int) -> Certificate:
    """The certificate with its bounds lowered to what the gaps of twins leave; as it was where none can be learned."""
    shown: dict[str, float] = {}
    lowered = certificate
    for number in range(TWIN.twins):
        # Where chance of the draws was against a twin others are drawn, as a person would.
        drawn = seed if shown else seed + number
        with suppress(UnsoftmaxError, ArithmeticError, ValueError), np.errstate(all="ignore"):
            for claim in _gaps(Twin(model, spec, number), learner, drawn):
                shown[claim.name] = max(shown.get(claim.name, 0.0), claim.observed or 0.0)
        lowered = replace(certificate, claims=tuple(_lowered(claim, shown) for claim in certificate.claims))
        if shown and lowered.holds:
            break
    return lowered


@dataclass(frozen=True, eq=False)
class Twin:
    """The model as a target; `number` tells how its answers are rounded, equal ones alike, 0 as they are."""

    model: Model
    spec: OracleSpec
    number: int

    def __call__(self, probes: Probes) -> Array:
        y = answered(self.model, probes)
        digits = y.view(np.int64) * (2 * self.number + 1) >> 8 & 0xFF
        return y if self.number == 0 else np.asarray(y * (1 + (digits - 128) / 64 * np.finfo(y.dtype).eps))


def _gaps(twin: Twin, learner: Learner, seed: int) -> tuple[Claim, ...]:
    """What it shows, learned and verified as the target was."""
    stack = Stack(twin)
    outcome = run(learner.program(twin.spec, seed), stack)
    return run(verification.check(outcome.model, twin.spec, seed, outcome.allows), stack).gaps


def _lowered(claim: Claim, shown: dict[str, float]) -> Claim:
    if claim.observed is None or claim.name not in shown:
        return claim
    bound = max(TWIN.over_twin * shown[claim.name], TWIN.doubtful)
    if bound >= claim.bound:
        return claim
    told = f"{claim.statement}; allowed is {TWIN.over_twin:g} times what an exact layer of these weights shows"
    return replace(claim, bound=bound, statement=told)
