"""Equivalence on fresh queries: one-token, random and near-tie sequences, and what follows from them.

Random sequences alone are too weak: attention saturates and hides an error in W. Near ties are sequences in which the
recovered model gives two or more tokens about the same score, so every score matters in the first order.

Theory: docs/theory/verification.md, "Near ties".
"""

from __future__ import annotations

import math

import numpy as np

from unsoftmax.inversion import rounding_unit as format_eps
from unsoftmax.learners.core.base import Allowance, Asking
from unsoftmax.models.base import Model
from unsoftmax.models.kernel_head import KernelHead
from unsoftmax.precision import HALF_DIGITS, SHORT_FORMAT
from unsoftmax.probes.base import Array
from unsoftmax.results.recovery import Claim
from unsoftmax.spec import OracleSpec
from unsoftmax.verify.constants import VERIFY
from unsoftmax.verify.gaps import amplification, by_size, residual, size_of, sure
from unsoftmax.verify.plan import Checked, Statement
from unsoftmax.verify.sent import (
    Kind,
    asked,
    fresh,
    held,
    long_claim,
    made,
    norms_in_words,
    random_queries,
    sent_norms,
    settled_norms,
)
from unsoftmax.verify.stated import implied, statements
from unsoftmax.verify.ties import near_ties, typical_norm


def queries(spec: OracleSpec, network: bool = False) -> int:
    """How many fresh queries a verification asks, of a model with a learned `network` or without."""
    per_length = VERIFY.per_length_behind if network else VERIFY.per_length
    return VERIFY.one_token + random_queries(spec, per_length) + VERIFY.near_ties * (spec.domain.length_limit >= 2)


def check(model: Model, spec: OracleSpec, seed: int, allows: Allowance) -> Asking[Checked]:
    """Ask fresh queries and compare: the claims of the certificate hold or they do not; nothing is raised."""
    rng = np.random.default_rng([seed, 0x7E51F7])
    scale = typical_norm(model, spec, rng)
    network = VERIFY.network_slack * allows.network_error
    per_length = VERIFY.per_length_behind if network else VERIFY.per_length
    sizes = held(token_sizes(scale, spec, network=network > 0), model)
    norms = [scale] if network else held(sent_norms(scale, spec), model)
    sizes, norms = yield from settled_norms(sizes, norms)
    kinds = [*fresh(spec, VERIFY.one_token, per_length, sizes, norms, rng), (yield from tying(model, spec, rng))]
    answers = yield from asked(kinds)
    (one,), (y,) = kinds[0].rounds, answers[0]
    # Plain sums weigh a single token by its own score, so that its answer shows W as well.
    plain = isinstance(model, KernelHead) and not model.normalised
    alone = by_size(model(one), y, len(sizes), amplification(model, one) if plain else None)

    written = format_eps(np.concatenate([y.ravel() for part in answers for y in part]))
    noise = max(written, spec.eps)
    # Answers that use all digits of float64 come from float64 arithmetic: a larger misfit is the model's, not noise.
    exact = written < SHORT_FORMAT and spec.dtype == "float64" and spec.tolerance == 0
    unexplained = HALF_DIGITS if exact else VERIFY.hidden_float32
    # A network states its own error; what else would show on one token is noise that the target has not declared.
    hidden = 0.0 if network else min(alone, unexplained)
    tolerance = spec.tolerance / (size_of(model(one)) or math.inf)
    # A declared tolerance is in the answer itself, and through unit vectors in every entry of v.
    declared = tolerance * (1 + scale * math.sqrt(spec.dim))
    # v that was not read token by token is off by an error of its own.
    of_v = allows.value_error and allows.value_error / max(float(np.linalg.norm(model.v)), 1e-300)  # type: ignore[attr-defined]
    claimed = max(network, min(max(allows.relative_error, of_v), VERIFY.claimed if exact else VERIFY.one_digit))
    bound = min(max(VERIFY.roundings * math.sqrt(spec.dim) * max(noise, hidden, tolerance), claimed), VERIFY.one_digit)
    single = max(
        network or unexplained,
        VERIFY.roundings * noise,
        min(max(declared, of_v), VERIFY.claimed if exact else VERIFY.one_digit),
    )
    first = Claim("one-token answers", single, alone, statement=f"max relative gap on {kinds[0].on}")
    found, stated = _compared(model, kinds[1:], answers[1:], bound, (sizes, norms), rng)
    return Checked((first, *found), stated)


def _compared(
    model: Model,
    kinds: list[Kind],
    answers: list[list[Array]],
    bound: float,
    sizes: tuple[list[float], list[float]],
    rng: np.random.Generator,
) -> tuple[list[Claim], Statement]:
    """Random sequences, long ones and near ties against the bound, and what error of every parameter the ties show."""
    random, far, ties = kinds
    found: list[Claim] = []
    errors: dict[str, float] = {}
    if random.rounds:
        parts = zip(random.rounds, answers[0], strict=True)
        gap = max(by_size(model(X), y, len(sizes[0]), amplification(model, X)) for X, y in parts)
        words = f"max relative gap per score on {random.on}, tokens of norm {norms_in_words(sizes[0])}"
        found.append(Claim(random.name, bound, gap, statement=words))
    if ties.rounds:
        (X,), (y,) = ties.rounds, answers[2]
        gap = residual(model(X), y, amplification(model, X))
        words = (
            f"max relative gap per score on {ties.on}; {sure(VERIFY.one_token + len(y) + sum(map(len, answers[0])))}"
        )
        found.append(Claim(ties.name, bound, gap, statement=words))
        errors = implied(model, lambda other: other(X), model(X) - y, rng)
    if far.rounds:
        predicted = np.concatenate([model(X) for X in far.rounds])
        gap = by_size(predicted, np.concatenate(answers[1]), len(sizes[1]))
        found.append(long_claim("max relative gap", bound, gap, model, far))
    return found, statements(model, errors, f"{VERIFY.near_ties} fresh sequences with near ties")


def tying(model: Model, spec: OracleSpec, rng: np.random.Generator) -> Asking[Kind]:
    """Sequences in which the model's scores nearly tie."""
    possible = spec.domain.length_limit >= 2
    rounds = [(yield from made("near ties", near_ties(model, spec, rng), spec))] if possible else []
    return Kind("near ties", f"{VERIFY.near_ties} fresh sequences where the model's scores nearly tie", rounds)


def token_sizes(scale: float, spec: OracleSpec, network: bool = False) -> list[float]:
    """Token norms to test at: a target may be a head for small tokens only.

    Networks, links and tolerances are statements about answers of one size.
    """
    if network or spec.link is not None or spec.tolerance > 0:
        return [scale]
    return [min(scale * factor, spec.domain.with_room) for factor in VERIFY.sizes]
