"""Several heads: near ties for every head at its own scale, and what they say about each W_h.

Random sequences and ties of a randomly chosen head hide a weak head behind the strong ones: an error in its W moves
the answer by less than rounding. Here every head gets sequences in which its own scores tie, one token of which only
this head answers to, and the gap is turned into a relative error of W_h.

Theory: docs/theory/verification.md, "Several heads".
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TypeVar

import numpy as np

from unsoftmax.inversion import rounding_unit
from unsoftmax.learners.core.base import Allowance, Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.core.reductions import as_values, only_values
from unsoftmax.models.multi_head import MultiHead
from unsoftmax.precision import ARITHMETIC, HALF_DIGITS
from unsoftmax.probes.base import Array, Probes
from unsoftmax.probes.sphere import sphere
from unsoftmax.results.recovery import Claim
from unsoftmax.spec import EXPLAINED, OracleSpec
from unsoftmax.verify.constants import VERIFY
from unsoftmax.verify.constants_models import MODELS
from unsoftmax.verify.explained import shown
from unsoftmax.verify.gaps import amplification
from unsoftmax.verify.head_ties import Gaps, all_ties, free_of_others, mingled, sensitivity, verdicts
from unsoftmax.verify.plan import Checked, Count, Plan, Statement
from unsoftmax.verify.sent import (
    asked,
    fresh,
    long_claim,
    made,
    norms_in_words,
    random_queries,
    sent_norms,
    settled_norms,
)
from unsoftmax.verify.stated import implied, of_head, statements
from unsoftmax.verify.ties import typical_norm
from unsoftmax.verify.values import token_sizes

T = TypeVar("T")


def count(spec: OracleSpec, heads: Count) -> Count:
    """Fewest and most fresh queries of a model with (fewest, most) heads: at most all of them have a W that is 0."""
    random = MODELS.head_tokens + random_queries(spec, MODELS.head_per_length)
    silent = MODELS.silent_pairs * (spec.domain.length_limit >= 2)
    if spec.domain.length_limit < 3:
        return random, random + silent
    ties = [h * (_per_head(h) + MODELS.silent_pairs) for h in range(1, heads[1] + 1)]
    least = heads[0] * _per_head(heads[0]) if heads[0] else 0
    return random + least, random + silent + max(ties, default=0)


def _per_head(heads: int) -> int:
    """Near ties of each of so many heads."""
    return max(MODELS.ties_per_head, math.ceil(MODELS.head_ties / heads))


def check(model: MultiHead, spec: OracleSpec, seed: int, allows: Allowance) -> Asking[Checked]:
    """Ask fresh queries and compare: the claims of the certificate hold or they do not; nothing is raised.

    Where answers explain themselves, what is said of the function comes from the values and what is said of every head
    from the explanations.
    """
    rng = np.random.default_rng([seed, 0x7E51F7])
    values, of_values = spec, _unchanged
    if spec.kind in EXPLAINED:
        values, of_values = as_values(spec), only_values
    if allows.noise > values.tolerance:
        values = replace(values, tolerance=allows.noise)
    if not (model.heads or model.constant):
        return Checked(((yield from of_values(_nothing(values, rng))),))
    scale = typical_norm(model, values, rng)
    off = allows.value_error
    found, noise = yield from of_values(_function(model, values, scale, allows.relative_error, off, rng))
    if spec.domain.length_limit >= 2 and model.heads < spec.dim and model.c is None:
        found.append((yield from of_values(_silence(model, values, rng, scale, noise, off))))
    if spec.domain.length_limit < 3 or not model.heads:
        return Checked(tuple(found))
    ties = yield from _ties(model, spec, values, rng, noise, allows.relative_error)
    for h in range(model.heads):
        if not model.W[h].any() and (model.c is None or not model.c[h].any()):
            ties[0][h] = yield from of_values(_flat(model, h, values, rng, noise))
    return Checked((*found, *ties[0]), ties[1])


PLAN = Plan(count, check)


def _nothing(spec: OracleSpec, rng: np.random.Generator) -> Asking[Claim]:
    """f = 0: there is no value that rounding could be relative to, so answers are held against the tokens' lengths."""
    norm = min(1.0, spec.domain.with_room)
    answers = yield from asked(fresh(spec, MODELS.head_tokens, MODELS.head_per_length, [norm], [norm], rng))
    largest = max(float(np.maximum(np.abs(y) - spec.tolerance, 0).max()) for part in answers for y in part) / norm
    statement = "largest answer per length of a token at fresh sequences, where f = 0: rounding of values that cancel"
    return Claim("no head", ARITHMETIC, largest, statement=statement)


