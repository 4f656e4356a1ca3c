"""Answers that the reference explains up to a few numbers: a scale, a shift, a temperature, the weight of a head."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import optimize, stats

from unsoftmax.comparing import statistics
from unsoftmax.comparing.constants_explaining import EXPLAINING
from unsoftmax.comparing.heads import Heads
from unsoftmax.comparing.references import Answers, Reference
from unsoftmax.models.base import Array, attention_weights

Sample = tuple[Array, Array, Array]
"""Sequences, their answers, and the noise of these."""


@dataclass(frozen=True, eq=False)
class Fit:
    """shift (outputs,), values and temperatures (H,), which of these differ, and the sentence that says it."""

    shift: Array
    values: Array
    temperatures: Array
    words: str
    heads: tuple[int, ...] | None

    def answers(self, reference: Reference) -> Answers:
        """The reference with these scales and shifts."""
        heads = reference.heads
        if heads is None or len(self.values) != heads.count:
            return lambda X: self.values[0] * reference.double(X) + self.shift

        def answer(X: Array) -> Array:
            passed = heads.constant + (X[:, -1] if heads.residual else 0.0) + self.shift
            alpha = attention_weights(_scores(heads, X) * self.temperatures[:, None, None], None)
            y = passed + np.einsum("hbn,hod,bnd,h->bo", alpha, heads.P, X, self.values, optimize=True)
            return np.asarray(y[:, 0] if heads.scalar else y)

        return answer

    def facts(self) -> dict[str, object]:
        shift = np.atleast_1d(self.shift)
        return {
            "shift": float(np.abs(shift).max()),
            "value factors": self.values.tolist(),
            "temperature factors": self.temperatures.tolist(),
        }


def fit_scales(reference: Reference, samples: list[Sample]) -> Fit | None:
    """The fit, if everything asked so far is explained to rounding by it; else None."""
    if samples[0][0].dtype.kind in "iu" or reference.heads is None:
        return _affine(reference, samples)
    return _of_heads(reference.heads, samples)


def rounding_only(energies: Array) -> bool:
    """Whether mean squares of standardised residuals are what rounding leaves."""
    return float(energies.sum()) <= EXPLAINING.rounding_variance * float(
        stats.chi2.ppf(1 - EXPLAINING.tail, len(energies))
    )


def _affine(reference: Reference, samples: list[Sample]) -> Fit | None:
    """y = s f + t for references whose heads are not known."""
    f = np.concatenate([reference.double(X).reshape(len(X), -1) for X, _, _ in samples])
    y, sd = (np.concatenate([part[i].reshape(len(part[0]), -1) for part in samples]) for i in (1, 2))
    w = 1 / np.maximum(sd, 1e-150) ** 2
    mean = lambda x: (w * x).sum(axis=0) / w.sum(axis=0)  # noqa: E731
    fc, yc = f - mean(f), y - mean(y)
    size = float((w * fc * fc).sum())
    if size == 0:
        return None
    s = float((w * fc * yc).sum()) / size
    shift = mean(y) - s * mean(f)
    z = (y - s * f - shift) / np.maximum(sd, 1e-300)
    if not rounding_only(statistics.energy(z)):
        return None
    return _named(shift, np.array([s]), np.ones(1), _shift_error(w), np.array([size**-0.5]), np.array([np.inf]))


def _shift_error(w: Array) -> Array:
    return np.asarray(w.sum(axis=0) ** -0.5)


def _of_heads(heads: Heads, samples: list[Sample]) -> Fit | None:
    H = heads.count
    read = [(X, y.reshape(len(X), -1), np.maximum(sd.reshape(len(X), -1), 1e-150)) for X, y, sd in samples]
    numbers = sum(y.size for _, y, _ in read)
    if numbers < 2 * H + 1 + len(heads.constant):
        return None
    scores = [_scores(heads, X) for X, _, _ in read]
    values = [np.einsum("hod,bnd->hbno", heads.P, X) for X, _, _ in read]
    w = np.concatenate([sd**-2 for _, _, sd in read])
    given = np.concatenate([y - heads.constant - (X[:, -1] if heads.residual else 0) for X, y, _ in read])

    def written(p: Array) -> Array:
        parts = []
        for s, v in zip(scores, values, strict=True):
            alpha = attention_weights(s * p[H:, None, None], None)
            parts.append(np.einsum("hbn,hbno,h->bo", alpha, v, p[:H]))
        return np.concatenate(parts)

    def residual(p: Array) -> Array:
        r = given - written(p)
        return np.asarray((r - (w * r).sum(axis=0) / w.sum(axis=0)) * np.sqrt(w))

    start = np.ones(2 * H)
    found = optimize.least_squares(
        lambda p: residual(p).ravel(), start, xtol=1e-15, ftol=1e-15, gtol=1e-15, max_nfev=60
    )
    if not rounding_only(statistics.energy(residual(found.x))):
        return None
    errors = np.sqrt(np.maximum(np.diag(np.linalg.pinv(found.jac.T @ found.jac)), 0))
    rest = given - written(found.x)
    shift = (w * rest).sum(axis=0) / w.sum(axis=0)
    return _named(shift, found.x[:H], found.x[H:], _shift_error(w), errors[:H], errors[H:])


def _scores(heads: Heads, X: Array) -> Array:
    return np.asarray((X @ heads.key_directions(X[:, -1]).transpose(1, 2, 0)).transpose(2, 0, 1))


def _named(
    shift: Array, values: Array, temperatures: Array, shift_error: Array, value_error: Array, temperature_error: Array
) -> Fit | None:
    """Which of the numbers changed, in words; None if none did."""
    floor = 64 * np.finfo(np.float64).eps
    shifted = bool((np.abs(shift) > EXPLAINING.sure * shift_error + floor).any())
    scaled = np.abs(values - 1) > EXPLAINING.sure * value_error + floor
    heated = np.abs(temperatures - 1) > EXPLAINING.sure * temperature_error + floor
    one_value = _one(values, scaled, value_error)
    one_temperature = _one(temperatures, heated, temperature_error)
    words: list[str] = []
    gone = tuple(
        int(h)
        for h in np.flatnonzero(np.abs(values) <= np.maximum(EXPLAINING.sure * value_error, EXPLAINING.alike_factors))
    )
    heads: tuple[int, ...] | None = None
    if gone and len(values) > 1:
        words.append(f"head {', '.join(map(str, gone))} is removed")
        heads = gone
    elif one_value:
        words.append(f"the answers are scaled by {_factor(values.mean())}")
    elif scaled.any():
        heads = tuple(int(h) for h in np.flatnonzero(scaled))
        factors = ", ".join(_factor(values[h]) for h in heads)
        words.append(f"the values of head {', '.join(map(str, heads))} are scaled by {factors}")
    if one_temperature:
        words.append(f"the scores are scaled by {_factor(temperatures.mean())} (a temperature)")
    elif heated.any() and not gone:
        which = [int(h) for h in np.flatnonzero(heated)]
        heads = tuple(sorted({*(heads or ()), *which}))
        factors = ", ".join(_factor(temperatures[h]) for h in which)
        words.append(f"the scores of head {', '.join(map(str, which))} are scaled by {factors}")
    if shifted:
        words.append(f"the answers are shifted by up to {float(np.abs(shift).max()):.3g}")
    return Fit(shift, values, temperatures, " and ".join(words), heads) if words else None


def _factor(x: float) -> str:
    """In six digits, or by what it differs from 1 where these are all the same."""
    shown = f"{x:.6g}"
    return shown if shown != "1" else f"1 {'+' if x > 1 else '-'} {abs(x - 1):.2g}"


def _one(factors: Array, differ: Array, errors: Array) -> bool:
    """Whether all factors changed, and by the same amount."""
    apart = max(EXPLAINING.alike_factors * float(np.abs(factors).max()), EXPLAINING.sure * float(errors.max()))
    return bool(differ.all()) and float(np.ptp(factors)) <= apart
