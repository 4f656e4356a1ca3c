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
from unsoftmax.verify.far_below import FAR_BELOW


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
    few: int = 3
    """Twins that are enough where they agree: long tails show in how far the gaps of a few are apart."""
    agree: float = 10.0
    """Largest gap of a few twins over their least, up to which they agree: of 34 rotary layers, most
    of them trained, those of three agreed in 28; there the target's own gap was 3.4 times theirs at most, and the
    largest of six twins 26 times."""


TWIN = TwinConstants()


def doubtful(certificate: Certificate, model: Model, spec: OracleSpec) -> bool:
    """Whether gaps are within what was allowed and yet so large that a change of the target may be in them."""
    exact = spec.kind == "value" and spec.dtype == "float64" and spec.tolerance == 0
    if not exact or not isinstance(model, (AttentionLayer, AttentionStack)):
        return False
    # What a faint token adds is compared with itself: rounding is a hundredth of it, and of a twin's as much.
    claims = [claim for claim in certificate.claims if claim.name != FAR_BELOW]
    return any(claim.observed is not None and claim.observed > TWIN.doubtful for claim in claims)


def against_twin(certificate: Certificate, model: Model, spec: OracleSpec, learner: Learner, seed: int) -> Certificate:
    """The certificate with its bounds lowered to what the gaps of twins leave; as it was where none can be learned."""
    shown, least = dict[str, float](), dict[str, float]()
    lowered, learned = certificate, 0
    for number in range(TWIN.twins):
        # Where chance of the draws was against a twin others are drawn, as a person would.
        drawn = seed if shown else seed + number
        with suppress(UnsoftmaxError, ArithmeticError, ValueError), np.errstate(all="ignore"):
            for claim in _gaps(Twin(model, spec, number), learner, drawn):
                gap = claim.observed or 0.0
                shown[claim.name] = max(shown.get(claim.name, 0.0), gap)
                least[claim.name] = min(least.get(claim.name, gap), gap)
            learned += 1
        lowered = replace(certificate, claims=tuple(_lowered(claim, shown) for claim in certificate.claims))
        if shown and (lowered.holds or (learned >= TWIN.few and _agree(lowered, shown, least))):
            break
    return lowered


def _agree(lowered: Certificate, shown: dict[str, float], least: dict[str, float]) -> bool:
    """Whether the gaps of twins are near each other in every claim that the target fails."""
    failed = [claim.name for claim in lowered.claims if not claim.holds and claim.name in shown]
    return all(shown[name] <= TWIN.agree * least[name] for name in failed)


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
    if claim.observed is None or claim.name not in shown or claim.name == FAR_BELOW:
        return claim
    bound = max(TWIN.over_twin * shown[claim.name], TWIN.doubtful)
    if bound >= claim.bound:
        return claim
    told = f"{claim.statement}; allowed is {TWIN.over_twin:g} times what an exact layer of these weights shows"
    return replace(claim, bound=bound, statement=told)
