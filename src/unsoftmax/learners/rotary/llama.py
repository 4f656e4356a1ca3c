"""The whole program: tokens, heads apart, values, the law of scores, turns, keys, queries.

Logits of sinks: two copies of a token before an empty one, against one copy.

Which law scores follow: linear in the token, normed (QK-norm) or capped, from a block shortened by halves.

Theory: docs/theory/attention-layer.md, "Layers of language models".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from unsoftmax.errors import ModelMismatch, NotIdentifiable
from unsoftmax.learners.core.base import Asking, Program
from unsoftmax.learners.core.law import OTHER_WEIGHTS
from unsoftmax.learners.core.reductions import relabelled
from unsoftmax.learners.rotary.absolute import find_cap, linear_keys, read_absolute, read_features, require_quiet
from unsoftmax.learners.rotary.apart import Apart, CrowdedError, tell_apart
from unsoftmax.learners.rotary.assembly import NearlyError, outcome, require_far
from unsoftmax.learners.rotary.constants import ROTARY
from unsoftmax.learners.rotary.filling import fill, require_filling
from unsoftmax.learners.rotary.keys import Keys, read_keys
from unsoftmax.learners.rotary.kind import Kind, known, read_slopes
from unsoftmax.learners.rotary.presets import PLANS, Plan
from unsoftmax.learners.rotary.qk_norm import NORMED, read_normed
from unsoftmax.learners.rotary.queries import read_queries
from unsoftmax.learners.rotary.scene import Scene, read_scene, require_alone
from unsoftmax.learners.rotary.turns import Start, Turns, read_turns, slots_of, start, weights_before
from unsoftmax.learners.rotary.values import Values, read_values
from unsoftmax.learners.rotary.weights import Reader, by_these
from unsoftmax.models.attention_layer import AttentionLayer
from unsoftmax.probes.base import Array
from unsoftmax.spec import OracleSpec

Written = tuple[Scene, Values, Array | None]

Law = Literal["linear", "normed", "capped"]

_BENT: dict[Law, str] = {
    "normed": NORMED,
    "capped": f"scores bend as tokens grow ({OTHER_WEIGHTS})",
}
"""Laws of scores that are not linear in the tokens, as far as three lengths of them show."""


@dataclass(frozen=True, eq=False)
class Heads:
    """Heads told apart (`reader`), a block of tokens that all of them weigh, and the law their scores follow."""

    reader: Reader
    begun: Start
    law: Law
    turning: bool
    """Positions turn queries and keys, as far as was seen: order counts, and no slope explains it."""


def read_heads(
    spec: OracleSpec, norm: str | None, kind: Kind, plan: Plan, rng: np.random.Generator, draws: int = ROTARY.tables
) -> Asking[Heads]:
    """All that is known before keys and queries; about d + 110 queries, more where rounded answers are drawn again."""
    require_readable(kind)
    scene = yield from read_scene(spec, norm, kind.sinks, rng, kind.empty)
    return (yield from heads_in(scene, kind, plan, rng, draws))


def require_readable(kind: Kind) -> None:
    """Refuse, before anything else is asked, what hides the logits of sinks or leaves no room for a block."""
    if kind.window is not None and kind.window < ROTARY.shortest_window:
        raise NotIdentifiable(
            f"heads see {kind.window} tokens, the last one included: keys are read from two tokens at least, with room "
            f"to move them, which takes a window of {ROTARY.shortest_window}."
        )
    if kind.sinks and kind.order == "bias":
        raise NotIdentifiable(
            "sinks take a share of the weight, and positions act on empty query tokens too (a bias of queries, or "
            "ALiBi): the logits of sinks are read where empty tokens weigh alike. Remove the bias of queries."
        )


def heads_in(
    scene: Scene, kind: Kind, plan: Plan, rng: np.random.Generator, draws: int = ROTARY.tables
) -> Asking[Heads]:
    """The same once single tokens have been asked."""
    scene = replace(scene, longest=min(scene.longest, kind.reach))
    yield from require_alone(scene, rng)
    scene, values, logits = yield from _heads(scene, kind, plan, rng, 1 if scene.exact else draws)
    reader = Reader(scene, values, sinks=logits)
    return (yield from by_these(reader, heads_of(reader, kind, plan, rng)))


def heads_of(reader: Reader, kind: Kind, plan: Plan, rng: np.random.Generator) -> Asking[Heads]:
    """What is left to know before keys and queries, once weights can be read."""
    if kind.order == "bias" and reader.scene.free:
        reader.slopes = yield from read_slopes(reader, min(slots_of(reader, plan), ROTARY.sloped_tokens), rng)
    begun = yield from start(reader, plan, rng)
    law = yield from find_law(reader, begun)
    if law != "linear" and reader.slopes is not None:
        raise NotIdentifiable(
            f"{_BENT[law]}, and they fall by a slope per step of distance (ALiBi): what they are is read against an "
            "empty token in front, which the slope hides."
        )
    return Heads(reader, begun, law, kind.order != "none" and reader.slopes is None)


def rotary(scene: Scene, spec: OracleSpec, kind: Kind, preset: str, rng: np.random.Generator) -> Program:
    """A layer with positions or none, with RMSNorm or none; heads share keys and values or not."""
    plan = PLANS[preset]
    heads = yield from heads_in(scene, kind, plan, rng)
    found = yield from by_these(heads.reader, explained(heads, spec, kind, plan, rng))
    assert isinstance(found.model, AttentionLayer)
    require_far(found.model, kind, found.allows.relative_error)
    return found


def needs_ball(scene: Scene, kind: Kind) -> bool:
    """Whether nothing here tells the heads apart: they leave no token that writes nothing, and no positions. Behind an
    RMSNorm alone tokens still fill a ball, in which small differences of answers do."""
    alone = kind.order == "none" and not kind.sinks and kind.window is None and scene.eps is not None
    return alone and len(scene.empty) < ROTARY.fewest_quiet


def explained(heads: Heads, spec: OracleSpec, kind: Kind, plan: Plan, rng: np.random.Generator) -> Program:
    """Frequencies, keys and queries of heads whose weights can be read."""
    reader, begun, law = heads.reader, heads.begun, heads.law
    if law == "normed":
        turns, keys, queries = yield from read_normed(reader, begun, plan, heads.turning, rng)
        return outcome(reader, turns, keys, queries, kind, None, spec)
    if law == "capped":
        return (yield from _capped(heads, spec, kind, plan, rng))
    if not reader.values.linear:
        raise ModelMismatch(
            "heads that fill the space are told apart by steps, and scores that are linear in the tokens do not "
            f"explain longer tokens: {OTHER_WEIGHTS}."
        )
    try:
        return (yield from _scored(heads, spec, kind, plan, None, rng))
    except NearlyError as refusal:
        # A cap far beyond the scores bends three of them by less than is told from noise, and all keys by more.
        told = ModelMismatch(str(refusal))
        if not reader.quiet or not reader.scene.free or reader.slopes is not None:
            raise told from None
        try:
            return (yield from relabelled(_capped(heads, spec, kind, plan, rng), "repair"))
        except (ModelMismatch, NotIdentifiable):
            raise told from None


def _capped(heads: Heads, spec: OracleSpec, kind: Kind, plan: Plan, rng: np.random.Generator) -> Program:
    """The same behind a soft cap, which is found first."""
    require_quiet(heads.reader, _BENT["capped"])
    cap = yield from find_cap(heads.reader, heads.begun)
    return (yield from _scored(heads, spec, kind, plan, cap, rng))


def _scored(
    heads: Heads, spec: OracleSpec, kind: Kind, plan: Plan, cap: float | None, rng: np.random.Generator
) -> Program:
    """The same where scores are linear in the tokens, behind this cap or none."""
    reader, begun = heads.reader, heads.begun
    turns, keys = yield from _keys(reader, begun, plan, heads.turning, cap, rng)
    queries = yield from read_queries(reader, turns, keys, plan, rng, cap)
    return outcome(reader, turns, keys, queries, kind, cap, spec, float(np.ptp(np.log(begun.weights))))


def _heads(scene: Scene, kind: Kind, plan: Plan, rng: np.random.Generator, draws: int) -> Asking[Written]:
    """The scene, what every head writes, and the logits of sinks where there are any."""
    if len(scene.empty) >= ROTARY.fewest_quiet:
        try:
            return (yield from _tabled(scene, kind, plan, rng, draws))
        except CrowdedError:
            pass
    require_filling(scene, kind.order != "none")
    scene, values = yield from fill(scene, plan.rough, rng)
    return scene, values, None


def _tabled(scene: Scene, kind: Kind, plan: Plan, rng: np.random.Generator, draws: int) -> Asking[Written]:
    """The same by tables of tokens that write nothing.

    Of rounded answers a draw may lose a digit or two, and its own misfit shows it: then another one is made.
    """
    best: Written | None = None
    for attempt in range(draws):
        drawn = _drawn(scene, kind, plan, rng)
        try:
            found = yield from (drawn if attempt == 0 else relabelled(drawn, "repair"))
        except CrowdedError:
            raise
        except ModelMismatch:
            if best is None and attempt == draws - 1:
                raise
            continue
        best = found if best is None or found[1].error < best[1].error else best
        if best[1].error <= ROTARY.well_written:
            break
    assert best is not None
    return best


def _drawn(scene: Scene, kind: Kind, plan: Plan, rng: np.random.Generator) -> Asking[Written]:
    """One draw of query token and tables."""
    apart = yield from tell_apart(scene, rng, rough=plan.rough)
    if not kind.sinks:
        return scene, (yield from read_values(scene, apart, plan, np.ones(apart.heads), rng)), None
    apart, logits = yield from read_sinks(scene, apart)
    values = yield from read_values(scene, apart, plan, 1 / (2 + np.exp(logits)), rng)
    return scene, values, logits


def _keys(
    reader: Reader, begun: Start, plan: Plan, turning: bool, cap: float | None, rng: np.random.Generator
) -> Asking[tuple[Turns, Keys]]:
    """Frequencies and keys: from differences of scores where those say everything, from the scores themselves else."""
    if cap is None and reader.sinks is None:
        turns = yield from read_turns(reader, begun, turning)
        return turns, (yield from read_keys(reader, turns, plan))
    require_quiet(reader, "sinks take a share of the weight")
    turns = yield from read_absolute(reader, begun, turning, cap)
    read = yield from read_features(reader, turns, plan, reader.scene.dim + 1 + plan.tokens, cap, rng)
    return turns, linear_keys(reader, turns, read)


def read_sinks(scene: Scene, apart: Apart) -> Asking[tuple[Apart, Array]]:
    """One query. Before x = 0 all scores are 0: the weight of x is 1 / (2 + e^b) alone and 2 / (3 + e^b) in two copies.

    Columns were scaled to add up to the answer of [x, 0]; with b known they are P_h x.
    """
    x = apart.x
    y, _ = yield from scene.ask(np.stack([x, x, np.zeros_like(x)])[None], "main")
    ratio = np.linalg.lstsq(apart.columns, y[0], rcond=None)[0]
    weight = (3 * ratio - 4) / (2 - ratio)
    if not (weight > 0).all():
        raise ModelMismatch(
            "two copies of a token weigh more than sinks allow: the weights of heads do not add up to 1 for another "
            "reason (gates, another kernel)."
        )
    shares = 2 + weight
    return replace(apart, columns=apart.columns * shares, sums=apart.sums * shares[:, None]), np.log(weight)


def find_law(reader: Reader, begun: Start) -> Asking[Law]:
    """Two queries: log ratios r of the weights of z, z/2, z/4 have r(1) - 3 r(1/2) + 2 r(1/4) = 0 if affine."""
    m = len(begun.block)
    z = np.stack([np.vstack([scale * begun.block, begun.q[:1]]) for scale in (0.5, 0.25)])
    weights = np.concatenate([begun.weights[:1], (yield from weights_before(reader, z, m, "pilot"))])
    # What a slope per step of distance adds is the same in all three, and may be far more than weak scores.
    logs = reader.level(np.log(np.maximum(weights, 1e-300)), np.arange(m, 0, -1))
    whole, half, quarter = logs[..., 1:] - logs[..., :1]
    spread = max(float(np.abs(whole - quarter).max()), 1e-300)
    bend = np.abs(whole - 3 * half + 2 * quarter)
    size = float(np.abs(whole).max())
    lost = ROTARY.weight_error / np.maximum(np.minimum(weights[..., 1:], weights[..., :1]).min(axis=0), 1e-300)
    allowed = reader.scene.limits.bend * max(spread, size) + (lost + known(reader) if reader.scene.exact else 0.0)
    if np.all(bend <= allowed):
        return "linear" if spread > ROTARY.normed * size or size == 0 else "normed"
    return "normed" if float(np.abs(whole - half).max()) <= ROTARY.normed * size else "capped"
