"""Equivalence on fresh queries: one-token, random and near-tie sequences, and what follows from them.

Random sequences alone are too weak: attention saturates and hides an error in W. Near ties are sequences in which the
recovered model gives two or more tokens about the same score, so every score matters in the first order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from unsoftmax.inversion import rounding_unit as format_eps
from unsoftmax.learners.core.base import NETWORK_RESIDUAL, RELATIVE_ERROR, Asking
from unsoftmax.links import READABLE
from unsoftmax.models.base import Model
from unsoftmax.probes.base import Array, Probes
from unsoftmax.probes.sphere import sphere
from unsoftmax.results.recovery import Certificate, Claim
from unsoftmax.spec import OracleSpec
from unsoftmax.verify.stated import implied, statements

_ONE_TOKEN = 16
"""Fresh single tokens: they see only the values, or the network alone."""

_PER_LENGTH = 12
"""Fresh random sequences of each length: three at each of the four sizes of tokens."""

_PER_LENGTH_BEHIND_NETWORK = 8
"""Fresh random sequences of each length for a model with a network, which is tested at one size of tokens."""

_LENGTHS = (2, 3, 5, 8, 13, 21)
"""Lengths of random sequences; Fibonacci numbers reach long ones with few lengths."""

_NEAR_TIES = 48
"""Fresh sequences with near ties, where an error of the scores shows most; every third of them reaches down to small
weights."""

_HIDDEN_FLOAT32 = 1e-5
"""Relative gap of single tokens that passes for a target that computes in float32 without saying so: about 100 units of
its eps."""

_HIDDEN_ROUNDING = 1e-8
"""Relative gap of single tokens that passes for rounding where the answers use all digits of float64: half of these
digits."""

_MOST_CLAIMED = 1e-6
"""Most relative error that a learner may claim for itself where the answers use all digits of float64: more is no
recovery of such a target."""

_SIZES = (0.25, 1.0, 4.0, 16.0)
"""Sizes of tokens, in units of those whose scores are of order one, that take turns: from nearly uniform weights to
saturated ones."""

_SLACK = 100.0
"""Units of noise, times the root of the dimension for sequences, that a relative gap may reach: the scores' errors add
up over the coordinates."""

_NETWORK_SLACK = 3.0
"""A network's residual is stated relative to its answers at standard normal inputs; elsewhere these may be smaller."""


def queries(spec: OracleSpec) -> int:
    """How many fresh queries a verification asks."""
    return _ONE_TOKEN + _PER_LENGTH * len(lengths(spec)) + _NEAR_TIES * (spec.domain.length_limit >= 2)


def lengths(spec: OracleSpec) -> list[int]:
    """Lengths of random sequences that the domain allows."""
    return [n for n in _LENGTHS if n <= spec.domain.length_limit]


def check(model: Model, spec: OracleSpec, seed: int, claims: tuple[Claim, ...] = ()) -> Asking[Certificate]:
    """Ask fresh queries and compare: the claims of the certificate hold or they do not; nothing is raised."""
    rng = np.random.default_rng([seed, 0x7E51F7])
    scale = typical_norm(model, spec, rng)
    network = _NETWORK_SLACK * _claimed(claims, NETWORK_RESIDUAL)
    per_length = _PER_LENGTH_BEHIND_NETWORK if network else _PER_LENGTH
    seen = yield from _compared(model, spec, _sizes(scale, spec, network=network > 0), per_length, rng)

    written = format_eps(seen.answers)
    noise = max(written, spec.eps)
    # Answers that use all digits of float64 come from float64 arithmetic: a larger misfit is the model's, not noise.
    exact = written < 1e-12 and spec.dtype == "float64" and spec.tolerance == 0
    unexplained = _HIDDEN_ROUNDING if exact else _HIDDEN_FLOAT32
    # A network states its own error; what else would show on one token is noise that the target has not declared.
    hidden = 0.0 if network else min(seen.one_token, unexplained)
    # A declared tolerance is in the answer itself, and through unit vectors in every entry of v.
    declared = seen.tolerance * (1 + scale * math.sqrt(spec.dim))
    claimed = max(network, min(_claimed(claims, RELATIVE_ERROR), _MOST_CLAIMED if exact else 0.1))
    bound = min(max(_SLACK * math.sqrt(spec.dim) * max(noise, hidden, seen.tolerance), claimed), 0.1)
    single = max(network or unexplained, _SLACK * noise, min(declared, 0.1))
    stated = statements(model, seen.errors, f"{_NEAR_TIES} fresh sequences with near ties")
    return Certificate((*stated, *_claims(seen, single, bound, per_length, lengths(spec))))


@dataclass(frozen=True, eq=False)
class _Seen:
    """Largest relative gaps on fresh sequences (None where none were asked), all `answers` (n,), the declared tolerance
    relative to the one-token answers, and what error of every parameter the near ties speak of."""

    one_token: float
    random: float | None
    ties: float | None
    answers: Array
    tolerance: float
    errors: dict[str, float]


