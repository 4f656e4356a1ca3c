"""W behind a known network with bounded tokens: attention moves along a segment on which the network is monotone.

Theory: docs/theory/transformer.md, "Bounded tokens".
"""

from __future__ import annotations

import numpy as np

from unsoftmax.errors import NotIdentifiable
from unsoftmax.learners.behind.constants import BEHIND
from unsoftmax.learners.behind.rays import REPAIR
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.core.readable import SATURATED, Repair, Steps, find_scale, until_readable
from unsoftmax.learners.core.settling import settle
from unsoftmax.models.relu_network import ReluNetwork
from unsoftmax.probes.base import Array, Probes, one_row
from unsoftmax.probes.pairs import paired
from unsoftmax.probes.scales import on_grid
from unsoftmax.solvers.segments import Kinked, invert, monotone_rows
from unsoftmax.spec import OracleSpec


class _Ball:
    """What all columns share: the network, its input b + alpha a (2b + alpha a with a residual), and the radius."""

    def __init__(self, spec: OracleSpec, network: ReluNetwork, residual: bool, rng: np.random.Generator) -> None:
        zeros, m = np.zeros(network.dim), network.width
        b = np.zeros(m) if network.b is None else network.b
        lin = zeros if network.lin is None else network.lin
        self.g = Kinked(network.A, network.w_o, b, lin, network.b_o)
        self.spec, self.rng = spec, rng
        self.copies = 2.0 if residual else 1.0
        self.radius = spec.domain.inside

    def rows(self, b: Array) -> Array | None:
        """Rows (d, d) with |a + b| inside the ball, on a grid so that sums are exact."""
        radius = self.reach(b)
        found = monotone_rows(self.g, self.copies * b, radius - float(np.linalg.norm(b)), self.rng)
        return None if found is None else on_grid(found, 2 * radius, self.spec.dtype)

    def reach(self, b: Array) -> float:
        """Radius of the ball that is used around a query token b."""
        return min(self.radius, BEHIND.row_over_query * float(np.linalg.norm(b)))

    def column(self, b: Array) -> tuple[Array, Array]:
        """A query token near b, or shorter, that has monotone rows; and the rows."""
        for _ in range(REPAIR.tries):
            for sign in (1.0, -1.0):
                rounded = on_grid(sign * b, 2 * self.reach(b), self.spec.dtype)
                rows = self.rows(rounded)
                if rows is not None:
                    return rounded, rows
            b = b / 2
        raise NotIdentifiable(
            "no direction was found along which the network is monotone, so its answers do not tell how attention is "
            "shared; lift max_norm, where rays need no such direction."
        )

    def settled(self, b: Array) -> Asking[tuple[Array, Array]]:
        """The same in every run on one ledger: rows of equal quality are a matter of the network's last digits."""
        token, rows = yield from settle("segments", *self.column(b))
        return token, rows

    def scores(self, b: Array, A: Array, y: Array) -> tuple[Array, Array, Array]:
        """Logits (n,) of probes [a + b ; b] from their answers, NaN where saturated; the shares alpha and phi'."""
        alpha, slope = invert(self.g, self.copies * b, A, y)
        return _logits(alpha), alpha, slope


def _logits(alpha: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.log(alpha) - np.log1p(-alpha)
    return np.where((alpha > 0) & (alpha < 1) & (np.abs(t) <= REPAIR.readable), t, np.nan)


def read_bounded(
    spec: OracleSpec, network: ReluNetwork, residual: bool, learned: bool, rng: np.random.Generator
) -> Asking[Array]:
    """W (d, d) from d^2 pair queries inside the ball, and with a learned network as many again for a Newton step."""
    d, ball = spec.dim, _Ball(spec, network, residual, rng)
    B = np.linalg.qr(rng.standard_normal((d, d)))[0]
    size = yield from _size_of_b(ball, B[0])
    columns: list[tuple[Array, Array]] = [(b, B) for b in B]
    answers = np.empty((d, d))

    def ask(index: Array, scale: Array, phase: str) -> Asking[Array]:
        for j, shorter in zip(index, scale, strict=True):
            columns[j] = yield from ball.settled(size * shorter * B[j])
        asked = [columns[int(j)] for j in index]
        y = yield Probes(np.concatenate([paired(A, np.tile(b, (d, 1))).tokens for b, A in asked]), phase=phase)
        answers[index] = y.reshape(-1, d)
        return np.array([ball.scores(b, A, part)[0] for (b, A), part in zip(asked, answers[index], strict=True)])

    T, _ = yield from until_readable(ask, np.ones(d), Repair(REPAIR.readable, far=1 / 3, tries=1 + CORE.repairs))
    if learned:
        T = yield from _newton(ball, columns, answers)
    if np.isnan(T).any():
        raise NotIdentifiable("some scores stay saturated however short the query token is; W is too large for them.")
    WB = np.array([np.linalg.solve(A, t) for (_, A), t in zip(columns, T, strict=True)])
    return np.linalg.solve(np.array([b for b, _ in columns]), WB).T


def _size_of_b(ball: _Ball, direction: Array) -> Asking[float]:
    """Length of query tokens at which a few scores are readable."""
    length = 0.0

    def look(size: float) -> Asking[float]:
        nonlocal length
        b, A = yield from ball.settled(size * direction)
        length = float(np.linalg.norm(b))
        y = yield Probes(
            paired(A[: CORE.pilot_entries], np.tile(b, (len(A[: CORE.pilot_entries]), 1))).tokens, phase="pilot"
        )
        t, _, _ = ball.scores(b, A[: CORE.pilot_entries], y)
        return 1.0 if (np.abs(t) < 0.6 * REPAIR.readable).all() else SATURATED

    found = yield from find_scale(look, ball.radius / 3, Steps(shorter=1 / 2, looks=REPAIR.tries))
    if found.size == SATURATED:
        raise NotIdentifiable("scores stay saturated however short the query token is; W is too large for this domain.")
    return length


def _newton(ball: _Ball, columns: list[tuple[Array, Array]], answers: Array) -> Asking[Array]:
    """One step with the target's own network at the estimated input: what the learned network errs there, cancels."""
    read = [ball.scores(b, A, y) for (b, A), y in zip(columns, answers, strict=True)]
    inputs = [ball.copies * b + alpha[:, None] * A for (b, A), (_, alpha, _) in zip(columns, read, strict=True)]
    # A single token x reaches the network as x, or as 2x through a residual.
    there = yield one_row(np.concatenate(inputs) / ball.copies, phase="newton")
    steps = [
        alpha + (y - seen) / slope
        for (_, alpha, slope), y, seen in zip(read, answers, there.reshape(len(columns), -1), strict=True)
    ]
    return np.array([_logits(alpha) for alpha in steps])
