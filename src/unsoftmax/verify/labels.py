"""Equivalence from labels: fresh sequences as close to the recovered decision boundary as the claimed errors allow.

Far from the boundary labels agree for any model that is roughly right. So every sequence is moved to where the model
says f = +-margin, the margin being what the claimed errors of v and W can change at most: a model as good as claimed
agrees on all of them, one that is worse by a factor of the dimension disagrees on about half.

Theory: docs/theory/verification.md, "Labels".
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np
from scipy.special import betaincinv

from unsoftmax.learners.core.base import Allowance, Asking
from unsoftmax.learners.core.settling import settle_rounded
from unsoftmax.models.base import Array, Model, attention_weights
from unsoftmax.models.multi_head import MultiHead
from unsoftmax.models.single_head import LowRankHead, SingleHead
from unsoftmax.probes.base import Probes
from unsoftmax.probes.scales import held
from unsoftmax.results.recovery import Claim
from unsoftmax.spec import OracleSpec
from unsoftmax.verify.constants import VERIFY
from unsoftmax.verify.plan import Checked, Plan, exactly

_HEADS = (SingleHead, LowRankHead, MultiHead)
"""Models with v and W, which learners of labels return."""

_LONG = {34: 8, 300: 8}
"""How many of these sequences are longer, where the domain allows: a rule that starts at some length shows there. With
eight labels each a function that has nothing to do with the model agrees in one case of 256."""


def queries(spec: OracleSpec) -> int:
    """How many fresh queries a verification asks."""
    return sum(_counts(spec).values())


def check(model: Model, spec: OracleSpec, seed: int, allows: Allowance) -> Asking[Checked]:
    """Compare labels with the model's on both sides of its boundary; the PAC statement follows from the count
    (Clopper-Pearson)."""
    rng = np.random.default_rng([seed, 0x1AB315])
    errors = _claimed(model, allows)
    flip = 0.0 if allows.flips is None else allows.flips.bound
    wrong = near = 0
    for length, count in _counts(spec).items():
        drawn = near_boundary(model, spec, rng, count, length, errors)
        tokens = yield from settle_rounded("near the boundary", drawn, partial(held, dtype=spec.dtype))
        y = yield Probes(tokens, phase="verify")
        f = np.asarray(model(tokens))
        wrong += int(np.sum((y > 0.5) != (f > 0)))
        near += int(np.sum(np.abs(f) <= 2.2 * _margin(model, tokens, errors, spec)))
    n, lengths = queries(spec), ", ".join(map(str, _counts(spec)))
    allowed = _most_flips(n, flip) if flip else 0
    above = 1.0 if wrong == n else float(betaincinv(wrong + 1, n - wrong, 1 - VERIFY.doubt))
    epsilon = max(0.0, (above - flip) / (1 - 2 * flip))
    return Checked(
        (
            Claim(
                "labels near the boundary",
                allowed / n,
                wrong / n,
                statement=(
                    f"share of {n} fresh sequences of {lengths} tokens ({near} of them within twice the claimed errors "
                    f"of f = 0) whose label differs{', flips included' if flip else ''}; PAC: epsilon = {epsilon:.2g}, "
                    f"delta = {VERIFY.doubt:.2g}"
                ),
            ),
        )
    )


PLAN = Plan(exactly(queries), check)


def _counts(spec: OracleSpec) -> dict[int, int]:
    """How many sequences of each length are asked."""
    limit = spec.domain.length_limit
    if limit < 2:
        return {1: VERIFY.label_tokens}
    longer = {length: count for length, count in _LONG.items() if length <= limit}
    return {
        1: VERIFY.label_tokens,
        int(min(VERIFY.tie_length, limit)): 3 * VERIFY.label_tokens - sum(longer.values()),
        **longer,
    }


def _claimed(model: Model, allows: Allowance) -> tuple[float, float]:
    """Errors of v and of W (Frobenius) the learner claims; a millionth of their norms if it says nothing.

    Of v what was reached, not what was asked for: at small logits an error of v hides one of W.
    """
    v, W = (model.v, model.W) if isinstance(model, _HEADS) else (np.ones(1), np.ones(1))
    value, score = 1e-6 * float(np.linalg.norm(v)), 1e-6 * float(np.linalg.norm(W))
    if allows.values is not None:
        reached = allows.values.observed
        value = allows.values.bound if reached is None else min(reached, allows.values.bound)
    if allows.scores is not None:
        score = allows.scores.bound
    return value, score


def near_boundary(
    model: Model, spec: OracleSpec, rng: np.random.Generator, count: int, length: int, errors: tuple[float, float]
) -> Array:
    """Sequences (count, length, d) at f = +-(1 to 2) margins; those that cannot be moved there stay farther away.

    They are there once they are rounded as the target holds them.
    """
    kept: list[Array] = []
    spare: list[Array] = []
    for _ in range(VERIFY.label_rounds):
        drawn = _moved(model, spec, rng, 2 * count, length, errors)
        tokens = held(drawn, spec.dtype)
        inside = np.linalg.norm(tokens, axis=2).max(axis=1) <= 0.999 * spec.domain.norm_limit
        f, margin = np.abs(model(tokens)), _margin(model, tokens, errors, spec)
        kept.extend(drawn[inside & (f >= 0.9 * margin) & (f <= 2.2 * margin)])
        spare.extend(drawn[inside & (f > 2.2 * margin)])
        if len(kept) >= count:
            break
    chosen = (kept + spare)[:count]
    while len(chosen) < count:
        # A single token along v is never near the boundary; it fills up where nothing else is possible.
        token = _values(model, spec.dim).sum(axis=0) * rng.choice([-1.0, 1.0]) * min(1.0, spec.domain.with_room)
        chosen.append(np.tile(token, (length, 1)))
    return np.array(chosen)


def _moved(
    model: Model, spec: OracleSpec, rng: np.random.Generator, count: int, length: int, errors: tuple[float, float]
) -> Array:
    """Random tokens with nearly tied scores, shifted to the margin along directions that leave the scores alone."""
    d = spec.dim
    q = rng.standard_normal((count, d))
    q /= np.linalg.norm(q, axis=1, keepdims=True)
    u = _keys(model, q)
    size = float(np.sqrt(np.mean(np.einsum("hbd,hbd->hb", u, u).max(axis=0))))
    norm = min(size**-0.5 if size else 1.0, 0.2 * spec.domain.norm_limit)
    q, u = q * norm, u * norm
    tokens = rng.standard_normal((count, length, d)) * (norm / math.sqrt(d))
    tokens[:, -1] = q
    moving = slice(0, max(1, length - 1))
    v = _values(model, d)
    along = np.broadcast_to(v.sum(axis=0), (count, d)).copy()
    if length > 1 and len(u) < d:
        along = _across(along, u)
    for _ in range(3):
        f = np.asarray(model(tokens))
        margin = _margin(model, tokens, errors, spec)
        target = margin * rng.uniform(1.2, 1.8, count) * rng.choice([-1.0, 1.0], count)
        gain = np.einsum("hb,bd,hd->b", _moving_weights(model, tokens), along, v)
        # A direction almost parallel to the scores' own would need an enormous step: leave such draws where they are.
        can = gain > 1e-3
        step = np.divide(target - f, gain, out=np.zeros(count), where=can)
        tokens[:, moving] += step[:, None, None] * along[:, None, :]
    return tokens


def _keys(model: Model, q: Array) -> Array:
    """W_h q (H, batch, d); of a model without scores one row of zeros."""
    u = np.asarray(model.key_directions(q))
    return u if len(u) else np.zeros((1, *q.shape))


def _across(along: Array, u: Array) -> Array:
    """The part of `along` (batch, d) that is orthogonal to every u (H, batch, d)."""
    U = u.transpose(1, 0, 2)
    return np.asarray(along - (np.linalg.pinv(U) @ (U @ along[:, :, None]))[:, :, 0])


def _moving_weights(model: Model, tokens: Array) -> Array:
    """Attention (H, batch) of every head on all tokens but the last (on the only one if there is one)."""
    u = _keys(model, tokens[:, -1])
    if tokens.shape[1] == 1:
        return np.ones(u.shape[:2])
    return np.asarray(1 - attention_weights(np.einsum("bnd,hbd->hbn", tokens, u), None)[:, :, -1])


def _margin(model: Model, tokens: Array, errors: tuple[float, float], spec: OracleSpec) -> Array:
    """How much f can change at most under the claimed errors, (batch,), to first order, and by rounding."""
    v = _values(model, spec.dim)
    lengths = np.linalg.norm(tokens, axis=2)
    y = np.einsum("bnd,hd->hbn", tokens, v)
    spread = np.linalg.norm(y.max(axis=2) - y.min(axis=2), axis=0)
    apart = np.linalg.norm(tokens - tokens[:, -1:], axis=2).max(axis=1)
    scores = np.minimum(errors[1] * apart * lengths[:, -1], 1.0)
    rounding = 16 * math.sqrt(spec.dim) * spec.eps * float(np.linalg.norm(v))
    values = math.sqrt(len(v)) * (errors[0] + rounding)
    return np.asarray(values * lengths.max(axis=1) + (scores + rounding) * spread)


def _values(model: Model, d: int) -> Array:
    """v (H, d) of the heads; a model without one is compared along the first axis."""
    return np.atleast_2d(model.v) if isinstance(model, _HEADS) else np.eye(d)[:1]


def _most_flips(n: int, flip: float) -> int:
    """Flips among n labels that chance exceeds with the probability of a false alarm at most."""
    from scipy.stats import binom  # a slow import, seldom needed

    return int(binom.ppf(1 - VERIFY.false_alarm, n, flip))
