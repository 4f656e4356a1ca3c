"""Theorem 6.1: probes [b u + a e_j ; a e_j], a = 1/2, b = 1/Wbar, one clipped logit per entry of W.

The published proof clips every logit to +-1/2. In the branch v_i = 0 the logit is ab (W_ij + W_pj), which reaches
sqrt(2)/2 for ||W||_F <= Wbar, so that clip cuts true values off. Here that branch clips at +-sqrt(2)/2: the logit is
4.52-Lipschitz there, still below the 5 of Lemma A.1, and the theorem's constants hold as they stand.

Theory: docs/theory/approximate.md, "The published method".
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import expit

from unsoftmax import theory
from unsoftmax.errors import DomainError, InvalidArgument, NotIdentifiable
from unsoftmax.inversion import Noise
from unsoftmax.learners.core.base import Allowance, Outcome, Precision, Program
from unsoftmax.models.single_head import SingleHead as Head
from unsoftmax.probes.base import one_row
from unsoftmax.probes.pairs import Pairs
from unsoftmax.spec import OracleSpec

_A = 0.5
"""Defined: length a of the second token in Theorem 6.1, b = 1 / Wbar being that of the first."""

PUBLISHED_CLIP = _A
"""Largest |logit| kept by the published proof of Theorem 6.1: ab |W_ij| <= a."""

ZERO_BRANCH_CLIP = math.sqrt(2) * _A
"""Largest |logit| kept where v_i = 0: ab |W_ij + W_pj| <= a sqrt(2) for ||W||_F <= Wbar. The published 1/2 cuts true
values off there."""


def check(spec: OracleSpec, W_bound: float | None, margin: float | None, accuracy: float | None) -> None:
    """Refuse before the first query what the theorem does not cover."""
    if W_bound is None or margin is None:
        raise InvalidArgument(
            "method='paper' needs `W_bound` (||W||_F is at most this, at least 2) and `margin` (every nonzero |v_i| is "
            "at least this); method='optimal' needs neither."
        )
    if W_bound < 2:
        raise InvalidArgument(f"`W_bound` must be at least 2 (got {W_bound}); a larger bound than needed is allowed.")
    if margin > 1:
        raise InvalidArgument(
            f"`margin` must be at most 1 (got {margin}): Theorem 6.1 supposes |v| <= 1, so no |v_i| is larger."
        )
    if spec.link is not None:
        raise InvalidArgument("method='paper' knows no output link; method='optimal' carries noise through it.")
    if spec.domain.norm_limit < 1:
        raise DomainError(f"method='paper' sends unit vectors and max_norm is {spec.domain.max_norm}; use 'optimal'.")
    if accuracy is not None:
        allowed = theory.approximate_tolerance(spec.dim, W_bound, margin, accuracy, zeros=False)
        if spec.tolerance > allowed:
            raise InvalidArgument(
                f"accuracy={accuracy} needs a tolerance of at most {allowed:.3g} (Theorem 6.1) and the oracle's is "
                f"{spec.tolerance:.3g}; ask for less accuracy, or use method='optimal'."
            )


def program(spec: OracleSpec, W_bound: float, margin: float, zero_clip: float = ZERO_BRANCH_CLIP) -> Program:
    """v entry by entry, then W entry by entry. `zero_clip` is the clip where v_i = 0 (the published one is 1/2)."""
    d = spec.dim
    v = yield one_row(np.eye(d), phase="values")
    zero = np.abs(v) <= margin / 2
    if zero.all():
        raise NotIdentifiable(f"no |v_i| is above margin/2 = {margin / 2:g}: v = 0 and no query shows W.")
    p = int(np.argmax(np.abs(v)))
    b = 1 / W_bound
    U = np.eye(d)
    U[zero, p] += 1
    longest = math.hypot(_A + b, b) if zero.any() else _A + b
    if longest > spec.domain.norm_limit:
        raise DomainError(
            f"the probes of Theorem 6.1 reach token norm {longest:.3g} where v has zeros and max_norm is "
            f"{spec.domain.max_norm}; pass a larger W_bound, or use method='optimal'."
        )
    design = Pairs(b * U, _A * np.eye(d))
    y = yield design.probes("main")
    share = (design.matrix(y) - _A * v[None, :]) / (b * np.where(zero, v[p], v))[:, None]
    clip = np.where(zero, zero_clip, PUBLISHED_CLIP)[:, None]
    share = np.clip(share, expit(-clip), expit(clip))
    W = (np.log(share) - np.log1p(-share)) / (_A * b)
    W[zero] -= W[p]

    tau = spec.tolerance + 4 * spec.eps
    precision = None
    if tau <= margin / 2:
        bound = theory.approximate_accuracy(d, W_bound, margin, tau, zeros=bool(zero.any()))
        precision = Precision(bound, math.sqrt(d) * tau, Noise(spec.tolerance, 4 * spec.eps), "proved", "Theorem 6.1")
    notes = () if precision else (f"tolerance {tau:.2g} is above margin/2: Theorem 6.1 promises nothing here.",)
    return Outcome(Head(W, v), notes, precision.claims() if precision else (), Allowance(precision=precision))
