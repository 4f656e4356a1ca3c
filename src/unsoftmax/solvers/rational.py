"""Heads as poles: F(k) = sum_h q_h / (1 + k exp(-t_h)) is a rational function of the repetition ratio k.

H heads make H poles at k = -exp(t_h); 2H ratios determine them. The interpolation is exponentially ill-conditioned in
H: the reason why saturation is the default.

Theory: docs/theory/multi-head.md, "Generic heads", where it stops.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.probes.base import Array


@dataclass(frozen=True, eq=False)
class Poles:
    """t, q (H,) in ascending t, and the largest gap between the answers and their fit, relative to the answers."""

    t: Array
    q: Array
    gap: float


def ratios(number: int, longest: int) -> Array:
    """`number` pairs (copies of z + b, copies of b) with at most `longest` tokens, ratios spread evenly in log k."""
    pairs = np.array([(a, b) for a in range(1, longest) for b in range(1, longest - a + 1)])
    logs = np.log(pairs[:, 1] / pairs[:, 0])
    order = np.lexsort((pairs.sum(axis=1), logs))
    pairs, logs = pairs[order], logs[order]
    first = np.concatenate([[True], np.diff(logs) > 1e-9])
    pairs, logs = pairs[first], logs[first]
    wanted = np.linspace(logs[0], logs[-1], number)
    chosen: list[int] = []
    for w in wanted:
        free = [i for i in np.argsort(np.abs(logs - w), kind="stable") if i not in chosen]
        chosen.append(int(free[0]))
    return np.asarray(pairs[np.sort(chosen)])


def shortest(number: int) -> int:
    """Tokens a sequence must have room for so that there are `number` different ratios."""
    longest = 2
    while len({a / b for a in range(1, longest) for b in range(1, longest - a + 1)}) < number:
        longest += 1
    return longest


def poles(k: Array, F: Array, heads: int) -> Poles | None:
    """The heads behind F (n,) at ratios k (n,), n >= 2 heads; None if F vanishes or the interpolant degenerates."""
    H = heads
    size = float(np.abs(F).max(initial=0.0))
    if size == 0:
        return None
    # F D = N with D monic of degree H in x = k / scale, N of degree H - 1: linear in the coefficients.
    scale = float(np.exp(np.log(k).mean()))
    powers = (k / scale)[:, None] ** np.arange(H + 1)
    system = np.hstack([powers[:, :H], -powers[:, :H] * F[:, None] / size])
    weight = 1 / np.abs(powers).max(axis=1)
    known = F / size * powers[:, H]
    coefficients = np.linalg.lstsq(system * weight[:, None], known * weight, rcond=None)[0]
    roots = np.roots(np.concatenate([[1.0], coefficients[H:][::-1]])) * scale
    if len(roots) < H or (roots == 0).any():
        return None
    # Nearly equal scores come out as complex or positive roots: keep their size, part them a little, let Newton try.
    t = np.log(np.abs(roots)) + np.where(np.abs(roots.imag) > 0, 0.1 * np.sign(roots.imag), 0.0)
    return refined(k, F, np.clip(t, np.log(k).min() - 6, np.log(k).max() + 6))


def refined(k: Array, F: Array, t: Array, steps: int = 12) -> Poles:
    """Newton steps on t with q eliminated."""
    q: Array = np.zeros(len(t))
    for _ in range(steps):
        share = 1 / (1 + k[:, None] * np.exp(-t))
        q = np.linalg.lstsq(share, F, rcond=None)[0]
        r = F - share @ q
        J = np.hstack([share * (1 - share) * q, share])
        step = np.linalg.lstsq(J, r, rcond=1e-15)[0][: len(t)]
        t = t + np.clip(step, -0.5, 0.5)
        if np.abs(step).max() < 1e-15:
            break
    order = np.argsort(t, kind="stable")
    share = 1 / (1 + k[:, None] * np.exp(-t))
    q = np.linalg.lstsq(share, F, rcond=None)[0]
    gap = float(np.abs(F - share @ q).max()) / max(float(np.abs(F).max()), 1e-300)
    return Poles(t[order], q[order], gap)
