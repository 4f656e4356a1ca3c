"""Which learner fits which class of targets, and how it is seen: the one place that decides.

The diagnosis names a family and what it found of it; an audit sees a known family through other access; a run that
turns out noisy goes on with another learner. All of them ask here. A new family is one line of `FAMILIES`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from unsoftmax import learners, theory
from unsoftmax.errors import InvalidArgument
from unsoftmax.learners.core.acceptance import Access, access
from unsoftmax.learners.core.base import Learner
from unsoftmax.spec import EXPLAINED, OracleSpec

LogClass = Literal["single head", "low rank", "multi-head"]


@dataclass(frozen=True)
class Family:
    """A class of targets: its learner, and where it is another one how it is seen.

    shown     what the target shows
    noisy     the learner where answers are noisy, None: the same
    found     settings, other than the learner's own, that a diagnosis may choose: they bound its cost
    log       the class that records of its answers are fitted with, None: none
    """

    learner: Any
    shown: Access = "values"
    noisy: Any = None
    found: tuple[dict[str, Any], ...] = ()
    log: LogClass | None = None


FAMILIES: dict[str, Family] = {
    "single head": Family(
        learners.SingleHead(), noisy=learners.Approximate(), found=({"affine": True},), log="single head"
    ),
    "low-rank head": Family(learners.LowRank(), noisy=learners.Approximate(), log="low rank"),
    "multi-head attention": Family(learners.MultiHead(), found=({"affine": True},), log="multi-head"),
    "ReLU network": Family(learners.ReluNetwork(), found=({"bias": True},)),
    "transformer": Family(learners.Transformer()),
    "attention behind a network": Family(learners.AttentionBehind()),
    "kernel head": Family(learners.KernelHead()),
    "attention layer": Family(learners.AttentionLayer(), "vectors"),
    "attention layer beside or behind a network": Family(learners.AttentionLayer(), "vectors"),
    "attention stack": Family(learners.AttentionStack(), "vectors"),
    "head behind labels": Family(learners.Membership(), "labels", found=({"heads": None},)),
    "token head": Family(learners.TokenHead(), "ids"),
    "output layer": Family(learners.OutputLayer(), "logits"),
}
"""Families by the names that a diagnosis gives them; other names are those of their variants (`affine head`)."""


def learner_of(family: str, *, noisy: bool = False, **settings: Any) -> Any:
    """The learner of a family, with what was found of it as settings; for `noisy` answers it may be another."""
    known = FAMILIES[family]
    if noisy and known.noisy is not None and not settings:
        return known.noisy
    return replace(known.learner, **settings)


def candidates(spec: OracleSpec) -> list[Any]:
    """What a diagnosis of such an oracle may choose."""
    if spec.link is not None:
        return [learner_of("single head", noisy=True)]
    shown = access(spec)
    shown = "values" if shown in ("noisy", "gradient", "attention") else shown
    found: list[Any] = []
    for name, family in FAMILIES.items():
        if family.shown == shown:
            found += [learner_of(name), *(learner_of(name, **settings) for settings in family.found)]
            found += [] if family.noisy is None else [family.noisy]
    return found


def in_noise(learner: Learner) -> Learner:
    """The learner to go on with where answers turned out noisy: a head of full rank has one made for that."""
    return learner_of("single head", noisy=True) if isinstance(learner, learners.SingleHead) else learner


def in_logs(learner: Learner) -> LogClass | None:
    """The class to fit records of a learner's targets with, None where none is fitted: no class here has constants."""
    if getattr(learner, "affine", False):
        return None
    if isinstance(learner, learners.Approximate):
        return FAMILIES["single head"].log
    return next((family.log for family in FAMILIES.values() if type(family.learner) is type(learner)), None)


def through(base: Learner, spec: OracleSpec, *, labels: float, averaged: float | None = None) -> Learner:
    """The best learner there is for a target of base's class seen through this spec.

    labels    accuracy that is aimed at through labels
    averaged  error of W that averaging is asked for where noise is fresh each time; None: no averaging. Where tokens
              may be long, one pass drowns the noise anyway.
    """
    single = isinstance(base, learners.SingleHead | learners.LowRank | learners.Approximate)
    if spec.kind in EXPLAINED:
        return learners.SingleHead() if isinstance(base, learners.Approximate) else base
    if spec.kind == "membership":
        if isinstance(base, learners.Membership):
            return base
        accuracy = max(labels, theory.membership_finest_accuracy(spec.dim, spec.eps))
        if isinstance(base, learners.MultiHead) and not base.affine:
            return learners.Membership(accuracy, heads=base.heads)
        if not single:
            raise InvalidArgument(f"no learner is known for labels of the class {type(base).__name__} learns.")
        return learners.Membership(accuracy)
    if single and averaged is not None and spec.domain.max_norm is not None and spec.link is None:
        return learners.Approximate(accuracy=averaged)
    if single and (spec.kind == "approximate" or spec.dtype == "float16"):
        return base if isinstance(base, learners.Approximate) else learners.Approximate()
    return base
