"""What one-token queries tell, and the pair query F that everything about heads is read from.

Softmax heads do not see the order of the tokens before the last: a target that does is told at once.

Theory: docs/theory/multi-head.md, "Generic heads", ground.
Theory: docs/theory/multi-head.md, "Generic heads", where it stops.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from unsoftmax.errors import ModelMismatch, NotIdentifiable, OracleError
from unsoftmax.inversion import rounding_unit
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.heads.constants import HEADS
from unsoftmax.precision import ARITHMETIC
from unsoftmax.probes.base import Array, Probes, one_row
from unsoftmax.probes.scales import held, power_of_two
from unsoftmax.spec import INSIDE, OracleSpec


class Silent(NotIdentifiable):
    """All answers are rounding: f = 0."""


@dataclass(frozen=True, eq=False)
class Ground:
    """V = sum of all v_h (d,); `zero` (d,): value of the head with W = 0; `noise`: relative error of an answer.

    F(z, b, k) = sum_h (z.v_h) sigma(z'W_h b - log k) is the answer to n1 copies of z + b and n2 copies of b,
    k = n2/n1, less b.V. Tokens are sent as stretch z and b / stretch: the scores stay, b and any additive noise vanish
    beside z. `unit`: query tokens are sent shorter by this factor, and what is learned is unit W: a strong W would
    need z so short that it drowns in b. `axis` (d,): a direction of which every query token for W should have an equal
    share.
    """

    spec: OracleSpec
    V: Array
    noise: float
    stretch: float = HEADS.least_stretch
    unit: float = 1.0
    zero: Array | None = None
    axis: Array | None = None

    @property
    def dim(self) -> int:
        return len(self.V)

    def with_zero(self, value: Array) -> Ground:
        """The same ground with a head of W = 0 split off: F no longer shows it."""
        return replace(self, zero=value)

    def query(self, b: Array) -> Array:
        """The query token that is sent for b."""
        return held(b * (self.unit / self.stretch), self.spec.dtype)

    def tokens(self, z: Array, b: Array) -> Array:
        """[z + b ; b] stretched, (batch, 2, d), in numbers the target's format holds."""
        query = self.query(b)
        return np.stack([held(z * self.stretch + query, self.spec.dtype), np.broadcast_to(query, z.shape)], axis=1)

    def pairs(self, z: Array, b: Array, copies: Array | None = None, *, phase: str) -> Asking[Array]:
        """F (batch,) for z, b (batch, d); `copies` (batch, 2) are n1, n2 (default 1, 1)."""
        tokens = self.tokens(z, np.broadcast_to(b, z.shape))
        y = yield Probes(tokens, copies, phase)
        return self.shown(y, z, tokens[:, 1], copies)

    def shown(self, y: Array, z: Array, query: Array, copies: Array | None = None) -> Array:
        """F from answers y: the query token's own value and the head with W = 0 taken away."""
        F = (y - query @ self.V) / self.stretch
        if self.zero is None:
            return np.asarray(F)
        share = 0.5 if copies is None else copies[:, 0] / copies.sum(axis=1)
        return np.asarray(F - share * (z @ self.zero))


def read_ground(spec: OracleSpec, rng: np.random.Generator) -> Asking[Ground]:
    """d one-row queries for V, two more that must agree with them: their gap is the noise."""
    d = spec.dim
    # Where inputs are unbounded, additive noise is outscaled rather than averaged.
    length = power_of_two(min(max(1.0, spec.tolerance / spec.eps), spec.domain.norm_limit))
    y = yield one_row(np.eye(d) * length, phase="values")
    V = y / length
    largest = float(np.abs(V).max())
    if largest and not CORE.smallest_answer <= largest <= 1 / CORE.smallest_answer:
        raise OracleError(
            f"single tokens of length 1 answer {largest:.1g}, and squares of such numbers leave the range of float64; "
            "give an oracle whose answers are multiplied by a constant, and divide every v found by it."
        )
    x = rng.standard_normal((CORE.checks, d))
    x = held(x * (INSIDE * length / np.linalg.norm(x, axis=1, keepdims=True)), spec.dtype)
    y = yield one_row(x, phase="pilot")
    size, full = np.abs(x) @ np.abs(V), y
    gap = np.abs(y - x @ V)
    relative = float((gap / np.where(size > 0, size, 1.0)).max())
    if relative > HEADS.linear_gap or not size.any():
        # Values that add up to 0 leave rounding alone on single tokens; pairs tell how large answers are.
        full = yield Probes(np.stack([x, x[::-1]], axis=1), phase="pilot")
        size = np.maximum(size, np.abs(full).max())
        relative = float((gap / np.where(size > 0, size, 1.0)).max())
    # Whether values that cancel leave exact zeros hangs on the order in which the target adds them up.
    answers = max(float(size.max()), float(gap.max()))
    if answers <= 2 * spec.tolerance and spec.tolerance > ARITHMETIC * length:
        raise NotIdentifiable(
            f"no answer at tokens of length {length:g} is beyond the tolerance of {spec.tolerance:g}: whether there "
            "are heads at all cannot be told. Raise max_norm, or lower the tolerance."
        )
    if (relative > HEADS.linear_gap or not V.any()) and 0 < answers < ARITHMETIC * length:
        raise Silent(
            f"all answers are rounding alone, {answers:.1g} at tokens of length {length:g}: f = 0, as of heads whose "
            "values cancel, and no query shows a W."
        )
    if relative > HEADS.linear_gap * (1.0 if size.any() else 0.0) and gap.max() > 4 * spec.tolerance:
        raise ModelMismatch(
            f"one-token answers are not linear in the token (a random one is off by {relative:.2g} of its size); "
            "every sum of heads answers x.V there. There is a constant, a bias or a network: choose a wider class."
        )
    stretch = power_of_two(max(HEADS.least_stretch, spec.tolerance / spec.eps))
    # Two gaps may both be small by chance: answers to random tokens that a short format holds have its rounding.
    held_by = rounding_unit(full) if full.any() else 0.0
    return Ground(spec, V, max(spec.eps, relative, held_by), stretch)


def require_no_order(ground: Ground, length: float, rng: np.random.Generator) -> Asking[None]:
    """[x1, x2, q] and [x2, x1, q] must answer alike, for x1 and x2 of this length and some shorter q."""
    lengths = length * np.array([[1.0, 1.0, q] for q in HEADS.query_lengths])
    x = rng.standard_normal((*lengths.shape, ground.dim))
    tokens = held(np.asarray(x * (lengths / np.linalg.norm(x, axis=2))[:, :, None]), ground.spec.dtype)
    y = yield Probes(np.concatenate([tokens, tokens[:, [1, 0, 2]]]), phase="pilot")
    one, other = np.split(y, 2)
    size = np.maximum(np.abs(tokens @ ground.V).max(axis=1), np.maximum(np.abs(one), np.abs(other)))
    # Values that cancel leave rounding in some answers: every one is held against the largest per length of token.
    length = np.linalg.norm(tokens, axis=2).max(axis=1)
    size = length * float((size / length).max())
    gap = np.maximum(np.abs(one - other) - 2 * ground.spec.tolerance, 0.0)
    felt = float((gap / np.maximum(size, 1e-300)).max(initial=0.0))
    if felt > CORE.felt * ground.noise:
        raise ModelMismatch(
            f"swapping two tokens before the last changes an answer by {felt:.2g} of its size, and no sum of softmax "
            "heads sees their order: the target uses positions (a bias by distance, a window, rotated tokens)."
        )
