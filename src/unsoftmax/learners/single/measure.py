"""Sub-programs every single-head learner shares: v, the size of W, and a matrix of logits with its repairs.

Theory: docs/theory/single-head.md, "Theorem 4.1", method.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from unsoftmax.errors import ModelMismatch, NotIdentifiable
from unsoftmax.inversion import logits
from unsoftmax.learners.core.base import Asking, Precision
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.core.readable import SATURATED, Repair, Steps, find_scale, until_readable
from unsoftmax.learners.single.constants import SINGLE
from unsoftmax.models.single_head import LowRankHead, SingleHead
from unsoftmax.probes.base import Array, LazyProbes, one_row
from unsoftmax.probes.pairs import Matched, Pairs, paired
from unsoftmax.probes.rows import Units
from unsoftmax.probes.scales import lengths_for, on_grid, power_of_two
from unsoftmax.probes.sphere import sphere, unit
from unsoftmax.spec import INSIDE, OracleSpec

REPAIR = Repair(SINGLE.readable, telling=12.0)
"""Entries beyond what is readable are asked again; up to |t| = 12 an answer still tells its size, also in float32."""

PILOT_QUERIES = CORE.pilot_entries + SINGLE.refined_pairs
"""Fewest queries of `size_of_scores` where token norms are not limited."""


def unit_length(spec: OracleSpec) -> float:
    """Length of the tokens that read v, a power of two."""
    return power_of_two(min(1.0, spec.domain.norm_limit))


def read_values(spec: OracleSpec) -> Asking[Array]:
    """v (d,) from d one-row queries; the unit vectors are shortened only if the domain demands it."""
    s = unit_length(spec)
    units = Units(np.arange(spec.dim), s, spec.dim)
    y = yield LazyProbes(spec.dim, spec.dim * 8, lambda start, stop: one_row(units[start:stop]), "values")
    v = y / s
    if not v.any():
        raise NotIdentifiable(
            "every one-token query answered 0, so v = 0: the head's output is identically 0 and no query shows W."
        )
    return v


def refuse_unknown(head: SingleHead | LowRankHead, precision: Precision, spec: OracleSpec) -> None:
    """Raise where W may be off by as much as it is large, as far as the noise lets anyone state it."""
    size = float(np.linalg.norm(head.W))
    if max(size, SINGLE.anything) > precision.W:
        return
    norm = spec.domain.max_norm
    tokens = "" if norm is None else f"with tokens of norm at most {norm:g} "
    remedy = "Lower the noise." if norm is None else "Raise max_norm, or lower the noise."
    raise NotIdentifiable(
        f"{tokens}answers this noisy leave an error of W of up to {precision.W:.1g}, and W is read as no larger "
        f"(||W||_F = {size:.1g}): nothing can be stated of it. {remedy}"
    )


def size_of_scores(v: Array, spec: OracleSpec, rng: np.random.Generator) -> Asking[float]:
    """Estimate ||W||_F > 0 from random pairs, E (a'Wb)^2 = ||W||_F^2 / d^2 for unit a, b.

    If no score is visible in the longest tokens allowed, the smallest size that would have been is returned.
    """
    d, realised = spec.dim, 1.0
    longest = min(spec.domain.norm_limit**2 / 4, SINGLE.longest_pair)

    def look(product: float, pairs: int) -> Asking[float]:
        nonlocal realised
        t, realised = yield from _random_pairs(product, pairs, v, spec, rng)
        readable = np.abs(np.nan_to_num(t, nan=np.inf)) < REPAIR.telling
        return SATURATED if np.mean(readable) <= 0.5 else float(np.sqrt(np.mean(t[readable] ** 2)))

    # What shows too little may be rounding alone: a step is at most what a float32 answer would justify.
    steps = Steps(least=SINGLE.visible, longer=1e6, limit=longest, floor=1 / SINGLE.longest_pair)
    product = float(d)
    for pairs in (CORE.pilot_entries, SINGLE.refined_pairs):
        found = yield from find_scale(partial(look, pairs=pairs), product, steps)
        if found.size == SATURATED:
            raise ModelMismatch("the answers stay saturated however small the tokens are; no softmax head does so.")
        if found.scale == longest:
            break
        product = found.wished
    return max(d * found.size / realised, d / longest)


def faintest(spec: OracleSpec) -> float:
    """||W||_F below which the scores of the longest tokens allowed are rounding: such a W is read as 0."""
    longest = min(spec.domain.norm_limit**2 / 4, SINGLE.longest_pair)
    return 1e3 * spec.dim * spec.eps / longest


def _random_pairs(
    product: float, size: int, v: Array, spec: OracleSpec, rng: np.random.Generator
) -> Asking[tuple[Array, float]]:
    """Logits of `size` random pairs with |a| |b| near `product` (returned as it was realised)."""
    length_a, length_b = lengths_for(product, spec.domain)
    b = sphere(rng, (size, spec.dim)) * (INSIDE * length_b)
    a = random_rows(size, v, rng) * (INSIDE * length_a)
    a, b = (on_grid(x, length_a + length_b, spec.dtype) for x in (a, b))
    y = yield paired(a, b, phase="pilot")
    return logits(y, a @ v, b @ v).t, INSIDE**2 * length_a * length_b


def random_rows(size: int, v: Array, rng: np.random.Generator) -> Array:
    """Random unit a (size, d), half of each along v: a.v is then never small."""
    a = sphere(rng, (size, len(v)))
    # The sign keeps the mean of a from favouring W'v.
    return unit(a + np.sign(a @ v + 1e-300)[:, None] * (v / np.linalg.norm(v)))


def read_logits(design: Pairs | Matched, v: Array, *, phase: str = "main") -> Asking[Array]:
    """A W B' (m, n) for the design's pairs, or a_k'W b_k (m, 1) where they are matched.

    Saturated entries are asked again, shortened, as phase "repair".
    """
    m, n = design.shape
    av, bv = (np.broadcast_to(x, (m, n)).ravel() for x in design.products(v))

    def ask(index: Array, shrink: Array, phase: str) -> Asking[Array]:
        if len(index) == m * n and (shrink == 1).all():
            y = yield design.probes(phase)
            y = design.matrix(y).ravel()
        else:
            y = yield design.at(index // n, index % n, shrink, phase)
        return logits(y, av[index] * shrink, bv[index] * shrink).t

    # Both vectors shrink by a power of two, so the sums stay exact and t falls by its square.
    shrink = np.ones(m * n)
    t, left = yield from until_readable(ask, shrink, REPAIR, phase, SINGLE.most_repairs + m * n // 2)
    if len(left):
        raise ModelMismatch(
            f"{len(left)} of {m * n} answers stay outside the open interval between b.v and (a+b).v however small the "
            "tokens are; a single softmax head answers inside it. Choose a wider class, or diagnose the target."
        )
    return (t / shrink**2).reshape(m, n)
