"""Sketch and verify: a learner run on a subspace of a few dimensions, then held against fresh queries there.

A target of a class, seen on a subspace, is of the same class with fewer unknowns, so the whole method (and its
refusals) can be tried for a few dozen queries.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from unsoftmax import verify
from unsoftmax.diagnosis.constants import DIAGNOSIS
from unsoftmax.errors import Code, DomainError, InvalidArgument, ModelMismatch, NotIdentifiable, UnsoftmaxError
from unsoftmax.learners.core.base import Asking, Learner
from unsoftmax.learners.core.driver import driven
from unsoftmax.learners.core.reductions import in_subspace, subspace_spec
from unsoftmax.models.attention_behind import AttentionBehind
from unsoftmax.models.base import Model
from unsoftmax.probes.base import Array, Probes, Request
from unsoftmax.spec import OracleSpec
from unsoftmax.verify.ties import near_ties

T = TypeVar("T")


class TooDearError(Exception):
    """The sketch would cost more queries than it was allowed."""

    code = Code.TOO_DEAR


Refusal = UnsoftmaxError | TooDearError


@dataclass(frozen=True)
class Sketch:
    """`gap` is the largest relative error on fresh sequences, None if the learner refused with `refusal`."""

    model: Model | None
    gap: float | None
    queries: int
    refusal: Refusal | None = None

    @property
    def reason(self) -> str:
        return said(self.refusal)

    @property
    def unfinished(self) -> bool:
        """Whether the refusal says nothing against the class: too few queries, or too few dimensions."""
        return self.refusal is not None and self.refusal.code in (Code.TOO_DEAR, Code.ENTANGLED)

    def explains(self, noise: float) -> bool:
        """Whether the model explains fresh answers as well as noise (relative to their size) allows."""
        return self.gap is not None and self.gap <= min(max(1e-7, 3e3 * noise), 0.05)


def subspace(dim: int, k: int, rng: np.random.Generator) -> Array:
    """Orthonormal basis (dim, k) with disjoint supports and entries +-2^-m, so no token is rounded on the way."""
    k = min(k, dim)
    group = 1
    while group * 4 * k <= dim:
        group *= 4
    order = rng.permutation(dim)[: group * k].reshape(k, group)
    basis = np.zeros((dim, k))
    basis[order, np.arange(k)[:, None]] = rng.choice([-1.0, 1.0], (k, group)) / np.sqrt(group)
    return basis


def attempt(
    program: Callable[[OracleSpec, int], Asking[T]], k: int, spec: OracleSpec, seed: int, allowed: int
) -> Asking[tuple[T | None, int, Refusal | None]]:
    """Run a program on a random subspace of dimension k: its value or None, queries spent, and its refusal."""
    basis = subspace(spec.dim, k, np.random.default_rng([seed, k]))
    small = subspace_spec(replace(spec, kind="value", tolerance=0.0), basis.shape[1])
    meter = Meter(allowed)
    try:
        value = yield from in_subspace(limited(program(small, seed), meter), basis)
    except (ModelMismatch, NotIdentifiable, DomainError, InvalidArgument, TooDearError) as refusal:
        return None, meter.used, refusal
    return value, meter.used, None


def said(refusal: Refusal | None) -> str:
    """A refusal for people, who need not know the name of its class."""
    return "" if refusal is None else str(refusal)


def sketch(learner: Learner, k: int, spec: OracleSpec, seed: int, allowed: int, noise: float = 0.0) -> Asking[Sketch]:
    """Learn on a random subspace of dimension k with at most `allowed` queries, and compare on fresh ones.

    `noise` is the error of a single answer: gaps below a few of it are none.
    """

    def program(small: OracleSpec, seed: int) -> Asking[tuple[Model, float]]:
        learner.forecast(small)
        outcome = yield from learner.program(small, seed)
        if isinstance(outcome.model, AttentionBehind):
            # It answers nothing itself (its network is unknown); its own verification along fresh rays is as cheap.
            checked = yield from verify.check(outcome.model, small, seed, outcome.allows)
            return outcome.model, 0.0 if checked.holds else 1.0
        gap = yield from agreement(outcome.model, small, np.random.default_rng([seed, k, 1]), noise)
        return outcome.model, gap

    found, queries, refusal = yield from attempt(program, k, spec, seed, allowed)
    model, gap = found if found is not None else (None, None)
    return Sketch(model, gap, queries, refusal)


def agreement(model: Any, spec: OracleSpec, rng: np.random.Generator, noise: float) -> Asking[float]:
    """Largest gap of model and target on near ties and random sequences, relative to the answers' size."""
    batches = [near_ties(model, spec, rng)[: DIAGNOSIS.sketch_ties]]
    norm = float(np.linalg.norm(batches[0][:, -1], axis=1).mean())
    for length in (n for n in DIAGNOSIS.sketch_lengths if n <= spec.domain.length_limit):
        x = rng.standard_normal((DIAGNOSIS.sketch_per_length, length, spec.dim))
        batches.append(x * (norm / np.linalg.norm(x, axis=2, keepdims=True)))
    gaps, sizes = [], []
    for tokens in batches:
        y = yield Probes(tokens)
        gaps.append(max(0.0, float(np.abs(model(tokens) - y).max()) - DIAGNOSIS.sketch_deviations * noise))
        sizes.append(float(np.sqrt(np.mean(y**2))))
    return max(gaps) / (float(np.sqrt(np.mean(np.square(sizes)))) or 1.0)


@dataclass
class Meter:
    """Queries that a piece of the diagnosis may ask, and has asked."""

    allowed: int
    used: int = 0


def limited(program: Asking[T], meter: Meter) -> Asking[T]:
    """Bill every request to the diagnosis and refuse the one that would exceed what is allowed."""

    def ask(request: Request) -> Asking[Array]:
        if meter.used + len(request) > meter.allowed:
            raise TooDearError(f"more than {meter.allowed} queries would be needed")
        meter.used += len(request)
        y = yield replace(request, phase="diagnosis")
        return y

    return driven(program, ask)
