"""Which positions, sinks and window a layer has: a handful of sequences made of two or three different tokens.

[q] = [q, q, q] unless sinks take a share or positions are added to the tokens; [a, b, q] = [b, a, q] without
positions; [a, b, 0] = [b, a, 0] where positions act through the query (rotary without a query bias); tokens are
outside the window if replacing them changes nothing. ALiBi is told from rotary positions with a query bias later, head
by head: a block of tokens before x = 0, in both orders (`read_slopes`).

Theory: docs/theory/attention-layer.md, "Layers of language models", kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from unsoftmax.errors import ModelMismatch
from unsoftmax.inversion import rounding_unit
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.readable import SATURATED, Steps, find_scale
from unsoftmax.learners.rotary.constants import ROTARY
from unsoftmax.learners.rotary.weights import Reader
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
    """Whether the order of two tokens before the last one changes the answer; two queries."""
    a, b, q = _tokens(spec, rng)[:3]
    y = yield Probes(np.stack([np.stack([a, b, q]), np.stack([b, a, q])]), phase="pilot")
    return not _same(y[0], y[1], y, spec)


def find_kind(spec: OracleSpec, rng: np.random.Generator) -> Asking[Kind]:
    """Ten queries, and one more per halving where there is a window."""
    a, b, q, other = _tokens(spec, rng)
    zero = np.zeros(spec.dim)
    y1 = yield Probes(np.stack([q, zero])[:, None], phase="pilot")
    triples = [[q, q, q], [zero, zero, zero], [a, b, q], [b, a, q], [a, b, zero], [b, a, zero]]
    y3 = yield Probes(np.array(triples), phase="pilot")
    everything = np.vstack([y1, y3])
    same = lambda u, v: _same(u, v, everything, spec)  # noqa: E731
    if not same(y1[1], y3[1]):
        raise ModelMismatch(
            "empty sequences [0] and [0, 0, 0] answer differently: positions are added to the tokens (learned or "
            "sinusoidal embeddings), or sinks take a share of a value bias. Neither is learned here; subtract the "
            "positions before the layer, or remove the bias."
        )
    order: Order = "none"
    if not same(y3[2], y3[3]):
        order = "rotary" if same(y3[4], y3[5]) else "bias"
    sinks = not same(y1[0], y3[0])
    window, far = yield from _window(np.stack([a, b, q]), other, order == "bias", everything, spec)
    return Kind(order, sinks, window, far, y1[1])


def _window(
    abq: Array, other: Array, fading: bool, answers: Array, spec: OracleSpec
) -> Asking[tuple[int | None, tuple[Array, Array]]]:
    """The least distance from which on tokens are not seen, by bisection, or None; and the longest sequence asked.

    One sequence of copies of two tokens, the first one far away and the second near, and for every distance tried one
    in which those that far away are another token. Where slopes may fade them out, an end must be abrupt.
    """
    far = int(min(spec.domain.length_limit, ROTARY.farthest_window + 1)) - 1
    tokens = np.repeat(abq, [far - far // 2, far // 2, 1], axis=0)
    base = yield Probes(tokens[None], phase="pilot")
    low, high, distance, change = 0, far, far, np.inf
    while True:
        moved = tokens.copy()
        moved[: far + 1 - distance] = other
        y = yield Probes(moved[None], phase="pilot")
        if _same(y, base, answers, spec):
            high = distance
        elif distance == far:
            return None, (tokens[None], base)
        else:
            low, change = distance, float(np.abs(y - base).max())
            if fading and change <= ROTARY.abrupt * _limit(answers, spec):
                return None, (tokens[None], base)
        if high - low <= 1:
            ends = not fading or change > ROTARY.abrupt * _limit(answers, spec)
            return high if ends else None, (tokens[None], base)
        # Windows are found by their size; the last steps, within a factor, by halves.
        middle = np.sqrt(max(low, 1) * high) if high > ROTARY.halved_ratio * low else (low + high) / 2
        distance = min(max(int(middle), low + 1), high - 1)


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
    if min(there.min(), back.min(), away.min()) <= 0:
        raise ModelMismatch("attention weights outside (0, 1) were read before x = 0: heads are not explained.")
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
