"""Attention weights of all heads from one answer, by least squares on what they write; and tokens that read well."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.rotary.scene import Scene
from unsoftmax.learners.rotary.values import Values
from unsoftmax.probes.base import Array

_VALUES, _LONG = 0.66, 0.95
"""Lengths, as shares of the radius, of the part of a token that is written and of the whole token."""


@dataclass(eq=False)
class Reader:
    """Weights by head and slot. `gain` collects, read by read, by how much it raises the noise of an answer."""

    scene: Scene
    values: Values
    gain: list[float] = field(default_factory=list)

    @property
    def quiet(self) -> bool:
        """Whether query tokens exist that write nothing and still show every key direction."""
        return len(self.scene.empty) >= self.values.width + 2

    @property
    def slots(self) -> int:
        """Tokens whose weights one answer tells for all heads."""
        return min(self.values.width, len(self.scene.M) // len(self.values.O))

    def before_quiet(self, z: Array, slots: int, phase: str) -> Asking[Array]:
        """Weights (n, H, slots) of the first tokens of z (n, N, d); all others write nothing."""
        y, seen = yield from self.scene.ask(z, phase)
        known: dict[bytes, Array] = {}
        out = []
        for row, tokens in zip(y, seen[:, :slots], strict=True):
            key = tokens.tobytes()
            if key not in known:
                known[key] = np.linalg.pinv(self._written(tokens))
            out.append((known[key] @ row).reshape(len(self.values.O), -1))
            self._count(known[key], row, out[-1].min())
        return np.array(out)

    def before_any(self, z: Array, phase: str) -> Asking[tuple[Array, Array, Array]]:
        """Weights (n, H, m) of the tokens before the last, the last one's own (n, H), and z as seen."""
        y, seen = yield from self.scene.ask(z, phase)
        out = []
        for row, tokens in zip(y, seen, strict=True):
            inverse = np.linalg.pinv(self._written(tokens[:-1] - tokens[-1]))
            out.append((inverse @ (row - self.scene.M @ tokens[-1])).reshape(len(self.values.O), -1))
            self._count(inverse, row, min(out[-1].min(), (1 - out[-1].sum(axis=1)).min()))
        alpha = np.array(out)
        return alpha, 1 - alpha.sum(axis=2), seen

    def _written(self, tokens: Array) -> Array:
        """(outputs, H * m): what every head writes of m tokens."""
        P = self.values.P @ tokens.T
        return P.transpose(1, 0, 2).reshape(P.shape[1], -1)

    def _count(self, inverse: Array, row: Array, least: float) -> None:
        norm = np.linalg.norm(inverse) / np.sqrt(len(inverse))
        self.gain.append(float(norm * np.linalg.norm(row) / max(least, 1e-12)))

    def block(self, m: int, rng: np.random.Generator) -> Array:
        """m tokens (m, d) whose values are orthogonal under every group: all heads read all slots equally well."""
        v = dual_values(self.values, m, _VALUES * self.scene.radius, rng)
        if len(self.scene.empty) == 0:
            return v * (_LONG / _VALUES)
        free = rng.standard_normal((m, len(self.scene.empty))) @ self.scene.empty
        room = np.maximum((_LONG * self.scene.radius) ** 2 - (v * v).sum(axis=1), 0)
        return np.asarray(v + free * (np.sqrt(room) / np.linalg.norm(free, axis=1))[:, None])


def dual_values(values: Values, m: int, size: float, rng: np.random.Generator) -> Array:
    """(m, d) tokens with V_g v_i orthogonal in every group g, the longest of them `size` long."""
    s = values.width
    wanted = np.vstack([np.linalg.qr(rng.standard_normal((s, s)))[0][:, :m] for _ in values.V])
    v = np.linalg.lstsq(np.vstack(list(values.V)), wanted, rcond=None)[0].T
    return np.asarray(v * (size / np.linalg.norm(v, axis=1).max()))
