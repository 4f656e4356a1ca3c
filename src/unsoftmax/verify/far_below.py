"""What a token far below all others adds: the same sequence with it and without it.

An error of the scores is the same in both answers and falls out of their difference, which is the small weight alone:
a weight of 1e-6 is told to as many digits as scores are, where an answer hides it behind errors of larger weights. A
rule for small weights leaves nothing of it, and what hangs on the length of the sequence moves all other weights.

Theory: docs/theory/verification.md, "Vector answers", far below.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from unsoftmax.models.base import Model
from unsoftmax.probes.base import Array
from unsoftmax.results.recovery import Claim
from unsoftmax.verify.constants import VERIFY
from unsoftmax.verify.constants_models import MODELS
from unsoftmax.verify.stated import moves

FAR_BELOW = "weights far below"
"""Name of the claim. Its gaps are relative to what the faint token adds, little more than rounding at times."""

Foretold = Callable[[Model, Array], Array]


def far_below(
    model: Model,
    foretold: Foretold,
    X: Array,
    answers: tuple[Array, Array],
    rounding: float,
    stated: float,
    rng: np.random.Generator,
) -> Claim:
    """X (n, N, d), whose first tokens are faint, and the answers (n, outputs) with them and without; `rounding` of an
    answer, absolute. Differences that are no more than rounding tell nothing and are left out."""
    without = X[:, 1:]
    own = foretold(model, X) - foretold(model, without)
    size = np.abs(own).max(axis=1)
    told = np.flatnonzero(size * MODELS.faint_share > rounding)
    words = (
        f"max gap of what a token far below all others adds, relative to that; in {len(told)} of {len(X)} sequences it "
        "is more than rounding"
    )
    if not len(told):
        return Claim(FAR_BELOW, VERIFY.one_digit, 0.0, statement=words)
    shown = answers[0] - answers[1]
    gap = float((np.abs(own - shown)[told].max(axis=1) / size[told]).max())
    scaled: Callable[[Model], Array] = lambda other: (  # noqa: E731
        (foretold(other, X[told]) - foretold(other, without[told])) / size[told, None]
    )
    moved = moves(model, scaled, rng, 1.0)
    reach = math.sqrt(float(sum(moved.values(), np.zeros(len(told))).max()))
    bound = MODELS.faint_share + min(MODELS.reach * reach * stated, VERIFY.most_claimed)
    return Claim(FAR_BELOW, bound, gap, statement=words)
