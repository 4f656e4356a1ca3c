"""Other tokens in the first place of the cube: what every head writes, where it writes it, and the places.

Theory: docs/theory/token-layer.md, "Circuits of a one-layer language model", values.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from unsoftmax.errors import NotIdentifiable
from unsoftmax.learners.circuits.constants import CIRCUITS
from unsoftmax.learners.circuits.cube import Cube, Lost
from unsoftmax.learners.circuits.frame import Frame
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.probes.base import Array
from unsoftmax.solvers.circuit_newton import OneQuery, standard_errors
from unsoftmax.solvers.gauss_newton import LARGEST, Descent, descend
from unsoftmax.solvers.replaced_token import first_weight, replaced, replaced_alone

POLISH = Descent(damping=1e-13, down=10.0, up=100.0, iterations=8, patience=2, gain=0.25)
"""Near the minimum: the normal equations square a condition of 1e5 to 1e7, so each step gains about four digits."""


class Found(NamedTuple):
    """At one query: P (H, d, d), a (H, d), places (K + 1, d), the query q; their relative `error`."""

    P: Array
    a: Array
    places: Array
    q: int
    error: float


@dataclass(frozen=True, eq=False)
class _Ranges:
    """Rows (w_h, d) that span what head h writes; `dual` (d, d) the inverse of all of them over the rest."""

    rows: tuple[Array, ...]
    dual: Array

    @property
    def cuts(self) -> tuple[int, ...]:
        return tuple(int(n) for n in np.cumsum([0] + [len(row) for row in self.rows]))

    def of(self, h: int) -> Array:
        """(d, w): answers -> what head h wrote, the others annihilated."""
        return np.asarray(self.dual[:, self.cuts[h] : self.cuts[h + 1]])


_Records = list[tuple[Array, Array]]
"""Everything asked at the query: prompts (n, K + 1) and coordinates of the answers (n, d)."""


def read_values(frame: Frame, cube: Cube, tokens: Array, rng: np.random.Generator, phase: str) -> Asking[Found]:
    """Values and places at the cube's query."""
    records = [(cube.prompts(cube.bits), cube.y)]
    order = [t for t in rng.permutation(tokens) if t not in (cube.a[0], cube.b[0])]
    ranges, tau, nu, used = yield from _ranges(frame, cube, order, records, rng, phase)
    _fits(frame.width, len(cube.a), ranges)
    more = order[used : frame.width + CORE.to_spare]
    both = cube.pair()
    ids = np.concatenate([cube.prompts(both, np.full(2, t)) for t in more])
    y = yield from frame.ask(ids, phase)
    records.append((ids, y))
    asked = np.array([cube.b[0], *order[:used], *more])
    X = frame.x[asked] - frame.x[cube.a[0]]
    answers = (y - cube.constant).reshape(len(more), 2, -1)
    Phi, v_a, a = [], [], []
    for h in range(cube.heads):
        R = ranges.of(h)
        known = np.array([t[h] for t in tau]), np.array([n[h] @ R for n in nu])
        new = replaced_alone(answers @ R, cube.denominators(both)[:, h], cube.numerators(both)[:, h] @ R)
        taus, nus = (np.concatenate(pair) for pair in zip(known, new, strict=True))
        A, phi, v = first_weight(X, taus, nus)
        Phi.append(phi)
        v_a.append(v)
        a.append(_direction(X, taus + A))
    places, own = yield from _places(frame, cube, ranges, Phi, v_a, np.array(a), phase)
    ids = np.concatenate([rng.choice(tokens, (frame.width, len(cube.a))), np.full((frame.width, 1), cube.q)], axis=1)
    records.append((ids, (yield from frame.ask(ids, phase))))
    return _polished(frame, cube, ranges, (Phi, np.array(a), places), own, records)


def _fits(d: int, K: int, ranges: _Ranges) -> None:
    """Refuse layers whose values and places are too many to be fitted together: apart they are known to 1e-6 only."""
    unknowns = sum(d * len(row) + len(row) * (d - len(row)) + d for row in ranges.rows) + K * d
    if unknowns > LARGEST:
        raise NotIdentifiable(
            f"{len(ranges.rows)} heads over {d} dimensions are {unknowns} unknowns to be fitted together, and this "
            f"version fits {LARGEST}: the layer is too wide for it (four heads of 8 over 32 dimensions are 2144)."
        )


def _ranges(
    frame: Frame, cube: Cube, order: list[int], records: _Records, rng: np.random.Generator, phase: str
) -> Asking[tuple[_Ranges, list[Array], list[Array], int]]:
    """Tokens in the first place, H + 1 prompts each, until no head writes into a new direction."""
    bits = cube.patterns(cube.heads + 1)
    D, N = cube.denominators(bits), cube.numerators(bits)
    tau, nu = [cube.delta[:, 0]], [cube.n[:, 1]]
    for used, token in enumerate(order, start=1):
        ids = cube.prompts(bits, np.full(len(bits), token))
        y = yield from frame.ask(ids, phase)
        records.append((ids, y))
        change = replaced(y - cube.constant, D, N, CIRCUITS.unexplained_share, rng)
        if change is None:
            raise Lost("another token in the first place changes more than the weights of the heads")
        tau.append(change[0])
        nu.append(change[1])
        stacks = [np.concatenate([cube.n[h, :1], cube.n[h, 2:], [v[h] for v in nu]]) for h in range(cube.heads)]
        rows = [_row_space(stack) for stack in stacks]
        written = min(np.count_nonzero(s.any(axis=1)) - len(row) for s, row in zip(stacks, rows, strict=True))
        if written >= CIRCUITS.tokens_beyond_range:
            return _apart(frame.width, rows), tau, nu, used
        if used > frame.width:
            break
    raise Lost("what heads write does not stop growing")


