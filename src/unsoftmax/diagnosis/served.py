"""Vector answers in which order counts: positions, sinks, window, heads and scores, by the learner's own steps."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from unsoftmax.diagnosis.choice import learner_of
from unsoftmax.diagnosis.constants import DIAGNOSIS
from unsoftmax.diagnosis.findings import Diagnosis, Finding
from unsoftmax.diagnosis.sketch import Meter, TooDearError, limited
from unsoftmax.errors import Code, DomainError, ModelMismatch, NotIdentifiable, UnsoftmaxError
from unsoftmax.learners.block.infinity import require_digits
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.reductions import overheard
from unsoftmax.learners.layer.norms import find_norm
from unsoftmax.learners.rotary.constants import ROTARY
from unsoftmax.learners.rotary.kind import Kind, beside_layer_norm, find_kind
from unsoftmax.learners.rotary.llama import Heads, read_heads
from unsoftmax.learners.rotary.presets import PLANS
from unsoftmax.learners.rotary.turns import Turns, read_turns, turn_queries
from unsoftmax.learners.rotary.weights import by_these
from unsoftmax.probes.base import Array
from unsoftmax.spec import OracleSpec

_ORDERS = {
    "none": "The order of two tokens does not matter: no positions.",
    "rotary": "Order matters only through the query token: rotary positions.",
    "bias": "Order matters for an empty query token too: ALiBi, or rotary positions with a query bias.",
    "alibi": "Each step of distance lowers a head's scores by a slope of its own: ALiBi.",
    "rotary with a query bias": "Order matters for an empty query token too, and through no slope: rotary positions "
    "with a query bias.",
}

_LAWS = {
    "linear": "Scores are linear in the tokens.",
    "normed": "Scores do not follow the tokens' length.",
    "capped": "Scores bend as they grow.",
}


@dataclass(frozen=True, eq=False)
class Seen:
    """What the learner's steps showed as far as the allowance went; `turns` only where scores are linear and turn."""

    norm: str | None
    kind: Kind
    heads: Heads | None = None
    turns: Turns | None = None

    @property
    def positions(self) -> str:
        if self.heads is None or self.kind.order != "bias":
            return self.kind.order
        return "alibi" if self.heads.reader.slopes is not None else "rotary with a query bias"


def served(spec: OracleSpec, found: tuple[Finding, ...], rng: np.random.Generator, allowed: int) -> Asking[Diagnosis]:
    """An attention layer with positions, or "outside" in the words of the learner that would refuse it."""
    around = Meter(allowed)
    try:
        heard: list[Array] = []
        norm = yield from limited(overheard(find_norm(spec, rng), heard), around)
        if norm in ("pre", "post"):
            raise beside_layer_norm(norm)
        kind = yield from limited(find_kind(spec, rng), around)
        if norm in ("block", "final"):
            require_digits(heard[0], spec)
            family = "attention layer beside or behind a network"
            return Diagnosis(family, learner_of(family), found + _behind(norm, kind))
    except (ModelMismatch, NotIdentifiable, DomainError) as refusal:
        return _refused(found, refusal)
    try:
        seen = yield from _heads(spec, norm, kind, rng, allowed - around.used)
    except (ModelMismatch, NotIdentifiable, DomainError) as refusal:
        found += _kind_findings(norm, kind, kind.order)
        if refusal.code != Code.NOISE:
            return _refused(found, refusal)
        # The class is this one: the learner draws more tables than a diagnosis and asks for more digits of what heads
        # write, or says that rounding hides them.
        hidden = f"A diagnosis does not see its heads: {refusal}"
        return Diagnosis("attention layer", learner_of("attention layer"), found, (hidden,))
    found += (*_kind_findings(norm, kind, seen.positions), *_head_findings(seen))
    return Diagnosis("attention layer", learner_of("attention layer"), found)


def _refused(found: tuple[Finding, ...], refusal: UnsoftmaxError) -> Diagnosis:
    words = f"No learner is chosen: the order of the other tokens changes the answer, and {refusal}"
    return Diagnosis("outside", None, found, (words,), code="order")


def _heads(spec: OracleSpec, norm: str | None, kind: Kind, rng: np.random.Generator, allowed: int) -> Asking[Seen]:
    """Heads, the law of their scores and one step of distance, as far as the allowance reaches."""
    meter, plan = Meter(max(0, allowed)), replace(PLANS["balanced"], more=0, rough=True)
    seen = Seen(norm, kind)
    try:
        heads = yield from limited(read_heads(spec, norm, kind, plan, rng, draws=1), meter)
        seen = Seen(norm, kind, heads)
        room = min(meter.allowed, DIAGNOSIS.named_queries + 4 * max(spec.dim, DIAGNOSIS.small_dim)) - meter.used
        dear = turn_queries(heads.reader, heads.begun, heads.turning) > room
        if heads.law == "linear" and heads.reader.sinks is None and not dear:
            steps = read_turns(heads.reader, heads.begun, heads.turning)
            turns = yield from limited(by_these(heads.reader, steps), meter)
            seen = Seen(norm, kind, heads, turns)
    except TooDearError:
        pass
    return seen


def _behind(norm: str, kind: Kind) -> tuple[Finding, ...]:
    """A block or a one-layer language model: its attention is learned, whatever network is behind or beside."""
    top = "behind which a final norm keeps answers small" if norm == "final" else "and nothing keeps answers small"
    words = f"Context tokens count by their direction, and single tokens are answered by more than attention, {top}."
    return (Finding("behind", "network", words), *_kind_findings("rms", kind, kind.order))


def _kind_findings(norm: str | None, kind: Kind, positions: str) -> tuple[Finding, ...]:
    normed = "No normalisation is seen." if norm is None else "RMSNorm stands before attention."
    sinks = (
        "Copies of a token change the answer: sinks take a share." if kind.sinks else "Weights add up to 1: no sinks."
    )
    window = (
        f"No window shows up to {ROTARY.farthest_window} tokens."
        if kind.window is None
        else f"Tokens {kind.window} away are not seen."
    )
    return (
        Finding("norm", norm or "none", normed),
        Finding("positions", positions, _ORDERS[positions]),
        Finding("sinks", kind.sinks, sinks),
        Finding("window", kind.window, window),
    )


def _head_findings(seen: Seen) -> tuple[Finding, ...]:
    if seen.heads is None:
        return ()
    values = seen.heads.reader.values
    H, G = len(values.O), len(values.V)
    shared = f"{H} heads share {G} value maps" if G < H else f"{H} heads have values of their own"
    found = [
        Finding("heads", H, f"{shared}, of {values.width} dimensions each."),
        Finding("value groups", G, f"There are {G} value maps."),
        Finding("score law", seen.heads.law, _LAWS[seen.heads.law]),
    ]
    if seen.turns is not None:
        groups = len(set(seen.turns.group.tolist()))
        found.append(Finding("key groups", groups, f"There are {groups} key maps."))
    return tuple(found)
