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
from unsoftmax.precision import SHORT_FORMAT
from unsoftmax.probes.base import Array, Probes
from unsoftmax.probes.sphere import sphere
from unsoftmax.results.recovery import Claim
from unsoftmax.spec import OracleSpec
from unsoftmax.verify.constants import VERIFY
from unsoftmax.verify.gaps import representable
from unsoftmax.verify.plan import Checked, Count, Statement
from unsoftmax.verify.sent import lengths, long_sequences, random_queries
from unsoftmax.verify.stated import implied, statements


def count(spec: OracleSpec) -> Count:
    """Fewest and most fresh queries: single tokens on which the head is dead are left out."""
    several = random_queries(spec, VERIFY.per_length) + VERIFY.near_ties * (
        spec.domain.length_limit >= VERIFY.tie_length
    )
    return several, VERIFY.one_token + several


def check(model: KernelHead, spec: OracleSpec, seed: int, allows: Allowance) -> Asking[Checked]:
    """Ask fresh sequences of all lengths and compare; gaps are measured by how far an error of W would move them."""
    rng = np.random.default_rng([seed, 0x9038E5])
    plan = [
        (1, VERIFY.one_token),
        *((n, VERIFY.per_length) for n in lengths(spec)),
        *long_sequences(spec, VERIFY.per_length).items(),
    ]
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
    if spec.domain.length_limit >= VERIFY.tie_length:
        four = yield from _drawn(model, spec, VERIFY.tie_length, VERIFY.near_ties, rng)
        y = yield Probes(four, phase="verify")
        answers.append(y)
        gap = max(gap, _gap(model, four, y, noise))
        errors = implied(model, lambda other: other(four), model(four) - y, rng)
        stated = statements(model, errors, f"{VERIFY.near_ties} fresh sequences of {VERIFY.tie_length} tokens")
    unit = max(spec.eps, rounding_unit(np.concatenate(answers)))
    exact = unit < SHORT_FORMAT and noise == 0
    claimed = min(VERIFY.shown_error * allows.relative_error, VERIFY.claimed if exact else VERIFY.one_digit)
    bound = max(VERIFY.roundings * math.sqrt(spec.dim) * unit, claimed)
    shown = ", ".join(str(part.shape[1]) for part in asked)
    sizes = ", ".join(f"{s:g}" for s in VERIFY.sizes)
    words = f"error of W that would leave the gaps on fresh sequences of lengths {shown}, tokens of norms {sizes}"
    return Checked((Claim("fresh sequences", min(bound, VERIFY.one_digit), gap, statement=words),), stated)


def _drawn(model: KernelHead, spec: OracleSpec, length: int, count: int, rng: np.random.Generator) -> Asking[Array]:
    """At most `count` sequences (n, length, d) on which the model's weights do not cancel."""
    norms = np.minimum(np.resize(VERIFY.sizes, VERIFY.candidates * count), spec.domain.with_room)
    tokens = representable(sphere(rng, (VERIFY.candidates * count, length, spec.dim)) * norms[:, None, None], spec)
    weights = model.kernel(np.einsum("bnd,bd->bn", tokens, tokens[:, -1] @ model.W.T))
    size, total = np.abs(weights).sum(axis=1), np.abs(weights.sum(axis=1))
    far = np.linalg.norm(model.W) * np.linalg.norm(tokens, axis=2).max(axis=1) * np.linalg.norm(tokens[:, -1], axis=1)
    alive = size > model.kernel(VERIFY.alive * far)
    usable = alive & (size <= VERIFY.cancelling * total) if model.normalised else np.ones(len(tokens), dtype=bool)
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
