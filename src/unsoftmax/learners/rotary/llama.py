"""The whole program: tokens, heads apart, values, the law of scores, turns, keys, queries.

Theory: docs/theory/attention-layer.md, "Layers of language models".
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from unsoftmax.errors import ModelMismatch, NotIdentifiable
from unsoftmax.learners.core.base import Asking, Program
from unsoftmax.learners.core.reductions import relabelled
from unsoftmax.learners.rotary.absolute import find_cap, linear_keys, read_absolute, read_features, require_quiet
from unsoftmax.learners.rotary.apart import tell_apart
from unsoftmax.learners.rotary.assembly import outcome, require_far
from unsoftmax.learners.rotary.filling import fill, require_filling
from unsoftmax.learners.rotary.keys import Keys, read_keys
from unsoftmax.learners.rotary.kind import Kind
from unsoftmax.learners.rotary.law import Law, find_law, read_slopes
from unsoftmax.learners.rotary.presets import PLANS, Plan
from unsoftmax.learners.rotary.qk_norm import read_normed
from unsoftmax.learners.rotary.queries import read_queries
from unsoftmax.learners.rotary.scene import Scene, read_scene
from unsoftmax.learners.rotary.sinks import read_sinks
from unsoftmax.learners.rotary.turns import Start, Turns, read_turns, start
from unsoftmax.learners.rotary.values import Values, read_values
from unsoftmax.learners.rotary.weights import Reader
from unsoftmax.models.attention_layer import AttentionLayer
from unsoftmax.probes.base import Array
from unsoftmax.spec import OracleSpec

Written = tuple[Scene, Values, Array | None]

SHORTEST = 5
"""Least window: a block of two tokens, an empty one on either side, and the last."""

_FEWEST = 3
"""Dimensions of tokens that write nothing from which on a table of sums is tried: two tokens and a query token."""


DRAWS = 4
"""Draws of query token and tables, at most, from rounded answers: every second one is a good one."""

_WELL_WRITTEN = 2e-5
"""Relative error of what heads write, from rounded answers, that is good enough: float32 leaves 1e-5 in a good draw and
3e-3 in a bad one, and scores are known fifty times worse."""


@dataclass(frozen=True, eq=False)
class Heads:
    """Heads told apart (`reader`), a block of tokens that all of them weigh, and the law their scores follow."""

    reader: Reader
    begun: Start
    law: Law
    turning: bool
    """Positions turn queries and keys, as far as was seen: order counts, and no slope explains it."""


def read_heads(
    spec: OracleSpec, norm: str | None, kind: Kind, plan: Plan, rng: np.random.Generator, draws: int = DRAWS
) -> Asking[Heads]:
    """All that is known before keys and queries; about d + 110 queries, more where rounded answers are drawn again."""
    require_readable(kind)
    scene = yield from read_scene(spec, norm, kind.sinks, rng)
    return (yield from heads_in(scene, kind, plan, rng, draws))


def require_readable(kind: Kind) -> None:
    """Refuse, before anything else is asked, what hides the logits of sinks or leaves no room for a block."""
    if kind.window is not None and kind.window < SHORTEST:
        raise NotIdentifiable(
            f"heads see {kind.window} tokens, the last one included: keys are read from two tokens at least, with room "
            f"to move them, which takes a window of {SHORTEST}."
        )
    if kind.sinks and kind.order == "bias":
        raise NotIdentifiable(
            "sinks take a share of the weight, and positions act on empty query tokens too (a bias of queries, or "
            "ALiBi): the logits of sinks are read where empty tokens weigh alike. Remove the bias of queries."
        )


def heads_in(scene: Scene, kind: Kind, plan: Plan, rng: np.random.Generator, draws: int = DRAWS) -> Asking[Heads]:
    """The same once single tokens have been asked."""
    scene = replace(scene, longest=min(scene.longest, kind.reach))
    scene, values, logits = yield from _heads(scene, kind, plan, rng, 1 if scene.exact else draws)
    return (yield from heads_of(Reader(scene, values, sinks=logits), kind, plan, rng))


def heads_of(reader: Reader, kind: Kind, plan: Plan, rng: np.random.Generator) -> Asking[Heads]:
    """What is left to know before keys and queries, once weights can be read."""
    if kind.order == "bias" and reader.scene.free:
        reader.slopes = yield from read_slopes(reader, plan.slots(reader), rng)
    begun = yield from start(reader, plan, rng)
    law = yield from find_law(reader, begun)
    if law != "linear" and reader.slopes is not None:
        raise NotIdentifiable(
            f"scores are {law} and fall by a slope per step of distance (ALiBi beside a soft cap or norms of keys): "
            "scores themselves are read against an empty token in front, which the slope hides."
        )
    return Heads(reader, begun, law, kind.order != "none" and reader.slopes is None)


def rotary(scene: Scene, spec: OracleSpec, kind: Kind, preset: str, rng: np.random.Generator) -> Program:
    """A layer with positions or none, with RMSNorm or none; heads share keys and values or not."""
    plan = PLANS[preset]
    heads = yield from heads_in(scene, kind, plan, rng)
    found = yield from explained(heads, spec, kind, plan, rng)
    assert isinstance(found.model, AttentionLayer)
    require_far(found.model, kind, found.allows.relative_error)
    return found


def needs_ball(scene: Scene, kind: Kind) -> bool:
    """Whether nothing here tells the heads apart: they leave no token that writes nothing, and no positions. Behind an
    RMSNorm alone tokens still fill a ball, in which small differences of answers do."""
    alone = kind.order == "none" and not kind.sinks and kind.window is None and scene.eps is not None
    return alone and len(scene.empty) < _FEWEST


def explained(heads: Heads, spec: OracleSpec, kind: Kind, plan: Plan, rng: np.random.Generator) -> Program:
    """Frequencies, keys and queries of heads whose weights can be read."""
    reader, begun, law, turning, cap = heads.reader, heads.begun, heads.law, heads.turning, None
    if law == "normed":
        turns, keys, queries = yield from read_normed(reader, begun, plan, turning, rng)
        return outcome(reader, turns, keys, queries, kind, cap, spec)
    if law == "capped":
        require_quiet(reader, "a soft cap")
        cap = yield from find_cap(reader, begun)
    turns, keys = yield from _keys(reader, begun, plan, turning, cap, rng)
    queries = yield from read_queries(reader, turns, keys, plan, rng, cap)
    return outcome(reader, turns, keys, queries, kind, cap, spec, float(np.ptp(np.log(begun.weights))))


def _heads(scene: Scene, kind: Kind, plan: Plan, rng: np.random.Generator, draws: int) -> Asking[Written]:
    """The scene, what every head writes, and the logits of sinks where there are any.

    Of rounded answers a draw may lose a digit or two, and its own misfit shows it: then another one is made.
    """
    if len(scene.empty) < _FEWEST:
        require_filling(scene, kind.order != "none")
        scene, values = yield from fill(scene, rng)
        return scene, values, None
    best: Written | None = None
    for attempt in range(draws):
        drawn = _drawn(scene, kind, plan, rng)
        try:
            found = yield from (drawn if attempt == 0 else relabelled(drawn, "repair"))
        except ModelMismatch:
            if best is None and attempt == draws - 1:
                raise
            continue
        best = found if best is None or found[1].error < best[1].error else best
        if best[1].error <= _WELL_WRITTEN:
            break
    assert best is not None
    return best


def _drawn(scene: Scene, kind: Kind, plan: Plan, rng: np.random.Generator) -> Asking[Written]:
    """One draw of query token and tables."""
    apart = yield from tell_apart(scene, rng)
    if not kind.sinks:
        return scene, (yield from read_values(scene, apart, plan.spare, np.ones(apart.heads), rng)), None
    apart, logits = yield from read_sinks(scene, apart)
    values = yield from read_values(scene, apart, plan.spare, 1 / (2 + np.exp(logits)), rng)
    return scene, values, logits


def _keys(
    reader: Reader, begun: Start, plan: Plan, turning: bool, cap: float | None, rng: np.random.Generator
) -> Asking[tuple[Turns, Keys]]:
    """Frequencies and keys: from differences of scores where those say everything, from the scores themselves else."""
    if cap is None and reader.sinks is None:
        turns = yield from read_turns(reader, begun, turning)
        return turns, (yield from read_keys(reader, turns, plan))
    require_quiet(reader, "sinks")
    turns = yield from read_absolute(reader, begun, turning, cap)
    tokens, features = yield from read_features(reader, turns, plan, reader.scene.dim + 1 + plan.tokens, cap, rng)
    return turns, linear_keys(reader, turns, tokens, features)