def _function(
    model: MultiHead, spec: OracleSpec, scale: float, claimed: float, off: float, rng: np.random.Generator
) -> Asking[tuple[list[Claim], float]]:
    """Single tokens and random sequences, which see all heads together; and the noise of the answers, relative."""
    sizes, norms = yield from settled_norms(token_sizes(scale, spec), sent_norms(scale, spec))
    kinds = fresh(spec, MODELS.head_tokens, MODELS.head_per_length, sizes, norms, rng)
    answers = yield from asked(kinds)
    random, far = (
        [(np.abs(model(X) - y) / _size(model, X), X) for X, y in zip(kind.rounds, part, strict=True)]
        for kind, part in zip(kinds[1:], answers[1:], strict=True)
    )
    (one,), (y,) = kinds[0].rounds, answers[0]
    single, size = np.abs(model(one) - y), _size(model, one)
    # A target may hide a narrower format than it declares; smaller gaps are not noise but an error of the values.
    declared = max(rounding_unit(np.concatenate([y for part in answers for y in part])), spec.eps)
    hidden = float((np.maximum(single - 2 * spec.tolerance, 0) / size).max())
    noise = max(declared, min(hidden, MODELS.hidden) if hidden > MODELS.narrow else 0.0)
    tolerance = spec.tolerance / float(size.min())
    bound = min(max(MODELS.function_gap, 10 * VERIFY.roundings * noise, 4 * tolerance, claimed), VERIFY.one_digit)
    # What a learner states of all values, as far as it is errors of theirs that add up.
    granted = off * math.sqrt(model.heads) / max(float(np.linalg.norm(model.v, axis=1).sum()), 1e-300)
    alone = max(1e-5, 100 * declared, 4 * tolerance, granted)
    found = [Claim("one-token answers", alone, float((single / size).max()), statement="gap on fresh vectors")]
    if random:
        worst = max(float((gap / amplification(model, X)).max()) for gap, X in random)
        statement = f"gap per score relative to the tokens' values, tokens of norm {norms_in_words(sizes)}"
        found.append(Claim("random sequences", bound, worst, statement=statement))
    if far:
        worst = max(float(gap.max()) for gap, _ in far)
        found.append(long_claim("gap relative to the tokens' values", bound, worst, model, kinds[2]))
    return found, noise


def _silence(
    model: MultiHead, spec: OracleSpec, rng: np.random.Generator, scale: float, noise: float, off: float
) -> Asking[Claim]:
    """Differences of tokens orthogonal to all values: a head the model lacks is heard there, however weak it is.

    `off` is the error of all values that the learner states: so weak a head is none of its business.
    """
    Q = np.linalg.svd(_unit_values(model), full_matrices=True)[2][model.heads :]
    q = sphere(rng, (MODELS.silent_pairs, spec.dim)) * scale * 0.5
    z = sphere(rng, (MODELS.silent_pairs, len(Q))) @ Q * (0.5 * scale * np.array([[1.0], [1.0], [4.0], [16.0]]))
    room = spec.domain.with_room / 2
    z *= np.minimum(1.0, room / np.linalg.norm(z, axis=1, keepdims=True))
    q *= np.minimum(1.0, room / np.linalg.norm(q, axis=1, keepdims=True))
    tokens = np.stack([z + q, q], axis=1)
    y = yield Probes(tokens, phase="verify")
    heard = float((np.maximum(np.abs(model(tokens) - y) - 4 * spec.tolerance, 0) / _size(model, tokens)).max())
    statement = f"gap at {MODELS.silent_pairs} fresh pairs where no head found has a value, relative to all values"
    size = float(np.linalg.norm(model.v))
    return Claim(
        "no other head", max(MODELS.heard, 1e3 * noise, off / size if size else 0.0), heard, statement=statement
    )


def _unchanged(program: Asking[T]) -> Asking[T]:
    return program


def _unit_values(model: MultiHead) -> Array:
    sizes = np.linalg.norm(model.v, axis=1, keepdims=True)
    return np.asarray(model.v / np.where(sizes > 0, sizes, 1.0))


