"""Is the change of scores of low rank? A small table a_i'dW_h b_j, enlarged while its rank is full."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.comparing.constants_explaining import EXPLAINING
from unsoftmax.comparing.heads import Heads
from unsoftmax.comparing.noise import group
from unsoftmax.comparing.reading import as_asked, read_one
from unsoftmax.comparing.state import Evidence
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.settling import settle
from unsoftmax.models.base import Array
from unsoftmax.probes.base import Probes

PHASE = "rank"


@dataclass(frozen=True, eq=False)
class LowRank:
    """Rows `below` that the rank of the table does not reach, the `rank` that stands above its noise, and query tokens
    `at` (rank, d) at which the change shows most."""

    below: int
    rank: int
    at: Array
    steady: bool = False
    """Whether the table is the same at every query token: an offset of the keys changed, and no score matrix."""


def highest(dim: int) -> int:
    """The largest rank that is told."""
    return int(min(max(2, dim // EXPLAINING.low_rank_part), EXPLAINING.table_rows[-1] - 1, dim - 1))


def rank_below(state: Evidence, heads: Heads, h: int, norm: float, basis: Array) -> Asking[LowRank | None]:
    """What the table says of the rank; None if the change has full rank as far as is asked."""
    top = highest(heads.dim) + 1
    sizes = [*(m for m in EXPLAINING.table_rows if m < top), top]
    rng = state.rng
    b = rng.standard_normal((sizes[-1], heads.dim))
    b *= norm / np.linalg.norm(b, axis=1, keepdims=True)
    a = _across(heads, h, b, norm, basis, rng)
    D, sd = np.zeros((sizes[-1], sizes[-1])), np.zeros((sizes[-1], sizes[-1]))
    done = 0
    for m in sizes:
        cells = [(i, j) for i in range(m) for j in range(m) if i >= done or j >= done]
        i, j = np.array(cells).T
        X = state.plan.asked.on_grid(np.stack([a[i] + b[j], b[j]], axis=1), fine=True)
        made = group(PHASE, X, state.plan.noise, state.plan.constant, rng)
        y = yield Probes(X, phase=PHASE)
        state.samples.append((X, y, made.sd))
        read = as_asked(read_one(heads, h, made, y), b[j])
        D[i, j], sd[i, j] = read.D, np.where(np.isfinite(read.sd), read.sd, 0.0)
        done = m
        # Tokens are rounded one by one: products are of rank one only up to that.
        noise = float(np.sqrt(np.mean(sd[:m, :m] ** 2))) + 2.0**-22 * float(np.abs(D[:m, :m]).max())
        _, values, right = np.linalg.svd(D[:m, :m])
        rank = int((values >= EXPLAINING.above_noise * noise).sum())
        most = right[:rank] @ b[:m]
        count, at = yield from settle("rank of the table", rank, most)
        if count < m:
            steady = bool(
                (np.abs(D[:m, :m] - D[:m, :m].mean(axis=1, keepdims=True)) <= EXPLAINING.above_noise * noise).all()
            )
            return LowRank(m, int(count), at, steady=steady and count == 1)
    return None


def _across(heads: Heads, h: int, b: Array, norm: float, basis: Array, rng: np.random.Generator) -> Array:
    """Differences a (m, d) in the basis, large along what the head writes and orthogonal to its key directions at b."""
    u = heads.key_directions(b)[h] @ basis
    v = heads.P[h, 0] @ basis
    room = min(len(u), basis.shape[1] // 2)
    Z = np.linalg.qr(u[:room].T)[0]
    clear = lambda x: x - (x @ Z) @ Z.T  # noqa: E731
    vh = clear(v[None])[0]
    vh = vh / max(float(np.linalg.norm(vh)), 1e-300)
    a = clear(rng.standard_normal((len(b), basis.shape[1])))
    a /= np.linalg.norm(a, axis=1, keepdims=True)
    a = a + vh
    return np.asarray(norm * a / np.linalg.norm(a, axis=1, keepdims=True) @ basis.T)
