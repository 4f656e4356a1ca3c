"""Linear maps behind a norm: features f = B z / sqrt((B z)'D(B z) + e) of known tokens give B, D and e.

f is parallel to B z, so (1 - f f'/f'f) B z = 0 is linear in B, which is its null vector; then f'D f + e w = 1 with
w = 1 / ((B z)'D(B z) + e) is linear in D and e. D is known by the blocks in which the gauge of the features can act.

Theory: docs/theory/attention-layer.md, "Layers of language models".
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from unsoftmax.probes.base import Array
from unsoftmax.solvers.singular import svd

_ROUNDS = 4
"""Rounds of D and e, each with the w of the one before: e is small beside the norm, so every round adds its digits."""


@dataclass(frozen=True, eq=False)
class Normed:
    """B (s, d), D (s, s), e; error: relative error of B that what the equations for it leave unexplained lets expect;
    misfit: how far the features found miss those given, relatively."""

    B: Array
    D: Array
    e: float
    error: float
    misfit: float = 0.0

    def of(self, z: Array) -> Array:
        """Features (..., s) of tokens z (..., d)."""
        rows = z @ self.B.T
        squares = ((rows @ self.D) * rows).sum(axis=-1) + self.e
        # Features of no norm have squares below 0, and are none.
        return np.asarray(rows / np.sqrt(np.where(squares > 0, squares, 0.0) + 1e-300)[..., None])


def fit_normed(tokens: Array, features: Array, errors: Array, blocks: list[Array]) -> Normed:
    """From tokens (n, d) and their features (n, s), which are as good as their errors (n,), in any unit; blocks: rows
    among which D has entries."""
    (n, s), d = features.shape, tokens.shape[1]
    sizes = np.linalg.norm(features, axis=1, keepdims=True)
    unit, told = features / sizes, sizes[:, 0] / errors
    told = told / told.max()
    rows = np.zeros((n, s - 1, s, d))
    for i in range(n):
        rows[i] = told[i] * svd(unit[i][None])[2][1:][:, :, None] * tokens[i]
    # The null vector from the small Gram factor: an SVD of all equations would square the work.
    R = np.linalg.qr(rows.reshape(-1, s * d), mode="r")
    sizes, Vt = svd(np.asarray(R))[1:]
    B = Vt[-1].reshape(s, d)
    B = B * np.sign(((tokens @ B.T) * features).sum())
    B = B * (np.sqrt(s) / np.linalg.norm(tokens @ B.T, axis=1).mean())
    D, e = _form(tokens @ B.T, features, told, blocks)
    # One equation's noise, times what the fit makes of it.
    noise = sizes[-1] / np.sqrt(max(n * (s - 1) - s * d + 1, 1))
    found = Normed(B, D, e, float(noise * np.sqrt((sizes[:-1] ** -2.0).sum())))
    missed = (found.of(tokens) - features) / errors[:, None]
    return replace(found, misfit=float(np.linalg.norm(missed) / np.linalg.norm(features / errors[:, None])))


def _form(projected: Array, features: Array, told: Array, blocks: list[Array]) -> tuple[Array, float]:
    n, s = features.shape
    pairs = [(a, b) for block in blocks for i, a in enumerate(block) for b in block[i:]]
    columns = np.column_stack([features[:, a] * features[:, b] * (1 if a == b else 2) for a, b in pairs])
    D, e, w = np.zeros((s, s)), 0.0, np.zeros(n)
    for _ in range(_ROUNDS):
        M = np.column_stack([columns, w]) if w.any() else columns
        found = np.linalg.lstsq(M * told[:, None], told, rcond=None)[0]
        for (a, b), value in zip(pairs, found, strict=False):
            D[a, b] = D[b, a] = value
        e = float(found[-1]) if w.any() else 0.0
        w = 1 / (((projected @ D) * projected).sum(axis=1) + e)
    return D, max(e, 0.0)
