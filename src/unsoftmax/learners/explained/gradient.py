"""A head from its values and gradients: every pair [q + z ; q] shows W q and W'z.

With alpha the weight of q + z and g = alpha (1 - alpha) z.v: df/dx_1 = alpha v + g W q, df/dx_1 + df/dx_2 = v + g W'z
(for networks: Milli et al. 2019). One token shows v. So d + 1 queries give a full head, r + 1 and a few one of rank r.

Theory: docs/theory/explanations.md, "Explanations", statement.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from unsoftmax.errors import ModelMismatch, NotIdentifiable
from unsoftmax.inversion import DISTINCT, FORMAT_SHOWS, Noise, printed_error, shown_unit
from unsoftmax.learners.core.base import RELATIVE_ERROR, Allowance, Asking, Outcome, Precision, Program
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.core.readable import SATURATED, Repair, Steps, find_scale, until_readable
from unsoftmax.learners.explained.constants import EXPLAIN
from unsoftmax.learners.explained.design import basis, first_length, inconsistent, length_for, no_scores
from unsoftmax.models.single_head import LowRankHead, SingleHead
from unsoftmax.probes.base import Array, Probes
from unsoftmax.results.recovery import Claim
from unsoftmax.spec import OracleSpec


@dataclass(frozen=True, eq=False)
class Pairs:
    """Readings of k pairs: W q and W'z (k, d), the weight alpha and the error in norm (k,).

    `off`: largest gap between the three readings of the score z'Wq, over what rounding and noise allow.
    """

    q: Array
    z: Array
    Wq: Array
    Wz: Array
    weight: Array
    error: Array
    off: float


def single_head(spec: OracleSpec, seed: int) -> Program:
    """A full head: v from one token, W q for an orthonormal basis of q."""
    reader = yield from _started(spec, seed)
    d = spec.dim
    found = yield from reader.ask(d)
    W = np.linalg.solve(found.q, found.Wq).T
    return _outcome(reader, found, SingleHead(W, reader.v))


def low_rank(spec: OracleSpec, seed: int, rank: int | None) -> Program:
    """A head of rank r: W on k > r tokens from both sides, and the r x r matrix between their ranges."""
    reader = yield from _started(spec, seed)
    found = yield from reader.ask(EXPLAIN.pairs_a_round if rank is None else min(spec.dim, rank + 1))
    spare = 1 if reader.noise == 0 else EXPLAIN.pairs_a_round
    while rank is None and _rank(found) > len(found.q) - spare and len(found.q) < spec.dim:
        more = yield from reader.ask(min(EXPLAIN.pairs_a_round, spec.dim - len(found.q)), len(found.q))
        found = _joined(found, more)
    r = _rank(found)
    if rank is not None and r > rank:
        raise ModelMismatch(f"W has at least rank {r} and rank={rank} was declared; pass rank=None to discover it.")
    U, V = (np.linalg.svd(part, full_matrices=False)[2][:r].T for part in (found.Wq, found.Wz))
    S = np.linalg.lstsq(found.q @ V, found.Wq @ U, rcond=None)[0].T
    return _outcome(reader, found, LowRankHead(U @ S, V, reader.v), (f"W has rank {r}.",))


def _rank(found: Pairs) -> int:
    """Dimensions of what W q shows beyond its errors."""
    values = np.linalg.svd(found.Wq / np.linalg.norm(found.q, axis=1, keepdims=True), compute_uv=False)
    noise = float(np.linalg.norm(found.error / np.linalg.norm(found.q, axis=1)))
    return int(np.sum(values > max(noise, len(values) * np.finfo(np.float64).eps * values[0])))


def _joined(a: Pairs, b: Pairs) -> Pairs:
    def both(name: str) -> Array:
        return np.concatenate([getattr(a, name), getattr(b, name)])

    return Pairs(both("q"), both("z"), both("Wq"), both("Wz"), both("weight"), both("error"), max(a.off, b.off))


def _outcome(reader: _Reader, found: Pairs, head: SingleHead | LowRankHead, notes: tuple[str, ...] = ()) -> Outcome:
    size = float(np.linalg.norm(head.W))
    error = float(np.linalg.norm(found.error / np.linalg.norm(found.q, axis=1)))
    # Fewer tokens than dimensions show a low-rank W through its range: errors are of the same share there.
    through = (
        EXPLAIN.low_rank_error * math.sqrt(reader.spec.dim / len(found.q)) if len(found.q) < reader.spec.dim else 1.0
    )
    _require_known(error * through, size)
    missed = _missed(found, head.W)
    # What is missed beyond noise is no error of W but another class: it must not widen the statement.
    if missed > EXPLAIN.missed_over_error * error + size * len(found.q) * float(np.finfo(np.float64).eps):
        raise inconsistent("W q and W'z are off one W", missed, EXPLAIN.missed_over_error * error, "SingleHead")
    error = (error + missed) * through
    _require_known(error, size)
    statement = "of W, from the rounding of gradients and weights"
    claim = Claim(RELATIVE_ERROR, error / size if size else 1.0, statement=statement)
    if reader.noise == 0:
        return Outcome(head, notes, allows=Allowance(claim))
    # Every entry of v is one number of an answer.
    v_error = reader.noise * math.sqrt(reader.spec.dim) + CORE.stated_over_rounding * reader.unit * float(
        np.linalg.norm(reader.v)
    )
    precision = Precision(error, v_error, Noise(reader.noise, reader.unit, measured=True), "measured")
    return Outcome(head, notes, precision.claims(), Allowance(claim, precision=precision))


def _require_known(error: float, size: float) -> None:
    """Refuse an error of W in norm that is as large as W; what misses such a W says nothing of its class."""
    if error >= size > 0:
        raise NotIdentifiable(
            f"at this rounding of the gradients the error of W may be {error / size:.2g} of it: nothing is known."
        )


def _missed(found: Pairs, W: Array) -> float:
    """How far W is from its own readings, on either side: a rank that noise cut short leaves a part of them out."""
    sides = (found.q @ W.T - found.Wq, found.q), (found.z @ W - found.Wz, found.z)
    return max(float(np.linalg.norm(gap / np.linalg.norm(x, axis=1, keepdims=True))) for gap, x in sides)


@dataclass
class _Reader:
    """Asks pairs at a token length at which scores are readable, v being known."""

    spec: OracleSpec
    v: Array
    rng: np.random.Generator
    length: float
    _seen: list[Array]
    unit: float = 0.0
    noise: float = 0.0

    def __post_init__(self) -> None:
        self._basis = basis(self.spec.dim, self.rng)

    def _see(self, answers: Array) -> None:
        """Noise and rounding unit that answers (k, 1 + n d) show with those before, until these are numbers enough.

        A one-token answer alone shows neither: in few dimensions it is few numbers, and v may have few digits of
        itself. Values and gradients of random pairs have not, so few of them show a format.
        """
        if len(self._seen) > 1 and sum(len(np.unique(a)) for a in self._seen) >= DISTINCT:
            return
        self._seen.append(answers)
        shown = printed_error(np.concatenate([a.ravel() for a in self._seen]), FORMAT_SHOWS)
        self.noise = max(self.spec.tolerance, shown)
        gradients = np.concatenate([a[:, 1:].ravel() for a in self._seen])
        self.unit = max(self.spec.eps, shown_unit(gradients, self.noise))

    def ask(self, count: int, start: int = 0, phase: str = "main") -> Asking[Pairs]:
        """Readings at `count` tokens q of the basis, from `start` on; saturated ones once more with shorter tokens."""
        q = self._basis[start : start + count] * self.length
        found: Pairs | None = None

        def read(index: Array, scale: Array, phase: str) -> Asking[Array]:
            nonlocal found
            seen = yield from self._read(q[index] * scale[:, None], phase)
            found = found or seen
            for name in ("q", "z", "Wq", "Wz", "weight", "error"):
                getattr(found, name)[index] = getattr(seen, name)
            return np.where(np.minimum(seen.weight, 1 - seen.weight) < CORE.saturated_weight, np.nan, 0.0)

        tries = 1 if phase == "pilot" else 1 + EXPLAIN.most_pilots
        repair = Repair(0.0, far=EXPLAIN.tokens_shortened_by, tries=tries)
        yield from until_readable(read, np.ones(len(q)), repair, phase)
        assert found is not None
        if phase != "pilot" and found.off > 1:
            raise inconsistent("gradients contradict values", found.off, 1.0, "SingleHead")
        return found

    def _read(self, q: Array, phase: str) -> Asking[Pairs]:
        d, v = self.spec.dim, self.v
        across = self.rng.standard_normal(q.shape)
        # Towards v: in one dimension the two parts of z would cancel every other time.
        across *= np.where(across @ v < 0, -1.0, 1.0)[:, None]
        z = v / np.linalg.norm(v) + across / np.linalg.norm(across, axis=1, keepdims=True)
        z *= np.linalg.norm(q, axis=1, keepdims=True) / np.linalg.norm(z, axis=1, keepdims=True)
        x = q + z
        z = x - q
        answers = yield Probes(np.stack([x, q], axis=1), phase=phase)
        self._see(answers)
        y, G = answers[:, 0], answers[:, 1:].reshape(-1, 2, d)
        zv = z @ v
        weight = np.clip((y - q @ v) / zv, CORE.smallest_answer, 1 - 1e-16)
        g = weight * (1 - weight) * zv
        Wq = (G[:, 0] - weight[:, None] * v) / g[:, None]
        Wz = (G.sum(axis=1) - v) / g[:, None]
        scores = np.stack([np.einsum("kd,kd->k", z, Wq), np.einsum("kd,kd->k", q, Wz)], axis=1)
        logit = np.log(weight) - np.log1p(-weight)
        gaps = np.abs(scores - logit[:, None]).max(axis=1) * weight * (1 - weight)
        # The value is off by the noise, gradients and v along q and z by as much in every coordinate.
        noisy = self.noise * (1 + math.sqrt(d) * np.linalg.norm(z, axis=1)) * (1 + np.abs(logit)) / np.abs(zv)
        off = float((gaps / np.maximum(CORE.loud * self.unit + EXPLAIN.stated_over_noise * noisy, 1e-300)).max())
        size = np.abs(G).max(axis=(1, 2)) + np.linalg.norm(v)
        error = (
            CORE.stated_over_rounding * self.unit * size * math.sqrt(d)
            + EXPLAIN.stated_over_noise * self.noise * (1 + math.sqrt(d))
        ) / np.abs(g)
        return Pairs(q, z, Wq, Wz, weight, error, off)


def _started(spec: OracleSpec, seed: int) -> Asking[_Reader]:
    """v and the noise from one token, the token length from one pair or a few."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(spec.dim)
    x *= first_length(spec) / np.linalg.norm(x)
    answer = (yield Probes(x[None, None, :], phase="values"))[0]
    v = answer[1:].copy()
    size = float(np.linalg.norm(v))
    if size <= spec.tolerance:
        raise NotIdentifiable("the gradient of a one-token answer is v, and it is 0: no query shows W.")
    reader = _Reader(spec, v, rng, first_length(spec), [answer[None]])
    strength = 0.0

    def look(length: float) -> Asking[float]:
        nonlocal strength
        reader.length = length
        seen = yield from reader.ask(1, phase="pilot")
        strength = float(max(np.linalg.norm(seen.Wq), np.linalg.norm(seen.Wz))) / length
        return 1.0 if min(seen.weight[0], 1 - seen.weight[0]) > CORE.saturated_weight else SATURATED

    found = yield from find_scale(
        look, reader.length, Steps(shorter=EXPLAIN.tokens_shortened_by, looks=EXPLAIN.most_pilots)
    )
    # Not before: a pair shows the format of the answers.
    off = abs(float(answer[0] - x @ v))
    allowed = CORE.loud * reader.unit * size * float(np.linalg.norm(x))
    allowed += EXPLAIN.stated_over_noise * reader.noise * (1 + math.sqrt(spec.dim) * float(np.linalg.norm(x)))
    if off > allowed:
        raise inconsistent("a one-token answer differs from its gradient times the token", off, allowed, "SingleHead")
    if found.size == SATURATED:
        raise no_scores(spec)
    reader.length = length_for(strength, EXPLAIN.typical_score * math.sqrt(spec.dim) / 2, spec)
    return reader
