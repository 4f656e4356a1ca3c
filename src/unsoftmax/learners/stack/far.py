"""Frozen contexts: what all heads of all layers add to a long last token.

Context tokens of 2^60 keep their normalised direction in every layer, whatever is added to them, causal or not. The
last token has length lambda: it is turned by O(1/lambda). At lambda -> infinity the stack is one wide layer of all its
heads, plus a function of the last token alone, which is what the last token answers by itself.

Theory: docs/theory/stacks.md, "A deep pre-norm stack".
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.stack.constants import STACK
from unsoftmax.learners.stack.frame import Frame
from unsoftmax.probes.base import Array, Probes
from unsoftmax.probes.scales import held, weights_at_infinity
from unsoftmax.probes.slices import Slice, slice_across
from unsoftmax.probes.sphere import sphere
from unsoftmax.solvers.logit_fit import LogitFit, fit_logits, fit_smooth
from unsoftmax.solvers.stack_heads import Contexts

ONE_LENGTH = {"float64": (2.0**27,), "float32": (2.0**9, 2.0**10, 2.0**11)}
"""lambda where single tokens answer affinely: rounding (lambda eps) and the rest (1/lambda) are both 1e-8; float32 has
no such length, and three are extrapolated."""

EXTRAPOLATED = {"float64": (2.0**13, 2.0**14, 2.0**15), "float32": (2.0**9, 2.0**10, 2.0**11)}
"""lambda for extrapolation in 1/lambda: three lengths leave 1e-11 of rounding and 1e-12 of the rest."""


@dataclass(eq=False)
class Far:
    """Asks contexts at one set of lengths and extrapolates; `alone` is the affine map of single tokens or None."""

    frame: Frame
    lengths: tuple[float, ...]
    rng: np.random.Generator
    """What all draws of a run come from."""
    alone: Array | None = None
    data: list[Contexts] = field(default_factory=list)
    """All that was asked with `written`, for Gauss-Newton."""
    places: bool = False
    """Whether every place of a sequence adds a vector of its own: last tokens are then asked for themselves behind as
    many of themselves, which attend to nothing else, at the same place."""
    whole: bool = False
    """Whether heads are of use only where they can be polished, constants and all."""

    @property
    def noise(self) -> float:
        """Rounding of what is written, absolute: a few units in the last place of lambda."""
        return float(4 * self.frame.unit * (np.abs(weights_at_infinity(self.lengths)) * self.lengths).sum())

    @property
    def clear(self) -> float:
        """Misfit, absolute and per number, of heads that are right: rounding and the terms in 1/lambda. Of float32
        rounding alone shows, a seventh of its bound."""
        return 10 * self.noise if self.frame.dtype == "float64" else self.noise

    @property
    def near(self) -> float:
        """Misfit of heads that are a good start: a network's kink (ReLU) near a token costs more than rounding."""
        return max(self.clear, STACK.misfit_of_a_kink) if self.networks else self.clear

    @property
    def rough(self) -> float:
        """Misfit with which heads may still be a start for Gauss-Newton."""
        return min(1e4 * self.noise, 1e-2)

    def floor(self, size: float) -> float:
        """Relative singular value of answers of this size below which noise may lie."""
        return min(max(1e-4, 100 * self.noise / max(size, 1e-300)), 0.03)

    @property
    def networks(self) -> bool:
        """Whether single long tokens answer with more than attention alone can."""
        return self.alone is None

    @property
    def outputs(self) -> int:
        """Numbers of an answer."""
        return self.frame.outputs

    def displacement(self, size: float) -> Array:
        """delta (D,) at random, of `size` radii."""
        return np.asarray(size * self.frame.radius * sphere(self.rng, (self.frame.D,)))

    def directions(self, m: int) -> Array:
        """Last tokens (m, D) at random."""
        return np.asarray(self.frame.radius * sphere(self.rng, (m, self.frame.D)))

    def contexts(self, m: int, tokens: int = STACK.frozen_tokens) -> tuple[Array, Array]:
        """Directions (m, tokens, D) of frozen tokens and counts (m, tokens) of one or two, at random."""
        others = self.frame.radius * sphere(self.rng, (m, tokens, self.frame.D))
        return others, self.rng.integers(1, 3, (m, tokens))

    def cut(self, delta: Array, directions: Array | None = None) -> Slice:
        """All q for which q and q + delta are on the sphere, or those in the span of delta and `directions`."""
        return slice_across(delta, self.frame.radius, directions)

    def fit(self, theta: Array, F: Array, log_k: Array, Y: Array) -> LogitFit:
        """Logits of all heads at one displacement from those near by; kinks are looked for where networks are."""
        if self.networks:
            return fit_smooth(theta, F, log_k, Y, self.clear)
        return fit_logits(theta, F, log_k, Y)

    def ask(self, q: Array, others: Array, counts: Array, length: Array | float, phase: str) -> Asking[Array]:
        """What is added (B, outputs) to last tokens length * q (B, D) behind others (B, N, D), copies (B, N)."""
        length = np.broadcast_to(np.asarray(length, float), len(q))
        y, last = yield from self.answers(q, others, counts, length, phase)
        return self.frame.added(y, q, last, length)

    def answers(self, q: Array, others: Array, counts: Array, length: Array, phase: str) -> Asking[tuple[Array, Array]]:
        """The same as it is answered (B, d), and the last tokens (B, d)."""
        frame, B = self.frame, len(q)
        last = length[:, None] * frame.tokens(q)
        if frame.dtype == "float32":
            last = held(last)
        tokens = np.concatenate([frame.frozen * frame.tokens(others), last[:, None]], axis=1)
        y = yield Probes(tokens, np.column_stack([counts, np.ones(B, np.int64)]), phase)
        return y, last

    def at(self, lengths: tuple[float, ...], q: Array, others: Array, counts: Array, phase: str) -> Asking[Array]:
        """What is added (k, B, outputs) at each of k lengths, all in one round."""
        k, B = len(lengths), len(q)
        tokens = np.tile(q, (k, 1)), np.tile(others, (k, 1, 1)), np.tile(counts, (k, 1))
        y = yield from self.ask(*tokens, np.repeat(lengths, B), phase)
        return y.reshape(k, B, -1)

    def limit(self, q: Array, others: Array, counts: Array, phase: str) -> Asking[Array]:
        """The same at lambda -> infinity."""
        y = yield from self.at(self.lengths, q, others, counts, phase)
        return np.tensordot(weights_at_infinity(self.lengths), y, axes=1)

    def written(self, q: Array, others: Array, counts: Array, phase: str = "main") -> Asking[Array]:
        """What the heads add because of the context: (B, d), the last token's answer alone taken off."""
        y = yield from self.limit(q, others, counts, phase)
        if self.alone is not None:
            y = y - np.column_stack([np.ones(len(q)), q]) @ self.alone
        else:
            before = counts.sum(axis=1) if self.places else np.zeros(len(q))
            asked, back = np.unique(np.column_stack([before, q]), axis=0, return_inverse=True)
            copies = asked[:, : int(self.places)].astype(np.int64)
            own = yield from self.limit(asked[:, 1:], asked[:, None, 1:][:, : int(self.places)], copies, phase)
            y = y - own[back.ravel()]
        self.data.append(Contexts(q, others, np.log(counts), y, np.full(len(q), np.inf)))
        return y

    def pairs(self, q: Array, delta: Array, copies: Array, phase: str = "main") -> Asking[Array]:
        """copies (B, 2) of q + delta and, last included, of q: sum_h sigma(t_h - log k) P_h delta at their ratio k."""
        others = np.stack([q + delta, q], axis=1)
        return (yield from self.written(q, others, copies - [0, 1], phase))


