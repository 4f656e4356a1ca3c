"""Flips anywhere: where the heads found so far expect labels to flip these are bisected, and the exact model is fitted.

A ruler for labels: a token is weighed against copies of one along V = sum_h v_h, under a query token near 0.

In [L x ; (t L / n) V, n copies ; q / L] the copies have scores t V'W_h q / n, nearly 0, so n f = L (G(x, q) + t) up to
1 / n: the label flips at t = -G, G(x, q) = sum_h exp(x'W_h q) x.v_h (in units of |V|). At the flip f is exactly 0,
whatever n is: a record with a known answer.

Theory: docs/theory/membership.md, "Several heads".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from unsoftmax import theory
from unsoftmax.errors import ModelMismatch, NotIdentifiable
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.labels.asking import Direction, Labels, halved
from unsoftmax.learners.labels.constants import LABELS
from unsoftmax.probes.base import Array, Probes
from unsoftmax.probes.scales import held, power_of_two
from unsoftmax.solvers.bisection import Brackets
from unsoftmax.solvers.heads_fit import Data, answers, gauss_newton, levenberg, linearised


@dataclass(frozen=True, eq=False)
class Ruler:
    """V (d,) unit; `length` L of tokens x of length 1; `copies` n; number format of the tokens as sent."""

    V: Array
    length: float
    copies: int
    dtype: str

    @property
    def heaviest(self) -> float:
        """Largest weight |G| that is read, a power of two."""
        return float(2.0 ** np.floor(np.log2(self.copies / LABELS.crowd)))

    def tokens(self, x: Array, q: Array, t: Array) -> Array:
        """Sequences (k, 3, d) as sent."""
        ruler = (t * (self.length / self.copies))[:, None] * self.V
        made = np.stack([x * self.length, ruler, q / self.length], axis=1)
        return held(made, self.dtype)

    def counts(self, k: int) -> Array:
        return np.tile(np.array([1, self.copies, 1], dtype=np.int64), (k, 1))

    def probes(self, x: Array, q: Array, t: Array, phase: str) -> Probes:
        return Probes(self.tokens(x, q, t), self.counts(len(x)), phase=phase)

    def weight(self, q: Array, t: Array) -> Array:
        """G (k,) from flips at t: the query token itself has a value too."""
        return np.asarray(-t - (q @ self.V) / self.length**2)

    def record(self, x: Array, q: Array, t: Array) -> Data:
        """Flips as sequences whose answer is 0."""
        return Data(self.tokens(x, q, t), self.counts(len(x)), np.zeros(len(x)))

    def slope(self) -> float:
        """df/dt, to 1 / n."""
        return self.length / self.copies


@dataclass(frozen=True, eq=False)
class Flips:
    """Where labels flip: t (k,), its bracket's half width, and whether a flip was found in range."""

    t: Array
    radius: Array
    found: Array


@dataclass(frozen=True, eq=False)
class Heads:
    """W (H, d, d) and v (H, d) as found, in units of |sum_h v_h|, with the errors (Frobenius, all heads) they have."""

    W: Array
    v: Array
    W_error: float = math.inf
    v_error: float = math.inf


