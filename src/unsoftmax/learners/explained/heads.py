"""Several heads from values and gradients: every sequence of shifted tokens shows all v_h and all W_h q.

A sequence holds n tokens, the same n tokens moved by one step, and the query token q; how its gradients change by the
step parts the heads (`solvers/parting.py`). So d + 1 queries give H heads whose v_h and W_h q are independent, which
needs 2 H <= d and sequences of 4 H + 3 tokens; what cannot be parted is left to the values (`Unparted`).

Theory: docs/theory/explanations.md, "Explanations", several heads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from unsoftmax.errors import ModelMismatch
from unsoftmax.inversion import decimal_error, rounding_unit
from unsoftmax.learners.core.base import RELATIVE_ERROR, Allowance, Asking, Outcome
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.core.readable import SATURATED, Steps, find_scale
from unsoftmax.learners.core.settling import settle
from unsoftmax.learners.explained.constants import EXPLAIN
from unsoftmax.learners.explained.design import basis, first_length
from unsoftmax.models.multi_head import MultiHead
from unsoftmax.probes.base import Array, Probes
from unsoftmax.probes.sphere import sphere
from unsoftmax.results.recovery import Claim
from unsoftmax.solvers.parting import Moved, directions, moved, values
from unsoftmax.spec import OracleSpec


class Unparted(Exception):
    """Gradients do not part these heads: too many, too alike, too coarse; `noise`: error of answers that was seen."""

    noise = 0.0


@dataclass
class _Reader:
    """Asks sequences of moved tokens; `total` is the sum of all v_h."""

    spec: OracleSpec
    rng: np.random.Generator
    total: Array
    unit: float
    noise: float
    tokens: int
    length: float = 0.0
    v: Array | None = None

    def ask(self, q: Array, phase: str) -> Asking[tuple[Array, Array, Array]]:
        """Steps (k, d), gradients (k, n, d) of tokens and of the moved ones, for query tokens q (k, d)."""
        k, d = q.shape
        n = self.tokens
        x = sphere(self.rng, (k, n, d)) * self.length
        step = self._steps(k)
        X = np.concatenate([x, x + step[:, None], q[:, None]], axis=1)
        answers = yield Probes(X, phase=phase)
        G = answers[:, 1:].reshape(k, 2 * n + 1, d)
        self.unit = max(self.unit, rounding_unit(answers))
        self.noise = max(self.noise, decimal_error(answers))
        self.require_exact()
        return step, G[:, :n], G[:, n : 2 * n]

    def _steps(self, k: int) -> Array:
        """Random steps; where values are known, half of each lies along all of them alike."""
        step = sphere(self.rng, (k, self.spec.dim))
        if self.v is not None:
            signs = self.rng.choice([-1.0, 1.0], (k, len(self.v)))
            known = (signs * np.linalg.norm(self.v, axis=1)) @ np.linalg.pinv(self.v).T
            step = step + known / np.linalg.norm(known, axis=1, keepdims=True)
        return step / np.linalg.norm(step, axis=1, keepdims=True) * EXPLAIN.step_over_tokens * self.length

    def require_exact(self) -> None:
        """Noise that is the same for every answer: long tokens outscale it in values, but not in gradients."""
        if self.noise > 0:
            why = Unparted(f"answers are off by {self.noise:.2g}, which values of long tokens outscale")
            why.noise = self.noise
            raise why

    def row_errors(self, G: Array) -> Array:
        """Errors in norm of gradients (n, d), one each: those of a format are relative to the number."""
        return np.asarray(self.unit * np.linalg.norm(G, axis=1))


def heads(spec: OracleSpec, seed: int, promised: int | None) -> Asking[Outcome]:
    """All heads from d + 1 queries, a pilot and what is asked again; raises `Unparted` where values must do."""
    reader = yield from _started(spec, seed, promised)
    H = yield from _parted(reader)
    if promised is not None and promised < H:
        raise ModelMismatch(f"{H} different heads were found where heads={promised} was promised; pass heads=None.")
    reader.tokens = min(2 * 2 * H + EXPLAIN.tokens_to_spare, int(min(spec.domain.length_limit, 1e6) - 1) // 2)
    d = spec.dim
    q = basis(d, reader.rng) * reader.length
    seen = yield from _maps(reader, q, H, "main")
    v, v_error = _values(reader, seen)
    u, errors = _read(seen, v, v_error)
    poor = np.flatnonzero((errors > EXPLAIN.error_over_median * np.median(errors, axis=0)).any(axis=1))
    if len(poor):
        more = sphere(reader.rng, (len(poor), d)) * reader.length
        again = yield from _maps(reader, more, H, "repair")
        v, v_error = _values(reader, seen + again)
        u, errors = _read(seen + again, v, v_error)
        q = np.concatenate([q, more])
    return _outcome(q, u, errors, v, v_error)


@dataclass(frozen=True, eq=False)
class _Seen:
    """One sequence: its step, the map of its rows, and the errors of its gradients, before the step and after."""

    step: Array
    map: Moved
    before: Array
    after: Array


def _maps(reader: _Reader, q: Array, H: int, phase: str) -> Asking[list[_Seen]]:
    steps, G, G_moved = yield from reader.ask(q, phase)
    found = [
        _Seen(step, moved(a, b, 2 * H), reader.row_errors(a), reader.row_errors(b))
        for step, a, b in zip(steps, G, G_moved, strict=True)
    ]
    for one, rows in zip(found, G_moved, strict=True):
        size = float(np.linalg.norm(rows))
        grown = float(np.linalg.norm(one.before)) * size * float(np.linalg.norm(one.map.inverse, 2))
        allowed = CORE.loud * (float(np.linalg.norm(one.after)) + grown) / size
        if one.map.off > allowed:
            raise Unparted(f"moved gradients leave the span of {H} heads by {one.map.off:.2g} of their size")
    return found


def _started(spec: OracleSpec, seed: int, promised: int | None) -> Asking[_Reader]:
    """The sum of all v_h from one token, and the token length at which scores are of ordinary size."""
    rng = np.random.default_rng(seed)
    d, longest = spec.dim, int(min(spec.domain.length_limit, 1e6))
    tokens = min(d if promised is None else min(2 * promised, d), (longest - 1) // 2 - 1) + 1
    if d < 2 or tokens < 3:
        raise Unparted("two dimensions for each head and seven tokens are needed")
    x = sphere(rng, (1, 1, d)) * first_length(spec)
    answer = (yield Probes(x, phase="values"))[0]
    reader = _Reader(spec, rng, answer[1:], spec.eps, spec.tolerance, tokens)
    reader.noise = max(reader.noise, decimal_error(answer))
    reader.require_exact()
    size = float(np.linalg.norm(reader.total))
    if size <= 1e3 * math.sqrt(d) * reader.noise:
        raise Unparted("values of all heads add up to 0, or to what noise hides")

    def look(scale: float) -> Asking[float]:
        reader.length = math.sqrt(scale)
        _, G, G_moved = yield from reader.ask(sphere(rng, (1, d)) * reader.length, "pilot")
        shares = (2 * tokens + 1) * np.linalg.norm(np.concatenate([G[0], G_moved[0]]), axis=1) / size
        if np.median(shares) < EXPLAIN.few_token_median:
            return SATURATED
        spread = float(np.linalg.norm((2 * tokens + 1) * G[0] - reader.total)) / size / math.sqrt(tokens)
        return SATURATED if spread > EXPLAIN.saturated_spread else spread / EXPLAIN.wanted_spread

    limit = (0.6 * spec.domain.norm_limit) ** 2
    steps = Steps(
        least=0.3, shorter=EXPLAIN.tokens_shortened_by**2, longer=1e12, limit=limit, looks=EXPLAIN.most_pilots
    )
    found = yield from find_scale(look, first_length(spec) ** 2, steps)
    if found.size == SATURATED:
        raise Unparted("attention is saturated at every token length tried")
    (length,) = yield from settle("token length", reader.length)
    reader.length = float(length)
    return reader


def _parted(reader: _Reader) -> Asking[int]:
    """H, with v as a first sequence shows it and the length that the loudest head asks for."""
    d = reader.spec.dim
    why = "no step parts them"
    for _ in range(EXPLAIN.parting_tries):
        q = sphere(reader.rng, (1, d)) * reader.length
        steps, G, G_moved = yield from reader.ask(q, "pilot")
        both = np.concatenate([G[0], G_moved[0]])
        sizes = np.linalg.svd(both, compute_uv=False)
        floor = math.sqrt(d) * float(np.linalg.norm(reader.row_errors(both))) + len(both) * 4e-16 * sizes[0]
        rank = int(np.sum(sizes > floor))
        if rank % 2 or rank > reader.tokens - 1:
            why = f"gradients of one sequence span {rank} dimensions, where heads would span two each"
            # A head that is saturated shows too little: shorter tokens bring it back.
            reader.length /= 2
            continue
        seen = moved(G[0], G_moved[0], rank)
        v = values(seen, reader.total)
        if v is None:
            continue
        u, errors = directions(
            seen, v, steps[0], reader.row_errors(G[0]), reader.row_errors(G_moved[0]), np.zeros(len(v))
        )
        if np.isfinite(errors).all():
            loud = float(np.linalg.norm(u, axis=1).max()) / math.sqrt(d) * reader.length
            reader.v = v
            reader.length *= math.sqrt(EXPLAIN.typical_score / max(loud, 1e-300))
            reader.length = min(reader.length, 0.6 * reader.spec.domain.norm_limit)
            reader.v, length = yield from settle("values of heads", reader.v, reader.length)
            reader.length = float(length)
            return rank // 2
    raise Unparted(why)


def _values(reader: _Reader, seen: list[_Seen]) -> tuple[Array, Array]:
    """v (H, d) as the median over sequences, and the error in norm of each."""
    parted = [v for one in seen if (v := values(one.map, reader.total)) is not None]
    # Any of them may be the one whose order the others take: one that mixes heads finds few that agree.
    orders = [_in_order(reference, parted) for reference in parted[: EXPLAIN.references_tried]]
    found = max(orders, key=len, default=[])
    if 2 * len(found) < len(seen):
        raise Unparted(f"{len(seen) - len(found)} of {len(seen)} sequences do not part the heads")
    v = np.median(found, axis=0)
    spread = np.median(np.linalg.norm(np.array(found) - v, axis=2), axis=0)
    floor = reader.unit * np.linalg.norm(v, axis=1)
    return v, spread / math.sqrt(len(found)) + floor


def _in_order(reference: Array, parted: list[Array]) -> list[Array]:
    """Values of sequences in the order of the reference, those left out in which two are nearest to the same."""
    found = []
    for v in parted:
        gaps = np.linalg.norm(reference[:, None] - v[None], axis=2)
        order = np.argmin(gaps, axis=1)
        near = gaps[np.arange(len(v)), order] <= EXPLAIN.same_value * np.linalg.norm(reference, axis=1)
        if near.all() and len(set(order.tolist())) == len(order):
            found.append(v[order])
    return found


def _read(seen: list[_Seen], v: Array, off: Array) -> tuple[Array, Array]:
    """W_h q (k, H, d) and the error in norm of each (k, H)."""
    read = [directions(one.map, v, one.step, one.before, one.after, off) for one in seen]
    u, errors = (np.array(part) for part in zip(*read, strict=True))
    if 2 * np.count_nonzero(np.isfinite(errors).all(axis=1)) < len(seen):
        raise Unparted("most sequences do not show W_h q")
    return np.where(np.isfinite(errors)[:, :, None], u, 0.0), errors


def _outcome(q: Array, u: Array, errors: Array, v: Array, v_error: Array) -> Outcome:
    """Every W_h by least squares, weighted by the errors of its readings."""
    H, d = v.shape
    W, bounds = np.empty((H, d, d)), np.empty(H)
    for h in range(H):
        one = float(errors[:, h].min())
        weights = (one / errors[:, h])[:, None]
        solution, _, rank, sizes = np.linalg.lstsq(q * weights, u[:, h] * weights, rcond=None)
        if rank < d:
            raise Unparted("too few sequences show W_h q")
        W[h] = solution.T
        bounds[h] = one * float(np.linalg.norm(1 / sizes))
    bound = float(np.max(EXPLAIN.stated_over_rounding * bounds / np.linalg.norm(W, axis=(1, 2)), initial=0.0))
    bound = max(bound, float(np.max(EXPLAIN.stated_over_rounding * v_error / np.linalg.norm(v, axis=1))))
    if not bound < EXPLAIN.error_left_to_values:
        raise Unparted(f"the error of W may be {bound:.2g} of it")
    claim = Claim(RELATIVE_ERROR, bound, statement="of every W and v, from the rounding of gradients")
    of_values = Claim(
        "error of v",
        EXPLAIN.stated_over_rounding * float(np.linalg.norm(v_error)),
        statement="||v^ - v||_2 of all values",
    )
    note = f"gradients part {H} head{'s' * (H > 1)}."
    return Outcome(MultiHead(W, v), (note,), allows=Allowance(claim, values=of_values))