def _compared(
    model: Model, spec: OracleSpec, sizes: list[float], per_length: int, rng: np.random.Generator
) -> Asking[_Seen]:
    """Ask single tokens, random sequences of every length and near ties, at tokens of several sizes."""
    one = representable(sphere(rng, (_ONE_TOKEN, 1, spec.dim)) * _spread(sizes, _ONE_TOKEN), spec)
    y = yield Probes(one, phase="verify")
    answers = [y.ravel()]
    one_token = _by_size(model(one), y, len(sizes))
    longer: list[float] = []
    for length in lengths(spec):
        tokens = representable(sphere(rng, (per_length, length, spec.dim)) * _spread(sizes, per_length), spec)
        y = yield Probes(tokens, phase="verify")
        answers.append(y.ravel())
        longer.append(_by_size(model(tokens), y, len(sizes), _amplification(model, tokens)))
    ties: float | None = None
    errors: dict[str, float] = {}
    if spec.domain.length_limit >= 2:
        tokens = representable(near_ties(model, spec, rng), spec)
        y = yield Probes(tokens, phase="verify")
        answers.append(y.ravel())
        ties = _residual(model(tokens), y, _amplification(model, tokens))
        errors = implied(model, lambda other: other(tokens), model(tokens) - y, rng)
    tolerance = _relative_tolerance(model(one), spec)
    return _Seen(one_token, max(longer, default=None), ties, np.concatenate(answers), tolerance, errors)


def _claims(seen: _Seen, single: float, bound: float, per_length: int, tested: list[int]) -> Iterator[Claim]:
    """What was seen against the bounds, for single tokens and for sequences of the lengths `tested`."""
    yield Claim(
        "one-token answers", single, seen.one_token, statement=f"max relative gap on {_ONE_TOKEN} fresh vectors"
    )
    if seen.random is not None:
        shown = ", ".join(map(str, tested))
        statement = f"max relative gap on {per_length} fresh sequences of each length {shown}"
        yield Claim("random sequences", bound, seen.random, statement=statement)
    if seen.ties is not None:
        share = 100 * math.log(100) / len(seen.answers)
        statement = (
            f"max relative gap on {_NEAR_TIES} fresh sequences where the model's scores nearly tie; with 99 % "
            f"confidence at most {share:.1f} % of sequences so drawn disagree by more"
        )
        yield Claim("near ties", bound, seen.ties, statement=statement)


def _sizes(scale: float, spec: OracleSpec, network: bool) -> list[float]:
    """Token norms to test at: a target may be a head for small tokens only.

    Networks, links and tolerances are statements about answers of one size.
    """
    if network or spec.link is not None or spec.tolerance > 0:
        return [scale]
    return [min(scale * factor, 0.9 * spec.domain.norm_limit) for factor in _SIZES]


def _spread(sizes: list[float], batch: int) -> Array:
    """Norms of a batch (batch, 1, 1), the sizes taking turns."""
    return np.resize(np.array(sizes), batch)[:, None, None]


def _by_size(predicted: Array, answered: Array, sizes: int, amplification: Array | None = None) -> float:
    """Largest residual over the sizes, each relative to the answers at that size."""
    weight = np.ones(len(predicted)) if amplification is None else amplification
    return max(_residual(predicted[k::sizes], answered[k::sizes], weight[k::sizes]) for k in range(sizes))


def fresh(model: Model, spec: OracleSpec, rng: np.random.Generator) -> Iterator[tuple[str, str, list[Array]]]:
    """The three kinds of fresh sequences: name, statement, and the tokens (batch, N, d) of each round."""
    scale = typical_norm(model, spec, rng)
    one = representable(sphere(rng, (_ONE_TOKEN, 1, spec.dim)) * scale, spec)
    yield "one-token answers", f"on {_ONE_TOKEN} fresh vectors", [one]
    if spec.domain.length_limit < 2:
        return
    longer = [representable(sphere(rng, (_PER_LENGTH, n, spec.dim)) * scale, spec) for n in lengths(spec)]
    names = ", ".join(map(str, lengths(spec)))
    yield "random sequences", f"on {_PER_LENGTH} fresh sequences of each length {names}", longer
    ties = representable(near_ties(model, spec, rng), spec)
    yield "near ties", f"on {_NEAR_TIES} fresh sequences where the model's scores nearly tie", [ties]


