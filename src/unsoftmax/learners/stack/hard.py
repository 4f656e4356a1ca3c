"""Stacks without norms where tokens are so long that every head picks one of them: all paths and their matrices.

Which token a path picks is found by moving all tokens at once, by random amounts along one direction r: the answer
moves by sum_paths c_picked M_path r, and only picked tokens' amounts are in the column space of what is answered.

Theory: docs/theory/stacks.md, "Without norms".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.errors import DomainError, ModelMismatch, NotIdentifiable
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.stack.constants import STACK
from unsoftmax.probes.base import Array, Probes
from unsoftmax.probes.sphere import sphere
from unsoftmax.solvers.plain_stack import heads_of, picked, same_set
from unsoftmax.spec import OracleSpec


@dataclass(frozen=True, eq=False)
class Scan:
    """Tokens (n, d), their answer (d,), the picked ones (m,) and their signatures M r (m, d)."""

    tokens: Array
    answer: Array
    picked: Array
    signatures: Array


def find_paths(spec: OracleSpec, one: tuple[Array, Array], rng: np.random.Generator) -> Asking[list[Array]]:
    """P (H, d, d) of the heads by layer, lowest first: scans until two agree, then d queries per path; raises
    where these are not the paths of a stack.

    Each scan is clean with a chance of about one half or more. `one` is a token and its answer.
    """
    d = spec.dim
    n = int(min(STACK.hard_tokens, spec.domain.length_limit))
    if n < STACK.fewest_hard_tokens:
        raise DomainError(
            f"a stack without norms is told by sequences of {STACK.fewest_hard_tokens} tokens; max_length is {n}."
        )
    r = sphere(rng, (d,))
    scans: list[Scan] = []
    read: list[tuple[Array, Array]] = []
    reads, crowded, width, most = 0, False, 6, 0
    for number in range(CORE.repairs):
        shortest = 0.99 if number < STACK.equal_scans and not reads else 0.2
        scan, full = yield from _scan(_draw(n, d, shortest, rng), r, width, rng, "main" if number < 2 else "repair")
        crowded = crowded or full
        if scan is None:
            continue
        width, most = len(scan.picked) + 2, max(most, len(scan.picked))
        # Fewer paths than once before: two of them met on one token, perhaps twice in the same way.
        if len(scan.picked) == most and any(same_set(scan.signatures, other.signatures) for other in scans):
            reads += 1
            M = yield from _matrices(scan, read, "main" if reads == 1 else "repair")
            explained = _explains(scan, M)
            layers = heads_of(M) if explained else None
            if layers is not None and (yield from _spanned(M, one, rng)):
                return [M[layer] for layer in layers]
            read = list(zip(scan.signatures, M, strict=True)) if explained else []
        scans.append(scan)
        if reads == STACK.tries:
            break
    if crowded:
        raise NotIdentifiable(
            f"hard answers have as many independent parts as outputs ({d}): this stack without norms has "
            f"(1 + H_1)...(1 + H_L) - 1 paths, and {d - 1} can be told apart."
        )
    raise ModelMismatch(
        "no norm stands before the layers, and where attention is hard the answers are not the last token and "
        "products of heads applied to picked tokens: there is no residual, something else than attention stands "
        "between the layers, two heads always attend alike, or a head's rank is below the number of paths under it. "
        "Use learners.AttentionLayer for one layer."
    )


def _draw(n: int, d: int, shortest: float, rng: np.random.Generator) -> Array:
    return np.asarray(STACK.hard_length * rng.uniform(shortest, 1, (n, 1)) * sphere(rng, (n, d)))


def _scan(X: Array, r: Array, width: int, rng: np.random.Generator, phase: str) -> Asking[tuple[Scan | None, bool]]:
    """Moves tokens until those that are picked can be told; and whether the responses fill all outputs."""
    n, d = X.shape
    (answer,) = yield Probes(X[None], phase=phase)
    C, Y = np.empty((0, n)), np.empty((0, d))
    while len(C) < d + 2:
        new = rng.standard_normal((min(width - len(C), d + 2 - len(C)), n))
        # The last token is on a path of its own, the residual.
        new[:, -1] = 0.0
        moved = X + STACK.hard_move * STACK.hard_length * new[:, :, None] * r
        y = yield Probes(moved, phase=phase)
        C, Y = np.vstack([C, new]), np.vstack([Y, (y - answer) / (STACK.hard_move * STACK.hard_length)])
        found = picked(C, Y)
        if found is not None:
            return Scan(X, answer, *found), False
        width = len(C) + 4
    sizes = np.linalg.svd(Y, compute_uv=False)
    return None, bool(sizes[-1] > 1e-6 * sizes[0])


def _matrices(scan: Scan, known: list[tuple[Array, Array]], phase: str) -> Asking[Array]:
    """M (m, d, d) of every path, from its picked token moved along each axis; `known` are signatures and matrices."""
    d = scan.tokens.shape[1]
    matrices = []
    for token, signature in zip(scan.picked, scan.signatures, strict=True):
        M = next((M for other, M in known if same_set(signature[None], other[None])), None)
        if M is None:
            X = np.repeat(scan.tokens[None], d, axis=0)
            X[:, token] += STACK.hard_move * STACK.hard_length * np.eye(d)
            y = yield Probes(X, phase=phase)
            M = (y - scan.answer).T / (STACK.hard_move * STACK.hard_length)
        matrices.append(M)
    return np.array(matrices)


def _explains(scan: Scan, M: Array) -> bool:
    """Whether the last token and all paths' tokens make up the answer."""
    total = scan.tokens[-1] + np.einsum("pde,pe->d", M, scan.tokens[scan.picked])
    return bool(np.abs(scan.answer - total).max() <= STACK.hard_answer_off_paths * STACK.hard_length)


def _spanned(M: Array, one: tuple[Array, Array], rng: np.random.Generator) -> Asking[bool]:
    """Whether answers to two ordinary tokens lie in the span of the paths.

    Two heads that met on one token twice leave matrices without products, which may pass for a single layer.
    """
    d = M.shape[1]
    total = np.eye(d) + M.sum(axis=0)
    constant = one[1] - total @ one[0]
    X = rng.standard_normal((CORE.checks, 2, d)) / np.sqrt(d)
    y = yield Probes(X, phase="pilot")
    for (first, last), answer in zip(X, y, strict=True):
        columns = (M @ (first - last)).T
        rest = answer - constant - total @ last
        left = rest - columns @ np.linalg.lstsq(columns, rest, rcond=None)[0]
        if np.linalg.norm(left) > STACK.hard_answer_off_paths * np.linalg.norm(answer):
            return False
    return True
