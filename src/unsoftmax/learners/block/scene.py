"""The block as the steps of `rotary` want to see it: a layer on normalised tokens, whose query tokens are endless.

Theory: docs/theory/attention-layer.md, "Behind a network".
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from unsoftmax.learners.block.infinity import Infinity
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.settling import settle
from unsoftmax.learners.rotary.scene import Scene
from unsoftmax.learners.rotary.values import Values
from unsoftmax.probes.around import orthonormal
from unsoftmax.probes.base import Array


@dataclass(frozen=True, eq=False)
class FarScene(Scene):
    """Context tokens as in a layer, query tokens on the sphere; answers are those of attention alone."""

    far: Infinity = field(kw_only=True)

    @property
    def exact(self) -> bool:
        return True

    @property
    def free(self) -> bool:
        return False

    @property
    def shown(self) -> int:
        return self.dim - self.far.normed

    def visible(self, last: Array) -> Array | None:
        return self.far.visible(last) if self.far.normed else None

    def query_tokens(self, size: float, rng: np.random.Generator) -> Array:
        """d at right angles and one opposite to them all, on the sphere whatever their size."""
        U = orthonormal(rng, self.dim)
        return np.asarray(self.far.on_sphere(np.vstack([U, -U.sum(axis=0)])))

    def draw(self, basis: Array, size: float, rng: np.random.Generator, n: int | None = None) -> Array:
        """Query tokens, as long as they are seen."""
        return self.far.on_sphere(super().draw(basis, 1.0, rng, n))

    def ask(self, z: Array, phase: str) -> Asking[tuple[Array, Array]]:
        """Answers (n, d) of attention to sequences z (n, N, d), as far as visible, and z as really seen."""
        x, q = self.tokens(z[:, :-1]), self.far.on_sphere(z[:, -1])
        y = yield from self.far.added(x, q, phase)
        return y + q @ self.M.T, np.concatenate([self.seen(x), q[:, None]], axis=1)


def far_scene(far: Infinity, values: Values, eps: float, longest: float) -> Asking[FarScene]:
    """Attention of values and eps found, without its constant, which no context shows."""
    M, V = values.P.sum(axis=0), np.vstack(list(values.V))
    Vt, d, r = np.linalg.svd(V)[2], far.dim, len(V)
    written, empty = yield from settle("tokens that write", Vt[:r], Vt[r:])
    noise = 2 * far.noise
    return FarScene(d, eps, M, np.zeros(d), False, noise, "float64", written, empty, longest=longest, far=far)
