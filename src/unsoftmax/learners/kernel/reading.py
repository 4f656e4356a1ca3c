"""One pair of tokens reads log kappa(a'Wb) / kappa(0): [a/e + e b ; e b] with a tiny e, so the second score is 0.

Theory: docs/theory/kernels.md, "Other kernels than the exponential", method.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from unsoftmax.errors import DomainError, ModelMismatch, NotIdentifiable
from unsoftmax.inversion import decimal_error, rounding_unit
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.kernel.constants import KERNEL
from unsoftmax.precision import EPS, HALF_DIGITS
from unsoftmax.probes.base import Array, Probes
from unsoftmax.spec import OracleSpec


@dataclass(frozen=True, eq=False)
class Reader:
    """v (as kappa(0) v where weights are not normalised), the rounding of the answers, e, and all answers so far."""

    spec: OracleSpec
    v: Array
    normalised: bool
    unit: float
    noise: float
    e: float
    seen: list[Array] = field(default_factory=list)

    def ask(self, a: Array, b: Array, phase: str) -> Asking[tuple[Array, Array]]:
        """log kappa(a'Wb) / kappa(0) (n,) for rows a, b (n, d), and the error of each; NaN where it cannot be read."""
        X = np.stack([a / self.e + self.e * b, self.e * b], axis=1)
        y = yield Probes(X, phase=phase)
        self.seen.append(y)
        noise = self._noise()
        av = (X[:, 0] - X[:, 1]) @ self.v
        second = X[:, 1] @ self.v
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            if self.normalised:
                low, high = (y - second) / av, (av + second - y) / av
                value = np.where((low > 0) & (high > 0), np.log(low) - np.log(high), np.nan)
                gain = 1 / (low * high)
            else:
                ratio = (y - second) / (X[:, 0] @ self.v)
                value, gain = np.where(ratio > 0, np.log(ratio), np.nan), 1 / np.abs(ratio)
            size = np.abs(av) * self.unit * np.sqrt(self.spec.dim) + noise
            return np.asarray(value), np.asarray(np.where(np.isnan(value), np.inf, gain * size / np.abs(av)))

    def _noise(self) -> float:
        """The tolerance declared; decimals that show in a dozen answers and were not declared are refused.

        Long tokens read through them, but fresh queries of ordinary length could not be told from another target's.
        """
        decimals = decimal_error(np.concatenate(self.seen))
        exact = self.unit <= float(np.finfo(np.float64).eps)
        if exact and decimals > max(1.01 * self.noise, HALF_DIGITS * float(np.linalg.norm(self.v))):
            raise NotIdentifiable(
                f"answers are rounded to decimals, by up to {decimals:.0e}, which leaves nothing for fresh queries to "
                f"confirm at full precision; declare tolerance={decimals:.0e} and the head is learned to that."
            )
        return self.noise


def start(spec: OracleSpec) -> Asking[Reader]:
    """Are weights normalised? And v, from tokens alone."""
    room = spec.domain.norm_limit
    if room < KERNEL.least_norm_limit:
        raise DomainError(
            f"KernelHead needs tokens up to a norm of {KERNEL.least_norm_limit:g} to hold one score at 0 while it "
            "reads another, "
            f"and max_norm is {room:g}; with a known exponential kernel use SingleHead."
        )
    d = spec.dim
    e = max(KERNEL.second_token, 30.0 / room)
    # Long tokens beside a query token without a score: answers of few decimals show v as well as exact ones.
    tokens, q = np.eye(d) / e, np.full(d, EPS * e / np.sqrt(d))
    once = np.stack([tokens, np.broadcast_to(q, (d, d))], axis=1)
    y = yield Probes(once, phase="values")
    both = yield Probes(once[[0, -1]][:, [0, 0, 1]], phase="pilot")
    size, noise = float(np.abs(y).max()), spec.tolerance
    if size <= noise or size == 0 or not np.isfinite(y).all():
        raise NotIdentifiable(f"tokens of length {1 / e:.2g} are answered with 0, or within the tolerance: v = 0.")
    unit = max(spec.eps, rounding_unit(np.concatenate([y, both])))
    ends = y[[0, -1]]
    share = float(both @ ends) / max(float(ends @ ends), 1e-300)
    allowed = KERNEL.repeated_token_off + 1e3 * (unit + noise / max(float(np.abs(ends).max()), 1e-300))
    normalised = abs(share - 4 / 3) < abs(share - 2)
    if not abs(share - (4 / 3 if normalised else 2)) <= min(allowed, 0.3):
        raise ModelMismatch(
            f"a token asked twice is answered {share:.4g} times as large: neither normalised weights (4/3) nor their "
            "plain sum (2); a sink, a network or a constant stands beside."
        )
    return Reader(spec, y * e * (2 if normalised else 1), normalised, unit, noise, e, [y, both])
