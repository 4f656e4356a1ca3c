"""Heads told apart by algebra where copies of a token are not alike, as with rotary positions.

Contexts of the last token q and places before it, each taken by q or by q + delta, answer sum_h f_h r_h, f_h the weight
on the displaced ones. Let a place j weigh y_j where q stands there and Y_j where q + delta does, over the last token.
Weights are f = Y_1 / (1 + Y_1) of two tokens, g and u of three, the nearest place or both displaced, h and v of four,
with q in the third place: 1/h - 1/g = y_3 / Y_1 and 1/f - 1 = 1 / Y_1, while (1/v - 1) / (1/u - 1) = 1 + y_3. So

    (g - h) f v (1 - u) = (1 - f) (u - v) g h,

whatever the scores are: linear in the pair (c^4, c^3) of symmetric powers of a head's functional c. The n heads span
the solutions, and two contractions of them have the c_h as common eigenvectors. No identity of degree two or three
holds among these weights and those of the other choices of up to four tokens.

Theory: docs/theory/stacks.md, "Rotary stacks".
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations_with_replacement, product

import numpy as np

from unsoftmax.probes.base import Array
from unsoftmax.solvers.head_separation import eigenvectors

CONTEXTS: tuple[tuple[int, tuple[int, ...]], ...] = ((2, (1,)), (3, (1,)), (4, (1,)), (3, (1, 2)), (4, (1, 2)))
"""Tokens of a context, the last included, and how far before the last the displaced ones stand: f, g, h, u, v."""

_STEPS = 12
"""Gauss-Newton steps of each head on its own equation: from the eigenvectors three to six reach rounding."""


@dataclass(frozen=True, eq=False)
class Places:
    """Weights (5, m, n) of the heads in all contexts, residues R (d, n), and `isolation` as in `Separation`."""

    weights: Array
    R: Array
    isolation: float


def settings_needed(n: int, over: float) -> int:
    """Query tokens that overdetermine the unknowns of (c^4, c^3) by `over`."""
    unknown = n * (n + 1) * (n + 2) * (n + 3) // 24 + n * (n + 1) * (n + 2) // 6
    return int(np.ceil(over * unknown))


def separate_places(Y: Array, n: int, rng: np.random.Generator) -> Places | None:
    """The n heads in answers Y (5, m, d) of CONTEXTS, less those of q in every place; None if no pencil is real."""
    flat = Y.reshape(-1, Y.shape[2])
    _, sizes, Vt = np.linalg.svd(flat, full_matrices=False)
    Z = Y @ (Vt[:n].T / sizes[:n] * np.sqrt(len(flat)))
    f, g, h, u, v = Z
    fourth = _powers(-1, g, f, v, u) + _powers(1, h, f, v, u) + _powers(1, f, u, g, h) + _powers(-1, f, v, g, h)
    third = _powers(1, g, f, v) + _powers(-1, h, f, v) + _powers(-1, u, g, h) + _powers(1, v, g, h)
    M = np.hstack([fourth, third])
    size = np.linalg.norm(M, axis=0)
    s, Nt = np.linalg.svd(np.linalg.qr(M / size, mode="r"))[1:]
    null = (Nt[-n:] / size)[:, : fourth.shape[1]]
    # Contracted twice, every solution is sum_h x_h c_h c_h'.
    space = (null @ _index(n, 4).T).reshape(n, n, n, n, n) @ rng.standard_normal(n) @ rng.standard_normal(n)
    C = eigenvectors(space, rng)
    if C is None:
        return None
    C = np.column_stack([_refined(Z, c) for c in C.T])
    weights = Z @ C
    R = np.linalg.lstsq(weights.reshape(-1, n), flat, rcond=None)[0].T
    return Places(weights, R, float(s[-n - 1] / max(s[-n], 1e-300)))


def _index(n: int, k: int) -> Array:
    """(n^k, monomials): which monomial of degree k a product of k coordinates is."""
    columns = {term: i for i, term in enumerate(combinations_with_replacement(range(n), k))}
    found = np.zeros((n**k, len(columns)))
    found[np.arange(n**k), [columns[tuple(sorted(term))] for term in product(range(n), repeat=k)]] = 1.0
    return found


def _powers(sign: int, *factors: Array) -> Array:
    """sign times the product of linear functions (m, n) of c, as coefficients (m, monomials) of powers of c."""
    n, full = factors[0].shape[1], factors[0]
    for factor in factors[1:]:
        full = (full[:, :, None] * factor[:, None]).reshape(len(full), -1)
    return np.asarray(sign * (full @ _index(n, len(factors))))


def _refined(Z: Array, c: Array) -> Array:
    """c (n,), known up to a factor and to a few digits, by Gauss-Newton on its equation over Z (5, m, n)."""
    f, g, h, u, v = Z @ c
    quartic = (g - h) * f * v * u - f * (u - v) * g * h
    cubic = (g - h) * f * v - (u - v) * g * h
    c = c * float(quartic @ cubic) / max(float(quartic @ quartic), 1e-300)
    for _ in range(_STEPS):
        f, g, h, u, v = Z @ c
        rest = (g - h) * f * v * (1 - u) - (1 - f) * (u - v) * g * h
        slopes = (
            (g - h) * v * (1 - u) + (u - v) * g * h,
            f * v * (1 - u) - (1 - f) * (u - v) * h,
            -f * v * (1 - u) - (1 - f) * (u - v) * g,
            -(g - h) * f * v - (1 - f) * g * h,
            (g - h) * f * (1 - u) + (1 - f) * g * h,
        )
        J = np.einsum("km,kmn->mn", np.array(slopes), Z)
        c = c - np.linalg.lstsq(J, rest, rcond=None)[0]
    return np.asarray(c)
