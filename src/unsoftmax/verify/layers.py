"""Equivalence of vector answers: fewer sequences than for scalars, since each answer is `outputs` numbers.

Theory: docs/theory/verification.md, "Vector answers".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from unsoftmax.inversion import rounding_unit
from unsoftmax.learners.core.base import Allowance, Asking
from unsoftmax.learners.core.settling import settle
from unsoftmax.models.attention_layer import AttentionLayer
from unsoftmax.models.base import Model
from unsoftmax.probes.base import Array, Probes
from unsoftmax.probes.sphere import sphere
from unsoftmax.results.recovery import Claim
from unsoftmax.spec import OracleSpec
from unsoftmax.verify.constants import VERIFY
from unsoftmax.verify.constants_models import MODELS
from unsoftmax.verify.far_below import far_below
from unsoftmax.verify.gaps import inside, representable, size_of
from unsoftmax.verify.plan import Checked, Plan, Statement, exactly
from unsoftmax.verify.sent import natural_norm, settled_norms
from unsoftmax.verify.small_weights import small_weights
from unsoftmax.verify.stated import errors_of, moves, statements
from unsoftmax.verify.ties import below_all, faint, typical_norm, with_component

_RANDOM = {2: 2, 3: 2, 5: 2, 13: 2, 34: 1, 300: 1}
"""Random sequences of each length: two of the short ones, and one of lengths at which windows or caches of a served
model would show."""

_SIDES = "either side of the window"
"""Claim of sequences as long as the window, one longer, and twice as long."""

_MADE = ("near ties", "small weights")
"""Rounds whose tokens follow from the model."""


def queries(spec: OracleSpec) -> int:
    """How many fresh queries a verification asks."""
    longer = sum(random_lengths(spec).values())
    ties = MODELS.layer_ties + -(-MODELS.layer_ties // 2) * (spec.domain.length_limit > VERIFY.tie_length)
    return (
        MODELS.layer_tokens
        + longer
        + (ties + MODELS.small_weight_sequences) * (spec.domain.length_limit >= VERIFY.tie_length)
    )


def random_lengths(spec: OracleSpec) -> dict[int, int]:
    """Random sequences of each length that the domain allows."""
    return {length: n for length, n in _RANDOM.items() if length <= spec.domain.length_limit}


def check(model: Model, spec: OracleSpec, seed: int, allows: Allowance) -> Asking[Checked]:
    """One-token, random and near-tie sequences; what the learner states says how close the answers can be."""
    rng = np.random.default_rng([seed, 0x1A7E5])
    ((first, second),) = yield from settled_norms(list(token_norms(model, spec, rng)))
    sizes = first, second
    rounds = _designs(model, spec, sizes, rng)
    claims = {name: (designs, _statement(name, sizes, spec)) for name, designs in rounds.items()}
    faint = spec.domain.length_limit > VERIFY.tie_length
    seen = Answering(lambda other, X: other(X), partial(_size, model), partial(_noise, spec), faint=faint)
    return (yield from compared(model, claims, seen, allows, spec.dim, rng))


def _asked(X: Array) -> Asking[Array]:
    return (yield Probes(X, phase="verify"))


@dataclass(frozen=True, eq=False)
class Answering:
    """Answers as they are compared: what a model foretells of tokens (model, X), the size of what attention writes
    (X, y), the noise of answers relative to that (y, size), and how they are asked; `faint`: near ties begin with a
    token far below, and are asked without it as well."""

    foretold: Callable[[Model, Array], Array]
    size: Callable[[Array, Array], float]
    noise: Callable[[Array, float], float]
    ask: Callable[[Array], Asking[Array]] = _asked
    faint: bool = False


def compared(
    model: Model,
    claims: dict[str, tuple[list[Array], str]],
    seen: Answering,
    allows: Allowance,
    dim: int,
    rng: np.random.Generator,
) -> Asking[Checked]:
    """A claim for every name: the tokens of its rounds, and its statement. Near ties state the errors as well."""
    found, beside = list[Claim](), list[Claim]()
    stated, alone = Statement(), 0.0
    for name, (designs, statement) in claims.items():
        noise, gap, reach = 0.0, 0.0, 0.0
        for tokens in designs:
            X = representable(tokens)
            if name in _MADE:
                # Layers are known to 1e-9 at times, and then most tokens are rounded one way or the other.
                (X,) = yield from settle(name, X)
            y = yield from seen.ask(X)
            size = seen.size(X, y) or math.inf
            wrong = seen.foretold(model, X) - y
            noise, gap = max(noise, seen.noise(y, size)), max(gap, float(np.abs(wrong).max()) / size)
            alone = float(np.abs(wrong).max()) if X.shape[1] == 1 else alone
            # Only near ties state errors; elsewhere what an error as large as a parameter does not move, none moves.
            largest = 1.0 if name != "near ties" else VERIFY.largest_share
            moved = moves(model, lambda other, X=X: seen.foretold(other, X), rng, largest)  # type: ignore[misc]
            reach = max(reach, math.sqrt(float(sum(moved.values(), np.zeros(len(X))).max())) / size)
            if name == "near ties":
                stated = statements(model, errors_of(moved, wrong, y), f"{len(X)} fresh sequences with near ties")
            if name == "near ties" and seen.faint:
                rounding = MODELS.layer_roundings * math.sqrt(dim) * seen.noise(y, size) * size
                # Decimals are a rounding that only single tokens show.
                rounding = max(rounding, MODELS.faint_roundings * alone)
                less = yield from seen.ask(X[::2, 1:])
                answers = y[::2], less
                beside.append(far_below(model, seen.foretold, X[::2], answers, rounding, allows.relative_error, rng))
        # Strong scores show errors of W several times larger, which says nothing about rules for small weights.
        most = VERIFY.one_digit if name == "small weights" else VERIFY.most_claimed
        bound = max(
            MODELS.layer_roundings * math.sqrt(dim) * noise, min(MODELS.reach * reach * allows.relative_error, most)
        )
        found.append(Claim(name, min(bound, VERIFY.one_digit), gap, statement=statement))
    return Checked((*found, *beside), stated)


PLAN = Plan(exactly(queries), check)


def _designs(
    model: Model, spec: OracleSpec, sizes: tuple[float, float], rng: np.random.Generator
) -> dict[str, list[Array]]:
    """Tokens of every round by the name of its claim; random sequences are asked at both norms in turn, the longest
    where scores are of order one: strong ones leave few tokens a weight, and hide what becomes of the others."""
    counts, sides = lengths_for(model, spec)
    starts = np.cumsum([0, *counts.values()])
    norms = np.resize(np.array(sizes), starts[-1])[::-1, None, None]
    empty = np.zeros((1, 1, spec.dim))
    beside = [np.concatenate([sphere(rng, (1, n - 1, spec.dim)) * sizes[0], empty], axis=1) for n in sides]
    made = spec.domain.length_limit >= VERIFY.tie_length
    return ({_SIDES: beside} if sides else {}) | {
        "one-token answers": [sphere(rng, (MODELS.layer_tokens, 1, spec.dim)) * sizes[0]],
        "random sequences": [
            sphere(rng, (number, n, spec.dim)) * norms[start : start + number]
            for start, (n, number) in zip(starts, counts.items(), strict=False)
        ],
        "near ties": [_before_weaker(model, near_ties(model, sizes[0], spec, rng))] if made else [],
        "small weights": [_faintest(model, sizes[0], spec, rng)] if made else [],
    }


def lengths_for(model: Model, spec: OracleSpec) -> tuple[dict[int, int], list[int]]:
    """Random sequences of each length; and of a layer with a window three lengths on either side of it, in place of as
    many: before x = 0 tokens weigh alike, so that a window shows however strong scores are."""
    counts = random_lengths(spec)
    window = model.window if isinstance(model, AttentionLayer) else None
    if window is None or window >= spec.domain.length_limit:
        return counts, []
    sides = [window, window + 1, int(min(2 * window, spec.domain.length_limit))]
    short = [n for n, number in counts.items() for _ in range(number) if n < max(_RANDOM)][: -len(sides)]
    kept = {n: short.count(n) if n < max(_RANDOM) else number for n, number in counts.items()}
    return {n: number for n, number in kept.items() if number}, sides


def _faintest(model: Model, size: float, spec: OracleSpec, rng: np.random.Generator) -> Array:
    """Sequences of small weights, down to where they drown in the format that was declared."""
    if not isinstance(model, AttentionLayer) or not model.heads:
        return sphere(rng, (MODELS.small_weight_sequences, VERIFY.tie_length, spec.dim)) * size
    return small_weights(model, size, spec, rng, MODELS.layer_roundings * math.sqrt(spec.dim) * spec.eps)


def _statement(name: str, sizes: tuple[float, float], spec: OracleSpec) -> str:
    norms = dict.fromkeys(f"{size:.2g}" for size in (sizes if name == "random sequences" else sizes[:1]))
    return (
        f"max gap relative to what attention writes, on fresh sequences ({spec.outputs} numbers each), tokens of norm "
        f"{' and '.join(norms)}"
    )


def token_norms(model: Model, spec: OracleSpec, rng: np.random.Generator) -> tuple[float, float]:
    """Token norms to verify at: where scores are of order one, and what users send: the declared limit, or sqrt d."""
    natural = natural_norm(spec)
    if isinstance(model, AttentionLayer) and model.norm in ("pre", "rms"):
        return natural, natural
    return typical_norm(model, spec, rng), natural


def _size(model: Model, X: Array, y: Array) -> float:
    """Root mean square of what attention writes: the larger of the answers without the residual, recovered and true."""
    kept = X[:, -1] if isinstance(model, AttentionLayer) and model.residual and model.norm != "post" else 0.0
    return max(size_of(part - kept) for part in (model(X), y))


def _noise(spec: OracleSpec, y: Array, size: float) -> float:
    """Rounding of the answers, declared or seen, or the tolerance, relative to them."""
    return max(spec.eps, rounding_unit(y), spec.tolerance / max(size_of(y), 1e-300))


def near_ties(
    model: Model,
    size: float,
    spec: OracleSpec,
    rng: np.random.Generator,
    shape: tuple[int, int] = (MODELS.layer_ties, 3),
) -> Array:
    """Sequences (n, ties + 2, d), `shape` being n and ties: tokens that score within +-1.5 of the last one under a
    head, heads taking turns.

    The first token scores far below under all heads, so that it disturbs no tie; it is left out if the domain has no
    room for it.
    """
    number, ties = shape
    levels = rng.uniform(-VERIFY.widest_score, VERIFY.widest_score, shape)
    if spec.domain.length_limit > ties + 1:
        levels = np.hstack([faint((number, 1), rng), levels])
    others = levels.shape[1]
    tokens = sphere(rng, (number, others + 1, spec.dim)) * size
    normed = isinstance(model, AttentionLayer) and model.norm in ("pre", "rms")
    if normed:
        assert isinstance(model, AttentionLayer)
        model = model.canonical()
        tokens = model.normalised(tokens)
    q = tokens[:, -1]
    if len(model.key_directions(q)) == 0:
        return tokens
    ordered = isinstance(model, AttentionLayer) and model.ordered
    for i in range(others):
        directions = _directions(model, q, others - i if ordered else 0)
        if i < others - ties:
            tokens[:, i] = below_all(tokens[:, i], directions, q, levels[:, i], keep_norm=normed)
            continue
        turns = (i * number + np.arange(number)) % len(directions)
        u = directions[turns, np.arange(number)]
        lengths = np.maximum(np.linalg.norm(u, axis=1), 1e-300)
        wanted = (np.einsum("bd,bd->b", u, q) + levels[:, i]) / lengths
        tokens[:, i] = with_component(tokens[:, i], u / lengths[:, None], wanted, keep_norm=normed)
    if normed and not ordered:
        assert isinstance(model, AttentionLayer)
        tokens[::2, -1 - ties : -1] = _nearer(model, tokens[::2, -1 - ties : -1], q[::2])
    return inside(tokens, spec.domain.inside)


def _nearer(model: AttentionLayer, tied: Array, q: Array) -> Array:
    """Tokens (n, ties, d) as they are, or nearer to the last ones q (n, d), where they tie under all heads at once: a
    tie under one shows nothing where scores are so strong that another token has all the weight."""
    off = tied - q[:, None]
    scores = np.abs(np.einsum("hbd,bnd->bhn", model.key_directions(q), off)).max(axis=(1, 2))
    near = q[:, None] + (VERIFY.widest_score / np.maximum(scores, MODELS.hot_score))[:, None, None] * off
    # On the sphere on which a norm leaves them: frozen tokens of a stack are asked as they are normed.
    near *= np.linalg.norm(tied, axis=2, keepdims=True) / np.linalg.norm(near, axis=2, keepdims=True)
    return np.where((scores > MODELS.hot_score)[:, None, None], near, tied)


def _before_weaker(model: Model, tokens: Array) -> Array:
    """Sequences (n, N, d), every second one of strong scores before a query token so short, below the eps of the norm,
    that they are weak: with positions no tokens tie under all heads, and one token has all the weight of the others."""
    if not isinstance(model, AttentionLayer) or model.norm != "rms" or not model.ordered or model.eps == 0:
        return tokens
    spread = np.ptp(model.scores(model.normalised(tokens)), axis=2).max(axis=0)
    share = VERIFY.widest_score / np.maximum(spread, MODELS.hot_score)
    size = np.sqrt((tokens[:, -1] ** 2).mean(axis=1))
    short = np.where(spread > MODELS.hot_score, np.sqrt(model.eps / (1 - share**2)) * share / size, 1.0)
    tokens[::2, -1] *= short[::2, None]
    return tokens


def _directions(model: Model, q: Array, distance: int) -> Array:
    """Key directions at q of tokens `distance` away, where that matters."""
    return model.key_directions(q, distance) if isinstance(model, AttentionLayer) else model.key_directions(q)
