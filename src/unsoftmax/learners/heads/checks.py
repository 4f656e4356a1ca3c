"""One three-token query per column that no solve uses: small square systems may have a second solution.

Of answers with noise an error of every reading moves the check by a known amount, through the equations that the column
is solved from. What is off by more is a second solution, however much less than the answers themselves.

Theory: docs/theory/multi-head.md, "Generic heads", three tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.heads.assembly import Measured
from unsoftmax.learners.heads.constants import HEADS
from unsoftmax.learners.heads.ground import Ground
from unsoftmax.learners.heads.isolation import Isolated
from unsoftmax.learners.heads.three_tokens import answered
from unsoftmax.models.multi_head import MultiHead
from unsoftmax.precision import SHORT_FORMAT
from unsoftmax.probes.base import Array, Probes
from unsoftmax.probes.scales import held


@dataclass(eq=False)
class Check:
    """Tokens (n, 3, d), one sequence per column b, or one for each again and again, and answers y (n,)."""

    tokens: Array
    y: Array

    @classmethod
    def random(cls, ground: Ground, heads: list[Isolated], B: Array, rng: np.random.Generator) -> Check:
        if ground.noise > SHORT_FORMAT:
            B = np.tile(B, (HEADS.coarse_checks, 1))
        n = len(B)
        z = rng.standard_normal((n, 2, ground.dim))
        size = np.array([heads[j % len(heads)].size for j in range(n)])
        z *= (2 * size[:, None] / np.linalg.norm(z, axis=2))[:, :, None]
        query = ground.query(B)[:, None]
        return cls(np.concatenate([held(z * ground.stretch + query, ground.spec.dtype), query], axis=1), np.zeros(n))

    def ask(self) -> Asking[None]:
        if len(self.tokens):
            self.y = yield Probes(self.tokens, phase="check")

    def gaps(self, ground: Ground, v: Array, W: Array) -> Array:
        """By how much the heads found miss the answer of every column, relative to the tokens' values, (n,)."""
        values, scores = v, W
        if ground.zero is not None:
            values = np.vstack([v, ground.zero])
            scores = np.concatenate([W, np.zeros((1, ground.dim, ground.dim))])
        return np.asarray(np.abs(MultiHead(scores / ground.unit, values)(self.tokens) - self.y) / self.size(ground, v))

    def size(self, ground: Ground, v: Array) -> Array:
        """The tokens' values, (n,)."""
        values = v if ground.zero is None else np.vstack([v, ground.zero])
        return np.asarray(np.abs(self.tokens @ values.T).sum(axis=(1, 2)))


@dataclass(frozen=True, eq=False)
class Judged:
    """Every column as it was solved: one that came out wrong shows in its own numbers alone.

    gaps    by how much it misses each of its checks, relative to the tokens' values, (checks, n)
    left    what errors of the answers leave there, root mean square
    errors  what they leave of a head's W b itself, relative to it, the worst of all heads, (n,)
    """

    gaps: Array
    left: Array
    errors: Array

    @property
    def typical(self) -> float:
        """Error of most columns."""
        return max(float(np.median(self.errors)), 1e-300)

    def doubts(self, typical: float) -> Array:
        """Gaps over what errors may leave, and errors over a typical one; above 1 a column is in doubt."""
        return np.maximum((self.gaps / (HEADS.shown * self.left)).max(axis=0), self.errors / (HEADS.worse * typical))


def judged(
    check: Check,
    ground: Ground,
    v: Array,
    measured: list[Measured],
    columns: list[Array],
    W: Array,
    noise: float,
    only: tuple[int, ...] | None = None,
) -> Judged:
    """Columns W b (n_h, d) of every head as they were solved, by answers with a relative error of `noise`."""
    n = max(map(len, columns))
    rest = measured[0].entries.B[:n] @ W.transpose(0, 2, 1)
    U = np.array([np.vstack([u, others[len(u) :]]) for u, others in zip(columns, rest, strict=True)])
    total, size = float(np.linalg.norm(v, axis=1).sum()), check.size(ground, v)
    errors = [m.entries.errors(noise * total) for m in measured]
    found = Judged(np.zeros((len(size) // n, n)), np.ones((len(size) // n, n)), np.zeros(n))
    for j in range(n) if only is None else only:
        tokens = check.tokens[j::n]
        z = (tokens[:, :2] - tokens[:, 2:]) / ground.stretch
        shown, slopes = answered(z, v, U[:, j])
        if ground.zero is not None:
            shown = shown + (z @ ground.zero).sum(axis=1) / 3
        found.gaps[:, j] = np.abs(shown * ground.stretch + tokens[:, 2] @ ground.V - check.y[j::n])
        left = [noise * total * np.linalg.norm(z, axis=2).max(axis=1)]
        active = [h for h, m in enumerate(measured) if j < len(columns[h]) and len(m.shares.y)]
        if active:
            free = [measured[h].head.dual * errors[h][:, j] for h in active]
            moved, found.errors[j] = _moved(ground, v, U[:, j], active, measured, free, j, noise)
            left.append(np.linalg.norm(np.einsum("chd,hde->ce", slopes[:, active], moved), axis=1))
        found.left[:, j] = np.linalg.norm(left, axis=0) * ground.stretch
    return Judged(found.gaps / size.reshape(-1, n), found.left / size.reshape(-1, n), found.errors)


def _moved(
    ground: Ground,
    v: Array,
    U: Array,
    active: list[int],
    measured: list[Measured],
    free: list[Array],
    j: int,
    noise: float,
) -> tuple[Array, float]:
    """What every error of the readings of column j moves of the active heads' W b, (heads, d, errors), and the largest
    error of a bound part relative to W b; `free` (d, p) are errors of the free logits, each as an error of W b.

    J are the column's equations: an error of an answer, or of a free part, moves the bound parts solved from it.
    """
    heads = [measured[h] for h in active]
    tokens = np.concatenate([m.shares.tokens[:, j] for m in heads])
    z = (tokens[:, :2] - tokens[:, 2:]) / ground.stretch
    rows = answered(z, v, U)[1]
    inverse = np.linalg.pinv(np.hstack([rows[:, h] @ m.head.bound.T for h, m in zip(active, heads, strict=True)]))
    answers = noise * np.linalg.norm(z, axis=2).max(axis=1) * np.linalg.norm(v, axis=1).sum()
    bound = np.hstack([inverse * answers, *(-inverse @ (rows[:, h] @ f) for h, f in zip(active, free, strict=True))])
    parts = np.split(bound, np.cumsum([len(m.head.bound) for m in heads])[:-1])
    moved = np.array([m.head.bound.T @ part for m, part in zip(heads, parts, strict=True)])
    first = len(answers)
    for part, own in zip(moved, free, strict=True):
        part[:, first : first + own.shape[1]] += own
        first += own.shape[1]
    sizes = np.maximum(np.linalg.norm(U[active], axis=1), 1e-300)
    return moved, max(float(np.linalg.norm(part)) / size for part, size in zip(parts, sizes, strict=True))
