"""Sub-programs under answer noise: v with its radius, the scale of W, and a matrix of logits with error radii.

Theory: docs/theory/approximate.md, "The default".
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from unsoftmax.errors import ModelMismatch, NotIdentifiable
from unsoftmax.inversion import Noise
from unsoftmax.learners.core.base import Asking, Precision
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.core.pair_logits import Pairs, Values, refuse_blurred
from unsoftmax.learners.core.readable import INVISIBLE, SATURATED, Steps, find_scale
from unsoftmax.learners.single.constants import SINGLE
from unsoftmax.links import READABLE
from unsoftmax.models.single_head import SingleHead
from unsoftmax.probes.base import Array, Probes, one_row
from unsoftmax.probes.norm_budget import TokenPairs, representable, token_pairs, turned
from unsoftmax.probes.scales import power_of_two
from unsoftmax.spec import OracleSpec

_BESIDE = {"float64": 2.0**12, "float32": 2.0**12, "float16": 2.0**3}
"""How much longer than its part along v a token may be behind a link: its own rounding must not touch that part."""


_SHORTEST = {"float64": 2.0**-100, "float32": 2.0**-100, "float16": 2.0**-20}
"""Shortest token: entries 2^-22 of it are still normal numbers of float32, in which tokens are kept; float16 ends at
2^-24."""


def working_lengths(spec: OracleSpec, noise: Noise, values: Values, farthest: float) -> Lengths:
    """How long tokens may be and how long x1 should be: at the limit, or so long that rounding, not noise, remains.

    Behind a link answers must stay where the link is steep: the part of a token along v is limited, not its length.
    """
    reach = READABLE[spec.link] / values.norm
    if spec.link is not None:
        # Rounding of the tokens must not touch their short part along v.
        farthest = min(farthest, _BESIDE[spec.dtype] * reach)
        return Lengths(min(reach, farthest), farthest, reach, _SHORTEST[spec.dtype])
    # A promised tolerance is kept far above rounding, so that the stated bound is about the tolerance alone.
    clear = 1.0 if noise.measured else 2.0**8
    base = max(noise.absolute / (clear * noise.relative * values.norm), 1.0)
    return Lengths(min(farthest, base), farthest, shortest=_SHORTEST[spec.dtype])


def read_values(spec: OracleSpec, noise: Noise, length: float) -> Asking[Values]:
    """v from d one-row queries along the unit vectors, each of norm `length`."""
    x = representable(np.array([power_of_two(length) if math.isinf(spec.domain.norm_limit) else length]), spec.dtype)
    s = float(x[0])
    y = yield one_row(np.eye(spec.dim) * s, phase="values")
    # Rounding to digits depends on the leading one: single answers may fare worse than those measured on.
    size = np.abs(y) * (SINGLE.leading_digit if noise.measured else 1.0)
    radius = float(np.linalg.norm(noise.radius(y, size))) / s
    return distinguishable(Values(y / s, radius), s)


def distinguishable(values: Values, length: float) -> Values:
    """The values, if they are not lost in their own radius; `length` is the norm of the tokens that read them."""
    if not values.norm > 2 * values.radius:
        raise NotIdentifiable(
            f"v is not distinguishable from 0: |v| is read as {values.norm:.2g}, off by up to {values.radius:.2g}, "
            f"from tokens of norm {length:g}. If v = 0, no query shows W; else allow longer tokens or less noise."
        )
    return values


@dataclass(frozen=True)
class Lengths:
    """Norms of x1 and x2 for a product |x1| |x2|: x1 as long as is useful, x2 takes what is left."""

    base: float
    limit: float
    reach: float = math.inf
    shortest: float = 0.0

    def __call__(self, product: float) -> tuple[float, float]:
        longer = min(max(self.base, math.sqrt(product)), self.limit)
        shorter = min(product / longer, longer)
        if shorter < self.shortest:
            raise ModelMismatch(
                f"scores are saturated however short the last token is, down to the {self.shortest:.2g} that fits the "
                "number format: they have a term without it (SingleHead(affine=True) learns one), or W is out of range."
            )
        return longer, shorter

    @property
    def least(self) -> float:
        """The smallest product whose shorter token the number format holds."""
        return min(self.base, self.limit) * self.shortest

    def design(self, v: Array, product: float, dtype: str) -> TokenPairs:
        """The token pairs at this product."""
        return token_pairs(v, *self(product), dtype, reach=self.reach)


def scale_of_scores(
    values: Values, spec: OracleSpec, noise: Noise, lengths: Lengths, rng: np.random.Generator
) -> Asking[float]:
    """The product |x1| |x2| at which logits have root mean square 1 (the largest allowed if they stay below)."""
    d, largest = spec.dim, lengths.limit**2
    blurred, faint = 0.0, False

    def look(product: float) -> Asking[float]:
        nonlocal blurred, faint
        try:
            design = lengths.design(values.v, product, spec.dtype)
        except ModelMismatch:
            # What noise makes unreadable at every length is not saturated.
            refuse_blurred(blurred)
            raise
        pick = rng.integers(d, size=(2, CORE.entries_for_scale))
        plain = np.ones((CORE.entries_for_scale, 2), dtype=np.int64)
        y = yield design.at(pick[0], pick[1], np.ones(CORE.entries_for_scale), plain, "pilot")
        pairs = Pairs(design, values, noise)
        seen = pairs.shares(y, pick[0], pick[1], np.ones(CORE.entries_for_scale))
        readable = np.isfinite(seen.radius)
        if 2 * readable.sum() <= CORE.entries_for_scale:
            # Where shorter tokens showed no score, an error of v that drowns longer ones is an end, not a failure.
            if not faint:
                pairs.refuse_drowned()
            blurred = max(blurred, pairs.blur(y, pick[0], pick[1]))
            return SATURATED
        # A saturated minority counts as the end of the readable range, so that it pulls the scale down.
        size = float(np.sqrt(np.mean(np.where(readable, seen.t, 8.0) ** 2)))
        faint = size < 3 * float(np.median(seen.radius[readable])) or size < 1e-3
        return INVISIBLE if faint else size

    steps = Steps(0.25, 2.0, 2.0**-8, 2.0**8, largest, lengths.least, narrow=4.0, looks=40)
    found = yield from find_scale(look, float(d), steps)
    if found.size == SATURATED:
        refuse_blurred(blurred)
        # Raises with a reason of its own where the search ended at what the number format holds.
        lengths(found.scale)
        raise ModelMismatch(
            "no token length gives readable answers: saturated above and constant below it; no head does that."
        )
    if found.size != INVISIBLE:
        return min(found.wished, largest)
    # Behind a link longer tokens end in an error of v, not in scores: some pairs fare worse than those of the pilot.
    return found.scale if spec.link is None or math.isinf(found.high) else 0.25 * found.scale


def ask_pairs(
    values: Values, spec: OracleSpec, noise: Noise, lengths: Lengths, rng: np.random.Generator
) -> Asking[tuple[TokenPairs, Array]]:
    """The design at the right scale and its answers (d, d), one query per pair as phase "main".

    Under a norm limit the first column is asked at the limit: if it is readable, and it mostly is, no pilot is paid.
    """
    d = spec.dim
    first: list[Array] = []
    if lengths.base >= lengths.limit:
        design = lengths.design(values.v, lengths.limit**2, spec.dtype)
        y = yield design.columns(0, 1, "main")
        zero = np.zeros(d, dtype=np.int64)
        seen = Pairs(design, values, noise).shares(y, np.arange(d), zero, np.ones(d))
        if np.isfinite(seen.radius).all() and np.mean(seen.t**2) < 1.5:
            rest = yield design.columns(1, d, "main")
            return design, design.matrix(np.concatenate([y, rest]))
        first = [y]
    product = yield from scale_of_scores(values, spec, noise, lengths, rng)
    design = lengths.design(values.v, product, spec.dtype)
    rest = yield design.columns(len(first), d, "main")
    if first:
        first = [(yield design.columns(0, 1, "repair"))]
    return design, design.matrix(np.concatenate([*first, rest]))


def confirmed(
    head: SingleHead, precision: Precision, design: TokenPairs, spec: OracleSpec, rng: np.random.Generator
) -> Asking[Precision]:
    """The precision held against fresh pairs like the main ones, and widened if they disagree by more than it says.

    Noise measured on one-row answers can miss what happens inside (scores in a short number format).
    """
    d = head.dim
    n = head.v / np.linalg.norm(head.v)
    along = [np.outer(X @ n, n) for X in (design.X1, design.X2)]
    pick = rng.integers(d, size=SINGLE.fresh_pairs)
    turned_pair = [
        (part + turned(X - part, n, rng))[pick] for X, part in zip((design.X1, design.X2), along, strict=True)
    ]
    tokens = representable(np.stack(turned_pair, axis=1), spec.dtype)
    y = yield Probes(tokens, phase="pilot", saturable=True)
    a, b = tokens[:, 0] - tokens[:, 1], tokens[:, 1]
    size = np.linalg.norm(tokens, axis=2).max(axis=1)
    own = precision.noise.radius(y, size * float(np.linalg.norm(head.v)))
    scores = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1) * precision.W / d
    expected = np.hypot(own, np.hypot(np.abs(a @ head.v) / 4 * scores, size * precision.v / math.sqrt(d)))
    ratio = np.abs(y - head(tokens)) / expected
    excess = float(np.sqrt(np.mean(ratio[np.isfinite(ratio)] ** 2)))
    if excess <= 1:
        return precision
    if excess > SINGLE.pairs_over_singles:
        raise ModelMismatch(
            f"fresh pairs differ from the recovered head by {excess:.2g} times what the noise of single tokens "
            "explains. The target is not a single softmax head, or computes its scores far less exactly than the rest."
        )
    wider = 2 * excess
    noise = precision.noise
    noise = replace(noise, absolute=noise.absolute * wider, relative=noise.relative * wider)
    return replace(precision, W=precision.W * wider, v=precision.v * wider, noise=noise)
