"""Fresh sequences that models of vectors share: single tokens, random ones, and long ones as users send them.

Users send tokens of norm 1 to sqrt d, or of the declared limit.

Theory: docs/theory/verification.md, "Near ties", sizes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.settling import settle, settle_rounded
from unsoftmax.models.base import Model
from unsoftmax.models.kernel_head import KernelHead
from unsoftmax.probes.base import Array, Probes
from unsoftmax.probes.sphere import sphere
from unsoftmax.results.recovery import Claim
from unsoftmax.spec import OracleSpec
from unsoftmax.verify.constants import VERIFY
from unsoftmax.verify.gaps import amplification, representable

LONG = "long sequences"
"""Name of the claim about them."""

_LONG = {21: 0.5, 34: 0.25, 300: 0.25}
"""Lengths, each with its share of the sequences that a short length gets: a window, a cache or a rule that starts at
some length shows in longer sequences alone. Few suffice, since it shows in each of them."""


@dataclass(frozen=True, eq=False)
class Kind:
    """Fresh sequences of one kind: name of the claim, the sequences in words, tokens (batch, N, d) of each round."""

    name: str
    on: str
    rounds: list[Array]


def fresh(
    spec: OracleSpec,
    single: int,
    per_length: int,
    sizes: list[float],
    norms: list[float],
    rng: np.random.Generator,
    queries: list[float] | None = None,
) -> list[Kind]:
    """Single tokens, random sequences of each length, tokens of norms `sizes` in turn, and long ones, of `norms`.

    `queries`: norms of the last of several tokens, in the same turn, where they are others.
    """

    def drawn(number: int, length: int) -> Array:
        turns = np.resize(np.array(sizes), number)[:, None, None]
        tokens = sphere(rng, (number, length, spec.dim)) * turns
        if queries is not None and length > 1:
            tokens[:, -1:] *= np.resize(np.array(queries), number)[:, None, None] / turns
        return representable(tokens, spec)

    far = long_rounds(spec, norms, per_length, rng)
    said = ", ".join(map(str, lengths(spec)))
    return [
        Kind("one-token answers", f"{single} fresh vectors", [drawn(single, 1)]),
        Kind(
            "random sequences",
            f"{per_length} fresh sequences of each length {said}",
            [drawn(per_length, n) for n in lengths(spec)],
        ),
        Kind(LONG, _in_words(far), far),
    ]


def made(name: str, tokens: Array, spec: OracleSpec | None = None) -> Asking[Array]:
    """Tokens that follow from the model, as the target sees them exactly, and the same in every run on one ledger."""
    return (yield from settle_rounded(name, tokens, lambda x: representable(x, spec)))


def settled_norms(*norms: list[float]) -> Asking[list[list[float]]]:
    """Token norms that follow from the model, the same in every run on one ledger: tokens are rounded at them."""
    return [part.tolist() for part in (yield from settle("token norms", *norms))]


def asked(kinds: Iterable[Kind]) -> Asking[list[list[Array]]]:
    """The answers of every round of every kind."""
    found: list[list[Array]] = []
    for kind in kinds:
        found.append([])
        for tokens in kind.rounds:
            found[-1].append((yield Probes(tokens, phase="verify")))
    return found


def lengths(spec: OracleSpec) -> list[int]:
    """Lengths of short random sequences that the domain allows."""
    return [n for n in VERIFY.lengths if n <= spec.domain.length_limit]


def random_queries(spec: OracleSpec, per_length: int) -> int:
    """Fresh random sequences of all lengths, `per_length` of each short one and as many long ones."""
    return per_length * len(lengths(spec)) + sum(long_sequences(spec, per_length).values())


def long_sequences(spec: OracleSpec, per_length: int) -> dict[int, int]:
    """How many sequences of each length past 20 the domain allows, `per_length` together; its longest if below 300."""
    limit = spec.domain.length_limit
    found: dict[int, int] = {}
    for length, share in _LONG.items() if limit >= min(_LONG) else ():
        allowed = int(min(length, limit))
        found[allowed] = found.get(allowed, 0) + round(share * per_length)
    return found


def natural_norm(spec: OracleSpec) -> float:
    """Norm of the longest tokens that users send: sqrt d (coordinates of order one), within the declared limit."""
    return min(math.sqrt(spec.dim), spec.domain.with_room)


def sent_norms(scale: float, spec: OracleSpec, off: float = math.inf) -> list[float]:
    """Token norms 1 and sqrt d, inside the domain and where weights are not all 0 or 1; `scale`: scores of order one.

    Behind a link the answers of one size are compared, that of `scale`; under a tolerance another one as far as scores
    are known, if W is `off` by so much.
    """
    if spec.link is not None or spec.tolerance > 0:
        return list(dict.fromkeys((scale, under_tolerance(scale, spec, off)[0][1])))
    most = min(natural_norm(spec), VERIFY.saturated * scale)
    return list(dict.fromkeys((min(1.0, most), most)))


def under_tolerance(scale: float, spec: OracleSpec, off: float) -> tuple[list[float], list[float]]:
    """Norms of tokens, and of the last ones, that take turns where answers have an absolute error: four regimes.

    Scores of order one; tokens as users send them; scores of order one by long tokens before a short one, beside whose
    answers the tolerance is least; and so with larger scores, where a cap or a bend of them shows. W may be `off` by so
    much in norm, and scores are at most so large that they are known to `VERIFY.known`. One regime behind a link, where
    no tolerance is declared, and for the values of explanations (kind "value"), which show scores by themselves.
    """
    if spec.link is not None or not spec.tolerance or spec.kind == "value":
        return [scale] * 4, [scale] * 4
    limit = spec.domain.with_room
    known = max(scale, min(limit, math.sqrt(VERIFY.known * spec.dim / max(off, 1e-300))))
    natural, larger = max(scale, min(math.sqrt(spec.dim), known)), min(VERIFY.larger * scale, known)
    long = min(limit, VERIFY.outscaled * scale)
    return [scale, natural, long, long], [scale, natural, scale**2 / long, larger**2 / long]


def held(norms: list[float], model: Model) -> list[float]:
    """The norms, shortened where a plain sum of growing weights would leave the numbers of float32."""
    if not isinstance(model, KernelHead) or model.normalised:
        return norms
    size = float(np.linalg.norm(model.W, 2))
    scores = np.geomspace(1.0, 1e6, 241)
    most = (
        float(scores[model.kernel.log(scores) <= VERIFY.held].max(initial=1.0))
        if not model.kernel.zero_at_zero
        else 1e6
    )
    return [min(norm, math.sqrt(most / size)) if size else norm for norm in norms]


def long_rounds(spec: OracleSpec, norms: list[float], per_length: int, rng: np.random.Generator) -> list[Array]:
    """Tokens (batch, N, d) of every round of long sequences, the norms taking turns over all of them."""
    counts = long_sequences(spec, per_length)
    starts = np.cumsum([0, *counts.values()])
    turns = np.resize(np.array(norms), starts[-1])[:, None, None]
    return [
        representable(sphere(rng, (number, length, spec.dim)) * turns[start : start + number], spec)
        for start, (length, number) in zip(starts, counts.items(), strict=False)
    ]


def long_claim(what: str, bound: float, gap: float, model: Model, far: Kind) -> Claim:
    """The gap as it is, not per score: what a user of the copy would see. Errors of scores grow with the scores."""
    reach = max(float(amplification(model, tokens).max()) for tokens in far.rounds)
    return Claim(LONG, min(bound * reach, VERIFY.one_digit), gap, statement=f"{what} on {far.on}")


def _in_words(rounds: list[Array]) -> str:
    """Number, lengths and token norms of sequences, for the statement of a claim."""
    lengths = ", ".join(str(tokens.shape[1]) for tokens in rounds)
    norms = sorted(float(norm) for tokens in rounds for norm in np.linalg.norm(tokens[:, -1], axis=1))
    number = sum(len(tokens) for tokens in rounds)
    return f"{number} fresh sequences of lengths {lengths}, tokens of norm {norms_in_words(norms)}"


def norms_in_words(norms: list[float]) -> str:
    return " and ".join(dict.fromkeys(f"{norm:.2g}" for norm in norms))
