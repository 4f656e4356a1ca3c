"""`fit`: a log in, a model with its verdict out; not one query is asked.

Held-out error against records used: the same class fitted to fewer of the records, judged by the same others.

Progress for people: one line on standard error, for fits that take more than two seconds.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from typing import Any, Literal, get_args

import numpy as np

from unsoftmax.arguments import real, whole
from unsoftmax.errors import InvalidArgument, NotIdentifiable
from unsoftmax.fitting.blocks import Blocks
from unsoftmax.fitting.choice import affordable, chosen, shapes
from unsoftmax.fitting.constants import FITTING
from unsoftmax.fitting.copies import distinct, groups
from unsoftmax.fitting.directions import Seen
from unsoftmax.fitting.heads import Heads
from unsoftmax.fitting.log import Log
from unsoftmax.fitting.narrowing import narrowed
from unsoftmax.fitting.noise import Noise, computed, noise_of, rounding
from unsoftmax.fitting.recipes import recipe
from unsoftmax.fitting.result import Ended, recovery_of
from unsoftmax.fitting.rivals import Reached, contested
from unsoftmax.fitting.search import Search, Watch, found
from unsoftmax.fitting.settle import confirmed, settled
from unsoftmax.fitting.spans import Spans, spans
from unsoftmax.fitting.verdict import Judged, checked, exact, judge_exact, judge_noisy
from unsoftmax.probes.base import Array
from unsoftmax.results.recovery import Recovery, Status, Usage, plain

Class = Literal["single head", "low rank", "multi-head", "layer"]
"""Model classes that a log can be fitted with."""


def fit(
    log: Log,
    model: Class = "single head",
    *,
    heads: int | None = None,
    rank: int | None = None,
    holdout: float = 0.15,
    seed: int = 0,
    starts: int = 160,
    curve: bool = False,
    progress: bool | Watch = False,
) -> Recovery:
    """The model behind recorded answers, fitted to a part of them and judged by the rest.

    `heads`, `rank`: found if None (`rank` only for "low rank"; elsewhere None is full rank). `holdout`: the share of
    records that nobody touches before the verdict. `starts`: attempts per shape before the best fit is taken. `curve`:
    also fit fewer of the records, and keep the held-out error against their number in the provenance.
    The status is RECOVERED if held-out records agree to rounding, CONSISTENT if they are within the noise (declared,
    or seen in digits or repeated records) and no missing feature is found, and SURROGATE otherwise: then only the
    claim about records like these is made. `recovery.errors`: standard errors of every parameter.
    `recovery.undetermined`: a basis (k, unknowns) of what the log does not show, or None; unknowns are W raveled,
    then v (or P). Their number k is in the provenance and the notes, also where the basis is too large to hold.
    """
    began = time.perf_counter()
    _check(log, model, holdout, {"seed": seed}, {"heads": heads, "rank": rank, "starts": starts})
    rng = np.random.default_rng([seed, 0xF17])
    train, held, given = _parts(log, holdout, rng)
    whole_span, noise = spans(Blocks(log, train)), noise_of(log)
    narrow = narrowed(log, whole_span)
    within = narrow.log(log)
    blocks, rest = Blocks(within, train), Blocks(within, held)
    span = whole_span if within is log else spans(blocks)
    shapes(log, model, heads, rank)  # refuses what does not go together in all dimensions
    wanted = affordable(shapes(within, model, heads, rank and min(rank, within.dim)), span, given)
    with watching(progress) as watch:
        best = confirmed(chosen(wanted, blocks, noise, starts, rng, watch), noise, span, starts, seed, watch)
    search, x = _freed(best.search, best.x, span)
    judged, x, seen = _judged(search, rest, x, noise, span, seed)
    usage = Usage(
        asked=len(log), tokens=int(log.lengths.sum()), numbers=int(log.answers.size),
        seconds=time.perf_counter() - began, phases={"fitted": len(train), "held out": len(held)},
    )  # fmt: skip
    shape = best.search.problem.shape
    provenance: dict[str, Any] = {
        "fit": {"model": model, "heads": heads, "rank": rank, "holdout": holdout, "starts": starts},
        "found": {
            "heads": shape.heads,
            "rank": shape.rank,
            "unknowns": narrow.shape(shape).freedom,
            "noise": noise.source,
        },
        **({"curve": learning_curve(search, rest, x, rng)} if curve else {}),
        "seed": seed,
        "version": _version(),
    }
    ended = Ended(search.problem, x, seen, judged, whole_span, narrow)
    result = recovery_of(ended, usage, plain(provenance))
    return replace(result, notes=(*result.notes, *log.notes))


def _check(log: Any, model: Any, holdout: float, from_0: dict[str, int], from_1: dict[str, int | None]) -> None:
    if not isinstance(log, Log):
        raise InvalidArgument(f"`log` must be a us.Log (got {type(log).__name__}); oracles are for us.recover.")
    if model not in get_args(Class):
        raise InvalidArgument(f"`model` must be one of {', '.join(map(repr, get_args(Class)))} (got {model!r}).")
    if not log.answers.any():
        raise NotIdentifiable("every answer of the log is 0: values of 0 give them, whatever is attended to.")
    _check_sizes(log)
    real("holdout", holdout, high=1.0)
    for name, value in from_0.items():
        whole(name, value, 0)
    for name, number in from_1.items():
        if number is not None:
            whole(name, number)


def _check_sizes(log: Log) -> None:
    """Squares of tokens and of answers, and the products of both, must stay well inside float64."""
    rows = log.tokens if log.table is None else log.table[np.unique(log.tokens)]
    some = rows[:: 1 + len(rows) // 4096]  # no copy of a large log
    entries = np.abs(some[some != 0])
    typical = float(np.median(entries)) if entries.size else 1.0
    largest = max(float(rows.max()), -float(rows.min()))
    if not 1 / FITTING.token_range <= typical <= FITTING.token_range:
        raise InvalidArgument(
            f"entries of `tokens` must be of a size of {1 / FITTING.token_range:g} to {FITTING.token_range:g} for a "
            "fit (got a median of "
            f"{typical:.2g}); divide tokens by that c: what is found is then c^2 times W, and c times v."
        )
    if largest > FITTING.longest_entry * typical:
        raise InvalidArgument(
            f"entries of `tokens` must be within {FITTING.longest_entry:g} of the median {typical:.2g} for a fit (got "
            "one of "
            f"{largest:.2g}); leave such records out."
        )
    if (log.tolerance or 0.0) > FITTING.answer_range:
        raise InvalidArgument(
            f"`tolerance` must be at most {FITTING.answer_range:g} (got {log.tolerance:g}), in units of the answers."
        )
    size = float(np.median(np.abs(log.answers[log.answers != 0])))
    if not 1 / FITTING.answer_range <= size <= FITTING.answer_range:
        raise InvalidArgument(
            f"`answers` must be of a size of {1 / FITTING.answer_range:g} to {FITTING.answer_range:g} for a fit (got "
            f"{size:.2g}, the median); "
            "divide answers and `tolerance` by that, and multiply the values found by it."
        )


def _parts(log: Log, holdout: float, rng: np.random.Generator) -> tuple[Array, Array, int]:
    """Records to fit, records to hold out, drawn at random, and how many different numbers there are to fit.

    Copies of a sequence, and sequences nearly equal to it, stay on one side, and of those held out one counts: a copy
    agrees with any fit of its twin.
    """
    first, number = distinct(log)
    group = groups(log, first, number)
    n = int(group.max()) + 1
    kept = round(holdout * n)
    if kept < 2 or kept * (log.outputs or 1) < FITTING.fewest or n - kept < 1:
        raise InvalidArgument(
            f"`holdout` must leave at least 2 records and {FITTING.fewest} numbers for the verdict, and a record to "
            "fit (got "
            f"{kept} of {n} different records, of {len(log)}); pass more records that differ."
        )
    order = rng.permutation(n)
    fitted = np.isin(group, order[kept:])
    held = np.unique(group, return_index=True)[1][order[:kept]]
    return np.flatnonzero(fitted), np.sort(held), len(np.unique(number[fitted])) * (log.outputs or 1)


def _freed(search: Search, x: Array, span: Spans) -> tuple[Search, Array]:
    """Without the rank, where tokens or queries span a part: what shows of W may have a smaller rank than W, and then
    other W than the one found have the same part."""
    problem = search.problem
    free = replace(problem.shape, rank=None)
    known = span.unknowns(free) == free.freedom
    if problem.shape.rank is None or known or free.unknowns > FITTING.most_directions:
        return search, x
    W, _, P = problem.shape.split(x)
    return replace(search, problem=Heads(problem.blocks, free)), free.joined(W, P)


def _judged(
    search: Search, rest: Blocks, x: Array, noise: Noise, span: Spans, seed: int
) -> tuple[Judged, Array, Seen | Reached]:
    """Settle and judge: as exact answers first, then as noisy ones."""
    problem = search.problem
    shape, blocks = problem.shape, problem.blocks
    sharp, seen = settled(search, x, rounding(blocks, shape, x), span, seed)
    both = rounding(blocks, shape, sharp), rounding(rest, shape, sharp)
    fitted = checked(problem, rest, sharp, seen, both, FITTING.finest)
    if exact(fitted):
        judged = judge_exact(problem, fitted, both[0])
        return judged, sharp, seen.confirmed(judged.limit)
    rows = [noise.deviations(part.y).ravel() for part in (blocks, rest)]
    if noise.source == "none":
        size = float(np.sqrt((problem.at(sharp).residual ** 2).mean()))
        rows = [np.full(len(row), size) for row in rows]
    # Answers near 0 have a relative error near 0, but were computed from numbers of the usual size.
    rows = [np.maximum(row, 1e-3 * float(np.median(row)) + 1e-300) for row in rows]
    if noise.source == "format":
        sharp, seen = settled(search, x, rows[0], span, seed)
    z = problem.at(sharp).residual / rows[0]
    left = float(np.sqrt((z**2).sum() / max(len(z) - seen.rank, 1)))
    if noise.source == "format" and left > FITTING.rounded_at_end:
        rows = [computed(noise, part, shape, sharp) for part in (blocks, rest)]
    if left < FITTING.bound_share and len(z) > seen.rank:
        # A bound was declared. In its units directions would pass for unseen that the answers show.
        rows = [row * left for row in rows]
    x, seen = settled(search, x, rows[0], span, seed)
    contest = contested(search, x, seen, rows[0], span, seed)
    if contest is not None:
        x, seen = contest.fit.x, contest.fit
    fitted = checked(problem, rest, x, seen, (rows[0], rows[1]), 1.0)
    judged = judge_noisy(problem, fitted, noise, rows[0], seed)
    if contest is None or judged.status is not Status.CONSISTENT:
        return judged, x, seen
    judged, reached = contest.judged(judged)
    return judged, x, reached


@cache
def _version() -> str:
    return version("unsoftmax")


def learning_curve(search: Search, held: Blocks, x: Array, rng: np.random.Generator) -> list[tuple[int, float]]:
    """(records fitted, root mean square error on held-out records relative to their answers); x is the whole fit's."""
    blocks = search.problem.blocks
    order, points = rng.permutation(blocks.order), []
    for share in FITTING.curve_shares:
        count = max(1, round(share * len(order)))
        part = Search(Heads(Blocks(blocks.log, order[:count]), search.problem.shape), search.arrived * share)
        best = found(part, recipe(part, rng))
        if share < 1:
            best.pull(FITTING.curve_attempts)
        points.append((count, held_out_error(Heads(held, search.problem.shape), best.x if share < 1 else x)))
    return points


def held_out_error(problem: Heads, x: Array) -> float:
    """Root mean square error on these records, relative to the root mean square of their answers."""
    size = float((problem.blocks.y**2).mean()) or 1.0
    return float(np.sqrt((problem.at(x).residual ** 2).mean() / size))


@contextmanager
def watching(progress: bool | Watch) -> Iterator[Watch | None]:
    """The callback of a search: None, the user's own, or a line on standard error."""
    if not isinstance(progress, bool):
        if not callable(progress):
            raise InvalidArgument(
                f"`progress` must be True, False or a callable (what, attempts, residual) (got {progress!r})."
            )
        yield progress
        return
    if not progress:
        yield None
        return
    from rich.console import Console

    console = Console(stderr=True)
    began = last = time.monotonic()
    with console.status("fitting") if console.is_terminal else _quiet() as status:

        def show(what: str, attempts: int, residual: float) -> None:
            nonlocal last
            words = f"{what}: {attempts} attempts, best relative residual {residual:.1e}"
            now = time.monotonic()
            if status is not None:
                status.update(words)
            elif now - began > FITTING.patience and now - last > FITTING.pause:
                last = now
                console.file.write(words + "\n")

        yield show


@contextmanager
def _quiet() -> Iterator[None]:
    yield None
