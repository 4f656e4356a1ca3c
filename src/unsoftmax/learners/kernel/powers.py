"""Kernels that are 0 at 0: weights that are powers of the score, linear, quadratic, ReLU and its powers.

Theory: docs/theory/kernels.md, "Powers of the score".
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from unsoftmax.errors import ModelMismatch, NotIdentifiable
from unsoftmax.inversion import decimal_error, rounding_unit
from unsoftmax.learners.core.base import RELATIVE_ERROR, SLACK, Allowance, Asking, Outcome
from unsoftmax.learners.kernel.first_look import FOLDS
from unsoftmax.learners.kernel.ratios import Sender
from unsoftmax.learners.kernel.reading import LINEAR
from unsoftmax.learners.kernel.shares import normalised
from unsoftmax.learners.kernel.sums import plain_sum
from unsoftmax.models.kernel_head import KernelHead as Head
from unsoftmax.models.kernels import Kernel, power_name
from unsoftmax.precision import EPS
from unsoftmax.probes.base import Probes
from unsoftmax.probes.sphere import sphere
from unsoftmax.results.recovery import Claim
from unsoftmax.spec import OracleSpec

_LONG = 2.0**26
"""Length of tokens beside the query token, as far as the domain allows; its inverse is that of the query token, so
that scores are of order |W|. Powers have no scale, so shorter ones show as much."""


def learn(spec: OracleSpec, rng: np.random.Generator, wanted: str | None) -> Asking[Outcome]:
    """W up to its scale (Frobenius norm 1), v and the power, of normalised weights or of a plain sum."""
    length = min(_LONG, 0.1 * spec.domain.norm_limit)
    sender, share, allowed = yield from _asked_twice(Sender(spec, length, EPS * length, spec.eps, spec.tolerance), rng)
    if abs(share - 2) <= allowed:
        W, v, power, error = yield from plain_sum(sender, rng)
    elif abs(share - 1) <= allowed:
        W, v, power, error = yield from normalised(sender, rng)
    else:
        raise ModelMismatch(
            f"tokens asked twice are answered {share:.4g} times as large: neither normalised weights (1) nor their "
            "plain sum (2); a sink, a network or a constant stands beside, or the kernel is no power of the score."
        )
    kernel = Kernel(power_name(power.degree, power.side))
    if wanted is not None and kernel.name != wanted:
        raise ModelMismatch(f"the kernel is not {wanted!r}: it is {kernel.name!r}.")
    bound = SLACK * error
    if not (np.isfinite(W).all() and np.isfinite(v).all() and bound < 1):
        raise NotIdentifiable(f"at this noise the error of W may be {bound:.2g} of it: nothing is known.")
    head = Head(W, v, kernel, bool(abs(share - 1) <= allowed)).canonical()
    claim = Claim(RELATIVE_ERROR, bound, statement="of W up to its scale, from the rounding of answers")
    return Outcome(head, (_words(head),), allows=Allowance(claim))


def _asked_twice(sender: Sender, rng: np.random.Generator) -> Asking[tuple[Sender, float, float]]:
    """Answer to all tokens twice over that to all once, and the gap that noise may leave."""
    spec = sender.spec
    x, q = sphere(rng, (2, 1, spec.dim))
    X = sender.tokens([x, -FOLDS[0] * x], q)
    once = yield Probes(X, phase="pilot")
    twice = yield Probes(X[:, [0, 0, 1, 1, 2]], phase="pilot")
    size = float(np.abs(once).max())
    if size <= spec.tolerance or not np.isfinite(twice).all():
        raise NotIdentifiable("tokens of every length are answered with 0: v = 0 or W = 0.")
    unit = 4 * math.sqrt(spec.dim) * max(spec.eps, rounding_unit(np.append(once, twice)))
    noise = max(spec.tolerance, decimal_error(np.append(once, twice)))
    allowed = LINEAR + 1e3 * (unit + noise / size)
    return replace(sender, unit=unit, noise=noise), float(twice[0] / once[0]), allowed


def _words(head: Head) -> str:
    kind = "normalised" if head.normalised else "a plain sum"
    hidden = "its size cancels" if head.normalised else "its size is in v"
    return f"the kernel is {head.kernel}; weights are {kind}; W is known up to its scale ({hidden}), kept at |W| = 1."
