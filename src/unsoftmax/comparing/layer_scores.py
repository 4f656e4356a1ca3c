"""A low-rank change of a layer's scores, all heads from the same questions: d + k d / m of them for m tokens each.

One sequence of m + 1 tokens shows a_i'dW_h q for every token and head. A table of m differences at m + 1 query tokens
tells whether ranks are low; whole columns dW_h q give each head's range; then one sequence per further query token.
"""

from __future__ import annotations

import numpy as np

from unsoftmax.comparing.constants_explaining import EXPLAINING
from unsoftmax.comparing.heads import Heads
from unsoftmax.comparing.reading import read_tokens, shortened
from unsoftmax.comparing.state import Evidence
from unsoftmax.learners.core.base import Asking
from unsoftmax.models.base import Array

Factors = dict[int, tuple[Array, Array]]


def low_rank_scores(state: Evidence, found: list[int]) -> Asking[Factors | None]:
    """U_h (d, k_h) and M_h (k_h, d) of the heads found; None if some rank is not low."""
    heads, rng = state.heads, state.rng
    d = heads.dim
    m = int(
        min(
            heads.V.shape[1],
            EXPLAINING.filled * len(heads.constant) / heads.count,
            EXPLAINING.differences,
            d // 2,
            state.plan.asked.longest - 1,
        )
    )
    if m < 2:
        return None
    norm = state.plan.norm
    B = np.linalg.qr(rng.standard_normal((d, d)))[0] * norm
    below = yield from _ranks(state, found, m, norm)
    if below is None:
        return None
    U, coefficients, used = yield from _ranges(state, found, B, m, below)
    if U is None:
        return None
    for q in B[used:]:
        read = yield from _inside(state, q, U, m)
        for h in found:
            coefficients[h].append(read[h])
    factors = {h: (U[h], np.linalg.solve(B, np.array(coefficients[h])).T) for h in found if U[h].shape[1]}
    if not factors:
        return None
    factors = _refined(state, factors)
    return factors if (yield from _verified(state, factors, _as_likely(state, factors))) else None


def _ask(state: Evidence, a: Array, q: Array, phase: str) -> Asking[tuple[Array, Array, Array, Array]]:
    """D, deviation (H, n, m), and the differences and query tokens as sent, for a (n, m, d) and q (n, d)."""
    X = state.plan.asked.on_grid(np.concatenate([q[:, None] + a, q[:, None]], axis=1), fine=True)
    made, y = yield from state.ask(X, phase)
    D, sd = read_tokens(state.heads, X, y, made.sd)
    part = shortened(X[:, -1], q)[:, None]
    return D / part**2, sd / part**2, (X[:, :-1] - X[:, -1:]) / part[:, :, None], X[:, -1] / part


def _scaled(heads: Heads, a: Array, q: Array) -> Array:
    """Differences a (n, m, d) shortened so that no head scores one beyond the limit at q (n, d)."""
    scores = np.abs(np.einsum("nmd,hnd->hnm", a, heads.key_directions(q))).max(axis=0)
    return np.asarray(a * (EXPLAINING.difference_score / np.maximum(scores, 1e-300))[:, :, None])


def _ranks(state: Evidence, found: list[int], m: int, norm: float) -> Asking[int | None]:
    """The largest rank among the heads, if it is below m; None if it is not."""
    heads, rng = state.heads, state.rng
    q = rng.standard_normal((m + 1, heads.dim))
    q *= norm / np.linalg.norm(q, axis=1, keepdims=True)
    a = np.tile(rng.standard_normal((1, m, heads.dim)), (m + 1, 1, 1))
    # The same differences at every query token, or the table would not be one.
    scores = np.abs(np.einsum("nmd,hnd->hnm", a, heads.key_directions(q))).max(axis=(0, 1))
    a *= (EXPLAINING.difference_score / scores)[None, :, None]
    D, sd, _, _ = yield from _ask(state, a, q, "rank")
    largest = 0
    for h in found:
        level = np.where(np.isfinite(sd[h]), sd[h], 0.0)
        noise = float(np.sqrt(np.mean(level**2))) * (np.sqrt(m) + np.sqrt(m + 1))
        noise = max(noise, 2.0**-22 * float(np.abs(D[h]).max()) if state.plan.noise.arithmetic != "float64" else 0.0)
        sizes = np.linalg.svd(D[h], compute_uv=False)
        largest = max(largest, int((sizes > EXPLAINING.above_noise * noise / 2).sum()))
    return largest if largest < m else None


