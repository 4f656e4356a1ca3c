"""Equivalence on fresh queries: one-token, random and near-tie sequences, and what follows from them.

Random sequences alone are too weak: attention saturates and hides an error in W. Near ties are sequences in which the
recovered model gives two or more tokens about the same score, so every score matters in the first order.

Theory: docs/theory/verification.md, "Near ties".
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from unsoftmax.inversion import rounding_unit as format_eps
from unsoftmax.learners.core.base import Allowance, Asking
from unsoftmax.models.base import Model
from unsoftmax.models.kernel_head import KernelHead
from unsoftmax.precision import HALF_DIGITS
from unsoftmax.probes.base import Array, Probes
from unsoftmax.probes.sphere import sphere
from unsoftmax.results.recovery import Claim
from unsoftmax.spec import OracleSpec
from unsoftmax.verify.gaps import (
    CLAIMED,
    ONE_TOKEN,
    PER_LENGTH,
    ROUNDINGS,
    amplification,
    by_size,
    representable,
    residual,
)
from unsoftmax.verify.plan import Checked
from unsoftmax.verify.sent import (
    LONG,
    held,
    in_words,
    long_claim,
    long_rounds,
    long_sequences,
    norms_in_words,
    sent_norms,
)
from unsoftmax.verify.stated import implied, statements
from unsoftmax.verify.ties import NEAR_TIES, near_ties, typical_norm

_PER_LENGTH_BEHIND_NETWORK = 8
"""Fresh random sequences of each length for a model with a network, which is tested at one size of tokens."""

_LENGTHS = (2, 3, 5, 8, 13)
"""Lengths of random sequences, Fibonacci numbers; `verify.sent` goes on to long ones."""

_HIDDEN_FLOAT32 = 1e-5
"""Relative gap of single tokens that passes for a target that computes in float32 without saying so: about 100 units of
its eps."""

_SIZES = (0.25, 1.0, 4.0, 16.0)
"""Sizes of tokens, in units of those whose scores are of order one, that take turns: from nearly uniform weights to
saturated ones."""

_NETWORK_SLACK = 3.0
"""A network's residual is stated relative to its answers at standard normal inputs; elsewhere these may be smaller."""


def queries(spec: OracleSpec, network: bool = False) -> int:
    """How many fresh queries a verification asks, of a model with a learned `network` or without."""
    per_length = _PER_LENGTH_BEHIND_NETWORK if network else PER_LENGTH
    return ONE_TOKEN + random_queries(spec, per_length) + NEAR_TIES * (spec.domain.length_limit >= 2)


def random_queries(spec: OracleSpec, per_length: int) -> int:
    """Fresh random sequences of all lengths, `per_length` of each short one and as many long ones."""
    return per_length * len(lengths(spec)) + sum(long_sequences(spec, per_length).values())


def lengths(spec: OracleSpec) -> list[int]:
    """Lengths of short random sequences that the domain allows."""
    return [n for n in _LENGTHS if n <= spec.domain.length_limit]


def check(model: Model, spec: OracleSpec, seed: int, allows: Allowance) -> Asking[Checked]:
    """Ask fresh queries and compare: the claims of the certificate hold or they do not; nothing is raised."""
    rng = np.random.default_rng([seed, 0x7E51F7])
    scale = typical_norm(model, spec, rng)
    network = _NETWORK_SLACK * allows.network_error
    per_length = _PER_LENGTH_BEHIND_NETWORK if network else PER_LENGTH
    sizes = held(token_sizes(scale, spec, network=network > 0), model)
    seen = yield from _compared(model, spec, sizes, per_length, rng)
    norms = [scale] if network else held(sent_norms(scale, spec), model)
    far = long_rounds(spec, norms, per_length, rng)
    answers = yield from _asked(far)

    written = format_eps(np.concatenate([seen.answers, answers]))
    noise = max(written, spec.eps)
    # Answers that use all digits of float64 come from float64 arithmetic: a larger misfit is the model's, not noise.
    exact = written < 1e-12 and spec.dtype == "float64" and spec.tolerance == 0
    unexplained = HALF_DIGITS if exact else _HIDDEN_FLOAT32
    # A network states its own error; what else would show on one token is noise that the target has not declared.
    hidden = 0.0 if network else min(seen.one_token, unexplained)
    # A declared tolerance is in the answer itself, and through unit vectors in every entry of v.
    declared = seen.tolerance * (1 + scale * math.sqrt(spec.dim))
    claimed = max(network, min(allows.relative_error, CLAIMED if exact else 0.1))
    bound = min(max(ROUNDINGS * math.sqrt(spec.dim) * max(noise, hidden, seen.tolerance), claimed), 0.1)
    single = max(network or unexplained, ROUNDINGS * noise, min(declared, 0.1))
    stated = statements(model, seen.errors, f"{NEAR_TIES} fresh sequences with near ties")
    found = _claims(seen, single, bound, f"{per_length} fresh sequences of each length {_said(spec)}", sizes)
    gap = by_size(np.concatenate([model(tokens) for tokens in far]), answers, len(norms)) if far else 0.0
    return Checked((*found, *long_claim("max relative gap", bound, gap, model, far)), stated)


