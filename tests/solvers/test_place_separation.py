"""Heads of a rotary stack told apart in frozen contexts, where copies of a token are not alike."""

from __future__ import annotations

from itertools import combinations, combinations_with_replacement

import numpy as np
import pytest

from tests.solvers.place_separation import CONTEXTS, separate_places, settings_needed


class Rotary:
    """x <- x + Attn_l(norm x), RMSNorm, rotary positions, causal: Q, K, V (L, H, dh, d), O (L, H, d, dh)."""

    def __init__(self, d, layers, heads, dh, seed):
        draw = np.random.default_rng(seed).standard_normal
        shape = (layers, heads, dh, d)
        self.Q, self.K = (draw(shape) * np.sqrt(3.0 / d / np.sqrt(dh)) for _ in range(2))
        self.V, self.O = draw(shape) / np.sqrt(d), 0.5 * draw((layers, heads, d, dh)) / np.sqrt(heads * dh)
        self.frequencies = 100.0 ** (-np.arange(dh // 2) / (dh // 2))

    def turned(self, x):
        angle = np.arange(x.shape[-2])[:, None] * self.frequencies
        even, odd = x[..., ::2], x[..., 1::2]
        return np.concatenate(
            [np.cos(angle) * even - np.sin(angle) * odd, np.sin(angle) * even + np.cos(angle) * odd], axis=-1
        )

    def weights(self, l, seen):
        """(batch, H, N, N)."""
        Q, K = (self.turned(np.einsum("bnd,hrd->bhnr", seen, M[l])) for M in (self.Q, self.K))
        scores = np.where(np.tri(seen.shape[1], dtype=bool), Q @ K.transpose(0, 1, 3, 2), -np.inf)
        found = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return found / found.sum(axis=-1, keepdims=True)

    @staticmethod
    def normalised(X):
        X = X / np.abs(X).max(axis=-1, keepdims=True)
        return X / np.sqrt((X * X).mean(axis=-1, keepdims=True))

    def __call__(self, X):
        for l in range(len(self.Q)):
            seen = self.normalised(X)
            mixed = self.weights(l, seen) @ seen[:, None]
            X = X + np.einsum("hdr,hre,bhne->bnd", self.O[l], self.V[l], mixed)
        return X[:, -1]


def drawn(d, m, rng):
    """delta (d,) and q (m, d), with q and q + delta on the sphere."""
    delta = rng.standard_normal(d)
    unit = delta / np.linalg.norm(delta)
    delta = 0.7 * np.sqrt(d) * unit
    q = rng.standard_normal((m, d))
    q -= np.outer(q @ unit, unit)
    q *= np.sqrt(d - delta @ delta / 4) / np.linalg.norm(q, axis=1, keepdims=True)
    return delta, q - delta / 2


def context(q, delta, tokens, displaced):
    X = np.repeat(q[:, None], tokens, axis=1)
    for place in displaced:
        X[:, -1 - place] += delta
    return X


@pytest.mark.parametrize(("layers", "heads"), [(2, 1), (2, 2), (3, 1)])
def test_heads_of_a_rotary_stack_come_apart_whatever_their_layer(layers, heads) -> None:
    d, n = 10, layers * heads
    rng = np.random.default_rng(3)
    stack = Rotary(d, layers, heads, 4, seed=5)
    delta, q = drawn(d, settings_needed(n, 3.0), rng)

    def added(tokens, displaced):
        X = 2.0**60 * context(q, delta, tokens, displaced)
        X[:, -1] = 2.0**27 * q
        return stack(X) - X[:, -1]

    Y = np.array([added(*which) - added(which[0], ()) for which in CONTEXTS])
    found = separate_places(Y, n, rng)
    assert found is not None
    assert found.isolation > 1e3
    for l in range(layers):
        w = np.array([stack.weights(l, context(q, delta, *which))[:, :, -1] @ mask(*which) for which in CONTEXTS])
        for h in range(heads):
            assert np.abs(found.weights - w[:, :, h, None]).max(axis=(0, 1)).min() < 1e-4


def mask(tokens, displaced):
    return np.array([float(tokens - 1 - i in displaced) for i in range(tokens)])


@pytest.mark.parametrize(("degree", "holds"), [(2, False), (3, False), (4, True)])
def test_the_least_degree_of_an_identity_among_weights_of_up_to_four_tokens(degree, holds) -> None:
    rng = np.random.default_rng(0)
    m = 3000
    here, there = np.exp(rng.standard_normal((2, 4, m)))
    values = [np.ones(m)]
    for tokens in (2, 3, 4):
        for size in range(1, tokens):
            for displaced in combinations(range(1, tokens), size):
                own = sum(there[j] for j in displaced)
                rest = 1 + sum(here[j] for j in range(1, tokens) if j not in displaced)
                values.append(own / (own + rest))
    terms = np.array([np.prod(c, axis=0) for c in combinations_with_replacement(values, degree)])
    sizes = np.linalg.svd(terms / np.linalg.norm(terms, axis=1, keepdims=True), compute_uv=False)
    assert (sizes[-1] < 1e-13 * sizes[0]) == holds