def _ties(
    model: MultiHead, spec: OracleSpec, values: OracleSpec, rng: np.random.Generator, noise: float, claimed: float
) -> Asking[tuple[list[Claim], Statement]]:
    """One claim per head whose scores can be seen, and how far the parameters may be off."""
    number = _per_head(model.heads)
    # Long tokens outscale an absolute error of values; maps do not see them.
    drawn = replace(values, tolerance=0.0) if spec.kind == "attention" else values
    tokens = yield from made("near ties", all_ties(model, number, drawn, rng))
    answers = yield Probes(tokens, phase="verify")
    seen, on, of = None, f"{number} near ties of ", "the tokens' values"
    if spec.kind in EXPLAINED:
        seen = shown(model, spec, tokens, answers, noise, rng)
        answers = answers[:, 0]
    if seen is None:
        rates = np.array([sensitivity(model, g, tokens) for g in range(model.heads)])
        rounding = MODELS.own_roundings * noise * _size(model, tokens) + values.tolerance
        gaps, errors = (
            Gaps(np.abs(model(tokens) - answers), rounding, rates, _size(model, tokens)),
            _errors(model, tokens, answers, number, rng),
        )
    else:
        gaps, errors, on, of = seen.gaps, seen.errors, f"explanations of {on}", "the numbers of an explanation"
    found = verdicts(model, gaps, noise, claimed, f"{on}this head", of)
    if seen is None and model.heads > 1 and not np.isinf(values.domain.norm_limit):
        off = np.maximum(gaps.gap - values.tolerance, noise * _size(model, tokens)) / _size(model, tokens)
        # What one head may be off by, others are off by too: they make up for it.
        error = float(mingled(model, values.domain.norm_limit, float(off.max())).max())
        errors = {name: max(size, error) if "_" in name else size for name, size in errors.items()}
        if error >= CORE.unknown_error:
            unknown = "unknown: scores this small do not tell heads from each other"
            found[: model.heads] = [Claim(claim.name, math.inf, statement=unknown) for claim in found[: model.heads]]
    return found, statements(model, errors, f"{on}every head")


def _errors(model: MultiHead, tokens: Array, y: Array, number: int, rng: np.random.Generator) -> dict[str, float]:
    """What error of every parameter the ties speak of; parameters of a head by its own ties."""
    found: dict[str, float] = {}
    for h in range(model.heads):
        own = slice(h * number, (h + 1) * number)
        errors = implied(model, lambda other, X=tokens[own]: other(X), model(tokens[own]) - y[own], rng)  # type: ignore[misc]
        found |= of_head(errors, h)
    return found


def _flat(model: MultiHead, h: int, spec: OracleSpec, rng: np.random.Generator, noise: float) -> Asking[Claim]:
    """A head whose W is 0: long tokens that only this head answers to show scores that are not."""
    length = min(MODELS.far / max(1.0, float(np.sqrt(np.abs(model.W).max()))), spec.domain.with_room / 2)
    z = sphere(rng, (MODELS.silent_pairs, spec.dim)) @ free_of_others(model, h)
    along = free_of_others(model, h) @ model.v[h]
    z += np.sign(z @ along)[:, None] * along / max(float(np.linalg.norm(along)), 1e-300)
    z *= length / np.linalg.norm(z, axis=1, keepdims=True)
    q = sphere(rng, (MODELS.silent_pairs, spec.dim)) * length
    tokens = yield from made("long tokens", np.stack([z + q, q], axis=1))
    y = yield Probes(tokens, phase="verify")
    gap = np.maximum(np.abs(model(tokens) - y) - spec.tolerance - MODELS.last_digits * noise * _size(model, tokens), 0)
    # sigma(t) - 1/2 is t/4.
    seen = 4 * float((gap / np.maximum(np.abs(z @ model.v[h]), 1e-300)).max())
    statement = (
        f"scores of head {h + 1}, whose W is 0, at {MODELS.silent_pairs} fresh pairs of tokens of length {length:.2g}"
    )
    return Claim(f"head {h + 1}", max(HALF_DIGITS, VERIFY.roundings * noise), seen, statement=statement)


def _size(model: MultiHead, tokens: Array) -> Array:
    """What rounding is relative to, (batch,): the longest token times all values, or the constant."""
    longest = np.linalg.norm(tokens, axis=2).max(axis=1)
    return np.asarray(longest * np.linalg.norm(model.v, axis=1).sum() + abs(model.constant) + 1e-300)