@dataclass(frozen=True, eq=False)
class Scene:
    """What every step knows: V and its error, the size `scale` of |x| |q| at which scores are about 1/2."""

    labels: Labels
    direction: Direction
    scale: float = 1.0

    @property
    def dim(self) -> int:
        return self.labels.spec.dim

    def copies(self, wanted: int) -> int:
        return int(min(wanted, self.labels.spec.domain.length_limit - 2))

    def ruler(self, copies: int) -> Ruler:
        spec = self.labels.spec
        length = min(2.0**20 * math.sqrt(self.scale), spec.domain.norm_limit / 4)
        return Ruler(self.direction.v, power_of_two(length), self.copies(copies), spec.dtype)

    def units(self, *shape: int) -> Array:
        u = self.labels.rng.standard_normal((*shape, self.dim))
        return np.asarray(u / np.linalg.norm(u, axis=-1, keepdims=True))

    def valued(self, count: int) -> Array:
        """Unit tokens (count, d) half of whose square is along V: their weight is nowhere near 0 without scores."""
        V, x = self.direction.v, self.units(count)
        x = x - (x @ V)[:, None] * V
        size = np.linalg.norm(x, axis=1, keepdims=True)
        x = np.divide(x, size, out=np.zeros_like(x), where=size > 1e-9)
        x = x + V
        return np.asarray(x / np.linalg.norm(x, axis=1, keepdims=True))

    def data(self, ruler: Ruler, x: Array, q: Array, t: Array, radius: Array) -> tuple[Data, Array]:
        """Flips at t (k,), each within a radius, and what single tokens said; and the errors of all."""
        gauge, noise = self._gauge(float(np.median(radius)))
        flips = ruler.record(x, q, t)
        return flips.joined(gauge), np.concatenate([radius * ruler.slope() / math.sqrt(3), noise])

    def _gauge(self, noise: float) -> tuple[Data, Array]:
        """What single tokens said, and its errors: f([V]) = 1 is the unit, f([o]) = 0 across V as far as V is known.

        Errors are at least `noise`, that of the flips beside these: least squares lose what is known far better.
        """
        V = self.direction.v
        rows = np.vstack([V[None], np.linalg.svd(V[None])[2][1:]])
        y = np.eye(self.dim)[0]
        errors = np.full(self.dim, max(self.direction.error, noise, self.labels.spec.eps))
        return Data(rows[:, None, :], np.ones((self.dim, 1), dtype=np.int64), y), errors


def refined(scene: Scene, rough: Heads, accuracy: float) -> Asking[Heads]:
    """Flips anywhere, expected by the rough heads, bisected until every W_h and v are within `accuracy`."""
    H, d = rough.v.shape
    ruler = scene.ruler(LABELS.ruler_copies)
    x, q, t, size = _expected(scene, ruler, rough, theory.membership_flips(d, H))
    brackets = yield from surround(ruler, x, q, t, LABELS.first_bracket * size, "repair")
    kept = np.flatnonzero(np.isfinite(brackets.radius))
    if len(kept) < (1 - LABELS.lost_flips) * len(x):
        raise ModelMismatch(
            f"{len(x) - len(kept)} of {len(x)} labels do not flip where heads fitted to other labels say: the target "
            f"is no sum of {H} heads."
        )
    x, q, size, brackets = x[kept], q[kept], size[kept], brackets.take(kept)
    bits, phase = theory.membership_flip_bits(accuracy), "main"
    while True:
        # f grows with t: a label of 1 says that the flip is below.
        brackets = yield from halved(brackets, bits, partial(ruler.probes, x, q, phase=phase), np.logical_not)
        found = _fitted(scene, ruler, rough, x, q, brackets)
        beyond = _beyond(found, accuracy)
        if beyond <= 1:
            return found
        if np.median(brackets.radius / size) < 4 * scene.labels.spec.eps:
            raise NotIdentifiable(
                f"the accuracy asked for is hidden by rounding of the labels: an accuracy about {beyond:.1g} times "
                "coarser is in reach."
            )
        bits, phase = math.ceil(math.log2(beyond)), "repair"


def _expected(scene: Scene, ruler: Ruler, heads: Heads, count: int) -> tuple[Array, Array, Array, Array]:
    """Tokens x and q (count, d), flips t that the heads expect and the sum of the heads' sizes there (count,)."""
    drawn = 3 * count
    x = scene.units(drawn)
    q = scene.units(drawn) * (scene.scale * scene.labels.rng.uniform(0.3, 3.0, (drawn, 1)))
    parts = np.exp(np.einsum("kd,hde,ke->kh", x, heads.W, q)) * np.abs(x @ heads.v.T)
    size = parts.sum(axis=1)
    # Weights far below the heaviest, of tokens that no head answers with a large score.
    kept = np.flatnonzero(size < ruler.heaviest / 4)[:count]
    x, q, size = x[kept], q[kept], size[kept]
    t = -np.einsum("kh,kh->k", np.exp(np.einsum("kd,hde,ke->kh", x, heads.W, q)), x @ heads.v.T)
    for _ in range(6):
        f = answers(heads.W, heads.v, ruler.tokens(x, q, t), ruler.counts(len(x)))
        t = t - f / ruler.slope()
    return x, q, t, size


