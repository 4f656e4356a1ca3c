"""Two models of a stack that share their heads, for Gauss-Newton; Jacobians are written out by hand.

Wide: the last token is long too, all heads of all layers see the same tokens and add up. Deep: the last token has an
ordinary length and every layer, or network behind one, sees what the steps below made of it.

Theory: docs/theory/stacks.md, "A deep pre-norm stack", polish.
Theory: docs/theory/stacks.md, "The networks between the heads".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from unsoftmax.probes.base import Array
from unsoftmax.solvers.neurons_apart import Neurons, NeuronsAtWork
from unsoftmax.solvers.stack_heads import AtWork, Contexts, Heads, at_work


@dataclass(frozen=True, eq=False)
class Wide:
    """All heads at once; `across`: behind a final norm, which leaves of an answer what is across q (outputs are D)."""

    heads: Heads
    across: bool = False

    @property
    def flat(self) -> Array:
        return self.heads.flat

    def like(self, flat: Array) -> Wide:
        return Wide(self.heads.like(flat), self.across)

    def answers(self, data: Contexts) -> Array:
        """(B, d)."""
        return self._left(at_work(self.heads, data.q, data, minus_own=True).out, data.q)

    def jacobian(self, data: Contexts) -> tuple[Array, Array]:
        """Answers (B, d) and their derivative (B, d, parameters)."""
        seen = at_work(self.heads, data.q, data, minus_own=True)
        return self._left(seen.out, data.q), self._left(seen.by_parameters(), data.q)

    def _left(self, x: Array, q: Array) -> Array:
        """x (B, d, ...) without its part along q (B, d)."""
        if not self.across:
            return x
        unit = (q / np.linalg.norm(q, axis=1, keepdims=True)).reshape(q.shape + (1,) * (x.ndim - 2))
        return np.asarray(x - unit * (unit * x).sum(axis=1, keepdims=True))


@dataclass(frozen=True, eq=False)
class Deep:
    """Layers of heads, each followed by a network if there are any: x <- x + step(norm x) + constant for every step.

    heads and `networks` lowest layer first, `sizes` heads per layer, constants (steps, d); norm is x / sqrt(|x|^2 / d +
    eps). T (d, D) maps coordinates of normalised tokens to tokens. In `flat` eps comes first and constants last, since
    both are held at times. `behind`: d, if answers are normalised once more by a final norm; all is in coordinates
    then, T the identity of D.
    """

    heads: Heads
    sizes: tuple[int, ...]
    constants: Array
    eps: float
    T: Array
    behind: int | None = None
    networks: tuple[Neurons, ...] = ()
    activation: str = "gelu"

    @property
    def flat(self) -> Array:
        networks = (net.flat for net in self.networks)
        return np.concatenate([[self.eps], self.heads.flat, *networks, self.constants.ravel()])

    def like(self, flat: Array) -> Deep:
        cuts = np.cumsum([1, self.heads.flat.size, *(net.flat.size for net in self.networks)])
        (eps,), heads, *networks, constants = np.split(flat, cuts)
        return replace(
            self,
            # A step past zero is no eps: half the way is.
            eps=float(eps) if eps > 0 else self.eps / 2,
            heads=self.heads.like(heads),
            networks=tuple(net.like(part) for net, part in zip(self.networks, networks, strict=True)),
            constants=constants.reshape(self.constants.shape),
        )

    def answers(self, data: Contexts) -> Array:
        """(B, d): what is added, or the normalised token behind a final norm."""
        v = self._run(data)[0]
        return v if self.behind is None else self._seen(v, data)[0]

    def _seen(self, v: Array, data: Contexts) -> tuple[Array, Array, Array]:
        """The normalised last token (B, D), its derivative by the token (B, D, D) and by eps (B, D)."""
        d = self.behind or len(self.T)
        x = data.scale[:, None] * data.q + v @ self.T
        g = (x * x).sum(axis=1) / d + self.eps
        turn = np.eye(x.shape[1]) / np.sqrt(g)[:, None, None] - x[:, :, None] * x[:, None] / (d * g**1.5)[:, None, None]
        return x / np.sqrt(g)[:, None], turn, -x / (2 * g**1.5)[:, None]

    def _run(self, data: Contexts) -> tuple[Array, list[tuple[AtWork | NeuronsAtWork, Array, Array]]]:
        """What is added (B, d), and every step at work with the derivatives of what it saw."""
        v = np.zeros((len(data), len(self.T)))
        steps = []
        for part, constant in zip(self._parts(), self.constants, strict=True):
            own, turn, fade = self._seen(v, data)
            seen = at_work(part, own, data) if isinstance(part, Heads) else part.at_work(own, self.activation)
            steps.append((seen, turn, fade))
            v = v + seen.out + constant
        return v, steps

    def _parts(self) -> Iterator[Heads | Neurons]:
        start = 0
        for layer, size in enumerate(self.sizes):
            yield self.heads.take(list(range(start, start + size)))
            start += size
            yield from self.networks[layer : layer + 1]

    def jacobian(self, data: Contexts) -> tuple[Array, Array]:
        """Answers (B, d) and their derivative (B, d, parameters), from the highest step down."""
        v, steps = self._run(data)
        above = np.broadcast_to(np.eye(len(self.T)), (len(data), *np.eye(len(self.T)).shape))
        by: dict[type, list[Array]] = {AtWork: [], NeuronsAtWork: []}
        by_constants = []
        by_eps, out = np.zeros(v.shape), v
        if self.behind is not None:
            out, above, by_eps = self._seen(v, data)
        for seen, turn, fade in reversed(steps):
            by[type(seen)].append(above @ seen.by_parameters())
            by_constants.append(above)
            by_own = above @ seen.by_own()
            by_eps += (by_own @ fade[:, :, None])[:, :, 0]
            above = above + by_own @ turn @ self.T.T
        rows = [by_eps[:, :, None], *by[AtWork][::-1], *by[NeuronsAtWork][::-1], *by_constants[::-1]]
        return out, np.concatenate(rows, axis=2)
