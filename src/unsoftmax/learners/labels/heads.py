"""Several heads from labels: a first token shows how many and their scores, flips near it all of W, flips anywhere the
last digits.

Every flip is a sequence where f = 0, so the exact model is fitted to records without an answer's noise but the width of
the bracket; the limits that make the first steps easy to solve leave nothing in the result.

Theory: docs/theory/membership.md, "Several heads".
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from unsoftmax import theory
from unsoftmax.errors import DomainError, ModelMismatch
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.core.readable import INVISIBLE, SATURATED, Steps, find_scale
from unsoftmax.learners.core.settling import settle
from unsoftmax.learners.labels.asking import Direction, Labels
from unsoftmax.learners.labels.constants import LABELS
from unsoftmax.learners.labels.flips import Heads, Scene, refined, weigh
from unsoftmax.probes.base import Array
from unsoftmax.solvers.exponential_sums import SMALL, fit_sum, frequencies, table_rank
from unsoftmax.solvers.heads_fit import levenberg
from unsoftmax.spec import OracleSpec


def require_copies(spec: OracleSpec) -> None:
    """Raise DomainError where sequences are too short for a ruler."""
    longest = spec.domain.length_limit
    if longest < 2 * LABELS.fewest_copies + 2:
        raise DomainError(
            f"several heads are weighed against copies of a token, {2 * LABELS.fewest_copies + 2} tokens at least, and "
            f"max_length is {longest:g}; only one head is learned from shorter sequences (heads=1)."
        )


def most_of_starts(d: int, H: int, accuracy: float) -> int:
    """Labels at most for V, the size of scores, all starts of H heads, and brackets of the flips with their repairs."""
    V = 2 * d * theory.membership_bits(accuracy / 32) + 20 * d
    looks = 16 * LABELS.pairs_for_size
    first = 2 * 3 * (max(d, H) + 1) * (H + 2) * (LABELS.bits_of_first_table + 6)
    near = math.ceil(LABELS.flips_per_unknown * H * d * (d + 1)) * (LABELS.bits_near_first_token + 6)
    return V + looks + CORE.draws * (first + near) + 20 * theory.membership_flips(d, H)


def learn_heads(labels: Labels, direction: Direction, heads: int | None, accuracy: float) -> Asking[Heads | None]:
    """All heads, errors within `accuracy` of every W_h and of v; None if there is one head or no score at all."""
    scene = yield from _sized(Scene(labels, direction))
    if scene is None:
        if heads is not None:
            raise ModelMismatch(f"no score changes a label: there is one head with W = 0, not {heads} heads.")
        return None
    for attempt in range(CORE.draws):
        first = yield from _first_token(scene, heads)
        if first is None:
            # Longer sums leave the range of the ruler; shorter ones leave fewer digits.
            scene = replace(scene, scale=scene.scale * (0.7 if attempt % 2 == 0 else 1.2))
            continue
        x, a, b = first
        if heads is None and len(a) == 1:
            return None
        rough = yield from _near(scene, x, a, b)
        if rough is not None:
            return (yield from refined(scene, rough, accuracy))
    raise ModelMismatch(
        f"labels near {CORE.draws} tokens are those of no sum of {heads or 'several'} heads: the target "
        "is none, has "
        "another number of heads, or heads too alike or too weak to be told apart."
    )


def _sized(scene: Scene) -> Asking[Scene | None]:
    """The size of |x| |q| at which scores begin to show; None if they never do."""
    x, q = scene.valued(LABELS.pairs_for_size), scene.units(LABELS.pairs_for_size)
    weight = x @ scene.direction.v

    def look(scale: float) -> Asking[float]:
        ruler = replace(scene, scale=scale).ruler(LABELS.ruler_copies)
        if scale > LABELS.query_over_token * ruler.length**2:
            return SATURATED
        more = yield ruler.probes(x, q * scale, -0.5 * weight, "pilot")
        less = yield ruler.probes(x, q * scale, -2.0 * weight, "pilot")
        return INVISIBLE if np.mean((more > 0.5) & (less < 0.5)) > LABELS.unmoved_share else SATURATED

    steps = Steps(
        shorter=2.0**-8,
        longer=2.0**8,
        limit=LABELS.largest_score_product,
        floor=1 / LABELS.largest_score_product,
        narrow=5.0,
    )
    size = yield from find_scale(look, 1.0, steps)
    if math.isinf(size.high):
        return None
    found = replace(scene, scale=size.scale)
    if 2 * size.scale > LABELS.query_over_token * found.ruler(LABELS.ruler_copies).length ** 2:
        raise DomainError(
            f"scores do not show inside max_norm {scene.labels.spec.domain.max_norm:g} beside a query token that is "
            "short enough to be weighed by; several heads are not learned there."
        )
    return found


def _first_token(scene: Scene, heads: int | None) -> Asking[tuple[Array, Array, Array] | None]:
    """A token x (d,), its score vectors a_h = W_h'x (H, d) and values b_h = x.v_h; None if it shows them badly."""
    d, scale = scene.dim, scene.scale
    x = scene.valued(1)[0]
    shifts = np.linalg.qr(scene.labels.rng.standard_normal((d, d)))[0]
    if heads is not None and heads > d:
        shifts = np.vstack([shifts, scene.units(heads - d)])
    shifts = shifts * (1.2 * scale)
    columns = scene.units(max(2, heads or 2)) * (1.2 * scale)
    slices = np.vstack([np.zeros(d), scene.units(2) * (1.2 * scale)])
    table = yield from _table(scene, x, shifts, columns, slices)
    if table is None:
        return None
    a = table.frequencies(shifts, heads) if heads is not None else table.fewest(shifts)
    if heads is None and a is None and table.rank >= table.G.shape[1]:
        columns = np.vstack([columns, scene.units(table.rank + 1 - len(columns)) * (1.2 * scale)])
        table = yield from _table(scene, x, shifts, columns, slices)
        if table is None:
            return None
        a = table.fewest(shifts)
    (count,) = yield from settle("heads", 0 if a is None else len(a))
    if count == 0:
        return None
    (a,) = yield from settle("first token", np.zeros((int(count), d)) if a is None else a)
    a, b, residual = table.fitted(a)
    return (x, a, b) if residual <= LABELS.believed_residual else None


