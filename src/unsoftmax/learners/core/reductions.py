"""The paper's reductions as combinators over programs: each rewrites the probes on their way out and the answers on
their way back, so a learner of one class serves another without knowing it.

A reduction maps one sequence to `copies` consecutive sequences; lazy designs stay lazy.

Theory: docs/theory/transformer.md, "Section 4.1", statement.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import numpy as np

from unsoftmax.errors import InvalidArgument
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.driver import driven
from unsoftmax.probes.base import Array, Probes, Request, parts
from unsoftmax.probes.scales import held
from unsoftmax.spec import OracleSpec

T = TypeVar("T")

Rewrite = Callable[[Probes], Probes]
Reread = Callable[[Array, Request], Array]


def reduced(program: Asking[T], rewrite: Rewrite, reread: Reread | None = None, *, copies: int = 1) -> Asking[T]:
    """Run `program` with every request rewritten, n sequences to n * copies, and its answers reread."""

    def ask(request: Request) -> Asking[Array]:
        y = yield request.rewritten(rewrite, copies)
        return y if reread is None else reread(y, request)

    return driven(program, ask)


def mapped(program: Asking[T], change: Callable[[Array], Array], reread: Reread | None = None) -> Asking[T]:
    """The same where tokens (n, N, d) change and nothing else does."""
    return reduced(program, lambda probes: Probes(change(probes.tokens), probes.counts), reread)


def heard(program: Asking[T], reread: Reread) -> Asking[T]:
    """The same where answers change and nothing else does."""
    return reduced(program, lambda probes: probes, reread)


def marked(program: Asking[T], mark: Callable[[Request], Request]) -> Asking[T]:
    """The program with its requests marked otherwise: as of another phase, or with what is still to come."""

    def ask(request: Request) -> Asking[Array]:
        return (yield mark(request))

    return driven(program, ask)


def within(program: Asking[T], limit: int, refusal: Exception) -> Asking[T]:
    """The program as it is, until a round would take it beyond `limit` queries: then the refusal is raised instead."""
    spent = 0

    def pay(request: Request) -> Request:
        nonlocal spent
        if spent + len(request) > limit:
            raise refusal
        spent += len(request)
        return request

    return marked(program, pay)


def watched(program: Asking[T], seen: Callable[[Request, Array], None]) -> Asking[T]:
    """The program as it is; every request is shown to `seen` with its answers."""

    def reread(y: Array, request: Request) -> Array:
        seen(request, y)
        return y

    return heard(program, reread)


def relabelled(program: Asking[T], phase: str) -> Asking[T]:
    """The program as it is; every request is billed to one phase."""
    return marked(program, lambda request: replace(request, phase=phase))


def overheard(program: Asking[T], kept: list[Array]) -> Asking[T]:
    """The program as it is; the answers of every round are kept as well."""
    return watched(program, lambda _, y: kept.append(y))


def one_token(program: Asking[T], *, zero_query: bool = False) -> Asking[T]:
    """Serve a learner of functions of one vector behind attention: the one-row probe x makes attention return x.

    zero_query=False asks [x]. zero_query=True asks [2x ; 0]: the scores tie whatever W is, so attention returns x,
    and a residual stream adds 0 whatever its matrix is (Section 4.1 has no residual and asks [x]).
    """

    def rewrite(probes: Probes) -> Probes:
        if probes.tokens.shape[1] != 1:
            raise InvalidArgument(
                f"`one_token` serves programs that ask single vectors (got sequences of {probes.tokens.shape[1]} rows)."
            )
        if not zero_query:
            return probes
        return Probes(np.concatenate([2 * probes.tokens, np.zeros_like(probes.tokens)], axis=1))

    return reduced(program, rewrite)


def odd_part(program: Asking[T]) -> Asking[T]:
    """Section 4.1: f(X) - f(-X) is the answer of a single head with v = A w_o; two queries for each one asked.

    Scores do not change when every token is negated, and ReLU(u) - ReLU(-u) = u.
    """

    def rewrite(probes: Probes) -> Probes:
        both = np.stack([probes.tokens, -probes.tokens], axis=1).reshape(-1, *probes.tokens.shape[1:])
        return Probes(both, None if probes.counts is None else np.repeat(probes.counts, 2, axis=0))

    return reduced(program, rewrite, lambda y, _: y[0::2] - y[1::2], copies=2)


def in_subspace(program: Asking[T], basis: Array) -> Asking[T]:
    """Proposition C.2: run a program of k dimensions inside the span of the columns of `basis` (d, k).

    What it learns of W is basis' W basis and of v is basis' v. The program's spec is `subspace_spec(spec, k)`.
    """
    columns = np.ascontiguousarray(basis.T)
    return mapped(program, lambda tokens: tokens @ columns)


def subspace_spec(spec: OracleSpec, dim: int) -> OracleSpec:
    """What a program inside a subspace of dimension `dim` sees: an orthonormal basis keeps norms and the domain."""
    return replace(spec, dim=dim)


def homogenised(program: Asking[T]) -> Asking[T]:
    """Serve a program that asks vectors (x, s) with s > 0 from a target g of x: the answer is s g(x / s).

    A network with biases in d dimensions is one without in d + 1, on the half space s > 0.
    """

    def reread(y: Array, request: Request) -> Array:
        return y * _collected(request, lambda x: x[:, -1])

    return mapped(program, lambda tokens: tokens[:, :, :-1] / tokens[:, :, -1:], reread)


def rescaled(program: Asking[T], length: float) -> Asking[T]:
    """Ask every token multiplied by `length` and divide the answers by it: exact for homogeneous targets."""
    return program if length == 1.0 else mapped(program, lambda tokens: tokens * length, lambda y, _: y / length)


def representable(program: Asking[T], dtype: str) -> Asking[T]:
    """Round tokens to the target's number format, so that a cast on its side changes nothing."""
    return program if dtype == "float64" else mapped(program, lambda tokens: held(tokens, dtype))


def announced(program: Asking[T], ahead: int) -> Asking[T]:
    """The same program, which says before its first request that at least `ahead` queries are still to come."""
    left = [ahead]
    return marked(program, lambda request: replace(request, ahead=max(request.ahead, left.pop() if left else 0)))


def residual(program: Asking[T], known: Callable[[Array], Array]) -> Asking[T]:
    """Serve a program what is left of the target after `known` (n, d) -> (n,) is taken away; one-row probes."""
    return heard(program, lambda y, request: y - _collected(request, known))


def beside_last_token(program: Asking[T]) -> Asking[T]:
    """Serve a program of layers with a residual from one without: the last token is added to every vector answer."""

    def reread(y: Array, request: Request) -> Array:
        return np.asarray(y + np.concatenate([part.tokens[:, -1] for part in parts(request)]))

    return heard(program, reread)


def _collected(request: Request, of: Callable[[Array], Array]) -> Array:
    """`of` the last tokens (n, d) of all sequences, in parts so that lazy designs stay lazy."""
    return np.concatenate([np.empty(0), *(of(part.tokens[:, -1]) for part in parts(request))])


def only_values(program: Asking[T]) -> Asking[T]:
    """Serve a learner of values where answers also carry a gradient or attention: their first number is f."""
    return heard(program, lambda answers, _: answers[:, 0])


def as_values(spec: OracleSpec) -> OracleSpec:
    """The spec of the values alone."""
    return replace(spec, kind="approximate" if spec.tolerance > 0 else "value")
