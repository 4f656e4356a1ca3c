"""A whole pre-norm encoder for Gauss-Newton: heads, networks, constants and eps; Jacobian written out by hand.

Theory: docs/theory/stacks.md, "The networks between the heads".
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from unsoftmax.probes.base import Array
from unsoftmax.solvers.neurons_apart import ACTIVATIONS, Neurons
from unsoftmax.solvers.stack_heads import AtWork, Contexts, Heads, at_work


@dataclass(frozen=True, eq=False)
class Encoder:
    """x <- x + Attn_l(norm x) + constants_2l, x <- x + network_l(norm x) + constants_2l+1; T as in `Deep`.

    heads lowest layer first, `sizes` heads per layer; constants (2 L, d).
    """

    heads: Heads
    sizes: tuple[int, ...]
    networks: tuple[Neurons, ...]
    activation: str
    constants: Array
    eps: float
    T: Array

    @property
    def flat(self) -> Array:
        parts = [part.ravel() for net in self.networks for part in (net.A, net.b, net.C)]
        return np.concatenate([[self.eps], self.heads.flat, *parts, self.constants.ravel()])

    def like(self, flat: Array) -> Encoder:
        start = 1 + self.heads.flat.size
        heads, networks = self.heads.like(flat[1:start]), []
        for net in self.networks:
            own = []
            for part in (net.A, net.b, net.C):
                own.append(flat[start : start + part.size].reshape(part.shape))
                start += part.size
            networks.append(Neurons(own[0], own[1], own[2], 0.0))
        # A step past zero is no eps: half the way is.
        eps = float(flat[0]) if flat[0] > 0 else self.eps / 2
        constants = flat[start:].reshape(self.constants.shape)
        return replace(self, heads=heads, networks=tuple(networks), constants=constants, eps=eps)

    def answers(self, data: Contexts) -> Array:
        """(B, d)."""
        return self._run(data)[0]

    def _seen(self, v: Array, data: Contexts) -> tuple[Array, Array]:
        """The last token x (B, D), and the mean square under its norm (B,)."""
        x = data.scale[:, None] * data.q + v @ self.T
        return x, (x * x).sum(axis=1) / len(self.T) + self.eps

    def _run(self, data: Contexts) -> tuple[Array, list[tuple[Array, Array, AtWork | Array]]]:
        """What is added (B, d), and of every step what it saw: x, its mean square, heads at work or arguments."""
        v = np.zeros((len(data), len(self.T)))
        act, start = ACTIVATIONS[self.activation][0], 0
        steps: list[tuple[Array, Array, AtWork | Array]] = []
        for l, (size, net) in enumerate(zip(self.sizes, self.networks, strict=True)):
            x, g = self._seen(v, data)
            work = at_work(self.heads.take(list(range(start, start + size))), x / np.sqrt(g)[:, None], data)
            steps.append((x, g, work))
            v, start = v + work.out + self.constants[2 * l], start + size
            x, g = self._seen(v, data)
            h = x / np.sqrt(g)[:, None] @ net.A.T + net.b
            steps.append((x, g, h))
            v = v + act(h) @ net.C.T + self.constants[2 * l + 1]
        return v, steps

    def jacobian(self, data: Contexts) -> tuple[Array, Array]:
        """Answers (B, d) and their derivative (B, d, parameters), from the highest step down."""
        v, steps = self._run(data)
        act, slope = ACTIVATIONS[self.activation]
        B, d = v.shape
        above = np.broadcast_to(np.eye(d), (B, d, d))
        by_heads, by_networks, by_constants, by_eps = [], [], [], np.zeros(v.shape)
        for number, (x, g, seen) in reversed(list(enumerate(steps))):
            by_constants.append(above)
            if isinstance(seen, AtWork):
                by_heads.append(above @ seen.by_parameters())
                by_own = above @ seen.by_own()
            else:
                net = self.networks[number // 2]
                by_h = above @ net.C * slope(seen)[:, None]
                z = x / np.sqrt(g)[:, None]
                parts = [np.einsum("bfi,bz->bfiz", by_h, z), by_h, np.einsum("bfe,bi->bfei", above, act(seen))]
                by_networks.append(np.concatenate([part.reshape(B, d, -1) for part in parts], axis=2))
                by_own = by_h @ net.A
            root = np.sqrt(g)[:, None, None]
            turn = np.eye(x.shape[1]) / root - x[:, :, None] * x[:, None] / (d * root**3)
            by_eps -= (by_own @ x[:, :, None])[:, :, 0] / (2 * g**1.5)[:, None]
            above = above + by_own @ turn @ self.T.T
        rows = [by_eps[:, :, None], *by_heads[::-1], *by_networks[::-1], *by_constants[::-1]]
        return v, np.concatenate(rows, axis=2)
