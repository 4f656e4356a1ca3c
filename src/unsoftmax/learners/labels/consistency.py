"""Labels that contradict each other: flips fixed by the sequence, and wrong labels nobody declared.

Theory: docs/theory/membership.md, "Flipped labels".
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from unsoftmax.errors import ModelMismatch
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.labels.asking import Labels, unit_length
from unsoftmax.learners.labels.constants import LABELS
from unsoftmax.learners.labels.entries import Known
from unsoftmax.learners.labels.values import shift_bounds
from unsoftmax.probes.base import Array, Probes
from unsoftmax.probes.scales import held
from unsoftmax.probes.thresholds import coordinate_ratio
from unsoftmax.solvers.bisection import Brackets


def refuse_fixed_flips(labels: Labels) -> Asking[tuple[str, ...]]:
    """Ask a few sequences word for word again. A note if nothing flips at all; phase "pilot".

    Where answers never change although flips of the declared probability would have changed some, sequences of the
    same f (the token longer or shorter, or twice) are asked: if their labels differ, flips are fixed by the sequence.
    Flips too rare to show in some hundred answers are not looked for.
    """
    sequences, times = _plan(labels.flip, labels.delta * LABELS.fixed_flips_share)
    if sequences > LABELS.most_repeated:
        return ()
    spec = labels.spec
    x = labels.rng.standard_normal((sequences, 1, spec.dim))
    x *= unit_length(spec) / np.linalg.norm(x, axis=2, keepdims=True)
    x = held(x, spec.dtype)
    first = yield Probes(x, phase="pilot")
    for k in range(1, times):
        answers = yield Probes(x, phase="pilot", again=k)
        if (answers != first).any():
            return ()
    for k in range(1, times):
        tokens = x * labels.rng.uniform(0.5, 1.0, (sequences, 1, 1))
        tokens = np.repeat(held(tokens, spec.dtype), 1 + k % 2, axis=1)
        answers = yield Probes(tokens, phase="pilot")
        if len(differ := np.flatnonzero(answers != first)):
            raise _fixed(x[differ[0], 0], tokens[differ[0]], first[differ[0]], len(differ), sequences, times, labels)
    return (
        f"the flips declared (probability {labels.flip:g}) do not show: {sequences} sequences answered {times} times "
        "the same, and sequences of the same value as they.",
    )


def _plan(flip: float, level: float) -> tuple[int, int]:
    """Sequences and times to ask each, so that independent flips change no answer with probability `level` at most."""
    unchanged = -math.log1p(-flip)
    sequences = max(LABELS.fewest_repeated, math.ceil(-math.log(level) / (LABELS.most_repetitions * unchanged)))
    times = next(
        n
        for n in range(2, LABELS.most_repetitions + 3)
        if sequences * _surprise(flip, n) >= -math.log(level) or n > LABELS.most_repetitions
    )
    return sequences, times


def _surprise(flip: float, times: int) -> float:
    """-log of the probability that a sequence answers the same every time."""
    return -math.log((1 - flip) ** times + flip**times)


def _fixed(
    x: Array, other: Array, answer: float, differing: int, sequences: int, times: int, labels: Labels
) -> ModelMismatch:
    shown = ", ".join(f"{entry:.3g}" for entry in x[:4]) + (", ..." if len(x) > 4 else "")
    changed = f"{'its token' if len(other) == 1 else 'its token twice, and'} {other[0, 0] / x[0]:.3g} times as long"
    return ModelMismatch(
        f"labels contradict each other and repetition does not help: the token [{shown}] answered {answer:.0f} all of "
        f"{times} times, and with {changed}, where f has the same sign, {1 - answer:.0f} ({differing} of {sequences} "
        f"sequences differ so). Flips of probability {labels.flip:g} drawn anew at every question would not repeat: "
        "these are fixed by the sequence, and asking again averages nothing. If different sequences flip "
        "independently, pass fixed_flips=True; else correct the labels, or the target is no softmax head."
    )


def refuse_wrong_labels(known: Known, index: Array, harmless: float = 0.0) -> Asking[None]:
    """Ask ends of brackets that stood for long again, in other sequences: one wrong label leaves its number outside.

    At most a query per number of v and per entry at `index`; nothing where flips are declared, whose search doubts
    itself. An error of an entry up to `harmless`, or of v up to a third of the accuracy, is no reason to
    refuse.
    """
    labels, direction, family, entries = known.labels, known.direction, known.family, known.entries
    if labels.flip:
        return
    spec, ratios, found = labels.spec, direction.search, entries.search
    assert isinstance(ratios, Brackets)
    assert isinstance(found, Brackets)
    chosen, side = ratios.stale()
    if len(chosen):
        share = LABELS.harmless_share * labels.accuracy / math.sqrt(spec.dim)
        reach = np.maximum(2 * ratios.radius[chosen] + LABELS.boundary_roundings * spec.eps, share)
        levels = ratios.center[chosen] + side * reach
        scale = np.full(len(chosen), LABELS.shorter_again * unit_length(spec))
        asked = coordinate_ratio(direction.signs, direction.largest, direction.others[chosen], levels, scale)
        answers = yield Probes(asked.tokens, phase="pilot")
        _refuse((answers > 0.5) == (side > 0), "ratios of entries of v", labels)
    crossed = np.zeros(len(found.lo), dtype=bool)
    crossed[index] = found.lo[index] > found.hi[index]
    _refuse(crossed[index], "entries of W", labels)
    chosen, side = found.stale()
    chosen, side = chosen[keep := np.isin(chosen, index)], side[keep]
    if len(chosen):
        reach = (2 * found.radius + 2.5 * shift_bounds(known))[chosen]
        levels = found.center[chosen] + side * np.maximum(reach, harmless)
        # Tokens of another length: the sequences are new, and their labels independent of what was seen.
        product = LABELS.shorter_again * replace(entries, search=found.take(chosen)).product(levels, spec)
        answers = yield family.above(entries.rows[chosen], entries.columns[chosen], levels, product, "pilot")
        _refuse((answers > 0.5) == (side > 0), "entries of W", labels)


def _refuse(wrong: Array, what: str, labels: Labels) -> None:
    if wrong.any():
        raise ModelMismatch(
            f"labels contradict each other: {int(wrong.sum())} of {len(wrong)} {what} lie outside the brackets that "
            "their labels gave, as fresh sequences say. Some labels are wrong (declare flip_probability=), computed "
            f"less exactly than {labels.spec.dtype}, or not those of one softmax head (heads=None finds several)."
        )