@dataclass(frozen=True, eq=False)
class _Table:
    """Weights G (I, J, K) of one token at the sums `queries` (I J K, d), the weight `total` at 0, and the relative
    error that copies `left` in them."""

    G: Array
    queries: Array
    total: float
    left: float

    @property
    def rank(self) -> int:
        return table_rank(self.G, LABELS.absent_singular_value)

    def frequencies(self, shifts: Array, H: int) -> Array | None:
        return frequencies(self.G, shifts, H) if min(self.G.shape[:2]) >= H else None

    def fitted(self, a: Array) -> tuple[Array, Array, float]:
        return fit_sum(a, self.queries, self.G.ravel(), self.total)

    def fewest(self, shifts: Array) -> Array | None:
        """Frequencies of the fewest exponentials that explain the table as well as it is known."""
        for H in range(1, self.rank + 1):
            a = self.frequencies(shifts, H)
            if a is not None and self.fitted(a)[2] <= self.left:
                return a
        return None


def _table(scene: Scene, x: Array, shifts: Array, columns: Array, slices: Array) -> Asking[_Table | None]:
    """G of x at all sums of the three, 0 first among shifts and columns; None if one of them is out of range."""
    rows = np.vstack([np.zeros(scene.dim), shifts])
    columns = np.vstack([np.zeros(scene.dim), columns])
    q = (rows[:, None, None] + columns[None, :, None] + slices[None, None]).reshape(-1, scene.dim)
    xs = np.tile(x, (len(q), 1))
    read = []
    # Twice as many as elsewhere, and four times: extrapolated they leave (exp(score) / 2048)^2, some 1e-5.
    copies = scene.copies(4 * LABELS.ruler_copies) // 2
    for n in (copies, 2 * copies):
        ruler = scene.ruler(n)
        flips = yield from weigh(ruler, xs, q, LABELS.bits_of_first_table, "pilot")
        if not flips.found.all():
            return None
        read.append(ruler.weight(q, flips.t))
    # What n copies leave falls as 1 / n; what is left then is about its square.
    G, first = 2 * read[1] - read[0], 2 * (read[1] - read[0])
    square = (first / (np.abs(G) + SMALL * np.abs(G).max())) ** 2
    left = max(2 * float(np.sqrt(np.mean(square**2))), 5 * 2.0**-LABELS.bits_of_first_table)
    shape = (len(rows), len(columns), len(slices))
    return _Table(G.reshape(shape), q, float(x @ scene.direction.v), min(left, LABELS.believed_residual))


def _near(scene: Scene, x: Array, a: Array, b: Array) -> Asking[Heads | None]:
    """All of W and v from flips for tokens near x, where a and b are nearly right."""
    H, d = a.shape
    count = math.ceil(LABELS.flips_per_unknown * H * d * (d + 1))
    xs = x + LABELS.second_off_first * scene.units(count)
    q = scene.units(count) * (scene.scale * scene.labels.rng.uniform(0.3, 2.5, (count, 1)))
    ruler = scene.ruler(LABELS.ruler_copies)
    flips = yield from weigh(ruler, xs, q, LABELS.bits_near_first_token, "pilot")
    keep = flips.found
    W, v = x[None, :, None] * a[:, None, :], b[:, None] * x
    v = v + (scene.direction.v - v.sum(axis=0)) / H
    data, noise = scene.data(ruler, xs[keep], q[keep], flips.t[keep], flips.radius[keep])
    W, v, rms = levenberg(W, v, data, noise)
    W, v = yield from settle("near the first token", W, v)
    return Heads(W, v) if rms <= CORE.deviations_of_a_radius else None
