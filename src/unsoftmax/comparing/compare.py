"""`compare`: is the target the reference, and if not, what changed?"""

from __future__ import annotations

import math
from concurrent.futures import Executor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unsoftmax.arguments import real
from unsoftmax.comparing.arithmetic import UNIT
from unsoftmax.comparing.designs import TIES
from unsoftmax.comparing.detection import Detection, Plan, detect, plan
from unsoftmax.comparing.explain import explain as explaining
from unsoftmax.comparing.noise import Group
from unsoftmax.comparing.references import Reference, reference_of
from unsoftmax.comparing.row_space import row_space
from unsoftmax.errors import InvalidArgument
from unsoftmax.learners.core.base import Asking, configuration
from unsoftmax.models.output_layer import OutputLayer
from unsoftmax.oracles.base import Oracle, of_source
from unsoftmax.oracles.identity import fingerprint
from unsoftmax.oracles.metering import Budget
from unsoftmax.oracles.recording import Store
from unsoftmax.oracles.stack import Stack
from unsoftmax.results.comparison import Comparison, Finding
from unsoftmax.results.recovery import plain
from unsoftmax.results.references import DRIFT, as_data
from unsoftmax.run.engine import ProgressCallback, run
from unsoftmax.run.progress import watching
from unsoftmax.run.recovery import require_run
from unsoftmax.run.surroundings import installed_version, opened, working
from unsoftmax.spec import OracleSpec


@dataclass(frozen=True)
class Comparing:
    """Settings of a comparison, as a ledger is bound to them."""

    reference: str
    alpha: float
    smallest: float | None
    explain: bool
    arithmetic: str | None
    target_error: float = 0.0


def compare(
    oracle: Oracle,
    reference: Any,
    *,
    arithmetic: str | None = None,
    alpha: float = 1e-3,
    smallest: float | None = None,
    budget: int | Budget | None = None,
    explain: bool = True,
    target_error: float = 0.0,
    seed: int = 0,
    ledger: str | Path | Store | None = None,
    executor: Executor | None = None,
    progress: bool | ProgressCallback = False,
) -> Comparison:
    """Say whether the target is the reference, and if not, what changed and where.

    reference   a model of us.models, a Recovery, an oracle, a PyTorch module, the path of a .safetensors or .onnx file,
                or any callable (batch, N, d) -> answers. It is free to ask. What changed is told for heads and layers
                whose weights it holds; other references give detection, and number formats where weights can be
                reached. A recovery is held to the error that its certificate states: "same" is then said up to it.
                An OutputLayer is compared by its row space, with a language model (us.logit_oracle).
    arithmetic  number format in which the target computes ("float64", "float32", "float16", "bfloat16"); None: the
                oracle's dtype, or float32 where all answers of a float64 oracle are float32 numbers.
    alpha       probability of saying "differs" of an unchanged target, all tests together.
    smallest    relative change of the weights that must not stay unseen: as many near ties as that takes are asked, and
                the verdict is "undecided" where rounding hides such a change.
    budget      queries (or a `Budget`); what is known when it ends is reported.
    explain     False stops once a difference is established.
    target_error  how far the target's own weights may be off, relative to their size, where it is a recovery.
    """
    require_run(oracle, None, seed)
    check_settings(oracle.spec, arithmetic, alpha, smallest)
    known = reference_of(reference, oracle.spec).beside(target_error)
    settings = Comparing(digest(reference, known), alpha, smallest, explain, arithmetic, target_error)
    if isinstance(known.model, OutputLayer):
        asking = row_space(known.model, oracle.spec, seed)
    else:
        asking = program(known, oracle.spec, settings, seed)
    limits = budget if isinstance(budget, Budget) else Budget(queries=budget)
    configured = configuration(settings)
    with opened(ledger, oracle, configured, seed) as store:
        concurrency = int(of_source(oracle, "concurrency", 1))
        with working(executor, concurrency) as workers, watching(progress, 0) as watch:
            in_flight = max(concurrency, 1 if executor is None else 8)
            stack = Stack(oracle, limits, store, workers, in_flight=in_flight)
            if stack.near is not None and known.model is not None and not isinstance(known.model, OutputLayer):
                # Whatever changed, the reference knows what last digits of tokens do to an answer.
                stack.near.follow(known.model, oracle.spec.dim)
            found = run(asking, stack, watch)
    provenance = plain(
        {
            "version": installed_version(),
            "spec": asdict(oracle.spec),
            "configuration": configured,
            "seed": seed,
            "references": as_data(DRIFT),
        }
    )
    return Comparison(**asdict_shallow(found), usage=stack.meter.snapshot(), provenance=provenance)


