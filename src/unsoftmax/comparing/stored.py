"""Which stored arrays changed? Every array is fitted to the answers alone, then two together, then all of them.

It takes about as many numbers as the arrays hold, so it is for references whose arrays are small: of any structure, and
of layers where a cheaper search has found nothing. What is named explains fresh sequences to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations

import numpy as np

from unsoftmax.comparing import designs
from unsoftmax.comparing.constants_explaining import EXPLAINING
from unsoftmax.comparing.constants_stored import STORED
from unsoftmax.comparing.references import Reference
from unsoftmax.comparing.state import Evidence
from unsoftmax.comparing.stored_fit import Fitted, Fitting
from unsoftmax.comparing.stored_lean import lean_arrays, lean_fit, lean_sequences
from unsoftmax.comparing.stored_words import said
from unsoftmax.learners.core.base import Asking
from unsoftmax.models.base import Array
from unsoftmax.results.comparison import Finding


def changed_arrays(state: Evidence) -> Asking[Finding | None]:
    """A verdict if a change of one array, of two, or of all explains the answers; None if it does not."""
    reference = state.plan.noise.reference
    every = fitted_arrays(reference)
    for stage in _stages(reference, every):
        wanted = _sequences(reference, state, stage[0])
        if wanted is None:
            continue
        if wanted > 0:
            yield from state.ask(_drawn(state, wanted), "delta")
        fitting = Fitting(reference, state.samples)
        fits = [
            fit
            for fit in map(fitting.fit, _promising(fitting, stage))
            if fit.left <= min(STORED.good, 0.1 * fit.before)
        ]
        found = said(state, (yield from _verified(state, fits)))
        if found is not None:
            return found
    return (yield from _changed_large_array(state))


def changed_offsets(state: Evidence) -> Asking[Finding | None]:
    """A verdict if key offsets c of scalar heads, of which the reference may have none, explain the answers."""
    reference, heads = state.plan.noise.reference, state.heads
    if "v" not in reference.weights:
        return None
    # A model of several heads may hold one: the shape is that of its values.
    none = np.zeros_like(reference.weights["v"])
    known = replace(reference, weights={"c": none} | reference.weights)
    wanted = (
        math.ceil(STORED.asked_over_unknowns * heads.c.size)
        + STORED.spare_sequences
        - sum(len(X) for X, _, _ in state.samples if X.shape[1] == 2)
    )
    if wanted > STORED.stage_queries:
        return None
    if wanted > 0:
        yield from state.ask(designs.near_ties(known, state.plan.asked, wanted, state.plan.norm, state.rng), "delta")
    fit = Fitting(known, state.samples).fit(("c",))
    fits = [fit] if fit.left <= min(STORED.good, 0.1 * fit.before) else []
    return said(state, (yield from _verified(state, fits, known)), known)


def _changed_large_array(state: Evidence) -> Asking[Finding | None]:
    """One array beyond what is fitted whole: few entries, or a low rank."""
    reference = state.plan.noise.reference
    names = lean_arrays(reference, STORED.unknowns) if reference.model is not None else []
    wanted = lean_sequences(reference, names, _outputs(state)) + STORED.spare_sequences if names else 0
    if not names or wanted > STORED.stage_queries:
        return None
    first = len(state.samples)
    # Steps to a low rank ended beside it in one draw of ten, and in none of 14 with half as many sequences more.
    for more in (wanted, wanted // 2):
        yield from state.ask(_drawn(state, more), "delta")
        fitting = Fitting(reference, state.samples[first:])
        fits = [fit for fit in (lean_fit(fitting, name) for name in names) if fit is not None]
        found = said(state, (yield from _verified(state, fits)))
        if found is not None:
            return found
    return None


def _promising(fitting: Fitting, stage: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    left = {names: fitting.linear(names) for names in stage}
    least = min(left.values())
    limit = min(
        STORED.as_good * least,
        max(STORED.linear_left + STORED.bent_left * fitting.gap, least if least < STORED.most_left else 0.0),
    )
    return [names for names in reversed(stage) if left[names] <= limit][: STORED.hypotheses]


def fitted_arrays(reference: Reference) -> list[str]:
    """Arrays of the reference that are small enough, the largest first: each stage asks for its first hypothesis."""
    sizes = {name: a.size for name, a in reference.weights.items() if a.ndim and a.size <= STORED.unknowns}
    return sorted(sizes, key=lambda name: -sizes[name])


def small(reference: Reference) -> bool:
    """Whether every array of the reference can be fitted."""
    return all(a.size <= STORED.unknowns for a in reference.weights.values())


def why_not(reference: Reference) -> str:
    """What it would take where nothing was fitted."""
    large = [f"{name} ({a.size})" for name, a in reference.weights.items() if a.size > STORED.unknowns]
    tried = "no one array, no two and not all together explain the answers to rounding from where the reference is"
    if not large:
        return tried
    how = "give a smaller reference (one layer, one head) to learn more"
    if lean_arrays(reference, STORED.unknowns):
        how = "in these few entries and low rank were looked for, one array at a time"
    return f"arrays are fitted up to {STORED.unknowns} numbers, which {', '.join(large[:3])} exceeds; {how}"


def _stages(reference: Reference, every: list[str]) -> list[list[tuple[str, ...]]]:
    """Hypotheses by the number of arrays, each stage with its largest first."""

    def size(names: Iterable[str]) -> int:
        return sum(reference.weights[name].size for name in names)

    pairs: list[tuple[str, ...]] = sorted(combinations(every, 2), key=lambda names: -size(names))
    stages: list[list[tuple[str, ...]]] = [[(name,) for name in every]]
    stages.append([pair for pair in pairs if size(pair) <= STORED.unknowns])
    if len(every) > 2 and len(every) == len(reference.weights) and size(every) <= STORED.unknowns:
        stages.append([tuple(every)])
    return [stage for stage in stages if stage]


def _sequences(reference: Reference, state: Evidence, names: tuple[str, ...]) -> int | None:
    """Sequences that are still to be asked for a change of these arrays; None if they are too many.

    A sequence tells the weights of its tokens in every head and no more, however wide its answer is.
    """
    width, heads = _outputs(state), _heads_of(state)
    told = min(width, max(1, heads * (_length(state) - 1))) if heads else width
    unknowns = sum(reference.weights[name].size for name in names)
    wanted = math.ceil(STORED.asked_over_unknowns * unknowns / told) + STORED.spare_sequences
    return None if wanted > STORED.stage_queries else wanted - state.asked.get("delta", 0)


def _drawn(state: Evidence, n: int) -> Array:
    """Sequences whose tokens nearly tie under the reference's heads, at norms around the usual one."""
    asked, reference, rng = state.plan.asked, state.plan.noise.reference, state.rng
    length = _length(state)
    if asked.spec.vocabulary is not None:
        return rng.choice(asked.spec.allowed, (n, length))
    norms = state.plan.usual * np.exp(rng.uniform(-STORED.norm_spread, STORED.norm_spread, (n, 1, 1)))
    return designs.tied_sequences(reference, asked, n, length, norms, rng)


