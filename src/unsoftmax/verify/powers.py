"""Fresh sequences for heads whose weights are powers of the score: scores of either sign, and no weights that cancel.

Where all scores are on the dead side of a ReLU, or weights add up to 0, a normalised head answers 0 / 0 or anything:
sequences are drawn where the recovered head is well conditioned. Tokens have lengths in turn: powers have no size of
their own, other kernels do.

Theory: docs/theory/kernels.md, "Powers of the score".
"""

from __future__ import annotations

import math

import numpy as np

from unsoftmax.inversion import decimal_error, rounding_unit
from unsoftmax.learners.core.base import Allowance, Asking
from unsoftmax.learners.core.settling import settle_list
from unsoftmax.models.kernel_head import KernelHead
from unsoftmax.models.kernels import power_of
from unsoftmax.probes.base import Array, Probes
from unsoftmax.probes.sphere import sphere
from unsoftmax.results.recovery import Claim
from unsoftmax.spec import OracleSpec
from unsoftmax.verify.gaps import CLAIMED, ONE_DIGIT, ONE_TOKEN, PER_LENGTH, ROUNDINGS, representable
from unsoftmax.verify.plan import Checked, Count, Statement
from unsoftmax.verify.sent import lengths, long_sequences, random_queries
from unsoftmax.verify.stated import implied, statements
from unsoftmax.verify.ties import LENGTH, NEAR_TIES
from unsoftmax.verify.values import SIZES

_CANDIDATES = 8
"""Sequences drawn for each that is asked: a ReLU is dead on half of the single tokens, so 1 of 256 draws fails."""

_CANCELLING = 100.0
"""Sum of the sizes of weights over the size of their sum, up to which a sequence is asked: two digits lost."""

_SHOWN = 0.1
"""Share of the stated error of W that fresh sequences may speak of: most of it is slack. Of 60 linear heads in float32
the worst showed 0.034 of it, of 60 other powers 0.0004."""

_ALIVE = 2.0**-10
"""Score over |W| |x| |q| below which a sequence is left out: rounding decides what a head with weights of 0 answers."""


def count(spec: OracleSpec) -> Count:
    """Fewest and most fresh queries: single tokens on which the head is dead are left out."""
    several = random_queries(spec, PER_LENGTH) + NEAR_TIES * (spec.domain.length_limit >= LENGTH)
    return several, ONE_TOKEN + several


def check(model: KernelHead, spec: OracleSpec, seed: int, allows: Allowance) -> Asking[Checked]:
    """Ask fresh sequences of all lengths and compare; gaps are measured by how far an error of W would move them."""
    rng = np.random.default_rng([seed, 0x9038E5])
    plan = [(1, ONE_TOKEN), *((n, PER_LENGTH) for n in lengths(spec)), *long_sequences(spec, PER_LENGTH).items()]
    tokens = []
    for length, count in plan:
        tokens.append((yield from _drawn(model, spec, length, count, rng)))
    asked = [part for part in tokens if len(part)]
    answers = []
    for part in asked:
        answers.append((yield Probes(part, phase="verify")))
    noise = max(spec.tolerance, decimal_error(np.concatenate(answers)))
    gap = max(_gap(model, part, y, noise) for part, y in zip(asked, answers, strict=True))
    stated = Statement()
    if spec.domain.length_limit >= LENGTH:
        four = yield from _drawn(model, spec, LENGTH, NEAR_TIES, rng)
        y = yield Probes(four, phase="verify")
        answers.append(y)
        gap = max(gap, _gap(model, four, y, noise))
        errors = implied(model, lambda other: other(four), model(four) - y, rng)
        stated = statements(model, errors, f"{NEAR_TIES} fresh sequences of {LENGTH} tokens")
    unit = max(spec.eps, rounding_unit(np.concatenate(answers)))
    exact = unit < 1e-12 and noise == 0
    claimed = min(_SHOWN * allows.relative_error, CLAIMED if exact else ONE_DIGIT)
    bound = max(ROUNDINGS * math.sqrt(spec.dim) * unit, claimed)
    shown = ", ".join(str(part.shape[1]) for part in asked)
    sizes = ", ".join(f"{s:g}" for s in SIZES)
    words = f"error of W that would leave the gaps on fresh sequences of lengths {shown}, tokens of norms {sizes}"
    return Checked((Claim("fresh sequences", min(bound, ONE_DIGIT), gap, statement=words),), stated)


def _drawn(model: KernelHead, spec: OracleSpec, length: int, count: int, rng: np.random.Generator) -> Asking[Array]:
    """At most `count` sequences (n, length, d) on which the model's weights do not cancel."""
    norms = np.minimum(np.resize(SIZES, _CANDIDATES * count), 0.9 * spec.domain.norm_limit)
    tokens = representable(sphere(rng, (_CANDIDATES * count, length, spec.dim)) * norms[:, None, None], spec)
    weights = model.kernel(np.einsum("bnd,bd->bn", tokens, tokens[:, -1] @ model.W.T))
    size, total = np.abs(weights).sum(axis=1), np.abs(weights.sum(axis=1))
    far = np.linalg.norm(model.W) * np.linalg.norm(tokens, axis=2).max(axis=1) * np.linalg.norm(tokens[:, -1], axis=1)
    alive = size > model.kernel(_ALIVE * far)
    usable = alive & (size <= _CANCELLING * total) if model.normalised else np.ones(len(tokens), dtype=bool)
    (chosen,) = yield from settle_list("sequences", [np.flatnonzero(usable)[:count]])
    return np.asarray(tokens[chosen.astype(np.int64)])


def _gap(model: KernelHead, tokens: Array, answered: Array, noise: float) -> float:
    """Largest gap beyond the noise over the move of the answer by a relative error of W in one, and by one of v."""
    degree = (power_of(model.kernel.name) or (1, 0))[0]
    q = tokens[:, -1]
    scores = np.einsum("bnd,bd->bn", tokens, q @ model.W.T)
    reach = np.linalg.norm(tokens, axis=2) * np.linalg.norm(model.W) * np.linalg.norm(q, axis=1)[:, None]
    moved = degree * (np.abs(scores) + reach / math.sqrt(model.dim)) ** (degree - 1) * reach
    value = np.linalg.norm(tokens, axis=2) * np.linalg.norm(model.v)
    move = (moved * value).sum(axis=1)
    if model.normalised:
        move = move / np.abs(model.kernel(scores).sum(axis=1)) + value.max(axis=1)
    gap = np.maximum(np.abs(model(tokens) - answered) - noise, 0.0)
    return float((gap / np.maximum(move, 1e-300)).max())
