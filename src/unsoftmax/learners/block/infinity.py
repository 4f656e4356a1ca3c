"""What a context adds to an endless last token: networks, a final norm and an unembedding drop out.

In a pre-norm block the last token may be as long as one likes: the heads see its direction. At length lambda the
stream is lambda q + Attn + network(direction of lambda q + Attn), and the network tends to a function of q alone, which
the sequence [q] has too. So the difference of the answers to [context, q] and [q], extrapolated to 1/lambda = 0, is
what attention adds because of the context. Behind a final norm only the direction of the stream shows: the part of the
sum along q is lost, the rest is read against it. An unembedding is a linear map, which endless tokens show by
themselves.

Theory: docs/theory/attention-layer.md, "Behind a network".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Self

import numpy as np

from unsoftmax.errors import NotIdentifiable
from unsoftmax.inversion import few_digits, rounding_unit
from unsoftmax.learners.block.constants import BLOCK
from unsoftmax.learners.core.base import Asking
from unsoftmax.probes.around import orthonormal
from unsoftmax.probes.base import Array, Probes
from unsoftmax.probes.scales import weights_at_infinity
from unsoftmax.spec import OracleSpec

Level = Literal["rough", "fair", "full"]
"""How well an answer must be known."""

LENGTHS: dict[Level, tuple[float, ...]] = {
    "rough": (2.0**20,),
    "fair": (2.0**8, 2.0**9, 2.0**10),
    "full": tuple(2.0**k for k in range(5, 11)),
}
"""Lengths lambda of last tokens, in units of the norm's sphere. With k of them the rest is of order (r / lambda)^k, r
the length of what attention writes on that sphere, about 1; rounding grows like the longest. Measured on random Llamas
in float64: 1e-6 with one, 1e-9 with three, 2e-12 with six (4e-12 with five from 2^6)."""


@dataclass(eq=False)
class Infinity:
    """readout (outputs, d) of the stream and its inverse (d, outputs); normed: whether a final norm stands before it.

    own: answers to query tokens alone, by their bytes and lengths, asked once each.
    """

    readout: Array
    inverse: Array
    normed: bool
    own: dict[bytes, Array] = field(default_factory=dict)

    @classmethod
    def of(cls, readout: Array, normed: bool) -> Self:
        """With this readout (outputs, d) of the stream."""
        readout = readout.astype(np.float64)
        return cls(readout, np.linalg.pinv(readout), normed)

    @property
    def dim(self) -> int:
        return self.readout.shape[1]

    @property
    def radius(self) -> float:
        return float(np.sqrt(self.dim))

    @property
    def noise(self) -> float:
        """Rounding of what is read, absolute: a few units in the last place of lambda."""
        lengths = LENGTHS["full"]
        return float(2.0**-52 * (np.abs(weights_at_infinity(lengths)) * lengths).sum())

    @property
    def fair(self) -> float:
        """Error of answers that are fairly well known, absolute."""
        lengths = LENGTHS["fair"]
        return max(self.noise, float(np.prod(1 / np.asarray(lengths))))

    def visible(self, last: Array) -> Array:
        """(d, d) onto what is seen of the stream above the query token `last` (d,)."""
        whole = np.eye(self.dim)
        return whole - np.outer(last, last) / (last @ last) if self.normed else whole

    def added(self, context: Array, last: Array, phase: str, level: Level = "full") -> Asking[Array]:
        """Attn(context, q) - Attn(q) (n, d), as far as visible, for context tokens (n, N, d) and last (n, d).

        Last tokens count by their direction.
        """
        lengths = LENGTHS[level]
        last = self.on_sphere(last)
        y = yield from self._limit(context, last, lengths, phase)
        keys = [q.tobytes() + np.asarray(lengths).tobytes() for q in last]
        new = {key: i for i, key in enumerate(keys) if key not in self.own}
        if new:
            alone = last[list(new.values())]
            found = yield from self._limit(np.zeros((len(new), 0, self.dim)), alone, lengths, phase)
            self.own |= dict(zip(new, found, strict=True))
        return y - np.array([self.own[key] for key in keys])

    def on_sphere(self, q: Array) -> Array:
        """q (..., d) at the length at which the heads see it."""
        return np.asarray(self.radius * q / np.linalg.norm(q, axis=-1, keepdims=True))

    def frozen(self, z: Array) -> Array:
        """Tokens (..., d) that are seen as z on the sphere, whatever the norm's eps; zeros stay zeros."""
        return np.asarray(BLOCK.frozen_length * z)

    def _limit(self, context: Array, last: Array, lengths: tuple[float, ...], phase: str) -> Asking[Array]:
        n, k = len(last), len(lengths)
        long = (np.asarray(lengths)[:, None, None] * last).reshape(n * k, 1, -1)
        y = yield Probes(np.concatenate([np.tile(context, (k, 1, 1)), long], axis=1), phase=phase)
        stream = (y @ self.inverse.T).reshape(k, n, -1)
        return np.tensordot(weights_at_infinity(lengths), self._above(stream, long.reshape(k, n, -1)), axes=1)

    def _above(self, stream: Array, last: Array) -> Array:
        """What was added to the last tokens (k, n, d); behind a norm across them only."""
        if not self.normed:
            return stream - last
        length = np.linalg.norm(last, axis=-1, keepdims=True)
        unit = last / length
        along = (stream * unit).sum(axis=-1, keepdims=True)
        return np.asarray(length * (stream - along * unit) / along)


def read_out(spec: OracleSpec, normed: bool, rng: np.random.Generator) -> Asking[Infinity | None]:
    """d endless tokens, phase "values": the linear map between the stream and the answers; None if it has no inverse.

    Log-probabilities are logits but for a number that all tokens share, to which the map is made blind.
    """
    d = spec.dim
    U = orthonormal(rng, d) * np.sqrt(d)
    y = yield Probes((BLOCK.endless_length * U)[:, None], phase="values")
    if np.abs(np.logaddexp.reduce(y, axis=1)).max() < BLOCK.log_sum:
        y = y - y.mean(axis=1, keepdims=True)
    y = y if normed else y / BLOCK.endless_length
    B = np.linalg.solve(U, y).T
    sizes = np.linalg.svd(B, compute_uv=False)
    if len(B) < d or sizes[-1] < BLOCK.no_inverse * sizes[0]:
        return None
    return Infinity.of(B, normed)


def require_digits(y: Array, spec: OracleSpec) -> None:
    """Refuse answers (n, outputs) that have not all digits of float64."""
    unit = max(spec.eps, rounding_unit(y), few_digits(y.ravel()[:64]))
    if unit > 2 * np.finfo(np.float64).eps:
        least = min(BLOCK.most_lost, unit**0.75)
        raise NotIdentifiable(
            f"more than attention answers to single tokens (a network behind it, or a function of the last token "
            f"beside it), and answers are rounded to {unit:.1g}: beside query tokens so long that it drops out, that "
            f"leaves {least:.1g} of what attention writes, and the error of W is "
            f"{BLOCK.raised_error:.0e} times as large. Ask for answers in float64, or for the layer itself."
        )
