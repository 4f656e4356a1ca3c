"""Attention in front of an unknown network: fresh sequences along fresh rays, where only W decides the answer.

All tokens of a sequence are multiples k_i lam a of one direction, so the answer is (sum_i alpha_i k_i)^p c(a).

Rays are long, and their last tokens short: what stands beside attention, or bends its output, may vanish there. So
other tokens are exchanged for such as leave scores and output alone, at lengths that users send: an answer that is a
function of the attention output and the last token, whichever, stays what it was.

Theory: docs/theory/verification.md, "Behind a network", rays.
"""

from __future__ import annotations

import math

import numpy as np

from unsoftmax.learners.core.base import Allowance, Asking
from unsoftmax.learners.core.settling import settle
from unsoftmax.models.attention_behind import AttentionBehind
from unsoftmax.models.base import Model, attention_weights
from unsoftmax.probes.base import Array, Probes
from unsoftmax.probes.rays import halved
from unsoftmax.probes.scales import held, on_grid, power_of_two
from unsoftmax.probes.sphere import sphere
from unsoftmax.results.recovery import Claim
from unsoftmax.spec import OracleSpec
from unsoftmax.verify.constants import VERIFY
from unsoftmax.verify.constants_models import MODELS
from unsoftmax.verify.gaps import size_of
from unsoftmax.verify.plan import Checked, Plan, exactly
from unsoftmax.verify.sent import lengths as short_lengths
from unsoftmax.verify.sent import long_sequences, norms_in_words, sent_norms, settled_norms
from unsoftmax.verify.stated import implied, statements
from unsoftmax.verify.ties import typical_norm


def queries(spec: OracleSpec) -> int:
    """How many fresh queries a verification asks."""
    return MODELS.ray_directions + MODELS.ray_checks + 2 * MODELS.equal_outputs * (spec.domain.length_limit >= 3)