def near_ties(model: Model, spec: OracleSpec, rng: np.random.Generator) -> Array:
    """Sequences (batch, N, d) whose scores under one of the model's heads lie within +-1.5 of the last token's."""
    length = int(min(4, spec.domain.length_limit))
    q = _readable_queries(model, spec, rng)
    tokens = sphere(rng, (_NEAR_TIES, length, spec.dim)) * np.linalg.norm(q, axis=1)[:, None, None]
    tokens[:, -1] = q
    ordinary = 1e4 * float(np.linalg.norm(q, axis=1).max())
    longest = min(0.99 * spec.domain.norm_limit, ordinary, _readable_norm(model, spec, rng))
    directions = model.key_directions(q)
    if len(directions):
        u = directions[rng.integers(len(directions), size=_NEAR_TIES), np.arange(_NEAR_TIES)]
        size = np.einsum("bd,bd->b", u, u)
        # Every third sequence reaches down to small weights, where pruned or sparse attention would show.
        low = np.where(np.arange(_NEAR_TIES) % 3 == 0, -9.0, -1.5)[:, None]
        target = np.einsum("bd,bd->b", u, q)[:, None] + rng.uniform(low, 1.5, (_NEAR_TIES, length - 1))
        excess = np.einsum("bnd,bd->bn", tokens[:, :-1], u) - target
        step = np.divide(excess, size[:, None], out=np.zeros_like(excess), where=size[:, None] > 0)
        # Where the scores are too weak to tie, the tokens stay of an ordinary size and in random directions.
        tokens[:, :-1] -= inside(step[:, :, None] * u[:, None, :], 0.5 * longest)
    return inside(tokens, longest)


def _readable_queries(model: Model, spec: OracleSpec, rng: np.random.Generator) -> Array:
    """Query tokens (batch, d), the better half of twice as many: where W q is small, ties need enormous tokens."""
    q = sphere(rng, (2 * _NEAR_TIES, spec.dim))
    directions = model.key_directions(q)
    size = np.linalg.norm(directions, axis=-1).min(axis=0) if len(directions) else np.arange(len(q))
    return np.asarray(q[np.argsort(size)[_NEAR_TIES:]] * typical_norm(model, spec, rng))


def typical_norm(model: Model, spec: OracleSpec, rng: np.random.Generator) -> float:
    """Token norm at which scores are of order one: |W q| |x| = 1 for |q| = |x|; inside the domain."""
    q = sphere(rng, (8, spec.dim))
    directions = model.key_directions(q)
    size = float(np.linalg.norm(directions, axis=-1).max(initial=0.0))
    norm = 1.0 if size == 0 else size**-0.5
    norm = min(max(norm, 1e-6), 1e6, 0.9 * spec.domain.norm_limit)
    return min(norm, _readable_norm(model, spec, rng))


def _readable_norm(model: Model, spec: OracleSpec, rng: np.random.Generator) -> float:
    """Token norm below which answers stay where the oracle's link, if any, is steep."""
    if math.isinf(READABLE[spec.link]):
        return math.inf
    rate = float(np.sqrt(np.mean(model(sphere(rng, (32, 1, spec.dim))) ** 2))) * math.sqrt(spec.dim)
    return READABLE[spec.link] / rate if rate else math.inf


def inside(tokens: Array, limit: float) -> Array:
    """Tokens (batch, N, d), those longer than the limit shortened to it."""
    norms = np.linalg.norm(tokens, axis=2, keepdims=True)
    return np.asarray(tokens * np.minimum(1.0, limit / np.maximum(norms, 1e-300)))


def representable(tokens: Array, spec: OracleSpec | None = None) -> Array:
    """Tokens the target sees exactly, hidden casts included, so that the model is compared and not a cast."""
    return tokens.astype("float16" if spec is not None and spec.dtype == "float16" else "float32").astype(np.float64)


def _residual(predicted: Array, answered: Array, amplification: Array | float = 1.0) -> float:
    """Largest gap relative to the root mean square of the larger of the two, over each sequence's amplification."""
    size = max(float(np.sqrt(np.mean(predicted**2))), float(np.sqrt(np.mean(answered**2))))
    gap = np.abs(predicted - answered)
    gap = gap.max(axis=1) if gap.ndim == 2 else gap
    return float((gap / amplification).max()) / size if size else 0.0


def _amplification(model: Model, tokens: Array) -> Array:
    """How much a relative error in the scores can move each answer, (batch,): scores grow with |W| |x| |q|."""
    q = tokens[:, -1]
    size = np.linalg.norm(model.key_directions(q), axis=-1).max(axis=0, initial=0.0)
    rate = (size / np.maximum(np.linalg.norm(q, axis=1), 1e-300)).max()
    largest = np.linalg.norm(tokens, axis=2).max(axis=1)
    return np.asarray(1 + rate * largest * np.linalg.norm(q, axis=1))


def _claimed(claims: tuple[Claim, ...], name: str) -> float:
    return max((claim.bound for claim in claims if claim.name == name), default=0.0)


def _relative_tolerance(predicted: Array, spec: OracleSpec) -> float:
    size = float(np.sqrt(np.mean(predicted**2)))
    return spec.tolerance / size if size else 0.0
