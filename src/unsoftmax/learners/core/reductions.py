"""The paper's reductions as combinators over programs: each rewrites the probes on their way out and the answers on
their way back, so a learner of one class serves another without knowing it.

A reduction maps one sequence to `copies` consecutive sequences; lazy designs stay lazy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import numpy as np

from unsoftmax.errors import InvalidArgument
from unsoftmax.learners.core.base import Asking
from unsoftmax.probes.base import Array, LazyProbes, Probes, parts
from unsoftmax.spec import OracleSpec

T = TypeVar("T")

Request = Probes | LazyProbes
Rewrite = Callable[[Probes], Probes]
Reread = Callable[[Array, Request], Array]


def reduced(program: Asking[T], rewrite: Rewrite, reread: Reread | None = None, *, copies: int = 1) -> Asking[T]:
    """Run `program` with every request rewritten, n sequences to n * copies, and its answers reread."""
    try:
        request = next(program)
        while True:
            y = yield _rewritten(request, rewrite, copies)
            request = program.send(y if reread is None else reread(y, request))
    except StopIteration as stop:
        value: T = stop.value
        return value
    finally:
        program.close()


def _rewritten(request: Request, rewrite: Rewrite, copies: int) -> Request:
    if isinstance(request, Probes):
        made = rewrite(request)
        return Probes(made.tokens, made.counts, request.phase, request.offset * copies)

    def build(start: int, stop: int) -> Probes:
        first, last = start // copies, -(-stop // copies)
        return rewrite(request[first:last])[start - first * copies : stop - first * copies]

    # Rewritten sequences may be a little longer or wider than the ones they come from; a chunk only needs the order.
    return LazyProbes(len(request) * copies, max(rewrite(request[:1]).row_bytes, 1), build, request.phase)


def overheard(program: Asking[T], kept: list[Array]) -> Asking[T]:
    """The program as it is; the answers of every round are kept as well."""

    def keep(y: Array, _: Request) -> Array:
        kept.append(y)
        return y

    return reduced(program, lambda probes: probes, keep)


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

    def rewrite(probes: Probes) -> Probes:
        return Probes(probes.tokens @ columns, probes.counts)

    return reduced(program, rewrite)


def subspace_spec(spec: OracleSpec, dim: int) -> OracleSpec:
    """What a program inside a subspace of dimension `dim` sees: an orthonormal basis keeps norms and the domain."""
    return replace(spec, dim=dim)


def homogenised(program: Asking[T]) -> Asking[T]:
    """Serve a program that asks vectors (x, s) with s > 0 from a target g of x: the answer is s g(x / s).

    A network with biases in d dimensions is one without in d + 1, on the half space s > 0.
    """

    def rewrite(probes: Probes) -> Probes:
        return Probes(probes.tokens[:, :, :-1] / probes.tokens[:, :, -1:], probes.counts)

    def reread(y: Array, request: Request) -> Array:
        return y * _collected(request, lambda x: x[:, -1])

    return reduced(program, rewrite, reread)


def rescaled(program: Asking[T], length: float) -> Asking[T]:
    """Ask every token multiplied by `length` and divide the answers by it: exact for homogeneous targets."""
    if length == 1.0:
        return program

    def rewrite(probes: Probes) -> Probes:
        return Probes(probes.tokens * length, probes.counts)

    return reduced(program, rewrite, lambda y, _: y / length)


def representable(program: Asking[T], dtype: str) -> Asking[T]:
    """Round tokens to the target's number format, so that a cast on its side changes nothing."""
    if dtype == "float64":
        return program

    def rewrite(probes: Probes) -> Probes:
        return Probes(probes.tokens.astype(dtype).astype(np.float64), probes.counts)

    return reduced(program, rewrite)


def announced(program: Asking[T], ahead: int) -> Asking[T]:
    """The same program, which says before its first request that at least `ahead` queries are still to come."""
    try:
        request = next(program)
        answers = yield replace(request, ahead=max(request.ahead, ahead))
        while True:
            request = program.send(answers)
            answers = yield request
    except StopIteration as stop:
        value: T = stop.value
        return value
    finally:
        program.close()


def residual(program: Asking[T], known: Callable[[Array], Array]) -> Asking[T]:
    """Serve a program what is left of the target after `known` (n, d) -> (n,) is taken away; one-row probes."""

    def reread(y: Array, request: Request) -> Array:
        return y - _collected(request, known)

    return reduced(program, lambda probes: probes, reread)


def _collected(request: Request, of: Callable[[Array], Array]) -> Array:
    """`of` the last tokens (n, d) of all sequences, in parts so that lazy designs stay lazy."""
    return np.concatenate([np.empty(0), *(of(part.tokens[:, -1]) for part in parts(request))])


def only_values(program: Asking[T]) -> Asking[T]:
    """Serve a learner of values where answers also carry a gradient or attention: their first number is f."""
    return reduced(program, lambda probes: probes, lambda answers, _: answers[:, 0])


def as_values(spec: OracleSpec) -> OracleSpec:
    """The spec of the values alone."""
    return replace(spec, kind="approximate" if spec.tolerance > 0 else "value")