def _row_space(stack: Array) -> Array:
    """Orthonormal rows that span the rows of a stack, each of them normed."""
    size = np.linalg.norm(stack, axis=1, keepdims=True)
    _, s, Vt = np.linalg.svd(stack[size[:, 0] > 0] / size[size[:, 0] > 0], full_matrices=False)
    return np.asarray(Vt[s > CIRCUITS.in_range * s[0]])


def _apart(width: int, rows: list[Array]) -> _Ranges:
    together = np.concatenate(rows)
    s = np.linalg.svd(together, compute_uv=False)
    if len(together) > width or s[-1] <= CIRCUITS.in_range * s[0]:
        raise NotIdentifiable(
            f"{len(rows)} heads write into {[len(row) for row in rows]} dimensions of {width}, which overlap: this "
            "learner tells heads apart that write into directions of their own (heads times their width at most the "
            "width of the model)."
        )
    rest = np.linalg.svd(together)[2][len(together) :]
    return _Ranges(tuple(rows), np.linalg.inv(np.concatenate([together, rest])))


def _direction(X: Array, weights: Array) -> Array:
    """a (d,) with log weights = X a + constant, for tokens (n, d)."""
    logs = np.log(np.maximum(weights, np.finfo(np.float64).tiny))
    return np.asarray(np.linalg.lstsq(np.concatenate([X, np.ones((len(X), 1))], axis=1), logs, rcond=None)[0][:-1])


def _places(
    frame: Frame, cube: Cube, ranges: _Ranges, Phi: list[Array], v_a: list[Array], a: Array, phase: str
) -> Asking[tuple[Array, Array]]:
    """Places (K + 1, d) from the cube's numerators, and what no head writes of the inner ones (K - 1, m)."""
    x, K, H, d = frame.x, len(cube.a), cube.heads, frame.width
    duals, all_Phi = [ranges.of(h) for h in range(H)], np.concatenate(Phi, axis=1)
    beside = ranges.dual[:, all_Phi.shape[1] :]
    places = np.zeros((K + 1, d))
    start = x[cube.a[0]] - x[cube.q]
    # The query's own value is 0: v_a = (x_a - x_q - p_K) Phi + s, and the constant is x_q + p_K - s.
    right = [v_a[h] + (cube.constant - x[cube.q]) @ duals[h] - start @ Phi[h] for h in range(H)]
    left = np.concatenate([np.concatenate(duals, axis=1) - all_Phi, beside], axis=1)
    places[K] = np.linalg.solve(left.T, np.concatenate([*right, (cube.constant - x[cube.q]) @ beside]))
    own = np.zeros((K - 1, beside.shape[1]))
    if beside.shape[1]:
        # What no head writes into shows places as they are.
        for j in range(1, K):
            y = yield from frame.ask(np.full((1, j + 1), cube.q), phase)
            own[j - 1] = (y[0] - x[cube.q]) @ beside
    for j in range(1, K):
        step = x[cube.b[j]] - x[cube.a[j]]
        # n_j = delta v + B w for the values v of a and v + w of b, B = delta / (1 - A / B) the weight of b.
        parts = [
            cube.n[h, j + 1] @ duals[h] / cube.delta[h, j]
            + (step @ Phi[h]) / np.expm1(-step @ a[h])
            - (v_a[h] + (x[cube.a[j]] - x[cube.a[0]]) @ Phi[h])
            for h in range(H)
        ]
        left = np.concatenate([all_Phi, beside], axis=1)
        places[j] = np.linalg.solve(left.T, np.concatenate([*parts, own[j - 1]]))
    return places, own


def _polished(
    frame: Frame, cube: Cube, ranges: _Ranges, start: tuple[list[Array], Array, Array], own: Array, records: _Records
) -> Found:
    """Everything asked at the query fitted together."""
    Phi, a, places = start
    ids, y = (np.concatenate(parts) for parts in zip(*records, strict=True))
    problem = OneQuery(y @ ranges.dual, frame.x[ids[:, :-1]], frame.x[cube.q], ranges.dual, ranges.cuts, own)
    end = descend(problem, problem.pack(Phi, a, places), POLISH)
    left = float(np.sqrt(end.cost) / np.linalg.norm(problem.y))
    if not left <= CIRCUITS.unexplained_share:
        raise Lost(f"values and places leave {left:.1g} of the answers")
    Phi, rows, a, places = problem.unpack(end.x)
    P = np.array([A @ B for A, B in zip(Phi, rows, strict=True)]) @ np.linalg.inv(ranges.dual)
    return Found(P, a, places, cube.q, _error(problem, end.x, frame.noise * frame.size))


def _error(problem: OneQuery, v: Array, noise: float) -> float:
    """Relative error of the values of every head, and of the places."""
    off = problem.unpack(v + standard_errors(problem.at(v), noise))
    at = problem.unpack(v)
    parts = [relative_error(off[part], at[part]) for part in (0, 1, 2)]
    # Places may be nothing: they count beside tokens.
    tokens = problem.keys.reshape(-1, len(problem.x))
    size = float(np.linalg.norm(tokens - tokens.mean(axis=0))) / np.sqrt(len(tokens) / len(at[3]))
    return max(*parts, float(np.linalg.norm(off[3] - at[3])) / size)


def relative_error(off: Iterable[Array], at: Iterable[Array]) -> float:
    """The largest of several arrays' changes, each beside its size."""
    return max(
        float(np.linalg.norm(got - here)) / max(float(np.linalg.norm(here)), 1e-300)
        for got, here in zip(off, at, strict=True)
    )
