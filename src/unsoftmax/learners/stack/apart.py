"""All heads of all layers at one displacement delta, told apart by algebra.

Theory: docs/theory/stacks.md, "A deep pre-norm stack", heads apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.errors import ModelMismatch, NotIdentifiable
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.core.law import require_affine
from unsoftmax.learners.stack.constants import STACK
from unsoftmax.learners.stack.far import Far, may_change_places
from unsoftmax.probes.base import Array
from unsoftmax.probes.slices import Slice
from unsoftmax.solvers.head_separation import Separation, count_heads, separate, settings_needed
from unsoftmax.solvers.logit_fit import LogitFit

COPIES = np.array([[8, 2], [2, 2], [2, 8]])
"""Copies of q + delta and of q: k = 1/4, 1, 4 read logits between -4 and 4."""

DEPENDENT = "heads write into fewer independent directions than there are heads (two with the same P count as one)"
"""Why a stack with norms first may be refused all the same: heads are counted by the rank of the answers, and n
functionals that each see one head alone exist only where n residues P_h delta are independent."""


@dataclass(frozen=True, eq=False)
class Apart:
    """Heads at one displacement: their slice, logits and residues; `misfit` is that of the answers."""

    slice: Slice
    fit: LogitFit
    misfit: float

    @property
    def heads(self) -> int:
        return len(self.fit.theta)


def tell_apart(far: Far, again: int = 0) -> Asking[Apart]:
    """Tries a few displacements; the first clear one wins. `again` counts attempts whose heads led nowhere."""
    best: Apart | None = None
    full = False
    for attempt, size in enumerate(STACK.displacements[again:], again):
        found, crowded = yield from _at(far.displacement(size), far, "main" if attempt == 0 else "repair")
        full = full or crowded
        if found is not None and (best is None or found.misfit < best.misfit):
            best = found
        if best is not None and best.misfit <= far.near:
            return best
    if best is not None and best.misfit <= far.rough:
        return best
    if full:
        raise NotIdentifiable(
            f"the answers to frozen contexts fill all {far.outputs} outputs and do not fall apart into as many heads: "
            "the stack has more heads in total than outputs (ask for an answer with more numbers), or something else "
            "than softmax attention mixes tokens, such as a gate."
        )
    if not (yield from may_change_places(far)):
        raise ModelMismatch(
            "frozen tokens may not change places: scores depend on them (rotary positions, a bias per distance, a "
            "window). Copies of a token are then not alike, and heads of several layers are not told apart."
        )
    raise ModelMismatch(
        "in frozen contexts the answers do not fall apart into heads: something else than softmax attention mixes "
        "tokens, the norms of the layers differ or stand behind them, a window is short, two heads attend alike, "
        f"{DEPENDENT}, or the noise of the answers is beyond the declared number format."
    )


def _at(delta: Array, far: Far, phase: str) -> Asking[tuple[Apart | None, bool]]:
    """Heads at delta, None if they are not clear; and whether they filled the outputs."""
    cut, k = far.cut(delta), COPIES[:, 1] / COPIES[:, 0]
    F, Y = yield from _ask(cut, far, cut.features + CORE.to_spare, phase)
    size = float(np.sqrt(np.mean(Y**2)))
    n = count_heads(Y, far.floor(size))
    if n == 0 or size <= far.noise:
        raise NotIdentifiable("no context changes the answer: there is no attention, or its heads write nothing.")
    more = settings_needed(n, len(k), STACK.lifted_equations) - len(Y)
    if more > 0:
        F2, Y2 = yield from _ask(cut, far, more, phase)
        F, Y = np.vstack([F, F2]), np.concatenate([Y, Y2])
        n = count_heads(Y, far.floor(size))
    found = separate(Y, k, n, far.rng)
    if found is None or found.isolation < STACK.isolated:
        return None, n == far.outputs
    rows = np.repeat(F, len(k), axis=0)
    theta = _affine(F, found)
    yield from _require_scores(F, found, theta, far)
    fit = far.fit(theta, rows, np.tile(np.log(k), len(F)), Y.reshape(len(rows), -1))
    return Apart(cut, fit, fit.residual * size), n == far.outputs


def _require_scores(F: Array, found: Separation, theta: Array, far: Far) -> Asking[None]:
    """Refuse scores that are no affine function of the query token.

    Algebra tells heads apart whatever their scores are, and reads every logit at several copies, which shows how well
    it is known. Places would bend scores too, and are another reason. The median head speaks: one may be read badly.
    """
    trust = found.reliability**2
    total = np.maximum(trust.sum(axis=0), 1e-300)
    free = max(1 - F.shape[1] / len(F), 1 / len(F))
    rest = (trust * (found.t - F @ theta.T) ** 2).sum(axis=0) / (free * total)
    spread = (trust * found.spread**2).sum(axis=0) / total
    missed, left_open = float(np.sqrt(np.median(rest))), float(np.sqrt(np.median(spread)))
    if missed > CORE.bent_over_open * left_open and (yield from may_change_places(far)):
        require_affine(missed, left_open, "algebra", "miss an affine function of the query token")


def _ask(cut: Slice, far: Far, m: int, phase: str) -> Asking[tuple[Array, Array]]:
    """Features (m, p) and answers (m, 3, d) at all copies."""
    F, q = cut.draw(m, far.rng)
    y = yield from far.pairs(np.repeat(q, len(COPIES), axis=0), cut.delta, np.tile(COPIES, (m, 1)), phase)
    return F, y.reshape(m, len(COPIES), -1)


def _affine(F: Array, found: Separation) -> Array:
    """theta (n, p) from logits, each where it was readable."""
    theta = []
    for t, trust in zip(found.t.T, found.reliability.T, strict=True):
        theta.append(np.linalg.lstsq(F * trust[:, None], t * trust, rcond=None)[0])
    return np.array(theta)