def asdict_shallow(found: Finding) -> dict[str, Any]:
    """Fields by name, arrays untouched."""
    return {name: getattr(found, name) for name in found.__dataclass_fields__}


def program(known: Reference, spec: OracleSpec, settings: Comparing, seed: int) -> Asking[Finding]:
    """The whole comparison as a generator."""
    declared = known.coarser(settings.arithmetic or spec.dtype, spec)
    made = plan(known, spec, declared, settings.alpha, settings.smallest, seed)
    measured = settings.arithmetic is None
    seen = yield from detect(made, settings.alpha, settings.smallest, seed, measured=measured)
    return (yield from _judged(seen, seen.plan, settings, seed))


def _judged(seen: Detection, made: Plan, settings: Comparing, seed: int) -> Asking[Finding]:
    alpha = settings.alpha
    worst = made.worst
    base = Finding(
        verdict="same",
        sentence="",
        p_value=seen.p_value,
        e_value=math.exp(min(seen.log_e_value, 700.0)),
        detectable=worst,
        evidence=_evidence(seen, made),
        notes=(*_notes(made, settings), *_louder(seen)),
    )
    restless = seen.stochastic(alpha)
    if restless is not None:
        words = (
            "The target answers at random: the same sequence got different answers."
            if restless == "random"
            else "The target drifts: the first sequences got other answers at the end."
        )
        return base.said("stochastic", words + " Compare it with a fixed seed, or declare tolerance=.")
    if seen.p_value <= alpha:
        if not settings.explain:
            return base.said("unexplained", f"The answers differ from the reference's (p = {seen.p_value:.1g}).")
        return (yield from explaining(seen, made, base, alpha, seed))
    if not seen.complete:
        return base.said(
            "undecided",
            "The budget ended before the planned questions were asked; no difference beyond rounding so far.",
        )
    if settings.smallest is not None and worst > settings.smallest:
        return base.said(
            "undecided",
            f"No difference is seen, but rounding hides changes up to {worst:.1g} and {settings.smallest:.1g} was "
            "asked for; serve the model in a longer number format, or allow longer tokens.",
        )
    what = "weights" if made.noise.reference.known else "answers"
    return base.said(
        "same",
        f"The answers are the reference's to {_known_to(made)}; "
        + (
            f"a relative change of its {what} by {worst:.1g} would have been seen."
            if math.isfinite(worst)
            else "they do not depend on its weights, so that no change of these would have been seen."
        ),
    )


def _louder(seen: Detection) -> tuple[str, ...]:
    """A note where answers differ by more than the rounding modelled, and nearby questions do not show it again."""
    excess = max(seen.again.excess.values(), default=1.0) if seen.again is not None else 1.0
    if excess <= 1.0:
        return ()
    return (
        f"rounding is {excess:.2g} times what the reference's weights explain: differences of that size are new on "
        "nearby questions, as where biases of keys or values are added that the reference holds folded, or not at all.",
    )


def _known_to(made: Plan) -> str:
    """What the answers agree to."""
    stated, arithmetic = made.noise.reference.error, made.noise.arithmetic
    ties = next(g.sd for g in made.groups if g.name == TIES)
    if made.noise.tolerance > float(np.median(ties)) / 2 and stated <= UNIT[arithmetic]:
        return f"the digits they are given to (a tolerance of {made.noise.tolerance:.1g})"
    if stated <= UNIT[arithmetic]:
        return f"{arithmetic} rounding"
    return f"the error that the recovery states ({stated:.1g} of the weights)"


