"""Other queries after the same places: what every head looks for, W u + c.

Theory: docs/theory/token-layer.md, "Circuits of a one-layer language model", scores.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from unsoftmax.errors import ModelMismatch
from unsoftmax.learners.circuits.constants import CIRCUITS
from unsoftmax.learners.circuits.frame import Frame
from unsoftmax.learners.circuits.values import LARGEST, POLISH, Found, relative_error
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.probes.base import Array
from unsoftmax.solvers.circuit_newton import Scores, standard_errors
from unsoftmax.solvers.gauss_newton import Descent, descend

SEARCH = Descent(damping=1e-3, down=8.0, iterations=100, patience=10, arrived=1e-30)
"""Answers are normed, so 1e-30 is rounding."""


class Looked(NamedTuple):
    """W (H, d, d) and c (H, d), the ranks of the heads' scores; `error` is relative, None if unknown."""

    W: Array
    c: Array
    ranks: tuple[int, ...]
    error: float | None


@dataclass
class _Columns:
    """Queries u, their a (H, d), and what was asked: keys z (m, K, d) and what was written (m, d), for all but the
    first. Tokens in `order` are asked next, the last one first; `missed` counts those whose scores were not found."""

    frame: Frame
    found: Found
    tokens: Array
    rng: np.random.Generator
    order: list[int]
    u: list[Array]
    a: list[Array]
    z: list[Array] = field(default_factory=list)
    y: list[Array] = field(default_factory=list)
    missed: int = 0

    def reach(self, wanted: int, equations: float, bases: Array) -> Asking[int]:
        """Ask as many queries as are wanted, with so many equations of a head, and add those whose scores are found;
        the number of the others."""
        found, K = self.found, len(self.found.places) - 1
        asked = [self.order.pop() for _ in range(wanted - len(self.a))]
        per = math.ceil(equations / K)
        drawn = self.rng.choice(self.tokens, (len(asked) * per, K))
        ids = np.concatenate([drawn, np.repeat(asked, per)[:, None]], axis=1)
        answers = yield from self.frame.ask(ids, "repair" if self.missed else "main")
        for i, q in enumerate(asked):
            rows = slice(i * per, (i + 1) * per)
            u = self.frame.x[q] + found.places[K]
            z, y = self.frame.x[ids[rows, :K]] + found.places[:K] - u, answers[rows] - u
            size = float(np.linalg.norm(y))
            problem = Scores(y / size, z, found.P / size, np.ones((len(y), 1)), bases, bases.shape[2])
            end = descend(problem, _guess(y, z, found.P, bases), SEARCH)
            if end.cost <= CIRCUITS.unexplained_share**2:
                a = np.einsum("hdr,hr->hd", bases, end.x.reshape(bases.shape[0], -1))
                for kept, new in zip((self.u, self.a, self.z, self.y), (u, a, z, y), strict=True):
                    kept.append(new)
        lost = wanted - len(self.a)
        self.missed += lost
        if self.missed > CORE.repairs:
            raise ModelMismatch(
                "what other last tokens answer is no mixture of what the heads write for the first: the layer is not "
                "alone (a network, a second layer or a norm stands behind it)."
            )
        return lost


def read_scores(frame: Frame, found: Found, tokens: Array, rng: np.random.Generator) -> Asking[Looked]:
    """What the heads look for."""
    d, H = frame.width, len(found.P)
    order = [int(t) for t in rng.permutation(tokens) if t != found.q]
    columns = _Columns(frame, found, tokens, rng, order, [frame.x[found.q] + found.places[-1]], [found.a])
    whole = np.repeat(np.eye(d)[None], H, axis=0)
    ranks, bases = (1,) * H, whole
    while len(columns.a) <= max(ranks) and len(columns.a) < d + 1 + CORE.to_spare:
        yield from columns.reach(max(ranks) + 1, CIRCUITS.equations * d, whole)
        ranks, bases = _directions(columns.a)
    r = max(ranks)
    wanted, equations = d + 1 + CORE.to_spare, CIRCUITS.equations_known * r
    while len(columns.a) < wanted:
        lost = yield from columns.reach(wanted, equations, bases[:, :, :r])
        if lost and r < d:
            # Queries that looked alike by chance hid a direction of the keys: the next are asked with none supposed.
            r, equations = d, CIRCUITS.equations * d
    if r > max(ranks):
        ranks, bases = _directions(columns.a)
        r = max(ranks)
    W, c, error = _fitted(found, columns, bases, r, frame.noise * frame.size)
    return Looked(W, c, ranks, error)


def _directions(looked: list[Array]) -> tuple[tuple[int, ...], Array]:
    """How many directions each of H heads looks along, and bases (H, d, d) that begin with them, from a's (n, H, d)."""
    U = [np.linalg.svd(_normed(a).T) for a in np.array(looked).transpose(1, 0, 2)]
    return tuple(int(np.count_nonzero(s > CIRCUITS.in_range * s[0])) for _, s, _ in U), np.array([u for u, _, _ in U])


def _normed(rows: Array) -> Array:
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300))


def _guess(y: Array, z: Array, P: Array, bases: Array) -> Array:
    """Scores from weights that explain the answers linearly, every head's and key's apart."""
    m, K, d = z.shape
    H = len(P)
    weights = np.empty((m, H, K))
    for i in range(m):
        M = np.einsum("kd,hde->ehk", z[i], P).reshape(d, H * K)
        weights[i] = np.linalg.lstsq(M, y[i], rcond=None)[0].reshape(H, K)
    weights = np.clip(weights, CIRCUITS.guess_weight, 1.0)
    own = np.maximum(1 - weights.sum(axis=2, keepdims=True), CIRCUITS.guess_weight)
    trust, scores = np.sqrt(weights * own), np.log(weights / own)
    guess = []
    for h in range(H):
        M = (z @ bases[h]) * trust[:, h, :, None]
        guess.append(np.linalg.lstsq(M.reshape(m * K, -1), (scores * trust)[:, h].ravel(), rcond=None)[0])
    return np.concatenate(guess)


def _fitted(found: Found, columns: _Columns, bases: Array, r: int, noise: float) -> tuple[Array, Array, float | None]:
    """W and c from all queries together, and their relative error."""
    u = np.concatenate([np.array(columns.u), np.ones((len(columns.u), 1))], axis=1)
    keys, error = bases[:, :, :r], None
    A = np.einsum("hdr,nhd->nhr", keys, np.array(columns.a))
    factors = np.array([np.linalg.lstsq(u, A[:, h], rcond=None)[0].T for h in range(len(A[0]))])
    unknowns = len(keys) * ((bases.shape[1] - r) * r + r * u.shape[1])
    if unknowns <= LARGEST:
        queries = np.concatenate([np.tile(row, (len(z), 1)) for row, z in zip(u[1:], columns.z, strict=True)])
        y = np.concatenate(columns.y)
        problem = Scores(y, np.concatenate(columns.z), found.P, queries, bases, r)
        v = descend(problem, problem.pack(factors), POLISH).x
        off = problem.unpack(v + standard_errors(problem.at(v), noise))
        keys, factors = problem.unpack(v)
        error = max(relative_error(off[0], keys), relative_error(off[1], factors))
    a = keys @ factors
    return np.asarray(a[:, :, :-1]), np.asarray(a[:, :, -1]), error
