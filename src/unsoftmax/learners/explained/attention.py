"""Heads from their attention weights: log alpha_i - log alpha_N = (x_i - q)'W q, linear in W.

A query shows H (N - 1) such differences, v only through the value, one number: y = sum_h (sum_i alpha_hi x_i).v_h.

Theory: docs/theory/explanations.md, "Explanations", statement.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from unsoftmax import theory
from unsoftmax.errors import ModelMismatch, NotIdentifiable
from unsoftmax.inversion import Noise
from unsoftmax.learners.core.base import RELATIVE_ERROR, Allowance, Asking, Outcome, Precision, Program
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.core.readable import SATURATED, Steps, find_scale
from unsoftmax.learners.explained.constants import EXPLAIN
from unsoftmax.learners.explained.design import basis, first_length, frames, inconsistent, length_for, no_scores
from unsoftmax.learners.explained.maps import Maps, tokens_per_sequence
from unsoftmax.models.base import Model
from unsoftmax.models.multi_head import MultiHead
from unsoftmax.models.single_head import LowRankHead, SingleHead
from unsoftmax.probes.base import Array
from unsoftmax.probes.sphere import sphere
from unsoftmax.results.recovery import Claim
from unsoftmax.solvers.bilinear import solve_bilinear
from unsoftmax.spec import OracleSpec


def heads(spec: OracleSpec, seed: int, *, single: bool, promised: int | None = None) -> Program:
    """All W_h by one least squares problem over random sequences, then all v_h."""
    rng = np.random.default_rng(seed)
    asked = Maps(spec)
    H, length, _ = yield from _started(asked, rng)
    if single and H != 1:
        raise ModelMismatch(f"the target shows {H} attention maps; learn it with MultiHead.")
    if promised is not None and promised != H:
        raise ModelMismatch(f"the target shows {H} attention maps and heads={promised} was declared.")
    d, N = spec.dim, tokens_per_sequence(spec)
    X = frames(theory.attention_map_queries(d, H, N), N, d, rng) * length
    scores, errors = yield from asked.ask(X)
    W, off = np.empty((H, d, d)), np.empty(H)
    for h in range(H):
        W[h], off[h] = _solved(X, scores[:, h], errors[:, h], asked.loud())
    return _outcome(asked, W, off, lambda v: SingleHead(W[0], v[0]) if single else MultiHead(W, v))


def low_rank(spec: OracleSpec, seed: int, rank: int | None) -> Program:
    """Columns W q in full until one is new no more; the other q by their coordinates in the range found."""
    rng = np.random.default_rng(seed)
    asked = Maps(spec)
    H, length, wanted = yield from _started(asked, rng)
    if H != 1:
        raise ModelMismatch(f"the target shows {H} attention maps; learn it with MultiHead.")
    d = spec.dim
    Q, Z = basis(d, rng), basis(d, rng)
    columns, error = yield from _columns(asked, Q, Z, length, rank)
    k = len(columns)
    values, ranges = np.linalg.svd(columns, full_matrices=False)[1:]
    r = int(np.sum(values > max(error * math.sqrt(k), k * 4e-16 * values[0])))
    if rank is not None and r > rank:
        raise ModelMismatch(f"W has at least rank {r} and rank={rank} was declared; pass rank=None to discover it.")
    U = ranges[:r].T
    coordinates = columns @ U
    if k < d:
        strength = float(np.sqrt(np.mean(np.sum(columns**2, axis=1))))
        reach = min(wanted * math.sqrt(max(r, 1)) / max(strength * length, 1e-300), spec.domain.with_room / 2)
        # Columns that are nearly dependent leave the range less certain than themselves.
        missing = error * math.sqrt(k) * max(1.0, strength / float(values[r - 1])) if r else error * math.sqrt(k)
        rest, off = yield from _in_range(asked, Q[k:] * length, U, reach, missing, rng)
        coordinates = np.concatenate([coordinates, rest / length])
        error = max(error, off / length)
    K, V = U, Q.T @ coordinates
    whole = np.array([error * math.sqrt(d)])
    return _outcome(asked, (K @ V.T)[None], whole, lambda v: LowRankHead(K, V, v[0]), (f"W has rank {r}.",))


def _columns(asked: Maps, Q: Array, Z: Array, length: float, rank: int | None) -> Asking[tuple[Array, float]]:
    """Columns W Q_j (k, d) until one lies in the span of the others, and the error of one in norm.

    Noise takes two that are nearly parallel for one: then two must lie in the span.
    """
    d, N = asked.spec.dim, tokens_per_sequence(asked.spec)
    columns: list[Array] = []
    error = 0.0
    parts = [Z[(start + np.arange(N - 1)) % d] for start in range(0, d, N - 1)]
    sent = scores = off = np.zeros(0)

    def look(shorter: float) -> Asking[float]:
        nonlocal sent, scores, off
        q = Q[len(columns)] * shorter
        X = np.stack([np.concatenate([q + shorter * part, q[None]]) for part in parts])
        seen, errors = yield from asked.ask(X, "main" if shorter == length else "repair")
        # As they were sent: a sum of two tokens is rounded.
        sent = (X[:, :-1] - q).reshape(-1, d)[:d]
        scores, off = seen[:, 0].ravel()[:d], errors[:, 0].ravel()[:d]
        # A weight that is 0 in the answer hides a score: shorter tokens bring it back.
        return 1.0 if np.isfinite(off).all() else SATURATED

    shortest = first_length(asked.spec) * EXPLAIN.tokens_shortened_by**EXPLAIN.most_pilots
    while len(columns) < d:
        found = yield from find_scale(look, length, Steps(shorter=0.5, floor=shortest))
        if found.size == SATURATED:
            raise no_scores(asked.spec)
        length = found.scale
        columns.append(np.linalg.solve(sent, scores) / length)
        error = max(error, float(np.linalg.norm(off)) / length**2)
        values = np.linalg.svd(np.array(columns), compute_uv=False)
        floor = max(error * math.sqrt(len(columns)), len(values) * 4e-16 * values[0])
        spare = 1 if asked.noise == 0 else 2
        if len(columns) - np.sum(values > floor) >= spare if rank is None else len(columns) > rank:
            break
    return np.array(columns), error


def _in_range(
    asked: Maps, q: Array, U: Array, reach: float, missing: float, rng: np.random.Generator
) -> Asking[tuple[Array, float]]:
    """Coordinates (n, r) of W q in the range U, one query each, and the error of W q in norm.

    A range that noise cut short leaves a part of W q across it, up to `missing` |q|, which moves the scores: what they
    miss says how much.
    """
    n, d = q.shape
    r, N = U.shape[1], tokens_per_sequence(asked.spec)
    z = (sphere(rng, (n, N - 1, r)) @ U.T) * reach if r else np.zeros((n, N - 1, d))
    far = max(reach, float(np.linalg.norm(q[0])))
    across = sphere(rng, (n, N - 1, d)) * far
    # What lies across the range moves no score, and shows v.
    X = np.concatenate([q[:, None] + z + across - (across @ U) @ U.T, q[:, None]], axis=1)
    scores, errors = yield from asked.ask(X)
    Z = X[:, :-1] - X[:, -1:]
    found, worst = np.zeros((n, r)), 0.0
    for j in range(n):
        _require_readable(errors[j, 0], r + 1)
        weights = errors[j, 0].min() / errors[j, 0]
        A = (Z[j] @ U) * weights[:, None]
        found[j], _, _, singular = np.linalg.lstsq(A, scores[j, 0] * weights, rcond=None)
        one = float(errors[j, 0].min())
        gaps = np.abs(A @ found[j] - scores[j, 0] * weights)
        allowed = asked.loud() * one + missing * float(np.linalg.norm(q[j])) * far
        if (off := float(gaps.max())) > allowed:
            raise inconsistent("score differences miss a head of this rank", off, allowed, "LowRank")
        typical = math.sqrt(float(gaps @ gaps) / max(float(weights @ weights) - r, 1.0))
        inside = max(one, typical) * math.sqrt(r) / float(singular[-1]) if r else 0.0
        worst = max(worst, math.hypot(inside, typical * math.sqrt(d) / far))
    return found, worst


def _started(asked: Maps, rng: np.random.Generator) -> Asking[tuple[int, float, float]]:
    """Number of maps, the token length at which scores are of the wished size, and that size."""
    spec = asked.spec
    N = tokens_per_sequence(spec)
    scores = np.zeros((1, 1, 1))

    def look(length: float) -> Asking[float]:
        nonlocal scores
        scores, errors = yield from asked.ask(sphere(rng, (1, N, spec.dim)) * length, phase="pilot")
        return 1.0 if np.isfinite(errors).all() else SATURATED

    found = yield from find_scale(
        look, first_length(spec), Steps(shorter=EXPLAIN.tokens_shortened_by, looks=EXPLAIN.most_pilots)
    )
    if found.size == SATURATED:
        raise no_scores(spec)
    size = float(np.sqrt(np.mean(scores**2))) / found.scale**2
    wanted = (
        EXPLAIN.rounded_scores
        if asked.noise > 0 or max(asked.unit, asked.shown) > EXPLAIN.short_format
        else EXPLAIN.exact_scores
    )
    return scores.shape[1], length_for(size, wanted, spec), wanted


def _solved(X: Array, s: Array, errors: Array, loud: float) -> tuple[Array, float]:
    """W from z'W q = s (n, N - 1), and its error in norm; a misfit may be `loud` errors."""
    Z, q = X[:, :-1] - X[:, -1:], X[:, -1]
    _require_readable(errors, q.shape[1] ** 2)
    if (seen := int(np.linalg.matrix_rank(q[np.isfinite(errors).any(axis=1)]))) < q.shape[1]:
        raise NotIdentifiable(
            f"attention is saturated for most query tokens: the others show W in {seen} of {q.shape[1]} directions. "
            "Scores that differ so much between tokens are those of a low rank: learn it with LowRank."
        )
    one = float(errors.min())
    weights = one / errors
    W, misfit = solve_bilinear(Z, q, s, weights)
    if misfit > loud * one:
        raise inconsistent("score differences miss a bilinear form", misfit, loud * one, "SingleHead or MultiHead")
    d, count = q.shape[1], float(np.sum(weights**2))
    # A random design of n rows and p unknowns has singular values from sqrt n - sqrt p on, times the size of an entry.
    entry = float(np.sqrt(np.mean(Z**2) * np.mean(q**2)))
    gain = d / (entry * max(math.sqrt(count) - d, 1.0))
    left = max(count - d * d, 1.0) / count
    return W, gain * max(misfit / math.sqrt(left), one)


