"""Noisy oracles: fresh answers against what the stated precision allows, neither more nor less.

Two tests per kind of sequence. The worst gap must lie inside what the bounds on W and v permit for that very sequence:
a true bound never fails it. The root mean square gap must be what an error of that size leaves on directions drawn
independently of it, E (a'Eb)^2 = ||E||_F^2 |a|^2 |b|^2 / d^2: this is d times sharper and catches a wrong class.

Is a declared tolerance true? One-token answers are linear in the token: some v must explain all of them within it.

The learner's own answers count as well, since its v is they: every entry was read from one answer along a unit vector.

Theory: docs/theory/verification.md, "Noisy answers".
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from unsoftmax.inversion import Noise
from unsoftmax.learners.core.base import Asking, Precision
from unsoftmax.learners.core.constants import CORE
from unsoftmax.models.base import Model
from unsoftmax.probes.base import Array, Probes
from unsoftmax.results.recovery import Claim
from unsoftmax.spec import OracleSpec
from unsoftmax.verify.constants import VERIFY
from unsoftmax.verify.plan import Checked
from unsoftmax.verify.sent import fresh, sent_norms, settled_norms, under_tolerance
from unsoftmax.verify.ties import typical_norm
from unsoftmax.verify.values import tying


def least_share(v: Array, error_of_v: float, tokens: Array, y: Array, noise: Noise) -> float | None:
    """Least t such that some v* explains y (n,), asked with tokens (n, d), within t times their radius, and v likewise.

    Above 1 no v* does: the declared tolerance is exceeded. None where nothing can be said.
    """
    d = len(v)
    if noise.link is not None or noise.measured or d > VERIFY.largest_dimension:
        return None
    radius = np.concatenate(
        [_entries(v, error_of_v, noise), noise.radius(y, np.linalg.norm(tokens, axis=1) * np.linalg.norm(v))]
    )
    if not (np.isfinite(radius).all() and (radius > 0).all()):
        return None
    from scipy.optimize import linprog  # a slow import, seldom needed

    # In units of the radii, and for the difference to v, so that all numbers are of order one.
    rows = np.concatenate([np.eye(d), tokens])
    scale = radius[:d]
    A = rows * scale / radius[:, None]
    left = np.concatenate([np.zeros(d), y - tokens @ v]) / radius
    ones = np.ones((len(A), 1))
    result = linprog(
        np.append(np.zeros(d), 1.0),
        A_ub=np.block([[A, -ones], [-A, -ones]]),
        b_ub=np.concatenate([left, -left]),
        bounds=[(None, None)] * d + [(0, None)],
    )
    return float(result.fun) if result.status == 0 else None


def _entries(v: Array, error_of_v: float, noise: Noise) -> Array:
    """Radius of every entry of v, (d,): a + relative |v_j|, whose norm is the stated error."""
    d, r = len(v), noise.relative * np.abs(v)
    first, second = float(r.sum()) / d, float(r @ r) / d - error_of_v**2 / d
    a = -first + math.sqrt(max(first**2 - second, 0.0))
    return np.asarray(max(a, 0.0) + r)


_EXACT = 1 + 1e-6
"""Derived: 1 and the rounding of this file's own sums, for an answer at the very end of its tolerance must pass."""


def check(model: Model, spec: OracleSpec, seed: int, precision: Precision) -> Asking[Checked]:
    """Ask the same fresh queries as for exact answers; hold every gap against its own bound."""
    rng = np.random.default_rng([seed, 0x7E51F7])
    claims: list[Claim] = []
    held = _inside_format(model, spec, precision)
    scale = typical_norm(model, held, rng)
    regimes = under_tolerance(scale, held, precision.W)
    sizes, queries, norms = yield from settled_norms(*regimes, sent_norms(scale, held, precision.W))
    kinds = fresh(held, VERIFY.one_token, VERIFY.per_length, sizes, norms, rng, queries)
    for kind in [*kinds, (yield from tying(model, held, rng))]:
        if not kind.rounds:
            continue
        gaps, allowed, typical = [], [], []
        for tokens in kind.rounds:
            y = yield Probes(tokens, phase="verify", saturable=True)
            gaps.append(_gap(model(tokens), y, spec))
            allowed.append(reach(model, tokens, y, precision, 1.0))
            typical.append(reach(model, tokens, y, precision, 1 / math.sqrt(spec.dim)))
        if tokens.shape[1] == 1 and precision.basis == "proved":
            claims += _tolerance_claim(model, tokens[:, 0], y, precision)
        gap = np.concatenate(gaps)
        worst = float((gap / np.concatenate(allowed)).max())
        usual = float(np.sqrt(np.mean((gap / np.concatenate(typical)) ** 2)))
        bound = _EXACT if precision.basis == "proved" else VERIFY.measured_slack
        words = f"in units of what the stated precision allows: largest gap on {kind.on}"
        claims.append(Claim(kind.name, bound, worst, statement=words))
        words = "in units of what the stated precision leaves on average: root mean square of the gap"
        claims.append(Claim(f"{kind.name}, typical", VERIFY.mean_slack, usual, statement=words))
    return Checked(tuple(claims))


def _inside_format(model: Model, spec: OracleSpec, precision: Precision) -> OracleSpec:
    """The spec with a norm limit at which answers of a coarse format, float16 perhaps, do not overflow."""
    if precision.noise.relative < CORE.rounding_that_is_noise:
        return spec
    limit = min(spec.domain.norm_limit, CORE.largest_short_answer / float(np.linalg.norm(model.v)))  # type: ignore[attr-defined]
    return replace(spec, domain=replace(spec.domain, max_norm=limit))


def _tolerance_claim(model: Model, tokens: Array, y: Array, precision: Precision) -> list[Claim]:
    v = model.v  # type: ignore[attr-defined]
    share = least_share(v, precision.v, tokens, y, precision.noise)
    if share is None:
        return []
    statement = "in units of the declared tolerance: the least within which some v explains all one-token answers"
    return [Claim("declared tolerance", _EXACT, share, statement=statement)]


def _gap(predicted: Array, answered: Array, spec: OracleSpec) -> Array:
    """Distance of the answers. Where a log has no answer, f <= 0 is known; where another link saturates, nothing is."""
    if spec.link is None:
        return np.abs(predicted - answered)
    seen = np.isfinite(answered)
    unseen = np.maximum(predicted, 0.0) if spec.link == "log" else np.zeros_like(predicted)
    return np.where(seen, np.abs(predicted - np.where(seen, answered, 0.0)), unseen)


def reach(model: Model, tokens: Array, y: Array, precision: Precision, aligned: float) -> Array:
    """How far each answer (batch,) may be from the model's.

    `aligned` is how much of an error of v or W one direction sees: 1 at worst, 1/sqrt d on average over directions.
    An error of the scores that varies by S over the sequence moves softmax by at most tanh(S/4) in total variation.
    """
    q = np.linalg.norm(tokens[:, -1], axis=1)
    longest = np.linalg.norm(tokens, axis=2).max(axis=1)
    shares = np.asarray(tokens @ model.v)  # type: ignore[attr-defined]
    spread = np.ptp(shares, axis=1) + 2 * longest * precision.v
    apart = 2 * np.linalg.norm(tokens - tokens[:, -1:], axis=2).max(axis=1)
    moved = np.tanh(apart * q * precision.W * aligned**2 / 4)
    size = longest * float(np.linalg.norm(model.v))  # type: ignore[attr-defined]
    own = precision.noise.radius(np.where(np.isfinite(y), y, model(tokens)), size)
    return np.asarray(own + longest * precision.v * aligned + spread * moved)
