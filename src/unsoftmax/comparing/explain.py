"""What changed: the hypotheses in the order in which they can be told apart.

Scales before formats (a scaled answer looks like a rounded one), formats before localisation (a rounded weight matrix
is a dense change), and a gate between them: unless differences repeat their sign, arithmetic and not a weight changed.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from unsoftmax.comparing import naming
from unsoftmax.comparing.arithmetic import UNIT
from unsoftmax.comparing.constants import COMPARING
from unsoftmax.comparing.constants_explaining import EXPLAINING
from unsoftmax.comparing.detection import Detection, Plan
from unsoftmax.comparing.formats import PLAIN
from unsoftmax.comparing.localise import localise
from unsoftmax.comparing.repeats import Repeats
from unsoftmax.comparing.scales import fit_scales
from unsoftmax.comparing.signs import gate, leaves_rounding
from unsoftmax.comparing.state import Evidence
from unsoftmax.comparing.stored import changed_arrays, why_not
from unsoftmax.errors import BudgetExceeded
from unsoftmax.learners.core.base import Asking
from unsoftmax.results.comparison import Finding

FORMAT = "format"
_AT_RANDOM = "What that leaves changes its sign at random, as where activations are rounded as well"


def explain(seen: Detection, made: Plan, base: Finding, alpha: float, seed: int) -> Asking[Finding]:
    """A verdict for a target that differs."""
    samples = [(g.X, seen.answers[g.name], g.sd) for g in seen.groups if g.X.shape[1] <= EXPLAINING.longest_fitted]
    state = Evidence(made, samples, base, alpha, np.random.default_rng([seed, 0xE7]))
    unexplained = base.said("unexplained", f"The answers differ from the reference's (p = {base.p_value:.1g}).")
    if not seen.complete:
        return unexplained.said("unexplained", unexplained.sentence + " The budget ended before more could be asked.")
    try:
        found = _scaled(state, seen.again)
        if found is None:
            found = yield from _formatted(state)
        if found is None and made.noise.reference.heads is None:
            found = yield from _without_structure(state, unexplained)
        if found is None:
            found = yield from gate(state)
        if found is None:
            found = yield from localise(state)
        return _as_a_copy_would(state, _with_rest(state, found))
    except BudgetExceeded:
        words = f"{unexplained.sentence} The budget ended before it was known what changed."
        return unexplained.said("unexplained", words)


def _with_rest(state: Evidence, found: Finding) -> Finding:
    """What the explanation leaves of fresh answers; a note where that is more than rounding."""
    if state.left is None or found.verdict not in ("values", "sparse", "low rank", "dense"):
        return found
    found = found.said(found.verdict, found.sentence, evidence={"left over rounding": state.left})
    if state.left <= EXPLAINING.clean:
        return found
    words = (
        f"what that leaves of fresh answers is {state.left:.2g} times what rounding leaves: errors of the numbers "
        "given, or a smaller change besides."
    )
    return replace(found, notes=(*found.notes, words))


def _as_a_copy_would(state: Evidence, found: Finding) -> Finding:
    """A note where the difference is near rounding: it is easily taken for a fault of the comparison."""
    X, y, _ = state.samples[0]
    truth = state.plan.noise.reference.double(X)
    size = float(np.sqrt(np.mean((y - truth) ** 2) / max(float(np.mean(truth**2)), 1e-300)))
    arithmetic = state.plan.noise.arithmetic
    if found.verdict in ("different", "arithmetic") or size > EXPLAINING.copy_roundings * UNIT[arithmetic]:
        return found
    words = (
        f"the answers differ by {size:.1g} of their size ({size / UNIT[arithmetic]:.0f} units of {arithmetic} "
        "rounding): as a copy recovered from answers would, or weights that passed through other arithmetic. If the "
        "reference is such a copy, give the recovery itself: the error that it states is then allowed for."
    )
    return replace(found, notes=(*found.notes, words))


def _scaled(state: Evidence, again: Repeats | None) -> Finding | None:
    """Scales and shifts, if they leave rounding alone; of a difference near rounding what they leave must be new on
    the nearby questions, which the fit has not seen."""
    reference = state.plan.noise.reference
    fit = fit_scales(reference, state.samples)
    if fit is None or (again is not None and again.left_by(fit.answers(reference)) >= -math.log(state.alpha)):
        return None
    words = fit.words[0].upper() + fit.words[1:]
    return state.base.said(
        "scale", f"{words}; the weights are otherwise the reference's.", heads=fit.heads, evidence=fit.facts()
    )


def _formatted(state: Evidence) -> Asking[Finding | None]:
    """The number format that explains the answers, or arithmetic alone."""
    reference, made = state.plan.noise.reference, state.plan
    if not reference.known:
        return None
    truth = reference.double
    norm = made.norm
    if made.asked.spec.vocabulary is None:
        yield from state.ask(
            naming.format_probes(reference, made.asked, EXPLAINING.first_questions, norm, state.rng), FORMAT
        )
    every = naming.likely(reference, state.samples)
    named = naming.name_format(every, truth, state.samples)
    if named is None:
        return None
    if named.nearly and named.sure:
        return _format_said(state, named, _left_over(named))
    if not named.worth_more or made.asked.spec.vocabulary is not None:
        return None
    # Rounded activations are told by questions nearby, and of tokens that outscale a tolerance none is: scores jump.
    norm = min(norm, COMPARING.norm_factors[-1] * made.usual)
    yield from state.ask(
        naming.format_probes(reference, made.asked, EXPLAINING.more_questions, norm, state.rng), FORMAT
    )
    named = naming.name_format(every, truth, state.samples)
    if named is None or not named.sure:
        return None
    if named.nearly:
        return _format_said(state, named, _left_over(named))
    last = state.samples[-1]
    if not naming.comes_with_slope_one(named.best, truth, last):
        return None
    if (yield from leaves_rounding(state, named, last)):
        rounded = named.best.activations != naming.AS_DECLARED
        how = "Activations are rounded as well" if rounded else _AT_RANDOM
        return _format_said(state, named, how)
    return _format_said(state, named, _left_over(named)) if named.explained > EXPLAINING.nearly_explained else None


def _left_over(named: naming.Named) -> str:
    """What a format leaves of the difference, in words."""
    if named.exact:
        return "The residual is what rounding leaves"
    left = f"That leaves {math.sqrt(named.left):.1g} of the difference, which is no rounding"
    scales = "" if named.best.weights in PLAIN else "scales of the format were rounded themselves, or "
    return f"{left}: {scales}{'something changed by little' if named.nearly else 'a few weights differ'} besides"


def _format_said(state: Evidence, named: naming.Named, how: str) -> Finding:
    best = named.best
    facts = {
        "log likelihood ratio": named.ratio,
        "explained": named.explained,
        "activations": best.activations,
    }
    if not best.weights:
        words = f"The weights are the reference's; the target computes in {best.activations}."
        return state.base.said("arithmetic", words, format=best.activations, evidence=facts)
    words = f"The weights are the reference's in {best.weights}. {how}."
    return state.base.said("format", words, format=best.weights, evidence=facts)


def _without_structure(state: Evidence, unexplained: Finding) -> Asking[Finding]:
    """References that are no heads or layers of this room: their stored arrays, where they can be reached."""
    reference = state.plan.noise.reference
    why = "the reference's weights are out of reach: give a model of us.models or a PyTorch module to learn more"
    if reference.known:
        found = yield from changed_arrays(state)
        if found is not None:
            return found
        why = f"no listed number format explains it, and {why_not(reference)}"
    return unexplained.said("unexplained", f"{unexplained.sentence} What changed is not known: {why}.")
