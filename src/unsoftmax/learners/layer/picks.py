"""Picked tokens, one per head: how answers respond to moves of them, and how far they may move.

Theory: docs/theory/attention-layer.md, "A real layer", scan.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.layer.constants import LAYER
from unsoftmax.probes.base import Array, Probes
from unsoftmax.probes.scales import on_grid
from unsoftmax.spec import OracleSpec

UNKNOWN = -1.0
"""Defined: the reach of picks that has not been measured. No reach is negative, and 0 says that none was found."""


@dataclass(frozen=True, eq=False)
class Picks:
    """Tokens (H + 1, d), one per head and the query token last, with the answer (outputs,) they get.

    Moving the heads' tokens by up to `reach` per coordinate keeps every pick. `residual`: the answer follows x_N.
    `size`: typical size of a coordinate when they were drawn; moves of `tried` were not small enough yet.
    """

    tokens: Array
    answer: Array
    reach: float
    residual: bool
    size: float
    tried: float = np.inf

    @property
    def heads(self) -> int:
        return len(self.tokens) - 1

    def moved(self, head: int, steps: Array, phase: str) -> Probes:
        """The sequences in which the head's token is displaced by each row of steps (n, d)."""
        tokens = np.repeat(self.tokens[None], len(steps), axis=0)
        tokens[:, head] += steps
        return Probes(tokens, phase=phase)


@dataclass(frozen=True)
class Readout:
    """How answers respond to moved tokens.

    change: answers (n, outputs), base (outputs,) -> responses, linear in small moves or (`linear`) in all. bend: for
    answers to opposite moves, the relative size of what is not linear before any normalisation.
    """

    change: Callable[[Array, Array], Array]
    bend: Callable[[Array, Array, Array], float]
    linear: bool = True


def _plain_bend(up: Array, down: Array, base: Array) -> float:
    return float(np.linalg.norm(up + down - 2 * base)) / max(float(np.linalg.norm(up - base)), 1e-300)


PLAIN = Readout(change=lambda y, base: y - base, bend=_plain_bend)


def measured(
    alike: list[Picks], enough: float, noise: float, spec: OracleSpec, rng: np.random.Generator, readout: Readout
) -> Asking[list[Picks]]:
    """The picks with their reaches as far as they can be the largest; 0 if not beyond `enough` times the size."""
    best = max(p.reach for p in alike)
    measured = []
    for picks in alike:
        if picks.reach == UNKNOWN or (picks.reach == 0 == enough):
            picks = yield from _reach(picks, noise, spec, rng, readout, max(best, enough * picks.size))
            best = max(best, picks.reach)
        measured.append(picks)
    return measured


def _reach(
    picks: Picks,
    noise: float,
    spec: OracleSpec,
    rng: np.random.Generator,
    readout: Readout,
    best: float,
) -> Asking[Picks]:
    """With the deviation by which single tokens may move and keep every pick, from one at which all moved together did.

    A third of it, or half for directions, whose errors grow with what the base hides. 0 if that is not beyond `best`,
    or no move is small enough.
    """
    tokens, size = picks.tokens, picks.size
    widest, share = (LAYER.first_move * size, 1 / 3) if readout.linear else (LAYER.first_turn * size, 1 / 2)
    tried = min(widest, picks.tried / 2)
    while tried > LAYER.least_move_tried * size and tried * share > best:
        for pairs in LAYER.pairs_of_moves if readout.linear else LAYER.pairs_of_turns:
            moves = on_grid(rng.standard_normal((pairs, *tokens[:-1].shape)) * tried, 8 * size, spec.dtype)
            both = np.repeat(tokens[None], 2 * pairs, axis=0)
            both[:, :-1] += np.concatenate([moves, -moves])
            y = yield Probes(both, phase="pilot")
            bend = max(readout.bend(y[i], y[i + pairs], picks.answer) for i in range(pairs))
            if bend > max(1e-9, 3e3 * noise):
                break
        else:
            return replace(picks, reach=tried * share)
        tried /= 2
    return replace(picks, reach=0.0, tried=2 * tried)
