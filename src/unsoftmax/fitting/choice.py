"""Number of heads and rank, where they are not given: the smallest shape whose fit arrives."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unsoftmax.errors import InvalidArgument, NotIdentifiable
from unsoftmax.fitting.blocks import Blocks
from unsoftmax.fitting.constants import FITTING
from unsoftmax.fitting.heads import Heads
from unsoftmax.fitting.log import Log
from unsoftmax.fitting.noise import Noise
from unsoftmax.fitting.recipes import recipe, smaller
from unsoftmax.fitting.search import Found, Search, Watch, found
from unsoftmax.fitting.shape import Shape
from unsoftmax.fitting.spans import Spans


def shapes(log: Log, model: str, heads: int | None, rank: int | None) -> list[Shape]:
    """Shapes to try, the smallest first."""
    d, outputs = log.dim, log.outputs
    if (outputs is None) == (model == "layer"):
        wanted = "vector answers (n, outputs)" if model == "layer" else "scalar answers (n,)"
        raise InvalidArgument(f"`model` {model!r} needs {wanted} (got {log.answers.shape}).")
    if model in ("single head", "low rank") and heads not in (None, 1):
        raise InvalidArgument(f"`heads` must be 1 or None for {model!r} (got {heads}); fit a 'multi-head'.")
    if rank is not None and rank > d:
        raise InvalidArgument(f"`rank` must be between 1 and dim (got {rank} for dim {d}).")
    base = Shape(1, d, outputs or 1, None if rank == d else rank)
    if model == "single head":
        if rank not in (None, d):
            raise InvalidArgument(f"`rank` belongs to 'low rank' and to several heads (got {rank}).")
        return [base]
    if model == "low rank":
        return [base] if rank is not None else [replace(base, rank=r) for r in range(1, d)]
    return [replace(base, heads=H) for H in ([heads] if heads is not None else range(1, FITTING.most_heads + 1))]


def affordable(wanted: list[Shape], span: Spans, given: int) -> list[Shape]:
    """Those with at most one unknown for each of the different numbers given; raises if there is none."""
    if span.differences == 0:
        raise NotIdentifiable(
            "no sequence of the log has two different tokens: attention does not show, only the values are determined."
        )
    fitting = [shape for shape in wanted if span.unknowns(shape) <= given]
    if not fitting:
        needed = span.unknowns(wanted[0])
        raise NotIdentifiable(
            f"the log has {given} numbers to fit and the model {needed} unknowns that its tokens can show; one number "
            f"per unknown is the least (equal sequences count once), and {1.5 * needed:.0f} are wise: record more, or "
            "fit a smaller class."
        )
    return fitting


def chosen(
    wanted: list[Shape], blocks: Blocks, noise: Noise, starts: int, rng: np.random.Generator, watch: Watch | None
) -> Found:
    """The first shape that arrives, without heads it can do without; else the one of the best criterion."""
    streams = [_stream(shape, blocks, noise, rng) for shape in wanted]
    for most in (*(p for p in FITTING.passes if p < starts), starts) if len(streams) > 1 else (starts,):
        for stream in streams:
            if stream.pull(most, watch):
                return _pruned(stream, noise) if len(streams) > 1 else stream
    return min(streams, key=_criterion)


def _stream(shape: Shape, blocks: Blocks, noise: Noise, rng: np.random.Generator) -> Found:
    search = Search(Heads(blocks, shape), _goal(blocks, shape, noise))
    return found(search, recipe(search, rng))


def _goal(blocks: Blocks, shape: Shape, noise: Noise) -> float:
    """The squared residual at which the right basin is found."""
    exact = FITTING.arrived**2 * float((blocks.y**2).sum())
    share = max(blocks.y.size - shape.freedom, 1) / blocks.y.size
    return max(exact, 1.3 * share * float((noise.deviations(blocks.y) ** 2).sum()))


def _pruned(stream: Found, noise: Noise) -> Found:
    """The same with one head fewer as long as that arrives too."""
    while (shape := stream.search.problem.shape).heads > 1:
        blocks, fewer = stream.search.problem.blocks, replace(shape, heads=shape.heads - 1)
        search = Search(Heads(blocks, fewer), _goal(blocks, fewer, noise))
        x, cost = smaller(stream.search, stream.x, search)
        if cost > search.arrived:
            break
        stream = Found(search, iter(()), x, cost, stream.tried)
    return stream


def _criterion(stream: Found) -> float:
    """Bayesian information criterion of the best attempt."""
    numbers = stream.search.problem.blocks.y.size
    freedom = stream.search.problem.shape.freedom
    return float(numbers * np.log(max(stream.cost, 1e-300) / numbers) + freedom * np.log(numbers))
