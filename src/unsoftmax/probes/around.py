"""Probes around query tokens: rows q + e_1, ..., q + e_m, q for many q and blocks of displacements e."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from unsoftmax.probes.base import Array, LazyProbes, Probes

Embed = Callable[[Array], Array]
"""Coordinates (..., D) -> tokens (..., d), where the two differ."""


@dataclass(frozen=True, eq=False)
class Around:
    """Every q of Q (n, d) with one block E (m, d): n sequences of m + 1 tokens, the last of them q.

    `shrink` (n,) multiplies the block of each sequence. `embed` turns coordinates into tokens.
    """

    Q: Array
    E: Array
    shrink: Array | None = None
    embed: Embed | None = None

    def __len__(self) -> int:
        return len(self.Q)

    def tokens(self, start: int, stop: int) -> Array:
        """Sequences start..stop, (stop - start, m + 1, d)."""
        q = self.Q[start:stop]
        E = np.broadcast_to(self.E, (len(q), *self.E.shape))
        if self.shrink is not None:
            E = E * self.shrink[start:stop, None, None]
        tokens = np.concatenate([q[:, None] + E, q[:, None]], axis=1)
        return tokens if self.embed is None else self.embed(tokens)

    def probes(self, phase: str) -> LazyProbes:
        """The design, lazy."""
        size = (len(self.E) + 1) * self.Q.shape[1] * 8
        return LazyProbes(len(self), size, lambda a, b: Probes(self.tokens(a, b)), phase)


def orthonormal(rng: np.random.Generator, d: int, m: int | None = None) -> Array:
    """m (or d) random orthonormal rows of length d, uniformly distributed."""
    Q, R = np.linalg.qr(rng.standard_normal((d, d if m is None else m)))
    return np.asarray((Q * np.sign(np.diag(R))).T)


def balanced_blocks(
    values: list[Array], keys: list[Array], blocks: int, size: int, rng: np.random.Generator, rounds: int = 60
) -> Array:
    """Displacements (blocks * size, d), |e| about 1, on which all maps act almost as isometries.

    values: maps (s_h, d) with orthonormal rows, well conditioned on every block alone (each block is one query);
    keys: maps (r_h, d), well conditioned on all blocks together. Alternates between the nearest isometries of the
    images and the displacements that fit them best.
    """
    d = values[0].shape[1]
    stacked = np.vstack(values + keys)
    gram = np.linalg.inv(stacked.T @ stacked + 1e-3 * np.eye(d)) @ stacked.T
    E = orthonormal(rng, d, min(blocks * size, d)).T
    E = np.hstack([E, *[orthonormal(rng, d, 1).T for _ in range(blocks * size - E.shape[1])]])
    parts = np.split(np.arange(blocks * size), blocks)
    for _ in range(rounds):
        images = [np.hstack([_nearest_isometry(M @ E[:, part]) for part in parts]) for M in values]
        images += [_nearest_isometry(M @ E) * np.sqrt(max(1.0, E.shape[1] / len(M))) for M in keys]
        E = gram @ np.vstack(images)
    return np.asarray((E / np.sqrt((E * E).sum(axis=0).mean())).T)


def _nearest_isometry(M: Array) -> Array:
    U, _, Vt = np.linalg.svd(M, full_matrices=False)
    return np.asarray(U @ Vt)
