"""Affine terms as a reduction: f(X) = constant + softmax(x_i . (W x_N + c)) . (X v) served by a learner without them.

The constant is f([0]). With b = 0 the pair [a ; 0] has logit a.c, so d queries give c. Then every pair answer of the
wider class is turned into the answer that the head without c and constant would have given.

Theory: docs/theory/single-head.md, "Affine terms".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy.special import expit

from unsoftmax.errors import InvalidArgument, ModelMismatch, NotIdentifiable
from unsoftmax.inversion import decimal_error, logits
from unsoftmax.learners.core.base import RELATIVE_ERROR, Asking, Program
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.core.driver import driven
from unsoftmax.learners.core.readable import SATURATED, Repair, Steps, find_scale, until_readable
from unsoftmax.learners.single.constants import SINGLE
from unsoftmax.learners.single.measure import random_rows
from unsoftmax.models.single_head import LowRankHead, SingleHead
from unsoftmax.probes.base import Array, Probes, Request, one_row, parts
from unsoftmax.probes.bases import householder_basis
from unsoftmax.probes.pairs import paired
from unsoftmax.probes.scales import on_grid, power_of_two
from unsoftmax.results.recovery import Claim
from unsoftmax.spec import INSIDE, Domain, OracleSpec


def with_affine_terms(program: Callable[[OracleSpec], Program], spec: OracleSpec, seed: int) -> Program:
    """Read constant and c (d + 1 queries more than without them), then run `program` on corrected answers."""
    rng = np.random.default_rng([seed, 0xAFF1])
    seen: list[Array] = []
    constant, v = yield from _values(spec, seen)
    length = yield from _length_for_offset(v, constant, spec, rng, seen)
    _refuse_decimals(np.concatenate(seen), spec)
    c = yield from _offset(v, constant, length, spec)
    # Tokens so short that the offset alone takes at most half of what is readable in any logit.
    largest = float(np.abs(householder_basis(v) @ c).max())
    limit = min(spec.domain.norm_limit, 2 * length, power_of_two(SINGLE.readable / largest) if largest else math.inf)
    small = replace(spec, domain=Domain(limit if math.isfinite(limit) else None, spec.domain.max_length))
    outcome = yield from _corrected(program(small), v, c, constant)
    head = outcome.model
    assert isinstance(head, SingleHead | LowRankHead)
    whole = replace(head, v=v, c=c, constant=constant)
    claim = Claim(
        RELATIVE_ERROR, _rounding(whole, limit, spec), statement="rounding, in tokens kept short by the offset"
    )
    if spec.tolerance > 0:
        bound = max(claim.bound, (yield from _left_by_tolerance(whole, limit, spec, rng)))
        claim = Claim(RELATIVE_ERROR, bound, statement=f"of W, four times what {SINGLE.fresh_pairs} fresh pairs show")
    made = outcome.allows.parameters
    larger = claim if made is None or made.bound <= claim.bound else made
    return replace(outcome, model=whole, allows=replace(outcome.allows, parameters=larger))


def _left_by_tolerance(
    head: SingleHead | LowRankHead, limit: float, spec: OracleSpec, rng: np.random.Generator
) -> Asking[float]:
    """Relative error of W from fresh random pairs, whose own noise counts in: E (a'dW b)^2 = ||dW||^2 / d^2."""
    size = float(np.linalg.norm(head.W))
    product = min(
        SINGLE.typical_logit * spec.dim / size if size else math.inf, min(limit, SINGLE.longest_offset) ** 2 / 4
    )
    length = math.sqrt(product)
    b = rng.standard_normal((SINGLE.fresh_pairs, spec.dim))
    b *= INSIDE * length / np.linalg.norm(b, axis=1, keepdims=True)
    a = random_rows(SINGLE.fresh_pairs, head.v, rng) * (INSIDE * length)
    a, b = (on_grid(x, 2 * length, spec.dtype) for x in (a, b))
    y = yield paired(a, b, phase="pilot")
    assert head.c is not None
    t = logits(y - head.constant, a @ head.v, b @ head.v).t - a @ head.c
    gap = float(np.sqrt(np.mean((t - np.einsum("kd,kd->k", a @ head.W, b)) ** 2)))
    typical = product * size / spec.dim
    if not 4 * gap < typical:
        raise NotIdentifiable(
            f"W is lost in the noise: a typical score is {typical:.2g} and fresh ones miss the recovered head by "
            f"{gap:.2g}. Raise max_norm, or lower the tolerance {spec.tolerance:g}; without affine terms Approximate "
            "needs far less."
        )
    return 4 * gap / typical


def _rounding(head: SingleHead | LowRankHead, limit: float, spec: OracleSpec) -> float:
    """What rounding leaves in W when tokens may only be `limit` long: logits are that much smaller than wished.

    Answers are rounded at the size of the constant, and only their changes, as small as the tokens, tell anything.
    """
    size, longest = float(np.linalg.norm(head.W)), min(limit, SINGLE.longest_offset) / 2
    wished = SINGLE.typical_logit * spec.dim / size if size else 0.0
    changes = min(longest, math.sqrt(wished) if wished else 1.0) * float(np.linalg.norm(head.v)) / math.sqrt(spec.dim)
    coarser = max(1.0, abs(head.constant) / changes)
    return SINGLE.stated_over_rounding * spec.eps * math.sqrt(spec.dim) * max(1.0, wished / longest**2) * coarser


def _refuse_decimals(y: Array, spec: OracleSpec) -> None:
    error = decimal_error(y) if spec.tolerance == 0 and spec.dtype == "float64" else 0.0
    if error > 0:
        raise ModelMismatch(
            f"the answers are rounded to decimals, right within {error:g} only, and affine=True takes answers to be as "
            f"exact as declared. Declare tolerance={error:g} on the oracle."
        )


def _values(spec: OracleSpec, seen: list[Array]) -> Asking[tuple[float, Array]]:
    """Constant and v (d,); answers are added to `seen`, here and in what follows."""
    s = power_of_two(min(1.0, spec.domain.norm_limit))
    rows = np.concatenate([np.zeros((1, spec.dim)), np.eye(spec.dim) * s])
    y = yield one_row(rows, phase="values")
    seen.append(y)
    v = (y[1:] - y[0]) / s
    if not v.any():
        raise NotIdentifiable("every one-token query got the same answer, so v = 0 and no query shows W or c.")
    return float(y[0]), v


def _length_for_offset(
    v: Array, constant: float, spec: OracleSpec, rng: np.random.Generator, seen: list[Array]
) -> Asking[float]:
    """|a| at which a.c is of order one over a basis; the longest allowed if c is invisible."""
    longest = (
        min(power_of_two(spec.domain.norm_limit), SINGLE.longest_offset)
        if spec.domain.max_norm
        else SINGLE.longest_offset
    )

    def look(scale: float) -> Asking[float]:
        length = power_of_two(scale)
        a = on_grid(random_rows(CORE.pilot_entries, v, rng) * (INSIDE * length), 2 * length, spec.dtype)
        y = yield Probes(np.stack([a, np.zeros_like(a)], axis=1), phase="pilot")
        seen.append(y)
        t = logits(y - constant, a @ v, np.zeros(CORE.pilot_entries)).t
        if np.isnan(t).mean() > 0.5 or np.nanmax(np.abs(t)) > 2 * SINGLE.readable:
            return SATURATED
        # For random unit a, (a.c)^2 is |c|^2 / d on average, as over an orthonormal basis.
        return float(np.sqrt(np.nanmean(t**2))) / SINGLE.typical_offset * (scale / length)

    steps = Steps(
        1e-2 / SINGLE.typical_offset, shorter=2.0**-6, longer=1e6, limit=longest, floor=1 / SINGLE.longest_offset
    )
    found = yield from find_scale(look, 1.0, steps)
    if found.size == SATURATED:
        raise ModelMismatch("the answers to [a ; 0] stay saturated however short a is; no softmax head does so.")
    return power_of_two(min(found.scale / max(found.size, 1e-6), longest))


def _offset(v: Array, constant: float, length: float, spec: OracleSpec) -> Asking[Array]:
    """c (d,) from the d pairs [a_l ; 0] of a Householder basis; saturated ones again with shorter a."""
    A = on_grid(householder_basis(v) * (INSIDE * length), 2 * length, spec.dtype)

    def ask(index: Array, shrink: Array, phase: str) -> Asking[Array]:
        a = A[index] * shrink[:, None]
        y = yield Probes(np.stack([a, np.zeros_like(a)], axis=1), phase=phase)
        return logits(y - constant, a @ v, np.zeros(len(a))).t

    shrink = np.ones(spec.dim)
    t, left = yield from until_readable(ask, shrink, Repair(SINGLE.readable, far=1 / 8, tries=20))
    if len(left):
        raise ModelMismatch(
            "answers to [a ; 0] stay outside the interval a softmax head answers in, however short a is."
        )
    return np.linalg.solve(A, t / shrink)


def _corrected(program: Program, v: Array, c: Array, constant: float) -> Program:
    """Answer one-row requests from v, and turn pair answers into those of the head without c and constant."""

    def ask(request: Request) -> Asking[Array]:
        if request[:1].tokens.shape[1] == 1:
            return np.concatenate([part.tokens[:, 0] @ v for part in parts(request)])
        y = yield request
        return _without_offset(request, y, v, c, constant)

    return driven(program, ask)


def _without_offset(request: Request, y: Array, v: Array, c: Array, constant: float) -> Array:
    corrected = np.empty_like(y)
    done = 0
    for part in parts(request):
        if part.tokens.shape[1] != 2:
            raise InvalidArgument("affine terms are separated from pair probes only.")
        x1, x2 = part.tokens[:, 0], part.tokens[:, 1]
        gap, low = (x1 - x2) @ v, x2 @ v
        t = logits(y[done : done + len(part)] - constant, gap, low).t
        # What W and c saturate together stays saturated, also where W alone would not: the learner asks it again.
        t = np.where(np.abs(t) <= SINGLE.readable, t - (x1 - x2) @ c, np.inf)
        corrected[done : done + len(part)] = low + gap * expit(t)
        done += len(part)
    return corrected
