"""How noisy is the oracle? Found from redundant one-row queries, whose answers are linear in the token whatever v is.

Sums of three directions must answer the sums of their answers; what is left after fitting these is noise. Short and
long tokens tell an absolute error (decimals, additive noise) from a relative one (significant digits, number formats).

Theory: docs/theory/approximate.md, "Noise that is not told".
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from unsoftmax.errors import ModelMismatch, NotIdentifiable
from unsoftmax.inversion import Noise, few_digits, lowest_step, rounding_unit
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.core.links import readable_length
from unsoftmax.learners.core.pair_logits import Values
from unsoftmax.precision import ARITHMETIC, SHORT_FORMAT
from unsoftmax.probes.base import Array, one_row
from unsoftmax.probes.scales import power_of_two
from unsoftmax.spec import Link, OracleSpec

_BITS = {"float64": 15, "float32": 15, "float16": 6}
_COEFFICIENTS = {"float64": 25, "float32": 25, "float16": 3}
"""Digits of the directions, and largest coefficient of their sums: together no more than the format holds. Rounding of
three answers that happen to be near steps is as linear as the answers: large coefficients make that unlikely."""

FREEDOM = CORE.sums_at_each_length - CORE.directions_of_sums
"""Independent residuals behind a measured deviation."""

MEASURING = 2 * CORE.sums_at_each_length
"""Queries that measuring the noise takes at least."""

_BENT = math.sqrt(CORE.short_over_long_tokens)
"""Misfit of short tokens over that of long ones, both relative to the answers, below which no error of the answers is
measured but a bend of them: an error keeps its share of the answers or grows it, a square leaves the tokens' own ratio,
a cube less, and this lies midway. Two estimates of one deviation from a dozen residuals each differ so far less than
once in 1e8."""

_ROUNDING = 2 * float(np.finfo(np.float64).eps)
"""Least relative error granted to any answer, two units of rounding of float64: few answers may be exact by luck."""

_SLOPE = {None: 1.0, "sigmoid": 0.25, "tanh": 1.0, "exp": 1.0, "log": 1.0}
"""Steepest slope of each link, the factor from an error before it to one behind it."""


_FAR = {"float64": 2.0**40, "float32": 2.0**20, "float16": 2.0**5}
"""Longest token sent where the domain sets no limit: squares and sums of it stay far from overflow."""


def sigmas(dim: int) -> float:
    """Deviations in a radius. Where few answers make the result, no others make up for one that is far off."""
    return CORE.deviations_of_a_radius * (1 + 0.5 / dim)


def known_noise(
    spec: OracleSpec, rng: np.random.Generator, *, typical: bool = False
) -> Asking[tuple[Noise, float, float]]:
    """The oracle's noise, declared or measured; the token norm to read v at; the longest token that may be sent.

    `typical`: the declared tolerance is the deviation of an answer, not a limit.
    """
    limit = min(spec.domain.norm_limit, _FAR[spec.dtype])
    declared = Noise(
        spec.tolerance * (sigmas(spec.dim) if typical else 1.0) + lowest_step(spec.eps),
        CORE.roundings_granted * spec.eps,
        spec.link,
        measured=typical,
    )
    length = min(1.0, limit) if math.isinf(spec.domain.norm_limit) else limit
    if spec.link is not None:
        length = yield from readable_length(spec, declared, rng)
    if spec.tolerance == 0:
        return (yield from measure_noise(spec, length, limit, rng))
    if spec.link is None:
        # |v| may be small, and one-row answers are single products: longer tokens lose nothing.
        length = min(limit, max(2.0**8 * declared.absolute / declared.relative, 1.0))
    return declared, length, limit


def measure_noise(
    spec: OracleSpec, length: float, longest: float, rng: np.random.Generator
) -> Asking[tuple[Noise, float, float]]:
    """The noise of an oracle that declares none, from tokens of norm `length`; returns as `known_noise` does.

    Every radius is some three deviations. Absolute noise can be outscaled: it is measured again at the very length
    that this suggests, which then is the longest token to be sent, so that nothing is extrapolated.
    """
    sums = _Sums.random(spec, length, rng)
    near, size, step, unit, smallest = yield from sums.deviation(1.0)
    small, small_size, _, small_unit, _ = yield from sums.deviation(CORE.short_over_long_tokens)
    if size == 0:
        raise NotIdentifiable(
            f"every answer to one-token probes of norm {length:g} is 0: v = 0, or the answers are rounded too coarsely "
            "to show it; allow longer tokens."
        )
    if (
        spec.link is None
        and small_size
        and near > CORE.misfit_of_exact_answers * size
        and small * size < _BENT * near * small_size
    ):
        raise ModelMismatch(
            "answers to one token are not linear in it, and not by noise: sums miss by "
            f"{near / size:.1g} of the answers with tokens of norm {length:g} and by {small / small_size:.1g} with "
            f"tokens {1 / CORE.short_over_long_tokens:g} times shorter, and no noise shrinks so, unless single answers "
            "are far off. The "
            "target is outside the class",
            advice="if its answers are a known function of a head's (sigmoid, exp, log, tanh), declare it as link=.",
        )
    slope, wide = _SLOPE[spec.link], sigmas(spec.dim)
    # Whatever else, answers are rounded to the format they come in, declared or seen; few of them may be so luckily.
    seen = min(unit, small_unit) if spec.link in (None, "tanh") else 0.0
    floor = max(_ROUNDING, spec.eps / 2, seen / 2)
    if lowest_step(seen) > CORE.least_step_that_overflows:
        # What answers in float16 must not exceed it.
        longest = min(longest, max(length, CORE.largest_short_answer * length / (math.sqrt(spec.dim) * size)))
    near = max(near, step / math.sqrt(12))
    lowest = max(lowest_step(spec.eps), lowest_step(seen))
    # Answers rounded to 0 show no error of their own; it is at most a step, or the smallest answer that is not 0.
    small = small if small_size else max(near, (step or smallest) / wide)
    if near > CORE.clearly_other_noise * small:
        # A purely relative error shrinks with the tokens; what is left of the small one is absolute.
        relative = near / size
        absolute = small if small > CORE.clearly_other_noise * near * CORE.short_over_long_tokens else 0.0
        return (
            Noise(wide * absolute * slope + lowest, max(wide * relative, floor), spec.link, measured=True),
            length,
            longest,
        )
    absolute = max(near, small)
    relative = floor
    if spec.link is not None:
        return Noise(wide * absolute * slope, relative, spec.link, measured=True), length, longest
    far = max(length, min(longest, absolute * length / (floor * size)))
    if far > 4 * length:
        factor = power_of_two(far / length)
        far = length * factor
        out, size, *_ = yield from sums.deviation(factor)
        if out > CORE.clearly_other_noise * absolute:
            relative = max(wide * out / size, floor)
    return Noise(wide * absolute + lowest, relative, measured=True), far, far


def noise_beside(
    values: Values, longest: float, noise: Noise, spec: OracleSpec, rng: np.random.Generator
) -> Asking[Noise]:
    """The measured `noise` behind a link, with what long tokens across v add to it.

    Behind a link noise is measured at short tokens. Those of the pairs are up to `longest`, with a short part along v
    only; arithmetic in a short format errs by a share of their whole length, which no answer near 0 tells otherwise.
    """
    if spec.link is None or not noise.measured or spec.dim == 1:
        return noise
    sums = _Sums.random(spec, longest, rng, across=values.v / values.norm)
    y = yield one_row(sums.N @ sums.g, phase="pilot", saturable=True)
    if not np.isfinite(y).all():
        return noise
    wide, deviation = sigmas(spec.dim), sums.misfit(y)
    size = float(np.sqrt(np.mean((sums.N @ sums.g) ** 2) * spec.dim)) * values.norm
    if _SLOPE[spec.link] * wide * deviation <= CORE.clearly_other_noise * noise.absolute:
        return noise
    return replace(noise, relative=max(noise.relative, wide * deviation / size))


def undeclared_noise(
    spec: OracleSpec, rng: np.random.Generator, *, above: float = CORE.misfit_of_exact_answers, constant: bool = False
) -> Asking[bool]:
    """Whether an oracle of exact answers gives noisy ones: three one-row queries, the third the sum of the others.

    With a `constant` in every answer a fourth, [0], shows it. float32 is no noise: it is known by its rounding. Noise
    counts if it is `above` this share of the answers; a misfit as large as they are is no noise, but another class.
    """
    if spec.dtype != "float64" or spec.tolerance > 0:
        return spec.dtype == "float16" and spec.tolerance == 0
    g = rng.standard_normal((2, spec.dim))
    g = _few_digits(g * (0.45 * min(1.0, spec.domain.norm_limit) / np.linalg.norm(g, axis=1, keepdims=True)), 18)
    rows = np.vstack([g, g.sum(axis=0), *([np.zeros(spec.dim)] if constant else [])])
    y = yield one_row(rows, phase="pilot", saturable=True)
    if not np.isfinite(y).all():
        return False
    if constant:
        y = y[:3] - y[3]
    misfit, size = abs(y[2] - y[0] - y[1]), np.abs(y).max()
    if spec.link is not None:
        # Undone links hide the format of the answer and stretch its rounding.
        return bool(misfit > max(above, CORE.misfit_behind_link) * size)
    if rounding_unit(y) > SHORT_FORMAT:
        return rounding_unit(y) > CORE.rounding_that_is_noise
    # A sum of rounded answers is often right: few digits tell them too.
    return bool(above * size < misfit < CORE.misfit_of_another_class * size or (size > 0 and few_digits(y) > above))


@dataclass(frozen=True, eq=False)
class _Sums:
    """Sums N g of three directions g (3, d) with whole coefficients, exact in the oracle's number format.

    The same sums are asked at every length: only then do the errors' sizes compare.
    """

    N: Array
    g: Array
    link: Link | None = None

    @staticmethod
    def random(spec: OracleSpec, length: float, rng: np.random.Generator, across: Array | None = None) -> _Sums:
        """Of norm `length` at most, nearly orthogonal to the unit vector `across` (d,) if there is one."""
        most = _COEFFICIENTS[spec.dtype]
        N = rng.integers(-most, most + 1, (CORE.sums_at_each_length, CORE.directions_of_sums)).astype(float)
        N[: CORE.directions_of_sums] += (most + 1) * np.eye(CORE.directions_of_sums)
        g = rng.standard_normal((CORE.directions_of_sums, spec.dim))
        if across is not None:
            g -= np.outer(g @ across, across)
        g = _few_digits(g * (0.95 * length / np.linalg.norm(N @ g, axis=1).max()), _BITS[spec.dtype])
        return _Sums(N, g, spec.link)

    def deviation(self, factor: float) -> Asking[tuple[float, float, float, float, float]]:
        """Deviation of the answers from linearity, their size (root mean square), their common step if any, the
        rounding unit of their format, and the smallest that is not 0."""
        y = yield one_row(self.N @ self.g * factor, phase="pilot")
        smallest = float(np.abs(y[y != 0]).min(initial=np.inf))
        # Among the links only tanh leaves small answers small, and done again shows their format.
        unit = rounding_unit(np.tanh(y), ARITHMETIC) if self.link == "tanh" else rounding_unit(y)
        return self.misfit(y), float(np.sqrt(np.mean(y**2))), common_step(y), unit, smallest

    def misfit(self, y: Array) -> float:
        """Deviation of answers (n,) from linearity."""
        left = y - self.N @ np.linalg.lstsq(self.N, y, rcond=None)[0]
        return float(np.sqrt((left**2).sum() / FREEDOM))


def common_step(y: Array) -> float:
    """The step of which all answers are multiples, 0 if there is none: few coarse answers hide their rounding error."""
    values = np.unique(np.abs(y))
    gaps = np.diff(np.append(0.0, values))
    step = float(gaps[gaps > 1e-9 * values[-1]].min(initial=np.inf)) if values[-1] > 0 else 0.0
    multiples = values / step if 0 < step < np.inf else np.array([0.5])
    return step if np.abs(multiples - np.round(multiples)).max() < 1e-6 and multiples.max() < 1e4 else 0.0


def _few_digits(x: Array, bits: int) -> Array:
    """Round every row to `bits` digits below its largest entry (never longer than 1/0.95 times what it was)."""
    step = 2.0 ** (np.ceil(np.log2(np.abs(x).max(axis=1, keepdims=True))) - bits)
    return np.asarray(np.trunc(x / step) * step)
