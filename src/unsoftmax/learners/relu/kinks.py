"""All kinks of a homogeneous piecewise linear function along a half great circle, about six queries each.

Between kinks the function is a sinusoid. Neighbouring pieces are intersected; a crossing is accepted only if a point
just left of it lies on the left piece and one just right of it on the right piece. What lies on neither is a point of
a new piece. All open gaps advance together, so rounds grow with the depth of the search, not with the kinks.

Theory: docs/theory/relu-network.md, "Method", kinks.
"""

from __future__ import annotations

import numpy as np

from unsoftmax.errors import Code, ModelMismatch
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.relu.chain import Chain, Gap
from unsoftmax.learners.relu.constants import RELU
from unsoftmax.learners.relu.purse import Purse
from unsoftmax.learners.relu.search import Search
from unsoftmax.probes.circle import Circle
from unsoftmax.solvers.sinusoids import meeting


def find_kinks(
    circle: Circle, sigma: float, scale: float, eps: float, rng: np.random.Generator, purse: Purse
) -> Asking[Chain]:
    """Kinks and pieces along the circle; `sigma` is the noise of an answer, `scale` the size of answers.

    `purse` is shown how many there are.
    """
    search = Search(circle, sigma, scale, eps, rng)
    yield from search.seeds()
    looked = False
    for _ in range(RELU.most_levels):
        search.settle()
        purse.show(len(search.gaps))
        _refuse_contradictions(search.gaps)
        if not looked and len(search.pieces) > search.many:
            looked = True
            yield from search.look_for_curvature()
        if not any(gap.open for gap in search.gaps) and not search.reopen() and not (yield from search.inspect()):
            break
        plans = [search.plan(index) for index, gap in enumerate(search.gaps) if gap.open]
        y = (yield from search.ask([angle for plan in plans for angle in plan.angles])).tolist()
        found = []
        for plan in plans:
            plan.values, y = y[: len(plan.angles)], y[len(plan.angles) :]
            strange = search.read(plan)
            if strange:
                found.append((plan.gap, strange))
        if found:
            yield from search.grow(found)
    search.settle()
    yield from search.extend()
    resolved = np.array([not (gap.lost or gap.open) for gap in search.gaps], dtype=bool)
    angles = [meeting(a, b) for a, b in zip(search.pieces, search.pieces[1:], strict=False)]
    return Chain(search.pieces, np.array(angles), resolved, search.sigma)


def _refuse_contradictions(gaps: list[Gap]) -> None:
    """Noise that neighbours do not show looks like kinks within kinks, without end."""
    lost = sum(gap.lost for gap in gaps)
    if lost > RELU.lost_gaps[0] + RELU.lost_gaps[1] * len(gaps):
        raise ModelMismatch(
            f"along a great circle {lost} of {len(gaps)} neighbouring pieces contradict each other within angles of "
            f"{RELU.narrowest:g}: the answers carry more noise than those of neighbouring vectors show. Declare it "
            "(tolerance, dtype), or ask a target that rounds less."
        )
    kinks = sum(gap.kink is not None for gap in gaps)
    if len(gaps) > RELU.unconfirmed_gaps[0] and kinks < RELU.unconfirmed_gaps[1] * len(gaps):
        raise ModelMismatch(
            f"along a great circle {len(gaps) + 1} pieces were told apart, and between them {kinks} kinks were found: "
            "answers to neighbouring vectors jump, as they do where something is rounded inside the target before the "
            "answer is made of it. Ask a target that rounds less.",
            code=Code.NOISE,
        )