def _ranges(
    state: Evidence, found: list[int], B: Array, m: int, most: int
) -> Asking[tuple[dict[int, Array], dict[int, list[Array]], int]]:
    """Orthonormal ranges of the heads from whole columns at the first rows of B, and these columns' coefficients."""
    heads, d = state.heads, state.heads.dim
    count = max(1, most)
    columns: dict[int, list[Array]] = {h: [] for h in found}
    sent = []
    for j in range(count):
        basis = np.linalg.qr(state.rng.standard_normal((d, d)))[0]
        rows = np.vstack([basis, basis[: -d % m]]).reshape(-1, m, d)
        q = np.tile(B[j], (len(rows), 1))
        D, sd, a, q = yield from _ask(state, _scaled(heads, rows, q), q, "delta")
        sent.append(q[0])
        for h in found:
            weight = 1 / np.where(np.isfinite(sd[h]), sd[h], 1e6 * np.nanmin(sd[h])).reshape(-1, 1)
            solved = np.linalg.lstsq(a.reshape(-1, d) * weight, D[h].reshape(-1) * weight[:, 0], rcond=None)
            columns[h].append(solved[0])
    U: dict[int, Array] = {}
    coefficients: dict[int, list[Array]] = {}
    for h in found:
        C = np.array(columns[h]).T
        left, sizes, _ = np.linalg.svd(C, full_matrices=False)
        U[h] = left[:, : int((sizes > _noise_of(state, sizes)).sum())]
        coefficients[h] = [U[h].T @ c for c in columns[h]]
    for j, q in enumerate(sent):
        B[j] = q
    return U, coefficients, count


def _noise_of(state: Evidence, sizes: Array) -> float:
    """Singular values of columns below this are noise: the table before has counted how many are not."""
    return float(sizes[0]) * (1e-6 if state.plan.noise.arithmetic == "float64" else 1e-2)


def _inside(state: Evidence, q: Array, U: dict[int, Array], m: int) -> Asking[dict[int, Array]]:
    """Coefficients of dW_h q in the ranges U_h, from one sequence whose differences lie in their span."""
    heads = state.heads
    span = np.linalg.svd(np.hstack([U[h] for h in U]), full_matrices=False)
    every = span[0][:, span[1] > 1e-6 * span[1][0]]
    n = min(m, every.shape[1])
    mix = np.linalg.qr(state.rng.standard_normal((every.shape[1], n)))[0]
    a = (every @ mix).T[None]
    D, sd, a, _ = yield from _ask(state, _scaled(heads, a, q[None]), q[None], "delta")
    found = {}
    for h, basis in U.items():
        weight = 1 / np.where(np.isfinite(sd[h, 0]), sd[h, 0], 1e6)
        found[h] = np.linalg.lstsq((a[0] @ basis) * weight[:, None], D[h, 0] * weight, rcond=None)[0]
    return found


def _refined(state: Evidence, factors: Factors) -> Factors:
    """Factors fitted to all readings at once (Gauss-Newton, least-norm gauge): ranges came from a few columns."""
    found: Factors = {}
    a, q, D, sd = _every_reading(state)
    for h, (U, M) in factors.items():
        weight = np.where(np.isfinite(sd[h]), 1 / sd[h], 0.0)
        for _ in range(EXPLAINING.head_steps if 2 * U.size <= EXPLAINING.most_refined else 0):
            rest = (D[h] - _bilinear(U, M, a, q)) * weight
            dU, dM = _step(U, M, a, q, weight, rest)
            parts = (0.5**i for i in range(EXPLAINING.halvings))
            better = (t for t in parts if _less(D[h] - _bilinear(U + t * dU, M + t * dM, a, q), rest, weight))
            t = next(better, 0.0)
            U, M = U + t * dU, M + t * dM
        found[h] = (U, M)
    return found


