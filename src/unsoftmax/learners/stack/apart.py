"""All heads of all layers at one displacement delta, told apart by algebra.

Theory: docs/theory/stacks.md, "A deep pre-norm stack", heads apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.errors import ModelMismatch, NotIdentifiable
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.core.law import bent, require_affine
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
        found, crowded = yield from _at(size, far, "main" if attempt == 0 else "repair")
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


@dataclass(frozen=True, eq=False)
class _Reading:
    """Heads as algebra tells them apart at one displacement, from features F (m, p) and answers Y (m, 3, d): logits
    `found` at each q, and theta (n, p) affine in them."""

    cut: Slice
    F: Array
    Y: Array
    found: Separation
    theta: Array

    def off_affine(self) -> tuple[float, float]:
        """What logits miss an affine function of q by, and what their readings at several copies leave open of them: of
        the median head, since one may be read badly."""
        trust = self.found.reliability**2
        total = np.maximum(trust.sum(axis=0), 1e-300)
        m, p = self.F.shape
        rest = (trust * (self.found.t - self.F @ self.theta.T) ** 2).sum(axis=0) / (max(m - p, 1) / m * total)
        spread = (trust * self.found.spread**2).sum(axis=0) / total
        return float(np.sqrt(np.median(rest))), float(np.sqrt(np.median(spread)))


def _at(size: float, far: Far, phase: str) -> Asking[tuple[Apart | None, bool]]:
    """Heads at a displacement of this size, None if they are not clear; and whether they filled the outputs."""
    read, crowded = yield from _read(far.displacement(size), far, phase)
    if read is not None and bent(*read.off_affine()):
        # Algebra tells heads apart whatever their scores are. A kink of a network or steep scores spoil one draw in a
        # thousand, in the worst of stacks one in a hundred; places would bend scores too, and are another reason.
        read, crowded = yield from _read(far.displacement(size), far, "repair")
        if read is not None and bent(*read.off_affine()) and (yield from may_change_places(far)):
            require_affine(*read.off_affine(), "algebra", "miss an affine function of the query token")
    if read is None:
        return None, crowded
    rows = np.repeat(read.F, len(COPIES), axis=0)
    log_k = np.log(COPIES[:, 1] / COPIES[:, 0])
    fit = far.fit(read.theta, rows, np.tile(log_k, len(read.F)), read.Y.reshape(len(rows), -1))
    return Apart(read.cut, fit, fit.residual * float(np.sqrt(np.mean(read.Y**2)))), crowded


def _read(delta: Array, far: Far, phase: str) -> Asking[tuple[_Reading | None, bool]]:
    """Heads at delta, None if algebra does not tell them apart; and whether they fill the outputs."""
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
    return _Reading(cut, F, Y, found, _affine(F, found)), n == far.outputs


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
