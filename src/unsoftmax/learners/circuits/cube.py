"""Two tokens in every place before one query: the number of heads, and their softmax denominators.

Theory: docs/theory/token-layer.md, "Circuits of a one-layer language model", heads apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import qr

from unsoftmax.learners.circuits.constants import CIRCUITS
from unsoftmax.learners.circuits.frame import Frame
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.probes.base import Array
from unsoftmax.solvers.denominators import denominators
from unsoftmax.solvers.row_space import ARITHMETIC


class Lost(Exception):
    """A design that did not carry; `again`: another draw of tokens may; `normed`: it looks like a norm behind."""

    def __init__(self, reason: str, *, again: bool = True, normed: bool = False) -> None:
        super().__init__(reason)
        self.again = again
        self.normed = normed
        self.places = 0


@dataclass(frozen=True, eq=False)
class Cube:
    """Places 0 .. K - 1 hold a (bit 0) or b (bit 1), each (K,); the query q is last.

    Head h writes (n_h0 + sum_j bit_j n_hj) / (1 + delta_h . bits), its values counted from where n_hj is 0 for the
    place with its largest delta; `constant` (d,) is the rest. delta (H, K), n (H, K + 1, d). y (m, d) answer `bits`.
    """

    a: Array
    b: Array
    q: int
    delta: Array
    n: Array
    constant: Array
    bits: Array
    y: Array

    @property
    def heads(self) -> int:
        return len(self.delta)

    def prompts(self, bits: Array, first: Array | None = None) -> Array:
        """Ids (n, K + 1) for bits (n, K), tokens `first` (n,) in the first place if given."""
        ids = np.where(bits > 0, self.b, self.a)
        if first is not None:
            ids[:, 0] = first
        return np.concatenate([ids, np.full((len(ids), 1), self.q)], axis=1)

    def denominators(self, bits: Array) -> Array:
        """(n, H)."""
        return np.asarray(1 + bits @ self.delta.T)

    def numerators(self, bits: Array) -> Array:
        """(n, H, d)."""
        return np.einsum("nj,hjd->nhd", np.concatenate([np.ones((len(bits), 1)), bits], axis=1), self.n)

    def patterns(self, count: int) -> Array:
        """Bits (count, K), the first 0, at which 1 / D is as different between heads and patterns as can be."""
        K = len(self.a)
        bits = _corners(np.arange(2 ** (K - 1)) * 2, K)
        G = 1 / self.denominators(bits)
        chosen = list(
            qr((G / np.linalg.norm(G, axis=0)).T, pivoting=True, mode="economic")[2][: min(count, self.heads)]
        )
        while len(chosen) < count:
            rest = [i for i in range(len(bits)) if i not in chosen]
            least = [np.linalg.svd(G[[*chosen, i]], compute_uv=False)[-1] for i in rest]
            chosen.append(rest[int(np.argmax(least))])
        return np.asarray(bits[chosen])

    def pair(self) -> Array:
        """Bits (2, K), the first 0, between which the denominator of every head changes most."""
        K = len(self.a)
        bits = _corners(np.arange(2 ** (K - 1)) * 2, K)
        logs = np.log(self.denominators(bits))
        apart = np.abs(logs[:, None] - logs).min(axis=2)
        return np.asarray(bits[list(np.unravel_index(np.argmax(apart), apart.shape))])


def read_cube(frame: Frame, tokens: Array, K: int, rng: np.random.Generator, phase: str) -> Asking[Cube]:
    """Ask corners of a cube over K places, of tokens drawn from `tokens`, until the heads are apart."""
    drawn = rng.choice(tokens, 2 * K + 1, replace=False)
    a, b, q = drawn[:K], drawn[K : 2 * K], int(drawn[-1])
    order = np.concatenate([[0], 1 + rng.permutation(2**K - 1)])
    bits, y, most = (
        _corners(order[:0], K),
        np.zeros((0, frame.width)),
        min(2**K, frame.width + 1 + CIRCUITS.prompts_to_spare),
    )
    wanted = min(2 * CIRCUITS.prompts_at_once, most)
    while len(y) < wanted:
        new = _corners(order[len(y) : wanted], K)
        ids = np.concatenate([np.where(new > 0, b, a), np.full((len(new), 1), q)], axis=1)
        y = np.concatenate([y, (yield from frame.ask(ids, phase))])
        bits = np.concatenate([bits, new])
        rank, angle, span = _span(y, frame)
        wanted = min(rank + CIRCUITS.prompts_to_spare if rank < len(y) else len(y) + CIRCUITS.prompts_at_once, most)
    if rank > min(frame.width, len(y) - 2):
        raise Lost(f"prompts that differ in {K} tokens answer in {rank - 1} dimensions, all that can show", again=False)
    if rank == 1:
        raise Lost("the tokens before the last do not show in the answers")
    heads, rest = divmod(rank - 1, K)
    if rest:
        # A norm multiplies all quotients by a function of its own: one dimension more, beside constants.
        said = f"prompts that differ in {K} tokens answer in {rank - 1} dimensions, not a multiple of {K}"
        raise Lost(said, again=False, normed=rest == 1)
    delta = denominators(span, bits, heads, max(CIRCUITS.unexplained_share, 30 * angle), rng)
    if delta is None:
        raise Lost(f"no {heads} softmax denominators explain prompts that differ in {K} tokens")
    n, constant = _numerators(delta, bits, y)
    return Cube(a, b, q, delta, n, constant, bits, y)


def _corners(numbers: Array, K: int) -> Array:
    """The corners (n, K) of a cube by number."""
    return np.asarray((np.asarray(numbers)[:, None] >> np.arange(K)) & 1, dtype=np.float64)


def _span(y: Array, frame: Frame) -> tuple[int, float, Array]:
    """Dimensions of the answers (n, d) and constants together, the angle noise leaves, an orthonormal basis.

    The last singular value of a cube was 1e3 to 1e9 times its noise for four heads with scores of deviation 0.5 to 2.
    """
    size = float(np.linalg.norm(y)) / np.sqrt(len(y)) or 1.0
    U, s, _ = np.linalg.svd(np.concatenate([y / size, np.ones((len(y), 1))], axis=1), full_matrices=False)
    floor = max(ARITHMETIC * np.finfo(np.float64).eps * s[0], frame.noise * frame.size / size * np.sqrt(y.size))
    ratios = s[:-1] / np.maximum(s[1:], floor)
    above = np.flatnonzero((ratios >= CORE.audible) & (s[1:] <= CORE.audible * floor))
    rank = int(above[0]) + 1 if len(above) else len(s)
    return rank, float(floor / max(s[rank - 1], 1e-300)), np.asarray(U[:, :rank])


def _numerators(delta: Array, bits: Array, y: Array) -> tuple[Array, Array]:
    """n (H, K + 1, d) and the constant (d,) by least squares; each head writes 0 for its place of largest delta."""
    (H, K), d = delta.shape, y.shape[1]
    D = 1 + bits @ delta.T
    parts = np.concatenate([np.ones((len(bits), 1)), bits], axis=1)
    kept = [np.delete(np.arange(K + 1), 1 + np.argmax(np.abs(row))) for row in delta]
    F = np.concatenate([np.ones((len(bits), 1))] + [parts[:, kept[h]] / D[:, [h]] for h in range(H)], axis=1)
    size = np.linalg.norm(F, axis=0)
    found = np.linalg.lstsq(F / size, y, rcond=None)[0] / size[:, None]
    n = np.zeros((H, K + 1, d))
    for h in range(H):
        n[h, kept[h]] = found[1 + h * K : 1 + (h + 1) * K]
    return n, found[0]
