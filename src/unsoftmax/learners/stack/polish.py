"""Gauss-Newton on what was asked already, on random frozen contexts, and on the stack itself.

Theory: docs/theory/stacks.md, "A deep pre-norm stack", polish.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from unsoftmax.errors import ModelMismatch
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.stack.constants import STACK
from unsoftmax.learners.stack.far import Far
from unsoftmax.learners.stack.star import Star
from unsoftmax.probes.base import Array
from unsoftmax.solvers.logit_fit import OUTLYING
from unsoftmax.solvers.stack_heads import Contexts, Heads, factored
from unsoftmax.solvers.stack_models import Deep, Wide
from unsoftmax.solvers.stack_newton import Fit, gauss_newton
from unsoftmax.solvers.star import ranks

_OVER_DEEP = {"float64": 1.25, "float32": 3.0}
"""Numbers asked over unknowns of a stack without networks: float32 answers leave their errors in it."""

_EPS_TRIED = tuple(10.0 ** np.arange(-12, 0.5, 0.5))
"""Values that short tokens choose from, before all parameters are fitted together."""


@dataclass(frozen=True, eq=False)
class Polished:
    """Heads, the fit they come from, and how far noise moves the worst parameter, relative."""

    heads: Heads
    fit: Fit[Any]
    error: float
    fuller: Heads | None = None
    """The start at higher ranks, where noise may have hidden them."""


def unknown_numbers(heads: Heads, d: int) -> int:
    """Free numbers of heads of these ranks in this space."""
    n, D, r = heads.A.shape
    s = heads.V.shape[1]
    return n * (r * (2 * D + 1 - r) + s * (D + d - s))


def told_per_query(heads: Heads, d: int) -> int:
    """Numbers of an answer in which heads show: few heads of small rank write into a part of the outputs."""
    return min(d, len(heads) * heads.V.shape[1])


def cut_heads(read: Star | Heads, rank: Callable[[Array], int] = ranks) -> Heads:
    """Heads at the ranks that they show."""
    joined = np.concatenate([read.W, read.c[:, :, None]], axis=2)
    return factored(read.W, read.c, read.P, min(rank(joined), read.W.shape[1]), rank(read.P))


def wide(far: Far, heads: Heads) -> Wide:
    """The model of frozen contexts."""
    return Wide(heads, across=far.frame.final is not None)


def polish_wide(far: Far, heads: Heads, seed: int) -> tuple[Polished, float]:
    """Gauss-Newton over all frozen contexts asked so far: no query. Misfit absolute, per number, of those kept."""
    data = far.data
    last: dict[str, Any] = {"draws": CORE.entries_for_scale, "seed": seed}
    if not far.networks:
        # A start only, and nobody asks how good it is; of extrapolated answers the noise is a bound that few reach.
        last = {"enough": far.noise if len(far.lengths) == 1 else 0.0}
    fit = gauss_newton(wide(far, heads), data, noise=far.noise, **last)
    for _ in range(STACK.rounds_of_trimming if far.networks else 0):
        kept = _smooth(fit.model, data, far.clear)
        if kept is None:
            break
        data = kept
        fit = gauss_newton(fit.model, data, noise=far.noise, **last)
    y = np.concatenate([part.y for part in data])
    return Polished(fit.model.heads, fit, parameter_error(fit)), fit.residual * float(np.sqrt(np.mean(y**2)))


def _smooth(model: Wide, data: list[Contexts], clear: float) -> list[Contexts] | None:
    """Contexts without those that a kink of a network spoils; None if there are none, or too many for kinks."""
    rests = [np.sqrt(np.mean((part.y - model.answers(part)) ** 2, axis=1)) for part in data]
    every = np.concatenate(rests)
    good = every <= max(clear, OUTLYING * float(np.median(every)))
    if good.all() or good.mean() < STACK.least_kept_contexts:
        return None
    splits = np.split(good, np.cumsum([len(part) for part in data])[:-1])
    return [part.take(np.flatnonzero(kept)) for part, kept in zip(data, splits, strict=True) if kept.any()]


def unpolished(far: Far, tries: list[Heads]) -> Asking[tuple[Polished, float]]:
    """Heads as they were read, the best of several readings of a few random contexts. Misfit absolute, per number.

    The error of the worst head over the misfit of the contexts: ten was seen.
    """
    y = yield from far.written(far.directions(CORE.entries_for_scale), *far.contexts(CORE.entries_for_scale))
    misfits = [float(np.sqrt(np.mean((y - wide(far, heads).answers(far.data[-1])) ** 2))) for heads in tries]
    misfit, heads = min(misfits), tries[int(np.argmin(misfits))]
    relative = misfit / max(float(np.sqrt(np.mean(y**2))), 1e-300)
    return Polished(heads, Fit(wide(far, heads), relative), CORE.stated_over_rounding * relative), misfit


def ask_wide(far: Far, heads: Heads) -> Asking[None]:
    """Random frozen contexts that overdetermine all heads by themselves, phase "main"; kept in far.data."""
    queries = far.frame.D + 6
    per = int(
        np.ceil(
            STACK.numbers_beside_networks
            * unknown_numbers(heads, far.outputs)
            / told_per_query(heads, far.outputs)
            / queries
        )
    )
    q = np.repeat(far.directions(queries), per, axis=0)
    yield from far.written(q, *far.contexts(len(q)))


def polish_deep(far: Far, start: Polished, layers: list[list[int]], seed: int) -> Asking[Polished]:
    """The stack itself at last tokens of ordinary length: constants, eps, and all digits; at higher ranks too, where
    those that were seen do not explain it. Behind a final norm the start is all there is where networks are."""
    first, more, exact = start.heads, start.fuller, far.frame.exact
    fit = yield from _fit_deep(far, first, layers, seed, "polish")
    if far.frame.final is not None and fit.residual > exact:
        # Networks show behind a final norm by this alone.
        return start
    if fit.residual > exact and more is not None and more.flat.size > first.flat.size:
        fit = yield from _fit_deep(far, more, layers, seed, "repair")
    if fit.residual > exact:
        raise ModelMismatch(
            f"{len(first)} heads in {len(layers)} layers were told apart, and a stack of them misses ordinary answers "
            f"by {fit.residual:.2g} of what is written: something else than attention stands between the layers, a "
            "head is too weak to be told apart, or the answers are noisier than declared."
        )
    return Polished(fit.model.heads, fit, parameter_error(fit))


def _fit_deep(far: Far, heads: Heads, layers: list[list[int]], seed: int, phase: str) -> Asking[Fit[Deep]]:
    frame, L = far.frame, len(layers)
    ordered = heads.take([h for layer in layers for h in layer])
    out = far.outputs
    unknown = unknown_numbers(ordered, out) + L * out + 1
    data = yield from ask_deep(far, heads, _OVER_DEEP[frame.dtype] * unknown, phase)
    T, behind = (frame.T, None) if frame.final is None else (np.eye(frame.D), frame.d)
    model = Deep(
        ordered, tuple(len(layer) for layer in layers), np.zeros((L, out)), STACK.first_guess_of_eps, T, behind
    )
    model = _cut_again(settle_deep(model, data, 1 + ordered.flat.size))
    return gauss_newton(model, [data], steps=25, noise=2 * frame.unit, draws=CORE.entries_for_scale, seed=seed)


def ask_deep(far: Far, heads: Heads, numbers: float, phase: str) -> Asking[Contexts]:
    """Random contexts that tell so many numbers, the last token of ordinary length, and some with a short one."""
    m = int(np.ceil(numbers / told_per_query(heads, far.outputs)))
    q = far.directions(m + CORE.pilot_entries)
    others, counts = far.contexts(len(q))
    scale = np.append(np.exp2(far.rng.uniform(0, 3, m)), np.full(CORE.pilot_entries, STACK.length_that_shows_eps))
    y, last = yield from far.answers(q, others, counts, scale, phase)
    y = y - last if far.frame.final is None else far.frame.normalised(y)
    return Contexts(q, others, np.log(counts), y, scale)


def settle_deep(model: Deep, data: Contexts, constants: int) -> Deep:
    """A start for all parameters together: the last tokens of ordinary length come first, the short ones show eps, and
    the parameters from `constants` on are constants."""
    # Constants are not near their start: by themselves first, longest tokens first, where they turn the least.
    for longest in (4.0, 2.0, 1.0):
        rows = np.flatnonzero(data.scale >= longest)
        model = gauss_newton(model, [data.take(rows)], held=constants).model
    # Ordinary tokens hardly show eps: free, it would follow the heads' errors.
    enough = STACK.polish_start * float(np.sqrt(np.mean(data.y**2)))
    model = gauss_newton(model, [data.take(slice(0, -CORE.pilot_entries))], steps=25, enough=enough, held=1).model
    misfits = [np.linalg.norm(data.y - replace(model, eps=eps).answers(data)) for eps in _EPS_TRIED]
    return replace(model, eps=_EPS_TRIED[int(np.argmin(misfits))])


def _cut_again(model: Deep) -> Deep:
    """The stack at the ranks that its heads show now: float32 had left none to be seen in the star."""
    cut = cut_heads(model.heads)
    return replace(model, heads=cut) if cut.flat.size < model.heads.flat.size else model


def parameter_error(fit: Fit[Any]) -> float:
    """Worst relative change of a head's W, c or P over the moved models."""
    heads = fit.model.heads
    sizes = {name: np.linalg.norm(getattr(heads, name).reshape(len(heads.c), -1), axis=1) for name in ("W", "c", "P")}
    worst = 0.0
    for other in fit.moved:
        for name, size in sizes.items():
            gap = np.linalg.norm((getattr(heads, name) - getattr(other.heads, name)).reshape(len(size), -1), axis=1)
            if name == "c":
                # What is no larger than its own error is 0, and stands beside W.
                size = np.where(size > CORE.stated_over_rounding * fit.magnified * gap, size, sizes["W"])
            worst = max(worst, float((gap / np.maximum(size, 1e-300)).max()))
    return worst * fit.magnified