def find_far(frame: Frame, rng: np.random.Generator) -> Asking[Far]:
    """D + 3 single long tokens, phase "values": affine if there are only heads, and then never asked again.

    Behind a final norm they are not affine in any case, and every q is asked alone; with positions that are added to
    the tokens, at each place.
    """
    D = frame.D
    places = yield from _find_places(frame)
    if frame.final is not None or places:
        return Far(frame, EXTRAPOLATED[frame.dtype], rng, places=places)
    far = Far(frame, ONE_LENGTH[frame.dtype], rng)
    q = far.directions(D + 1 + CORE.checks)
    none = np.zeros((len(q), 0))
    y = yield from far.limit(q, none.reshape(len(q), 0, D), none.astype(np.int64), "values")
    F = np.column_stack([np.ones(len(q)), q])
    alone = np.linalg.lstsq(F, y, rcond=None)[0]
    size = float(np.sqrt(np.mean(y**2)))
    misfit = float(np.abs(F @ alone - y).max())
    floor = 1e-2 if frame.dtype == "float32" else STACK.nothing_written
    if size == 0 or misfit <= floor * max(size, 1e-3):
        return Far(frame, far.lengths, rng, alone)
    return Far(frame, EXTRAPOLATED[frame.dtype], rng)


def _find_places(frame: Frame) -> Asking[bool]:
    """Whether three copies of a token are not answered as one is, phase "pilot": their places add something."""
    x, y = frame.one
    three = yield Probes(x[None, None], np.array([[3]]), "pilot")
    return frame.differ(three[0], y)


def may_change_places(far: Far) -> Asking[bool]:
    """Whether two frozen tokens may change places, phase "pilot": under a causal mask too, but not where scores depend
    on places. Behind frozen tokens an ordinary last one is answered to all digits, and may hang on no order at all."""
    a, b, q = far.frame.radius * sphere(far.rng, (3, far.frame.D))
    others = np.stack([np.stack([a, b]), np.stack([b, a])])
    y, _ = yield from far.answers(np.stack([q, q]), others, np.ones((2, 2), np.int64), np.ones(2), "pilot")
    return float(np.abs(y[0] - y[1]).max()) <= CORE.felt * far.frame.unit * float(np.abs(y).max())