def _require_readable(errors: Array, least: int) -> None:
    """Refuse scores of which fewer than so many have a finite error: their weights are 0 in the answers."""
    if (seen := int(np.isfinite(errors).sum())) < least:
        raise NotIdentifiable(
            f"of {errors.size} attention weights {seen} are above 0 in the answers, and {least} are needed: scores "
            "cannot be read from so few decimals."
        )


def _outcome(
    asked: Maps, W: Array, errors: Array, made: Callable[[Array], Model], notes: tuple[str, ...] = ()
) -> Outcome:
    v, v_error = asked.values()
    errors = EXPLAIN.stated_over_rounding * errors
    bound = float(np.max(errors / np.maximum(np.linalg.norm(W, axis=(1, 2)), 1e-300), initial=0.0))
    if bound >= CORE.unknown_error:
        raise NotIdentifiable(
            f"at this rounding of the attention weights the error of W may be {bound:.2g} of it: nothing is known."
        )
    if (part := v_error / max(float(np.linalg.norm(v)), 1e-300)) >= CORE.unknown_error:
        raise NotIdentifiable(
            f"at this rounding of the answers the error of v may be {part:.2g} of it: nothing is known."
        )
    claim = Claim(RELATIVE_ERROR, bound, statement="of W, from the rounding of attention weights")
    if asked.noise > 0 and len(W) == 1:
        noise = Noise(asked.noise, max(asked.unit, asked.shown), measured=True)
        precision = Precision(float(errors[0]), v_error, noise, "measured")
        return Outcome(made(v), notes, precision.claims(), Allowance(claim, precision=precision))
    of_values = Claim("error of v", v_error, statement="||v^ - v||_2 of all values, from the rounding of the answers")
    return Outcome(made(v), notes, allows=Allowance(claim, values=of_values, noise=asked.noise))
