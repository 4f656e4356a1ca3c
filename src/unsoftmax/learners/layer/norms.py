"""Is there a LayerNorm, and on which side: a few one-token queries.

Theory: docs/theory/attention-layer.md, "LayerNorm after".
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from scipy.optimize import minimize_scalar

from unsoftmax.errors import ModelMismatch
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.layer.constants import LAYER
from unsoftmax.probes.base import Array, Probes, one_row
from unsoftmax.probes.scales import on_grid, power_of_two
from unsoftmax.spec import OracleSpec

_EPS_UNSEEN = np.log10(np.finfo(np.float64).eps)
"""Derived: log10 of the eps, over the mean square of a token, that its norm's rounding hides."""

Found = Literal["pre", "post", "rms", "block", "final"]


def find_norm(spec: OracleSpec, rng: np.random.Generator) -> Asking[Found | None]:
    """None if one-token answers are affine; "pre" if tokens only matter off their mean; "rms" if they are affine in the
    tokens over their length; "post" if answers stay small. A whole block: context tokens count by their direction, and
    more than attention answers to single ones; "final" if answers stay small all the same.

    Four queries, phase "pilot"; two more if they are not affine, and two if they do not tell "pre". Where copies of a
    token change the answer, sinks take a share of the weight, and tokens are asked before an empty one.
    """
    d = spec.dim
    size = power_of_two(min(1.0, 0.1 * spec.domain.norm_limit / np.sqrt(d)))
    x = on_grid(rng.standard_normal((3, d)).clip(-3, 3) * size, 16 * size, spec.dtype)
    shifted = x[0] + size
    far = x[0] * power_of_two(min(2.0**20, 0.3 * spec.domain.norm_limit / (size * np.sqrt(d))))
    y = yield one_row(np.stack([x[0], x[1], x[2], x[0] + x[1] - x[2]]), phase="pilot")
    if _gap(y[3] - (y[0] + y[1] - y[2]), y[:3]) < LAYER.same_answer:
        return None
    y = np.vstack([y, (yield one_row(np.stack([shifted, far]), phase="pilot"))])
    move = y[4] - y[0]
    followed = move - size if len(move) == d else move
    if min(_gap(move, y[:3]), _gap(followed, y[:3])) < LAYER.same_answer:
        return "pre"
    empty = yield one_row(np.zeros((1, d)), phase="pilot")
    if _over_length(x, y[:4] - empty[0]):
        return "rms"
    if (yield from _sinking(x[0], y[0], y[:3])):
        return (yield from _beside_sinks(x, empty[0]))
    bounded = np.abs(y[5]).max() < 100 * np.abs(y[:3]).max()
    if (yield from _by_direction(x[1], x[0], y[:3], spec)):
        return "final" if bounded else "block"
    if bounded:
        return "post"
    raise ModelMismatch(
        "one-token answers are neither affine, nor blind to the tokens' mean (LayerNorm before attention), nor affine "
        "in the token over its length (RMSNorm before it), nor bounded (LayerNorm after it), and context tokens do "
        "not count by their direction (a pre-norm block with its network): something else stands around attention, or "
        "their noise is beyond a thousandth."
    )


def _by_direction(context: Array, x: Array, answers: Array, spec: OracleSpec) -> Asking[bool]:
    """Whether a context token counts by its direction, and as it is and not off its mean: an RMSNorm is before it."""
    if spec.domain.length_limit < 2 or spec.domain.norm_limit < LAYER.lengthened * 4 * float(np.linalg.norm(context)):
        return False
    tokens = np.stack([context, LAYER.lengthened * context, context + np.abs(context).max()])
    y = yield Probes(np.stack([tokens, np.broadcast_to(x, tokens.shape)], axis=1), phase="pilot")
    return _gap(y[1] - y[0], answers) < LAYER.same_answer < _gap(y[2] - y[0], answers)


def _sinking(x: Array, y: Array, answers: Array) -> Asking[bool]:
    """Whether three copies of a token answer otherwise than one: then weights do not add up to 1."""
    copies = yield Probes(np.broadcast_to(x, (1, 3, len(x))).copy(), phase="pilot")
    return _gap(copies[0] - y, answers) > LAYER.same_answer


def _beside_sinks(x: Array, empty: Array) -> Asking[Found | None]:
    """The norm from sequences [x, 0], in which the weight of x does not depend on it."""
    x = np.vstack([x, x[0] + x[1] - x[2]])
    y = (yield Probes(np.stack([x, np.zeros_like(x)], axis=1), phase="pilot")) - empty
    if _gap(y[3] - (y[0] + y[1] - y[2]), y[:3]) < LAYER.same_answer:
        return None
    if _over_length(x[:3], y):
        return "rms"
    raise ModelMismatch(
        "copies of a token change the answer (sinks, or positions added to tokens), and tokens before an empty one are "
        "answered neither linearly nor by their direction: sinks with a bias of queries or values, which cannot be "
        "told from them here, or another model."
    )


def _over_length(x: Array, y: Array) -> bool:
    """Whether y_3 = y_0 + y_1 - y_2 once every answer is multiplied by what an RMSNorm divides its token by, the
    residual aside: sqrt(v + eps), of which an eps up to the smallest v counts beside tokens kept short."""
    x = np.vstack([x, x[0] + x[1] - x[2]])
    v = (x * x).mean(axis=1, keepdims=True)
    written = [y, y - x] if y.shape == x.shape else [y]

    def left(part: Array, exponent: float) -> float:
        w = part * np.sqrt(v + 10.0**exponent * v.min())
        return _gap(w[3] - (w[0] + w[1] - w[2]), w[:3])

    for part in written:
        best = minimize_scalar(lambda e, part=part: left(part, e), bounds=(_EPS_UNSEEN, 0.0), method="bounded")
        if min(best.fun, left(part, _EPS_UNSEEN)) < LAYER.same_answer:
            return True
    return False


def _gap(difference: Array, answers: Array) -> float:
    return float(np.abs(difference).max() / max(float(np.abs(answers).max()), 1e-300))