def _step(U: Array, M: Array, a: Array, q: Array, weight: Array, rest: Array) -> tuple[Array, Array]:
    """Changes of the factors that explain the weighted readings `rest` to first order, the smallest that do."""
    left = np.einsum("ni,nk->nik", a, q @ M.T).reshape(len(a), -1)
    right = np.einsum("nk,nj->nkj", a @ U, q).reshape(len(a), -1)
    step = np.linalg.lstsq(np.hstack([left, right]) * weight[:, None], rest, rcond=EXPLAINING.rounding_cut)[0]
    return step[: U.size].reshape(U.shape), step[U.size :].reshape(M.shape)


def _as_likely(state: Evidence, factors: Factors) -> list[Factors]:
    """Factors that the readings do not tell from these: what rounding of one deviation each would have made of them."""
    a, q, _, sd = _every_reading(state)
    drawn: list[Factors] = []
    for _ in range(EXPLAINING.draws if all(2 * U.size <= EXPLAINING.most_refined for U, _ in factors.values()) else 0):
        other = {}
        for h, (U, M) in factors.items():
            weight = np.where(np.isfinite(sd[h]), 1 / sd[h], 0.0)
            dU, dM = _step(U, M, a, q, weight, state.rng.standard_normal(len(a)) * (weight > 0))
            other[h] = (U + dU, M + dM)
        drawn.append(other)
    return drawn


def _bilinear(U: Array, M: Array, a: Array, q: Array) -> Array:
    return np.asarray(np.einsum("nk,nk->n", a @ U, q @ M.T))


def _less(residual: Array, rest: Array, weight: Array) -> bool:
    return float(np.linalg.norm(residual * weight)) < float(np.linalg.norm(rest))


def _every_reading(state: Evidence) -> tuple[Array, Array, Array, Array]:
    """Differences and query tokens (n, d) of all tokens of all sequences that can be read, D and deviations (H, n)."""
    heads, parts = state.heads, []
    most = EXPLAINING.filled * len(heads.constant) / heads.count
    for X, y, sd in state.samples:
        m = X.shape[1] - 1
        if 1 <= m <= most:
            D, deviation = read_tokens(heads, X, y, sd)
            q = np.repeat(X[:, -1], m, axis=0)
            a = (X[:, :-1] - X[:, -1:]).reshape(-1, heads.dim)
            parts.append((a, q, D.reshape(heads.count, -1), deviation.reshape(heads.count, -1)))
    a, q = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    D, deviation = (np.concatenate([part[i] for part in parts], axis=1) for i in (2, 3))
    return a, q, D, deviation


def _with(heads: Heads, factors: Factors) -> Heads:
    delta = np.zeros_like(heads.W)
    for h, (U, M) in factors.items():
        delta[h] = U @ M
    return heads.with_scores(heads.W + delta)


def _verified(state: Evidence, factors: Factors, as_likely: list[Factors]) -> Asking[bool]:
    heads, rng = state.heads, state.rng
    q = rng.standard_normal((EXPLAINING.fresh, heads.dim))
    q *= state.plan.norm / np.linalg.norm(q, axis=1, keepdims=True)
    a = _scaled(heads, rng.standard_normal((EXPLAINING.fresh, 2, heads.dim)), q)
    X = state.plan.asked.on_grid(np.concatenate([q[:, None] + a, q[:, None]], axis=1))
    return (yield from state.borne_out(_with(heads, factors), X, [_with(heads, other) for other in as_likely]))
