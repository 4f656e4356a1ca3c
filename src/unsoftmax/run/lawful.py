"""What a sum of softmax heads does not do, asked of a target that contradicts the heads learned from it.

Pairs of tokens alone show one head of any temperature; only then does its dependence on the length contradict it.

Theory: docs/theory/attention-layer.md, "LayerNorm before".
"""

from __future__ import annotations

import numpy as np

from unsoftmax.errors import ModelMismatch, UnsoftmaxError
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.core.law import require_copies
from unsoftmax.models.base import Model
from unsoftmax.models.multi_head import MultiHead
from unsoftmax.models.single_head import LowRankHead, SingleHead
from unsoftmax.probes.base import Probes
from unsoftmax.spec import OracleSpec

QUERIES = 6
"""Queries at most: two orders of two tokens, a pair and its copies, a token and its copies."""


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


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]
