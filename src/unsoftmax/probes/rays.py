"""Ray probes [lam a ; b / lam]: the score gap stays a'Wb while biases, residuals and b vanish next to lam a.

If the network behind attention is homogeneous of degree p at infinity, the answer is sigma(a'Wb)^p c(a) with c(a) the
answer at full attention on lam a.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.probes.base import Array, LazyProbes, Probes


@dataclass(frozen=True, eq=False)
class RayPairs:
    """Rows A (m, d) and columns B (n, d), at length lam (a power of two, so that both products are exact)."""

    A: Array
    B: Array
    lam: float

    def at(self, rows: Array, columns: Array, shrink: Array, phase: str) -> LazyProbes:
        """The pairs (A[rows], B[columns] * shrink), one sequence each."""
        d = self.A.shape[1]

        def build(start: int, stop: int) -> Probes:
            k = slice(start, stop)
            tokens = np.empty((len(rows[k]), 2, d))
            tokens[:, 0] = self.A[rows[k]] * self.lam
            tokens[:, 1] = self.B[columns[k]] * (shrink[k, None] / self.lam)
            return Probes(tokens)

        return LazyProbes(len(rows), 2 * d * 8, build, phase)


def halved(a: Array, lam: float, phase: str) -> Probes:
    """[lam a ; 0]: a zero query token ties all scores whatever W is, so attention returns lam a / 2."""
    tokens = np.zeros((len(a), 2, a.shape[1]))
    tokens[:, 0] = a * lam
    return Probes(tokens, phase=phase)
