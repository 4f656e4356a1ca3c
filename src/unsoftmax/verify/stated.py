"""How far the weights may be off, as fresh answers show it, whatever the number format was.

An error of a parameter moves the answers; random directions of it move them by a known amount on average. Gaps on fresh
sequences say how large the error can be: the share of every parameter that would leave such gaps. What the target's
own rounding adds to them only makes the statement weaker, never wrong.

Theory: docs/theory/verification.md, "Stated errors".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from unsoftmax.learners.core.base import ERROR_OF_W, RELATIVE_ERROR, Outcome
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.single.constants import SINGLE
from unsoftmax.models.base import Array, Model
from unsoftmax.models.nearby import nearby
from unsoftmax.precision import HALF_DIGITS, UNIT
from unsoftmax.results.recovery import ERROR_OF_OTHERS, Claim
from unsoftmax.verify.constants import VERIFY
from unsoftmax.verify.plan import Checked, Statement

_OFFSETS = {"c": ("W",), "constant": ("v", "P"), "beta": ("gamma",)}
"""Offsets that may be off by more than `VERIFY.one_digit` of themselves are stated apart; from `CORE.unknown_error` on
they are lost in the noise, and are said to be. One that is nothing beside the matrix or vector it is added to, to half
of float64's digits, counts as 0, whose error is measured against that."""


Predict = Callable[[Model], Array]
"""The answers (n,) or (n, outputs) of a model to n fresh sequences."""


def moves(
    model: Model, predict: Predict, rng: np.random.Generator, largest: float = VERIFY.largest_share
) -> dict[str, Array]:
    """Mean square (n,) by which every answer moves per relative error of a parameter (absolute of a W that is 0).

    A parameter that moves nothing visible at the share `largest` is given up: 0.
    """
    model = model.astype("float64")
    base = predict(model)
    visible = (VERIFY.visible * float(np.sqrt(np.mean(base**2)))) ** 2
    found: dict[str, Array] = {}
    share, hidden = VERIFY.first_share, True
    while hidden and share <= largest:
        tried: dict[str, Array] = {}
        for _ in range(VERIFY.stated_draws):
            # What moved no number at all in one direction does not in another: scores, on one token.
            still = {name for name, square in tried.items() if not square.any()}
            for name, other in nearby(model, share, rng, found.keys() | still):
                square = _mean_square(predict(other) - base) / VERIFY.stated_draws
                tried[name] = tried[name] + square if name in tried else square
        seen = {name: square for name, square in tried.items() if square.mean() >= visible}
        found |= {name: square / share**2 for name, square in seen.items()}
        hidden = len(seen) < len(tried)
        share *= VERIFY.further
    return found | {name: np.zeros(len(base)) for name in tried if name not in found}


def implied(model: Model, predict: Predict, gaps: Array, rng: np.random.Generator) -> dict[str, float]:
    """Relative error of every parameter (absolute of a W that is 0) that would leave `gaps` (n,) or (n, outputs)."""
    return errors_of(moves(model, predict, rng), gaps, predict(model))


def errors_of(moved: dict[str, Array], gaps: Array, answers: Array) -> dict[str, float]:
    """The same from the moves of the answers. Gaps that happen to be 0 are of the size of the answers' own rounding."""
    seen = np.maximum(_mean_square(gaps), float(np.mean(answers**2)) * UNIT**2)
    return {name: _ratio(seen, square) for name, square in moved.items()}


def of_head(errors: dict[str, float], h: int) -> dict[str, float]:
    """Those of the parameters of head h, by the names that `nearby` gives, and of what all heads share."""
    return {name: error for name, error in errors.items() if name.endswith(f"_{h + 1}") or "_" not in name}


def _mean_square(values: Array) -> Array:
    """Per sequence, (n,)."""
    return np.asarray(values**2 if values.ndim == 1 else (values**2).mean(axis=1))


def _ratio(seen: Array, moved: Array) -> float:
    level = float(np.quantile(moved, VERIFY.seeing))
    if not level > 0:
        return math.inf
    weight = 1 / np.maximum(moved, level)
    return math.sqrt(float((weight * seen).sum() / (weight * moved).sum()))


