"""What a sum of softmax heads does not do, asked of a target that contradicts the heads learned from it.

Pairs of tokens alone show one head of any temperature; only then does its dependence on the length contradict it.
A constant, or a key offset, looks like noise or like too high a rank to a learner whose class has none: a zero token
tells it.

Theory: docs/theory/attention-layer.md, "LayerNorm before".
Theory: docs/theory/single-head.md, "Affine terms".
"""

from __future__ import annotations

import numpy as np

from unsoftmax.errors import Code, ModelMismatch, NotIdentifiable, UnsoftmaxError
from unsoftmax.learners.approximate import Approximate
from unsoftmax.learners.core.base import Asking, Learner
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.core.law import require_copies
from unsoftmax.models.base import Model
from unsoftmax.models.multi_head import MultiHead
from unsoftmax.models.single_head import LowRankHead, SingleHead
from unsoftmax.probes.base import Probes
from unsoftmax.probes.scales import held
from unsoftmax.probes.sphere import unit
from unsoftmax.spec import OracleSpec

QUERIES = 6
"""Queries at most: two orders of two tokens, a pair and its copies, a token and its copies."""

AFFINE_QUERIES = 6
"""Queries: a zero token, two tokens and their sum, and one of them and its opposite before a zero one."""


def lawful(refusal: UnsoftmaxError, model: Model, spec: OracleSpec, seed: int) -> Asking[UnsoftmaxError]:
    """The refusal, or that copies of every token count, with the refusal after it."""
    exact = spec.kind == "value" and spec.tolerance == 0 and spec.dtype == "float64" and spec.link is None
    heads = isinstance(model, (SingleHead, LowRankHead, MultiHead)) and spec.domain.length_limit >= 4
    if not (exact and heads and isinstance(refusal, ModelMismatch)):
        return refusal
    rng = np.random.default_rng([seed, 0x1A])
    W = np.asarray(model.W)  # type: ignore[attr-defined]
    # Scores of random tokens of length l are l^2 ||W||_F / d: of order one, where a temperature moves answers most.
    length = min(np.sqrt(spec.dim / max(float(np.linalg.norm(W)), 1e-300)), spec.domain.with_room)
    x = rng.standard_normal((3, spec.dim))
    x *= length / np.linalg.norm(x, axis=1, keepdims=True)
    one, other = yield Probes(x[[[0, 1, 2], [1, 0, 2]]], phase="verify")
    felt, least = CORE.felt * spec.eps, np.abs(model(x[:, None])).max(keepdims=True)
    if abs(one - other) > felt * max(abs(one), float(least[0])):
        # Noise or positions: copies would count with any weights.
        return refusal
    try:
        yield from require_copies(x[None, :2], spec.domain.length_limit, least, felt, 0.0, "verify")
    except ModelMismatch as told:
        return ModelMismatch(f"{told} {_sentence(refusal.reason)}", advice=refusal.advice, code=told.code)
    return refusal


def affine_terms(
    refusal: UnsoftmaxError, learner: Learner, spec: OracleSpec, seed: int, coarse: float
) -> Asking[UnsoftmaxError]:
    """The refusal, or that the answers have a constant or a key offset, which the learner was not asked to learn.

    `coarse`: relative error of the answers as they are written, where that is more than was declared.
    """
    values = spec.kind in ("value", "approximate") and spec.link is None and spec.vocabulary is None
    named = isinstance(refusal, (ModelMismatch, NotIdentifiable)) and refusal.code not in (Code.LAW, Code.UNREPEATABLE)
    plain = isinstance(learner, Approximate) or getattr(learner, "affine", True) is False
    if not (values and named and plain and spec.outputs is None and spec.domain.length_limit >= 2):
        return refusal
    x, y = unit(np.random.default_rng([seed, 0xAF]).standard_normal((2, spec.dim))) * min(1.0, spec.domain.with_room)
    x, y = held(x / 2, spec.dtype), held(y / 2, spec.dtype)
    alone = yield Probes(np.stack([0 * x, x, y, x + y])[:, None], phase="verify")
    before = yield Probes(np.stack([[x, 0 * x], [-x, 0 * x]]), phase="verify")
    zero, (gx, gy, both), (half, opposite) = alone[0], alone[1:] - alone[0], before - alone[0]
    size = max(abs(gx), abs(gy), abs(zero))
    allowed = CORE.audible * (max(coarse, spec.eps) * size + spec.tolerance)
    if abs(both - gx - gy) > allowed or allowed >= size:
        return refusal
    if abs(zero) > allowed:
        told = f"a zero token is answered {zero:.3g}, and others by a linear function plus this constant"
    elif abs(half - gx / 2) > allowed and abs(half - opposite - gx) <= allowed:
        # Opposite tokens have opposite scores a.c, whose weights add up to 1; places and other kernels do not do so.
        told = "a zero query token does not weigh other tokens alike: keys have an offset, as from a query bias"
    else:
        return refusal
    wider = type(learner).__name__ if hasattr(learner, "affine") else "SingleHead"
    return ModelMismatch(
        f"{told}. {type(learner).__name__} without affine terms learns neither constants nor key offsets",
        advice=f"pass affine=True ({wider}), or no learner to have one chosen.",
        code=refusal.code if isinstance(refusal, ModelMismatch) else None,
    )


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]