def _length(state: Evidence) -> int:
    """Tokens of a sequence."""
    only = getattr(state.plan.noise.reference.model, "length", None)
    if isinstance(only, int):
        return only
    return min(state.plan.asked.longest, STORED.most_tokens, 3 + math.ceil(_outputs(state) / max(1, _heads_of(state))))


def _outputs(state: Evidence) -> int:
    """Numbers of an answer."""
    return state.samples[0][1].size // len(state.samples[0][1])


def _heads_of(state: Evidence) -> int:
    """Heads of the reference; 0 where they are not known."""
    model = state.plan.noise.reference.model
    return 0 if model is None else len(model.key_directions(np.zeros((1, state.plan.asked.spec.dim))))


def _verified(state: Evidence, fits: list[Fitted], known: Reference | None = None) -> Asking[list[Fitted]]:
    """Those of the fits that explain fresh sequences; `known`: the reference with arrays that it may lack."""
    reference = known or state.plan.noise.reference
    assert reference.rebuilt is not None
    models = [
        reference.rebuilt(reference.weights | {n: reference.weights[n] + change for n, change in fit.changes.items()})
        for fit in fits
    ]
    right = (yield from state.all_borne_out(models, _drawn(state, EXPLAINING.fresh))) if fits else []
    return [fits[i] for i in right]
