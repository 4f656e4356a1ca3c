"""Key offsets and a constant as one dimension more: heads without them, asked through heads that have them.

In d + 1 dimensions let the query token be (q, s): the lifted head scores x with x.(W q + s c). The sequence with query
token q / s and others q / s + s (x_i - q) has the same score gaps, and its answer differs by known one-token terms.

Theory: docs/theory/multi-head.md, "Generic heads", key offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from unsoftmax.errors import InvalidArgument, ModelMismatch, NotIdentifiable
from unsoftmax.inversion import rounding_unit
from unsoftmax.learners.core.base import Asking, Program
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.core.driver import driven
from unsoftmax.learners.core.settling import begun
from unsoftmax.learners.heads.constants import HEADS
from unsoftmax.models.multi_head import MultiHead
from unsoftmax.precision import HALF_DIGITS
from unsoftmax.probes.base import Array, Probes, Request, one_row, parts
from unsoftmax.probes.scales import held
from unsoftmax.probes.sphere import sphere
from unsoftmax.spec import OracleSpec


@dataclass(frozen=True, eq=False)
class Lift:
    """What a lifted program cannot see: `axis` (d + 1,), along which a query token's share of the key offset is
    measured, and the relative `noise` of the target's answers (one-token answers are computed, not asked)."""

    axis: Array
    noise: float


def with_offsets(program: Callable[[OracleSpec, Lift], Program], spec: OracleSpec, seed: int) -> Program:
    """Read the constant and sum_h v_h (d + 1 queries) and the noise, then run `program` one dimension higher."""
    if spec.domain.max_norm is not None:
        raise InvalidArgument("`affine` lengthens tokens as it needs; it cannot be used under max_norm.")
    d = spec.dim
    y = yield one_row(np.vstack([np.zeros((1, d)), np.eye(d)]), phase="values")
    constant, V = float(y[0]), y[1:] - y[0]
    rng = np.random.default_rng([seed, 0x11F7])
    noise = yield from _noise(constant, V, spec, seed)
    A, primed = _well_placed(lambda axis: program(replace(spec, dim=d + 1), Lift(axis, noise)), V, rng)
    outcome = yield from _through(primed, A, V, constant)
    lifted = outcome.model
    assert isinstance(lifted, MultiHead)
    inverse = np.linalg.inv(A)
    W = inverse.T @ lifted.W @ inverse
    v = lifted.v @ inverse
    foreign = np.abs(W[:, d]).max(initial=0.0) / max(float(np.abs(W).max(initial=0.0)), 1e-300)
    if foreign > HEADS.foreign_entry or np.abs(v[:, d]).max(initial=0.0) > HEADS.foreign_entry * np.abs(v).max(
        initial=1e-300
    ):
        raise ModelMismatch("heads with key offsets do not explain the answers: the lifted heads leave their class.")
    scores, c = W[:, :d, :d], W[:, :d, d]
    # What turning back leaves of a W that is 0 beside its offset is rounding.
    flat = np.linalg.norm(scores, axis=(1, 2)) <= HEADS.flat_share * np.linalg.norm(c, axis=1)
    model = MultiHead(np.where(flat[:, None, None], 0.0, scores), v[:, :d], c, constant)
    return replace(outcome, model=model)


def _noise(constant: float, V: Array, spec: OracleSpec, seed: int) -> Asking[float]:
    """Relative gap of single tokens' answers to constant + x.V."""
    x = held(sphere(np.random.default_rng([seed, 0x11F8]), (CORE.checks, len(V))), spec.dtype)
    y = yield one_row(x, phase="pilot")
    size = abs(constant) + np.abs(x) @ np.abs(V)
    relative = float((np.abs(y - constant - x @ V) / np.where(size > 0, size, 1.0)).max())
    # Rounding alone, of values that cancel, has few digits in every format.
    return max(relative, rounding_unit(y) if (np.abs(y) > HALF_DIGITS * size.max()).all() else 0.0)


@dataclass(frozen=True, eq=False)
class _Primed:
    """A program that has had its one-token answers, and the first request it cannot go on without."""

    program: Program
    request: Request


def _well_placed(start: Callable[[Array], Program], V: Array, rng: np.random.Generator) -> tuple[Array, _Primed]:
    """A basis A (d + 1, d + 1) in which the program's first query token has a fair share s of the key offset.

    One-token answers are known, so trying bases costs nothing until the first longer sequence.
    """
    d = len(V)
    for _ in range(HEADS.bases_tried):
        A = np.linalg.qr(rng.standard_normal((d + 1, d + 1)))[0] * np.append(np.ones(d), np.sqrt(d))[:, None]
        primed = _primed(start(A[-1]), A, V)
        last = A @ primed.request[:1].tokens[0, -1]
        share = abs(last[-1]) / max(float(np.linalg.norm(last[:-1])), 1e-300)
        if HEADS.lifted_share[0] < share < HEADS.lifted_share[1]:
            break
    return A, primed


def _primed(program: Program, A: Array, V: Array) -> _Primed:
    request = begun(program)
    while request[:1].tokens.shape[1] == 1:
        request = begun(program, _one_token(request, A, V))
    return _Primed(program, request)


def _one_token(request: Request, A: Array, V: Array) -> Array:
    return np.concatenate([(part.tokens[:, 0] @ A.T)[:, :-1] @ V for part in parts(request)])


def _through(primed: _Primed, A: Array, V: Array, constant: float) -> Program:
    def ask(request: Request) -> Asking[Array]:
        if request[:1].tokens.shape[1] == 1:
            return _one_token(request, A, V)
        answers = yield request.rewritten(lambda part: _lowered(part, A))
        return np.concatenate(list(_raised(request, answers, A, V, constant)))

    return driven(primed.program, ask, primed.request)


def _lowered(part: Probes, A: Array) -> Probes:
    """The sequences of the target that stand for lifted ones."""
    X = part.tokens @ A.T
    q, s = X[:, -1:, :-1], X[:, -1:, -1:]
    if not s.all():
        raise NotIdentifiable("a lifted query token has no share of the key offset; run with another seed.")
    return part.like(q / s + s * (X[:, :, :-1] - q), part.counts, part.offset)


def _raised(request: Request, y: Array, A: Array, V: Array, constant: float) -> Iterator[Array]:
    """Answers of the lifted heads."""
    done = 0
    for part in parts(request):
        last = part.tokens[:, -1] @ A.T
        q, s = last[:, :-1], last[:, -1]
        mine = y[done : done + len(part)]
        yield q @ V + (mine - constant - (q / s[:, None]) @ V) / s
        done += len(part)
