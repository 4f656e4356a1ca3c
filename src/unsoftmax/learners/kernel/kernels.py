"""The table of an unknown kernel along one line, and which kernel it shows.

Theory: docs/theory/kernels.md, "Other kernels than the exponential", method.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from unsoftmax.errors import DomainError, ModelMismatch, NotIdentifiable
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.kernel.constants import KERNEL
from unsoftmax.learners.kernel.reading import Reader
from unsoftmax.models.kernels import LEARNED, Kernel
from unsoftmax.probes.base import Array
from unsoftmax.solvers.kernel_match import LogRatio, Matched, match, series


@dataclass(frozen=True, eq=False)
class Known:
    """A kernel, the scale tau between scores and positions on the line, and the largest score it is known for."""

    kernel: Kernel
    tau: float
    reach: float
    misfit: float


def tabulate(reader: Reader, a: Array, b: Array, wanted: str | None) -> Asking[Known]:
    """Read the kernel along x a, |x| <= 1, at one b, and name it; `wanted` is the only name allowed."""
    x = np.cos(np.pi * (np.arange(KERNEL.table_points) + 0.5) / KERNEL.table_points)
    span = yield from _span(reader, a, b)
    g, error = yield from reader.ask(span * x[:, None] * a, np.repeat(b[None], KERNEL.table_points, axis=0), "table")
    seen = np.isfinite(g)
    if seen.sum() < KERNEL.table_points // 2:
        raise NotIdentifiable(
            "the kernel cannot be read along a line of scores: answers are saturated or negative there."
        )
    x, g, error = x[seen], g[seen], error[seen]
    noise = float(np.median(error))
    names = LEARNED if wanted is None else (wanted,)
    catalogue = {name: _log_ratio(name) for name in names}
    fits = match(x, g, catalogue, ("softcap",))
    best = _simplest(fits, KERNEL.off_catalogue * noise)
    if best is not None:
        kernel = Kernel(best.name, best.parameter)
        # tau x is the score at x of the line: at most |tau|, and the sign of the line is in it.
        return Known(kernel, best.tau / span, math.inf, best.misfit)
    _require_room(reader, KERNEL.table_scores / (span * float(np.linalg.norm(a))), KERNEL.off_catalogue * noise)
    if wanted is not None:
        raise ModelMismatch(f"the kernel is not {wanted!r}: the table misses it by {fits[0].misfit:.2g}.")
    return _tabulated(x, g, span, len(x) == KERNEL.table_points, fits[0])


def _require_room(reader: Reader, strength: float, allowed: float) -> None:
    """Refuse a norm limit that leaves the second token a score which the table shows: no kernel fits the table then.

    It scores e^2 b'Wb, of about e^2 times the largest a'Wb of |a| = |b| = 1, `strength`; e is 30 over the limit.
    """
    own, limit = reader.e**2 * strength, reader.spec.domain.norm_limit
    if own > allowed and math.isfinite(limit):
        raise DomainError(
            f"tokens up to a norm of {limit:.2g} leave the token whose score is held at 0 a score of about {own:.1g}, "
            f"which hides the kernel; KernelHead needs max_norm = {limit * math.sqrt(own / allowed):.1g} here."
        )


def _log_ratio(name: str) -> Callable[[float | None], LogRatio]:
    def made(parameter: float | None) -> LogRatio:
        return Kernel(name, parameter if name == "softcap" else None).log_ratio

    return made


def _simplest(fits: list[Matched], allowed: float) -> Matched | None:
    """The best fit within the noise; one without a parameter before one with it, which can imitate it."""
    within = [fit for fit in fits if fit.misfit <= allowed]
    plain = [fit for fit in within if fit.parameter is None]
    return next(iter(plain or within), None)


def _span(reader: Reader, a: Array, b: Array) -> Asking[float]:
    """Length of the line at which scores are about `KERNEL.table_scores` times the slope at 0."""
    small = 2.0**-6
    g, _ = yield from reader.ask(np.stack([small * a, -small * a]), np.stack([b, b]), "table")
    slope = float(g[0] - g[1]) / (2 * small)
    if abs(g[0] - g[1]) < KERNEL.odd_over_even_part * abs(g[0] + g[1]):
        raise ModelMismatch(
            "the kernel is not monotone: scores of either sign weigh alike near 0, so a weight does not tell its score."
        )
    if not math.isfinite(slope) or slope == 0:
        raise NotIdentifiable("the kernel does not change along a line of scores; W may be 0.")
    return KERNEL.table_scores / abs(slope)


def _tabulated(x: Array, g: Array, span: float, whole: bool, nearest: Matched) -> Known:
    order = np.argsort(x, kind="stable")
    rising = np.diff(g[order]) * np.sign(g[order][-1] - g[order][0]) > 0
    if not rising.all():
        raise ModelMismatch(
            "the kernel is flat or not monotone along a line of scores, so a weight does not tell its score."
        )
    if not whole:
        raise ModelMismatch("the kernel is in no catalogue, and parts of its table cannot be read.")
    flip = 1.0 if g[order][-1] > g[order][0] else -1.0
    table, last = series(flip * x, g, 1.0)
    if last > KERNEL.last_coefficients * float(np.abs(g).max()):
        raise ModelMismatch(
            f"the kernel is in no catalogue (nearest: {nearest.name}, off by {nearest.misfit:.2g}) and its table of "
            f"{KERNEL.table_points} points does not settle (to {last:.1g}): it has a kink, or it depends on more than "
            "the score."
        )
    h = 1e-5
    zero = np.polynomial.chebyshev.chebval(np.array([-h, 0.0, h]), table)
    # The convention: l'(0) = 1. The line x is the score x / reach then.
    reach = float(zero[2] - zero[0]) / (2 * h)
    table[0] -= zero[1]
    kernel = Kernel("tabulated", reach, table)
    return Known(kernel, flip * reach / span, reach, last)