def statements(model: Model, errors: dict[str, float], on: str) -> Statement:
    """What `errors` (name -> implied error) give: relative, absolute where W is nothing, or unknown.

    Offsets that are lost in the noise have no relative error: that of the others is stated, and of every W as a norm.
    Where offsets are only known worse, the others' error stands beside that of all. `on` says what was asked.
    """
    allowed = {name: _counted(model, name, VERIFY.stated_over_estimate * error) for name, error in errors.items()}
    worse = [name for name, error in allowed.items() if name.split("_")[0] in _OFFSETS and error > VERIFY.one_digit]
    lost = [name for name in worse if allowed[name] >= CORE.unknown_error]
    sizes, nothing = _sizes(model), dict[str, float]()
    for name, size in sizes.items():
        absolute = allowed.get(name, math.inf) * (size or 1.0)
        if (size == 0 or allowed.get(name, math.inf) >= CORE.unknown_error) and absolute <= SINGLE.nothing:
            nothing[name] = absolute

    def largest(left_out: list[str]) -> float:
        return max((error for name, error in allowed.items() if name not in left_out), default=0.0)

    said = f"{VERIFY.stated_over_estimate:g} times what would leave the gaps seen on {on}"
    known, missing = [*nothing, *lost], f"; lost in the noise: {', '.join(lost)}" if lost else ""
    few = f"relative, of all but {', '.join([*nothing, *worse])}, {said}{missing}"
    others = Claim(ERROR_OF_OTHERS, largest([*nothing, *worse]), statement=few)
    if not known or not sizes or others.bound >= CORE.unknown_error:
        of_all = Claim(RELATIVE_ERROR, largest(known), statement=f"of every parameter, {said}{missing}")
        return Statement(of_all, of_others=others if worse and sizes and others.bound < of_all.bound else None)
    absolute = math.hypot(*(nothing.get(name, sizes[name] * allowed.get(name, math.inf)) for name in sizes))
    return Statement(
        of_W=Claim(ERROR_OF_W, absolute, statement=f"||W^ - W||_F of all W together, {said}"), of_others=others
    )


def _counted(model: Model, name: str, error: float) -> float:
    """The relative error, of an offset that is nothing relative to what it is added to."""
    kind, _, head = name.partition("_")
    around = [part for part in (getattr(model, other, None) for other in _OFFSETS.get(kind, ())) if part is not None]
    if not around:
        return error
    value, matrix = np.asarray(getattr(model, kind)), np.asarray(around[0])
    if head:
        value, matrix = value[int(head) - 1], matrix[int(head) - 1]
    size, beside = float(np.linalg.norm(value)), float(np.linalg.norm(matrix))
    # One that moves no answer, however much larger, is off by no more than itself.
    absolute = size * error if math.isfinite(error) else size
    return absolute / beside if absolute <= HALF_DIGITS * beside else error


def _sizes(model: Model) -> dict[str, float]:
    """||W||_F by the names that `nearby` gives."""
    W = getattr(model, "W", None)
    if W is None:
        return {}
    if W.ndim == 2:
        return {"W": float(np.linalg.norm(W))}
    return {f"W_{h + 1}": float(np.linalg.norm(part)) for h, part in enumerate(W)}


def joined(outcome: Outcome, checked: Checked) -> tuple[Claim, ...]:
    """The claims of learner and verification, with one statement about the error of the parameters.

    A learner's figure supposes the number format that was declared; what fresh answers show is the least to be stated.
    A figure past a tenth only says that the learner's probes were conditioned badly: then the measurement stands alone.
    A figure that a learner states beside what it allows is of all that was asked, and is never left out.
    What may be off by as much as it is large, W or a network, is unknown.
    """
    own, network = outcome.allows.parameters, outcome.allows.network
    others = replace(outcome.allows, parameters=None, network=None if network is None else _or_unknown(network))
    fitted = [claim for claim in outcome.claims if claim.name == RELATIVE_ERROR]
    beside = [claim for claim in outcome.claims if claim.name != RELATIVE_ERROR]
    found = (*others.claims, *beside, *checked.stated.absolute, *checked.gaps)
    seen = checked.stated.relative
    if checked.stated.absolute and seen is None:
        return found
    figures = [
        claim for claim in (own, seen) if claim is not None and (claim is seen or claim.bound <= VERIFY.one_digit)
    ] + fitted
    said = max(figures, key=lambda claim: claim.bound, default=own)
    return found if said is None else (_or_unknown(said), *found)


def _or_unknown(claim: Claim) -> Claim:
    """The claim, without a bound if the bound says nothing."""
    if claim.bound < CORE.unknown_error:
        return claim
    return replace(claim, bound=math.inf, statement=f"unknown: {claim.statement}")
