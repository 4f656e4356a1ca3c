"""One-token behaviour: what the target does to a single vector, where attention has no choice."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from unsoftmax.diagnosis.answers import PHASE, Answers, rms, sphere, telling
from unsoftmax.diagnosis.constants import DIAGNOSIS
from unsoftmax.diagnosis.findings import Finding
from unsoftmax.learners.core.base import Asking
from unsoftmax.probes.base import Array, Probes
from unsoftmax.spec import OracleSpec


@dataclass(frozen=True)
class OneRow:
    """`shape`: linear, affine, homogeneous, piecewise linear, smooth, normalised, bounded or squashed."""

    shape: str
    constant: bool
    degree: float | None
    finding: Finding
    beside: bool = False
    """Long vectors are answered by themselves plus what does not depend on their length."""
    faint: bool = False
    """A zero vector gets an answer, if only in the last digits of a short format: sums of products answer 0 exactly."""


def one_row(spec: OracleSpec, norm: float, known: Answers, rng: np.random.Generator) -> Asking[OneRow]:
    """Sums, multiples, opposites and short segments of a few vectors."""
    n = telling(spec, DIAGNOSIS.few, DIAGNOSIS.row_vectors)
    x, y = (sphere(rng, (n, spec.dim)) * (norm / 4) for _ in range(2))
    far = [s for s in DIAGNOSIS.row_factors if s * norm / 4 <= spec.domain.with_room]
    zero = np.zeros((1, spec.dim))
    # Three points of a segment too short to meet a kink: their second difference is curvature alone.
    bend = sphere(rng, (n, spec.dim)) * (norm / 4 * DIAGNOSIS.row_step)
    distant = [s * x for s in far] + ([-far[-1] * x] if far else [])
    batches = [zero, x, y, x + y, -x, 2 * x, x + bend, x - bend, *distant]
    tokens = np.concatenate(batches)[:, None, :]
    answer = yield Probes(tokens, phase=PHASE)
    parts = np.split(answer, np.cumsum([len(b) for b in batches])[:-1])
    g0, gx, gy, gsum, gminus, gdouble, gplus, gless = parts[:8]
    size = _size(gx, gy, gsum) or 1.0
    tolerance = known.tolerance(size)
    gaps = {
        "constant": _size(g0) / size,
        "additive": _size(gsum - gx - gy + g0) / size,
        "odd": _size(gx + gminus - 2 * g0) / size,
        "doubling": _size(gdouble - 2 * gx) / size,
        "invariant": _size(gdouble - gx) / size,
        "curvature": _size(gplus + gless - 2 * gx) / size / DIAGNOSIS.row_step**2,
    }
    degree = _degree(parts[8 : 8 + len(far)])
    if degree is not None:
        gaps["degree at infinity"] = degree
    beside = (
        len(far) == 2 and spec.outputs == spec.dim and _beside_residual(parts[8:10], distant[:2], known.relative_noise)
    )
    if len(far) == 2:
        # Behind a norm, long opposite vectors get opposite answers about one centre, the norm's shift.
        middle = parts[9] / 2 + parts[10] / 2
        gaps["centre at infinity"] = _size(middle - middle.mean(axis=0)) / (_size(parts[9]) or 1.0)
    faint = known.deterministic and known.format == "float32" and bool(np.any(g0))
    return replace(_judged(gaps, degree, tolerance, beside), faint=faint)


def _judged(gaps: dict[str, float], degree: float | None, tolerance: float, beside: bool) -> OneRow:
    constant = gaps["constant"] > tolerance
    if gaps["additive"] <= tolerance and gaps["odd"] <= tolerance:
        shape = "affine" if constant else "linear"
    elif gaps["invariant"] <= tolerance or beside:
        shape = "normalised"
    elif gaps["doubling"] <= tolerance:
        shape = "homogeneous"
    elif degree is not None and degree < 0.5:
        shape = "bounded" if gaps["centre at infinity"] <= max(tolerance, 1e-3) else "squashed"
    # A quarter of the segments may meet a kink by chance; their median does not.
    elif gaps["curvature"] <= max(min(tolerance / DIAGNOSIS.row_step**2, DIAGNOSIS.bent), DIAGNOSIS.straight):
        shape = "piecewise linear"
    else:
        shape = "smooth"
    words = {
        "linear": "A single vector is answered linearly.",
        "affine": "A single vector is answered by a linear function plus a constant.",
        "homogeneous": "A single vector is answered in proportion to its length, but not linearly.",
        "normalised": "A multiple of a vector gets the same answer: its length does not matter.",
        "bounded": "The answers to long vectors stay bounded, about one centre.",
        "squashed": "The answers to long vectors stay bounded, about no centre.",
        "piecewise linear": "A single vector is answered piecewise linearly.",
        "smooth": "A single vector is answered by a curved function.",
    }
    if beside:
        words["normalised"] = "Long vectors are answered by themselves plus what does not depend on their length."
    finding = Finding("one row", shape, words[shape], evidence={**gaps, "tolerance": tolerance})
    return OneRow(shape, constant, degree, finding, beside)


def _beside_residual(far: list[Array], x: list[Array], noise: float) -> bool:
    """Whether g(x) - x no longer depends on the length of x when it is long: a norm before, a residual around.

    What is left of the difference beside so long an x is known no better than the answers' relative noise allows.
    """
    one, two = (g - t for g, t in zip(far, x, strict=True))
    allowed = min(max(1e-6 * _size(one), 8 * noise * _size(*far)), 0.02 * _size(one))
    return _size(one - two) <= allowed


def _degree(far: list[Array]) -> float | None:
    """Exponent p with g(2x) = 2^p g(x) for long x, from two lengths; None if the domain forbids them."""
    if len(far) < 2:
        return None
    a, b = map(rms, far)
    ok = (a > 0) & (b > 0)
    return float(np.median(np.log2(b[ok] / a[ok]))) if ok.any() else None


def _size(*parts: Array) -> float:
    """Median over vectors of the root mean square: one vector next to a kink does not decide."""
    return float(np.median(np.concatenate([rms(part) for part in parts])))