def _evidence(seen: Detection, made: Plan) -> dict[str, Any]:
    every = (made.repeated, *made.groups)
    lengths = sorted({int(g.X.shape[1]) for g in every})
    norms = None if made.asked.spec.vocabulary is not None else _norms(every)
    return {
        "arithmetic": made.noise.arithmetic,
        "tails": {name: float(p) for name, p in seen.tails.items()},
        "repeated": {"steady": seen.steady, "drift": seen.drift},
        "detectable": {name: value if math.isfinite(value) else None for name, value in made.detectable.items()},
        "noise constant": made.constant,
        "stated error of the reference": made.noise.reference.error,
        "lengths asked": lengths,
        "norms asked": norms,
        "not looked at": f"sequences longer than {lengths[-1]} tokens, {_beyond(made, every, norms)}and behaviour that "
        "only particular sequences trigger: probes are random but for the reference's own ties.",
    }


def _norms(every: tuple[Group, ...]) -> list[float]:
    """Norms of the shortest and of the longest token asked."""
    sizes = [np.linalg.norm(g.X, axis=2) for g in every]
    return [float(min(s.min() for s in sizes)), float(max(s.max() for s in sizes))]


def _beyond(made: Plan, every: tuple[Group, ...], norms: list[float] | None) -> str:
    """Tokens that were not asked, in words."""
    if norms is not None:
        return f"tokens shorter than {norms[0]:.2g} or longer than {norms[1]:.2g}, "
    allowed = np.asarray(made.asked.spec.allowed)
    missing = len(np.setdiff1d(allowed, np.concatenate([g.X.ravel() for g in every])))
    return f"{missing:,} of {len(allowed):,} token ids, " if missing else ""


def _notes(made: Plan, settings: Comparing) -> tuple[str, ...]:
    unseen = [name for name, size in made.detectable.items() if not math.isfinite(size)]
    if unseen and math.isfinite(made.worst):
        return (f"no answer to these questions shows a change of {', '.join(unseen)}.", *_judged_by(made, settings))
    return _judged_by(made, settings)


def _judged_by(made: Plan, settings: Comparing) -> tuple[str, ...]:
    """Notes where the target is judged by something else than its declared number format."""
    if made.decimals:
        digits = round(-math.log10(2 * made.decimals))
        words = f"all answers have {digits} digits after the point: the target is judged by these."
        if made.noise.reference.heads is None:
            return (words,)
        declared = f"With tolerance={made.decimals:.1g} declared, longer tokens are asked, which show smaller changes."
        return (f"{words} {declared}",)
    if made.asked.spec.dtype != made.noise.reference.coarser(made.asked.spec.dtype, made.asked.spec):
        return (
            f"all answers of the reference are {made.noise.arithmetic} numbers, and its weights are out of reach: the "
            "target is judged by that rounding.",
        )
    if settings.arithmetic is None and made.noise.arithmetic != made.asked.spec.dtype:
        return (
            f"all answers are {made.noise.arithmetic} numbers: the target is judged by that rounding, though its dtype "
            f"is declared {made.asked.spec.dtype}.",
        )
    return ()


def check_settings(spec: OracleSpec, arithmetic: Any, alpha: Any, smallest: Any) -> None:
    """Refuse what cannot be compared, or not so, before anything is asked."""
    if spec.kind not in ("value", "approximate"):
        raise InvalidArgument(
            f"answers of the kind {spec.kind!r} are not compared (labels show too little of a model, and gradients "
            "need a reference that gives them); compare an oracle of values."
        )
    if spec.link is not None:
        raise InvalidArgument(
            f"answers behind the link {spec.link!r} are not compared; give an oracle of the values before it, or a "
            "reference and target that both answer link(f) with link=None."
        )
    if arithmetic is not None and arithmetic not in UNIT:
        raise InvalidArgument(f"`arithmetic` must be one of {', '.join(UNIT)} or None (got {arithmetic!r}).")
    real("alpha", alpha)
    if not 0 < alpha < 0.5:
        raise InvalidArgument(f"`alpha` must be between 0 and 0.5 (got {alpha}); it is the rate of false alarms.")
    if smallest is not None:
        real("smallest", smallest)


def digest(given: Any, known: Reference) -> str:
    """What tells this reference from another."""
    own = fingerprint(known.model if known.model is not None else given)
    return f"{known.name}:{own}"
