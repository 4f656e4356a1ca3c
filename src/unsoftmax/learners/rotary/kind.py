"""Which positions, sinks and window a layer has: a handful of sequences made of two or three different tokens.

[q] = [q, q, q] unless sinks take a share or positions are added to the tokens; [a, b, q] = [b, a, q] without
positions; [a, q, 0] = [q, a, 0] where positions act through the query (rotary without a query bias). Where [a, q, 0] is
answered by the mean of [a], [q] and [0], nothing but the query token weighs: neither sinks nor a query bias. Strong
scores leave one token all the weight, whatever the order: what does not show is asked again with tokens so short, below
the eps of a norm before the heads as well, that scores are weak. Tokens are outside the window if replacing them before
x = 0 changes nothing, and the last one inside has its share. ALiBi is told from rotary positions with a query bias
later, head by head: a block of tokens before x = 0, in both orders (`read_slopes`).

Theory: docs/theory/attention-layer.md, "Layers of language models", kind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from unsoftmax.errors import Code, ModelMismatch
from unsoftmax.inversion import rounding_unit
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.readable import SATURATED, Steps, find_scale
from unsoftmax.learners.rotary.constants import ROTARY
from unsoftmax.learners.rotary.weights import Reader, unread
from unsoftmax.precision import SHORT_FORMAT
from unsoftmax.probes.base import Array, Probes
from unsoftmax.probes.scales import on_grid, power_of_two
from unsoftmax.spec import OracleSpec

Order = Literal["none", "rotary", "bias"]


@dataclass(frozen=True)
class Kind:
    """order: "none", "rotary" (only through the query), "bias" (for x_N = 0 too: a bias per distance, or rotary
    positions with a bias of queries, which the weights of single heads tell apart). `window` None: not found."""

    order: Order
    sinks: bool
    window: int | None
    far: tuple[Array, Array] | None = field(default=None, compare=False, repr=False)
    """The longest sequence (1, N, d) that was asked for the window, and its answer (1, outputs)."""
    empty: Array | None = field(default=None, compare=False, repr=False)
    """The answer (outputs,) to x = 0 alone."""

    @property
    def reach(self) -> float:
        """Tokens that heads see at most, the last one included."""
        return np.inf if self.window is None else self.window


def ordered(spec: OracleSpec, rng: np.random.Generator) -> Asking[bool]:
    """Whether the order of two tokens before the last one changes the answer; two queries, and four where it does not
    show, before a shorter query token and of shorter tokens."""
    a, b, q = _tokens(spec, rng)[:3]
    y = yield Probes(np.stack([np.stack([a, b, q]), np.stack([b, a, q])]), phase="pilot")
    if not _same(y[0], y[1], y, spec):
        return True
    t = 2.0**-ROTARY.shorter_by
    short = [[a, b, t * q], [b, a, t * q], [t * a, t * b, q], [t * b, t * a, q]]
    weak = yield Probes(np.array(short), phase="pilot")
    return not (_same(weak[0], weak[1], y, spec) and _same(weak[2], weak[3], y, spec))


def beside_layer_norm(norm: str) -> ModelMismatch:
    """Why a layer with a LayerNorm "pre" or "post" attention is refused where order counts."""
    positions = "positions (scores that depend on distance, or vectors that are added to the tokens)"
    if norm == "pre":
        words = (
            f"{positions} behind a LayerNorm are not learned; several layers under a causal mask are (AttentionStack)"
        )
    else:
        words = f"{positions} before a LayerNorm are not learned: long tokens are answered within bounds, as by one"
    return ModelMismatch(words, code=Code.ORDER)


def find_kind(spec: OracleSpec, rng: np.random.Generator) -> Asking[Kind]:
    """Ten queries; up to ten more where weights before x = 0 are uneven, six where order does not show at first, and
    one for every halving where there is a window."""
    a, b, q, other = _tokens(spec, rng)
    zero = np.zeros(spec.dim)
    single = yield Probes(np.stack([q, zero, a])[:, None], phase="pilot")
    triples = [[zero, zero, zero], [a, q, zero], [a, b, q], [b, a, q]]
    y = yield Probes(np.array(triples), phase="pilot")
    seen = _Seen(spec, np.vstack([single, y]))
    if not seen.same(single[1], y[0]):
        raise ModelMismatch(
            "empty sequences [0] and [0, 0, 0] answer differently: positions are added to the tokens (learned or "
            "sinusoidal embeddings), or sinks take a share of a value bias. Neither is learned here; subtract the "
            "positions before the layer, or remove the bias."
        )
    turned, before, sinks, biased = not seen.same(y[2], y[3]), q, False, False
    even = _even(single, y[1], a + q, seen)
    if not even:
        more = yield Probes(np.array([[q, q, q], [q, a, zero]]), phase="pilot")
        sinks, biased = not seen.same(single[0], more[0]), not seen.same(y[1], more[1])
        biased = biased or (yield from seen.apart(lambda t: ([t * a, t * q, zero], [t * q, t * a, zero]))) is not None
        if not sinks:
            few = 2.0**-ROTARY.shorter_copies * q
            alone = yield Probes(few[None, None], phase="pilot")
            copies = yield Probes(np.stack([few] * 3)[None], phase="pilot")
            sinks = not seen.same(alone, copies)
    if not turned and not biased:
        t = yield from seen.apart(lambda t: ([a, b, t * q], [b, a, t * q]))
        turned, before = t is not None, q if t is None else t * q
    near = not seen.same(y[1], single[1])
    window = yield from _window(a, other, seen, even=even, fading=biased, near=near)
    far = yield from _longest(np.stack([a, b, before]), spec)
    return Kind("bias" if biased else "rotary" if turned else "none", sinks, window, far, single[1])


@dataclass(frozen=True, eq=False)
class _Seen:
    """The first answers (n, outputs), by whose size others are the same or not."""

    spec: OracleSpec
    answers: Array

    def same(self, u: Array, v: Array) -> bool:
        return _same(u, v, self.answers, self.spec)

    def apart(self, pair: Callable[[float], tuple[list[Array], list[Array]]]) -> Asking[float | None]:
        """The factor on tokens at which two sequences answer most differently; None if they answer alike at all."""
        lengths = [2.0 ** -(ROTARY.shorter_by * k) for k in range(1, ROTARY.shorter_lengths + 1)]
        left, right = zip(*map(pair, lengths), strict=True)
        y = yield Probes(np.array(left), phase="pilot")
        z = yield Probes(np.array(right), phase="pilot")
        moved = np.abs(y - z).max(axis=1)
        most = int(np.argmax(moved))
        return None if self.same(y[most], z[most]) else lengths[most]


def _even(single: Array, answer: Array, kept: Array, seen: _Seen) -> bool:
    """Whether [a, q, 0] is answered by the mean of [q], [0] and [a] (`single`), beside a residual or none."""
    mean = single.mean(axis=0)
    return seen.same(mean, answer) or (len(mean) == len(kept) and seen.same(mean - kept / 3, answer))


def _longest(abq: Array, spec: OracleSpec) -> Asking[tuple[Array, Array]]:
    """The longest sequence that is asked, of copies of a far away and of b near, and its answer."""
    far = _farthest(spec)
    tokens = np.repeat(abq, [far - far // 2, far // 2, 1], axis=0)[None]
    return tokens, (yield Probes(tokens, phase="pilot"))


def _farthest(spec: OracleSpec) -> int:
    """Distance up to which windows are looked for."""
    return int(min(spec.domain.length_limit, ROTARY.farthest_window + 1)) - 1


def _window(a: Array, other: Array, seen: _Seen, *, even: bool, fading: bool, near: bool) -> Asking[int | None]:
    """The least distance from which on tokens are not seen before x = 0, or None; `near`: whether two next to it are.

    Where weights before x = 0 are uneven, a token may be too weak beside others to be seen: an end that is none is
    looked for again among shorter tokens.
    """
    suspected: int | None = None
    for k in range(1 if even else ROTARY.shorter_lengths + 1):
        t = 2.0 ** -(ROTARY.shorter_by * k)
        ends, found = yield from _end(t * a, t * other, seen, suspected, fading=fading, near=near)
        if ends:
            return found
        if found == suspected:
            break
        suspected = found
    return None


def _end(
    a: Array, other: Array, seen: _Seen, suspected: int | None, *, fading: bool, near: bool
) -> Asking[tuple[bool, int | None]]:
    """Where copies of a are seen no more before x = 0, by bisection, and whether that is an end: one token more changes
    the answer by its share of all. Where slopes may fade tokens out, it must be abrupt.

    Where tokens `suspected` far away, which longer ones had not been seen from, are not seen either, that is all.
    """
    far, limit = _farthest(seen.spec), _limit(seen.answers, seen.spec)
    tokens = np.vstack([np.repeat(a[None], far, axis=0), np.zeros_like(a)])
    base = yield Probes(tokens[None], phase="pilot")

    def change(distance: int) -> Asking[float]:
        """By which all tokens that far away and farther change the answer."""
        moved = tokens.copy()
        moved[: far + 1 - distance] = other
        return float(np.abs((yield Probes(moved[None], phase="pilot")) - base).max())

    low, high, distance, last = 0, far, far, 0.0
    if suspected is not None and (yield from change(suspected)) <= limit:
        return False, suspected
    while True:
        moved = yield from change(distance)
        if moved <= limit:
            high = distance
        elif distance == far:
            return True, None
        else:
            low, last = distance, moved
            if fading and last <= ROTARY.abrupt * limit:
                return False, high
        if high - low <= 1:
            break
        # Windows are found by their size; the last steps, within a factor, by halves.
        middle = np.sqrt(max(low, 1) * high) if high > ROTARY.halved_ratio * low else (low + high) / 2
        distance = min(max(int(middle), low + 1), high - 1)
    if low == 0:
        # Tokens that are seen beside one other, and none among hundreds, are behind no window.
        return not near, high
    share = last * low / (last if low == 1 else (yield from change(1)))
    most = ROTARY.uneven_share if fading else ROTARY.even_share
    return share <= most and (fading or share * most >= 1), high


def _tokens(spec: OracleSpec, rng: np.random.Generator) -> Array:
    size = power_of_two(min(1.0, 0.1 * spec.domain.norm_limit / np.sqrt(spec.dim)))
    return on_grid(rng.standard_normal((4, spec.dim)).clip(-3, 3) * size, 16 * size, spec.dtype)


def _same(u: Array, v: Array, answers: Array, spec: OracleSpec) -> bool:
    return float(np.abs(u - v).max()) <= _limit(answers, spec)


def _limit(answers: Array, spec: OracleSpec) -> float:
    """Difference of answers up to which they are the same."""
    size = float(np.abs(answers).max())
    # Answers that fit into a narrower format than the declared one are rounded to it.
    noise = max(spec.eps, rounding_unit(answers), spec.tolerance / max(size, 1e-300))
    return min(ROTARY.same_roundings * noise if noise < SHORT_FORMAT else 100 * noise, 1e-2) * size


def read_slopes(reader: Reader, m: int, rng: np.random.Generator) -> Asking[Array | None]:
    """Slopes (H,) if turning a block of m tokens around changes the logs of its weights by a slope per step alone.

    Three queries, and three for every halving where a bias of queries scores too strongly. Under a slope, log alpha_i -
    log alpha_j changes by slope times the change of distances, whatever the tokens are; a rotation acts on them. Turned
    around, two or three tokens agree with any bias per distance: moved two steps away, they agree with a slope alone.
    None if it is no slope.
    """
    block, seen = reader.block(m, rng), list[Sequence[Array]]()

    def look(scale: float) -> Asking[float]:
        seen.append((yield from _turned_around(reader, scale * block, "repair" if seen else "pilot")))
        least = min(weights.min() for weights in seen[-1])
        return 1.0 if least > ROTARY.small_weight * reader.scene.limits.readable else SATURATED

    yield from find_scale(look, 1.0, Steps(shorter=0.5, looks=ROTARY.shrinks))
    there, back, away = seen[-1]
    least = float(min(there.min(), back.min(), away.min()))
    if least <= 0:
        raise unread(reader, least, "before x = 0")
    there, back, away = np.log(there), np.log(back), np.log(away)
    change = (there - back) - (there - back).mean(axis=1, keepdims=True)
    # Token i stands m - i away, and i + 1 away when the block is turned around.
    steps = np.arange(1, m + 1) - np.arange(m, 0, -1)
    slopes = change @ steps / (steps @ steps)
    moved = away - there
    left = max(*map(np.linalg.norm, (change - np.outer(slopes, steps), moved - moved.mean(axis=1, keepdims=True))))
    return np.asarray(slopes) if left <= reader.scene.limits.slope * np.linalg.norm(change) + known(reader) else None


def known(reader: Reader) -> float:
    """Error of the logs of weights read last, by that of what heads write."""
    return max(reader.scene.noise, reader.error) * max(log for _, log in reader.gain[-3:])


def _turned_around(reader: Reader, block: Array, phase: str) -> Asking[tuple[Array, Array, Array]]:
    """Weights (H, m) of a block (m, d) before x = 0, token by token: as it is, turned around, and two steps away."""
    m, zero = len(block), np.zeros((1, reader.scene.dim))
    z = np.stack([np.vstack([block, zero]), np.vstack([block[::-1], zero])])
    near = yield from reader.before_quiet(z, m, phase)
    away = yield from reader.before_quiet(np.vstack([block, zero, zero, zero])[None], m, phase)
    return near[0], near[1][:, ::-1], away[0]
