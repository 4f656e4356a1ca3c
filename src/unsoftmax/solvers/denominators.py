"""Heads apart by their softmax denominators: sequences whose places each hold one of two tokens.

Over such sequences, bits b in {0, 1}^K, every head writes N_h(b) / D_h(b) with N_h and D_h affine in b: numerators and
denominators of a softmax add over tokens. Answers of many outputs span the functions 1, 1/D_h, b_j/D_h and no others,
H K + 1 dimensions if every head writes into K dimensions at least. A head is then a zero of a function of K numbers
alone: D = 1 + delta . b whose K + 1 quotients lie in that span. No head needs to be known for another (as in MUSIC,
Schmidt 1986, with quotients in the place of steering vectors).

Theory: docs/theory/token-layer.md, "Circuits of a one-layer language model", heads apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.probes.base import Array
from unsoftmax.solvers.gauss_newton import Dense, Descent, descend

_STARTS = 400
"""Random starts for every head: each takes milliseconds, two of three end in a zero, and 16 models of four heads, the
rarest of them found by one in a hundred, took 5 to 127."""

_SPREAD = (0.5, 1.0, 2.0, 3.0)
"""Standard deviations of scores that starts suppose, in turn: from nearly even attention to one token taking all."""

_POSITIVE = 1e-3
"""Least denominator beside that of the corner a start counts from, which is about the smallest of all."""

_ALIKE = 1e-3
"""Largest difference of log D, over all sequences, of one and the same head found twice: zeros are found to 1e-6."""

_HOW = Descent(damping=1e-2, down=5.0, iterations=60, patience=6, arrived=1e-30)
"""Quotients have norm 1, so 1e-30 is rounding; paths to a zero end quadratically."""


@dataclass(frozen=True)
class _Quotients:
    """The parts of 1/D and b_j/D, normed, outside the span of the answers; `outside` (n, m) is orthonormal."""

    outside: Array
    bits: Array

    def at(self, x: Array) -> Dense:
        D = 1 + self.bits @ x
        if D.min() <= _POSITIVE:
            return Dense(np.full(1, np.inf), np.zeros((1, len(x))))
        F = quotients(self.bits, D)
        F = F / np.linalg.norm(F, axis=0)
        # The norms move too, which matters in no point where the residual is zero.
        J = np.stack([-(self.outside.T @ (F * (bit / D)[:, None])).ravel() for bit in self.bits.T], axis=1)
        return Dense((self.outside.T @ F).ravel(), J)

    def misfit(self, x: Array) -> float:
        """Part of the quotients outside the span, beside what is not affine of them."""
        F = quotients(self.bits, 1 + self.bits @ x)
        F = F / np.linalg.norm(F, axis=0)
        Q = np.linalg.qr(quotients(self.bits, np.ones(len(self.bits))))[0]
        return float(np.linalg.norm(self.outside.T @ F) / max(float(np.linalg.norm(F - Q @ (Q.T @ F))), 1e-300))


def quotients(bits: Array, D: Array) -> Array:
    """1/D and b_j/D for bits (n, K) and D (n,): (n, K + 1)."""
    return np.asarray(np.concatenate([np.ones((len(bits), 1)), bits], axis=1) / D[:, None])


def denominators(span: Array, bits: Array, heads: int, close: float, rng: np.random.Generator) -> Array | None:
    """delta (heads, K) of all heads' D = 1 + delta . b from the orthonormal span (n, r) of the answers at bits (n, K).

    A zero is a misfit below `close`. None if fewer heads are found than asked for.
    """
    K = bits.shape[1]
    outside = np.linalg.qr(span, mode="complete")[0][:, span.shape[1] :]
    found: list[Array] = []
    for start in range(_STARTS * heads):
        if len(found) == heads:
            return np.array(found)
        # Counted from a random corner: near the one where D is least, steps stay where D is positive.
        corner = rng.integers(0, 2, K)
        turned = _Quotients(outside, np.abs(bits - corner))
        x = descend(turned, _start(K, _SPREAD[start % len(_SPREAD)], rng), _HOW).x
        if turned.misfit(x) <= close:
            delta = np.where(corner, -x, x) / (1 + corner @ x)
            if not any(_same(bits, delta, other) for other in found):
                found.append(delta)
    return np.array(found) if len(found) == heads else None


def _start(K: int, spread: float, rng: np.random.Generator) -> Array:
    """delta of log-normal weights, every first one the smaller of its pair."""
    weights = np.exp(spread * rng.standard_normal((2, K)))
    rest = float(np.exp(spread * rng.standard_normal()))
    low, high = weights.min(axis=0), weights.max(axis=0)
    return np.asarray((high - low) / (rest + low.sum()))


def _same(bits: Array, delta: Array, other: Array) -> bool:
    gap = np.log((1 + bits @ delta) / (1 + bits @ other))
    return float(np.abs(gap).max()) <= _ALIKE