def _asked(rounds: list[Array]) -> Asking[Array]:
    """The answers (n,) to all rounds."""
    found = [np.zeros(0)]
    for tokens in rounds:
        found.append((yield Probes(tokens, phase="verify")).ravel())
    return np.concatenate(found)


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
    one = representable(sphere(rng, (ONE_TOKEN, 1, spec.dim)) * spread(sizes, ONE_TOKEN), spec)
    y = yield Probes(one, phase="verify")
    answers = [y.ravel()]
    # Plain sums weigh a single token by its own score, so that its answer shows W as well.
    plain = isinstance(model, KernelHead) and not model.normalised
    one_token = by_size(model(one), y, len(sizes), amplification(model, one) if plain else None)
    longer: list[float] = []
    for length in lengths(spec):
        tokens = representable(sphere(rng, (per_length, length, spec.dim)) * spread(sizes, per_length), spec)
        y = yield Probes(tokens, phase="verify")
        answers.append(y.ravel())
        longer.append(by_size(model(tokens), y, len(sizes), amplification(model, tokens)))
    ties: float | None = None
    errors: dict[str, float] = {}
    if spec.domain.length_limit >= 2:
        tokens = representable(near_ties(model, spec, rng), spec)
        y = yield Probes(tokens, phase="verify")
        answers.append(y.ravel())
        ties = residual(model(tokens), y, amplification(model, tokens))
        errors = implied(model, lambda other: other(tokens), model(tokens) - y, rng)
    tolerance = _relative_tolerance(model(one), spec)
    return _Seen(one_token, max(longer, default=None), ties, np.concatenate(answers), tolerance, errors)


def _said(spec: OracleSpec) -> str:
    return ", ".join(map(str, lengths(spec)))


def _claims(seen: _Seen, single: float, bound: float, tested: str, sizes: list[float]) -> Iterator[Claim]:
    """What was seen against the bounds, for single tokens and for the sequences `tested`, tokens of norms `sizes`."""
    yield Claim("one-token answers", single, seen.one_token, statement=f"max relative gap on {ONE_TOKEN} fresh vectors")
    if seen.random is not None:
        statement = f"max relative gap per score on {tested}, tokens of norm {norms_in_words(sizes)}"
        yield Claim("random sequences", bound, seen.random, statement=statement)
    if seen.ties is not None:
        share = 100 * math.log(100) / len(seen.answers)
        statement = (
            f"max relative gap per score on {NEAR_TIES} fresh sequences where the model's scores nearly tie; with "
            f"99 % confidence at most {share:.1f} % of sequences so drawn disagree by more"
        )
        yield Claim("near ties", bound, seen.ties, statement=statement)


def token_sizes(scale: float, spec: OracleSpec, network: bool = False) -> list[float]:
    """Token norms to test at: a target may be a head for small tokens only.

    Networks, links and tolerances are statements about answers of one size.
    """
    if network or spec.link is not None or spec.tolerance > 0:
        return [scale]
    return [min(scale * factor, 0.9 * spec.domain.norm_limit) for factor in _SIZES]


def spread(sizes: list[float], batch: int) -> Array:
    """Norms of a batch (batch, 1, 1), the sizes taking turns."""
    return np.resize(np.array(sizes), batch)[:, None, None]


def fresh(model: Model, spec: OracleSpec, rng: np.random.Generator) -> Iterator[tuple[str, str, list[Array]]]:
    """The kinds of fresh sequences: name, statement, and the tokens (batch, N, d) of each round."""
    scale = typical_norm(model, spec, rng)
    one = representable(sphere(rng, (ONE_TOKEN, 1, spec.dim)) * scale, spec)
    yield "one-token answers", f"on {ONE_TOKEN} fresh vectors", [one]
    if spec.domain.length_limit < 2:
        return
    longer = [representable(sphere(rng, (PER_LENGTH, n, spec.dim)) * scale, spec) for n in lengths(spec)]
    yield "random sequences", f"on {PER_LENGTH} fresh sequences of each length {_said(spec)}", longer
    far = long_rounds(spec, sent_norms(scale, spec), PER_LENGTH, rng)
    if far:
        yield LONG, f"on {in_words(far)}", far
    ties = representable(near_ties(model, spec, rng), spec)
    yield "near ties", f"on {NEAR_TIES} fresh sequences where the model's scores nearly tie", [ties]


def _relative_tolerance(predicted: Array, spec: OracleSpec) -> float:
    size = float(np.sqrt(np.mean(predicted**2)))
    return spec.tolerance / size if size else 0.0