def _fitted(scene: Scene, ruler: Ruler, start: Heads, x: Array, q: Array, brackets: Brackets) -> Heads:
    """Heads fitted to all flips, with their standard errors; refused if the flips contradict them.

    The root mean square of residuals over their expected size is 1 for the right model.
    """
    data, noise = scene.data(ruler, x, q, brackets.center, brackets.radius)
    W, v, _ = levenberg(start.W, start.v, data, noise, damping=1e-4)
    W, v = gauss_newton(W, v, data, noise)
    y, J, rounding = linearised(W, v, data.tokens, data.copies)
    # A target of a shorter format rounds as much more.
    sigma = np.hypot(rounding * (scene.labels.spec.eps / 2.0**-52), noise)
    rms = float(np.sqrt(np.mean(((y - data.y) / sigma) ** 2)))
    if not rms <= CORE.deviations_of_a_radius:
        raise ModelMismatch(
            f"{len(x)} sequences where the label flips contradict every sum of {len(v)} heads, by {rms:.1g} times what "
            "their brackets leave."
        )
    left = np.linalg.pinv(J / sigma[:, None])
    variance = np.einsum("ij,ij->i", left, left)
    W_error, v_error = (math.sqrt(part.sum()) for part in (variance[: W.size], variance[W.size :]))
    return Heads(W, v, CORE.deviations_of_a_radius * W_error, CORE.deviations_of_a_radius * v_error)


def _beyond(heads: Heads, accuracy: float) -> float:
    """The stated error over the one asked for."""
    size = np.linalg.norm(heads.W, axis=(1, 2))
    smallest = float(max(size.min(), LABELS.feeble_head * size.max()))
    return max(heads.W_error / (accuracy * smallest), heads.v_error / (accuracy * float(np.linalg.norm(heads.v))))


def weigh(ruler: Ruler, x: Array, q: Array, bits: int, phase: str) -> Asking[Flips]:
    """Flips for tokens x (k, d) under q (k, d), to `bits` bits of each: 6 + bits labels each, 6 + bits rounds.

    Labels place a weight between two powers of two first.
    """
    k, top = len(x), np.log2(ruler.heaviest)
    answers = yield ruler.probes(x, q, np.zeros(k), phase)
    sign = np.where(answers > 0.5, -1.0, 1.0)

    def heavier(labels: Array) -> Array:
        return np.asarray(labels == (sign < 0))

    exponents = Brackets.between(k, top - LABELS.binades_of_weights, top)
    exponents = yield from halved(
        exponents,
        math.ceil(math.log2(LABELS.binades_of_weights)),
        lambda level: ruler.probes(x, q, sign * 2.0**level, phase),
        heavier,
    )
    found = exponents.hi < top
    low = np.where(exponents.lo > top - LABELS.binades_of_weights, 2.0**exponents.lo, 0.0)
    size = Brackets.between(k, low, 2.0**exponents.hi)
    size = yield from halved(size, bits, lambda level: ruler.probes(x, q, sign * level, phase), heavier)
    return Flips(sign * size.center, size.radius, found)


def surround(ruler: Ruler, x: Array, q: Array, t: Array, width: Array, phase: str) -> Asking[Brackets]:
    """Brackets around expected flips t +- width, widened eight times where the labels say so; empty ones are open."""
    found = Brackets.open(len(t), 1.0)
    for _ in range(4):
        below, above = np.flatnonzero(np.isinf(found.lo)), np.flatnonzero(np.isinf(found.hi))
        index = np.concatenate([below, above])
        if len(index) == 0:
            break
        level = np.concatenate([(t - width)[below], (t + width)[above]])
        answers = yield ruler.probes(x[index], q[index], level, phase)
        found = found.told(index, level, answers < 0.5)
        width = np.where(np.isinf(found.radius), 8 * width, width)
    return Brackets.between(len(t), found.lo, found.hi)
