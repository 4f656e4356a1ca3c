"""The networks between the heads: their Jacobians at chosen q, their neurons, and Gauss-Newton on the whole encoder.

At fixed q the 1/lambda term is linear in every network's Jacobian, heads and order being known. The points q lie across
a subspace U: along U all their Jacobians are seen, and neurons come apart there.

Theory: docs/theory/stacks.md, "The networks between the heads".
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.stack.constants import STACK
from unsoftmax.learners.stack.far import Far
from unsoftmax.learners.stack.polish import Polished, ask_deep, parameter_error, settle_deep, unknown_numbers
from unsoftmax.probes.around import orthonormal
from unsoftmax.probes.base import Array
from unsoftmax.probes.sphere import sphere
from unsoftmax.solvers.layer_order import first_order
from unsoftmax.solvers.neurons_apart import ACTIVATIONS, Neurons, count_terms, fit_neurons, rank_one_terms
from unsoftmax.solvers.stack_heads import Contexts, Heads, at_work
from unsoftmax.solvers.stack_models import Deep
from unsoftmax.solvers.stack_newton import gauss_newton


def learn_networks(far: Far, heads: Heads, layers: list[list[int]], seed: int) -> Asking[Polished | None]:
    """The whole encoder, phases "networks" and "polish"; None where its networks do not come apart or do not fit."""
    frame = far.frame
    sizes = tuple(len(layer) for layer in layers)
    ordered = heads.take([h for layer in layers for h in layer])
    found = yield from _neurons(far, ordered, sizes)
    if found is None:
        return None
    networks, activation = found
    constants = np.zeros((2 * len(sizes), frame.d))
    start = Deep(ordered, sizes, constants, STACK.first_guess_of_eps, frame.T, networks=networks, activation=activation)
    unknown = unknown_numbers(ordered, frame.d) + sum(net.flat.size for net in networks)
    data = yield from ask_deep(far, heads, STACK.numbers_asked * (unknown + constants.size + 1), "polish")
    model = settle_deep(start, data, start.flat.size - constants.size)
    fit = gauss_newton(model, [data], steps=25, noise=2 * frame.unit, draws=CORE.entries_for_scale, seed=seed)
    if fit.residual > frame.exact:
        return None
    return Polished(fit.model.heads, fit, parameter_error(fit))


def _neurons(far: Far, heads: Heads, sizes: tuple[int, ...]) -> Asking[tuple[tuple[Neurons, ...], str] | None]:
    """Networks lowest first and their activation, from as many points as the widest of them takes."""
    D, L, rng = far.frame.D, len(sizes), far.rng
    basis = orthonormal(rng, D, D).T
    U, rest = basis[:, : D // 2], basis[:, D // 2 :]
    if sizes[0] * heads.V.shape[1] < D - 1:
        # Jacobians show along what heads below write: some directions nobody writes.
        return None
    p = U.shape[1]
    most = int(np.sqrt(far.frame.d * (far.frame.d - 1) * p * (p - 1) / 2))
    points: list[Array] = []
    tangents: list[Array] = []
    jacobians: list[Array] = []
    for _ in range(min(CORE.repairs, -(-(most + 2) // STACK.points_at_once))):
        for _ in range(STACK.points_at_once):
            q = far.frame.radius * rest @ sphere(rng, (rest.shape[1],))
            E = np.linalg.qr(np.column_stack([q, U, rest]))[0][:, 1:D]
            E[:, : U.shape[1]] = U
            jacobians.append((yield from _jacobians(far, heads, sizes, q, E)))
            points.append(q)
            tangents.append(E)
        J = np.array(jacobians)
        counts = [count_terms(J[:, l, :, : U.shape[1]]) for l in range(L)]
        if all(m is not None for m in counts):
            break
    else:
        return None
    terms = [rank_one_terms(J[:, l, :, : U.shape[1]], m, rng) for l, m in enumerate(counts) if m is not None]
    if any(t is None for t in terms):
        return None
    tries = {
        name: tuple(
            fit_neurons(J[:, l], np.array(tangents), np.array(points), *t, name)
            for l, t in enumerate(terms)
            if t is not None
        )
        for name in ACTIVATIONS
    }
    best = min(tries, key=lambda name: max(net.misfit for net in tries[name]))
    return (tries[best], best) if max(net.misfit for net in tries[best]) <= STACK.rough_slopes else None


def _jacobians(far: Far, heads: Heads, sizes: tuple[int, ...], q: Array, E: Array) -> Asking[Array]:
    """Jacobians (L, d, D - 1) of all networks at q (D,) along tangents E (D, D - 1), lowest first."""
    frame, L = far.frame, len(sizes)
    d, D = frame.d, frame.D
    m = int(np.ceil(STACK.lifted_equations * (L * D + L * D * d) / d)) + 10
    last = np.tile(q, (m, 1))
    others, counts = far.contexts(m, STACK.frozen_tokens + 1)
    y = yield from far.at(STACK.lengths_of_networks, last, others, counts, "networks")
    term = first_order(list(y), np.array(STACK.lengths_of_networks))
    at = at_work(heads, last, Contexts(last, others, np.log(counts), np.zeros((m, d)), np.full(m, np.inf)))
    written = np.einsum("hes,bhs->bhe", heads.O, np.einsum("hsd,bhd->bhs", heads.V, at.values)) @ frame.T @ E
    by_own = at.by_own_of_each() @ E
    ends = np.cumsum([0, *sizes])
    moved = [by_own[:, a:b].sum(axis=1) for a, b in pairwise(ends)]
    below = [written[:, :end].sum(axis=1) for end in ends]
    known = sum(np.einsum("bef,bf->be", moved[l], below[l]) for l in range(1, L)) if L > 1 else np.zeros_like(term)
    turned = np.concatenate([*moved[1:], np.zeros((m, d, 0))], axis=2)
    reached = np.einsum("bk,ef->befk", np.concatenate(below[1:], axis=1), np.eye(d)).reshape(m, d, -1)
    M = np.concatenate([turned, reached], axis=2)
    right = term - (known - np.mean(known, axis=0))
    solution = np.linalg.lstsq((M - M.mean(axis=0)).reshape(m * d, -1), right.ravel(), rcond=None)[0]
    return solution[turned.shape[2] :].reshape(d, L, D - 1).transpose(1, 0, 2)