def check(model: AttentionBehind, spec: OracleSpec, seed: int, allows: Allowance) -> Asking[Checked]:
    """Calibrate a few fresh directions, then compare sequences of several lengths whose scores are of order one."""
    rng = np.random.default_rng([seed, 0x7E51F7])
    lam = power_of_two(model.length)
    half = on_grid(sphere(rng, (MODELS.ray_directions // 2, spec.dim)), 2.0, spec.dtype)
    # Both signs: no neuron is off along a ray and along the opposite one. Where all are off, nothing grows.
    directions = np.concatenate([half, -half])
    c = (yield halved(directions, lam, "verify")) * 2.0**model.degree
    best = np.argsort(-np.abs(c), kind="stable")[: MODELS.ray_directions // 2]
    best = best[np.abs(c[best]) > MODELS.dead_ray * np.abs(c).max()]
    bound = min(max(VERIFY.roundings * math.sqrt(spec.dim) * spec.eps, allows.relative_error), VERIFY.one_digit)
    # Pairs, which the learner used, and longer ones, which it did not.
    lengths = [*short_lengths(spec), *long_sequences(spec, MODELS.ray_checks)]
    gaps: list[Array] = []
    asked: list[tuple[Array, Array]] = []
    for count, length in zip(_shares(len(lengths)), lengths, strict=True):
        chosen = rng.choice(best, count)
        tokens, multiples = yield from _sequences(directions[chosen], length, model, lam, spec, rng)
        y = yield Probes(tokens, phase="verify")
        asked.append((tokens, multiples))
        gaps.append(y / c[chosen] - _share(model, tokens, multiples))
    gap = np.concatenate(gaps)
    shares = np.concatenate([_share(model, *part) for part in asked])
    errors = implied(model, lambda m: np.concatenate([_share(m, *part) for part in asked]), gap, rng)
    stated = statements(model, errors, f"{MODELS.ray_checks} sequences along fresh directions")
    statement = (
        f"max gap over {MODELS.ray_checks} sequences of lengths {', '.join(map(str, lengths))} along fresh directions"
    )
    # Rounding is relative to the answer where that is larger than the network's own along the ray, and to the terms of
    # a score where that is strong: a right W had been refused for the last digits of scores of thirty.
    sizes = np.concatenate([_strength(model, tokens) for tokens, _ in asked])
    worst = float((np.abs(gap) / np.maximum(np.maximum(np.abs(shares), sizes), 1.0)).max())
    found = [Claim("fresh rays", bound, worst, statement=statement)]
    if spec.domain.length_limit >= 3:
        found.append((yield from _nothing_else(model, bound, spec, rng)))
    return Checked(tuple(found), stated)


def _nothing_else(model: AttentionBehind, bound: float, spec: OracleSpec, rng: np.random.Generator) -> Asking[Claim]:
    """Pairs of sequences in which scores, attention output and last token are the same and the other tokens are not."""
    ((*norms,),) = yield from settled_norms(sent_norms(typical_norm(model, spec, rng), spec))
    tokens = sphere(rng, (MODELS.equal_outputs, 3, spec.dim))
    tokens *= np.resize(np.array(norms), MODELS.equal_outputs)[:, None, None]
    tokens = held(tokens, "float32" if spec.dtype == "float64" else spec.dtype)
    u = model.key_directions(tokens[:, -1])[0]
    weights = attention_weights((tokens @ u[:, :, None])[:, :, 0], None)[:, :2]
    # What one token gains times its weight the other loses, and neither along the key direction.
    move = sphere(rng, (MODELS.equal_outputs, spec.dim)) * np.linalg.norm(tokens[:, -1], axis=1, keepdims=True)
    move -= u * ((move * u).sum(axis=1) / np.maximum((u * u).sum(axis=1), 1e-300))[:, None]
    share = weights[:, ::-1] / weights.max(axis=1, keepdims=True) * np.array([1.0, -1.0])
    other = tokens.copy()
    other[:, :2] += share[:, :, None] * move[:, None]
    first = yield Probes(tokens, phase="verify")
    second = yield Probes(held(other, spec.dtype), phase="verify")
    # Answers of one size each: a network is loud where its inputs are long.
    turns = len(norms)
    sizes = [max(size_of(first[k::turns]), size_of(second[k::turns])) or 1.0 for k in range(turns)]
    reach = np.maximum(_strength(model, tokens), 1.0) * np.resize(np.array(sizes), MODELS.equal_outputs)
    gap = float((np.maximum(np.abs(first - second) - 2 * spec.tolerance, 0.0) / reach).max())
    words = (
        f"max gap of {MODELS.equal_outputs} pairs of sequences with equal attention outputs and last tokens, tokens of "
        f"norm {norms_in_words(norms)}"
    )
    return Claim("nothing else", bound, gap, statement=words)


PLAN = Plan(exactly(queries), check)


def _share(model: Model, tokens: Array, multiples: Array) -> Array:
    """(sum_i alpha_i k_i)^p (batch,) for tokens (batch, N, d) and their multiples k (batch, N)."""
    assert isinstance(model, AttentionBehind)
    scores = (tokens @ model.key_directions(tokens[:, -1])[0][:, :, None])[:, :, 0]
    return np.asarray((attention_weights(scores, None) * multiples).sum(axis=1) ** model.degree)


def _strength(model: AttentionBehind, tokens: Array) -> Array:
    """Root sum of squares (batch,) of the terms that a score adds up over the coordinates, of the strongest token."""
    terms = tokens * model.key_directions(tokens[:, -1])[0][:, None, :]
    return np.asarray(np.linalg.norm(terms, axis=2).max(axis=1))


def _shares(parts: int) -> list[int]:
    return [MODELS.ray_checks // parts + (k < MODELS.ray_checks % parts) for k in range(parts)]


def _sequences(
    a: Array, length: int, model: AttentionBehind, lam: float, spec: OracleSpec, rng: np.random.Generator
) -> Asking[tuple[Array, Array]]:
    """Tokens k_i lam a_j, then b_j / lam with scores of order one; and the multiples k (batch, N), 0 for the last.

    Every third sequence has scores down to those of faint tokens, so that weights between the largest and none occur,
    and rules for small ones show.
    """
    b = sphere(rng, a.shape)
    score = (a * (b @ model.W.T)).sum(axis=1)
    size = float(np.sqrt(np.mean(score**2)))
    longer = np.full(len(a), power_of_two(1 / size) if size else 1.0)
    for j in range(1, len(a), 3):
        reach = abs(score[j]) / size if size else 0.0
        longer[j] *= math.copysign(
            power_of_two(min(-VERIFY.faintest / max(reach, 1e-300), VERIFY.longer_query)), score[j]
        )
    (longer,) = yield from settle("lengths of query tokens", longer)
    b = on_grid(b, 2.0, spec.dtype) * longer[:, None]
    multiples = on_grid(
        np.hstack([rng.uniform(0.5, 1.5, (len(a), length - 1)), np.zeros((len(a), 1))]), 64.0, "float16"
    )
    tokens = multiples[:, :, None] * (lam * a)[:, None, :]
    tokens[:, -1] = b / lam
    return tokens, multiples
