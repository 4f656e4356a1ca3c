"""Equivalence of vector answers: fewer sequences than for scalars, since each answer is `outputs` numbers.

Theory: docs/theory/verification.md, "Vector answers".
"""

from __future__ import annotations

import math

import numpy as np

from unsoftmax.inversion import rounding_unit
from unsoftmax.learners.core.base import Allowance, Asking
from unsoftmax.models.attention_layer import AttentionLayer
from unsoftmax.models.base import Model
from unsoftmax.probes.base import Array, Probes
from unsoftmax.probes.sphere import sphere
from unsoftmax.results.recovery import Claim
from unsoftmax.spec import OracleSpec
from unsoftmax.verify.gaps import representable
from unsoftmax.verify.plan import Checked, Plan, Statement, exactly
from unsoftmax.verify.sent import natural_norm
from unsoftmax.verify.small_weights import SEQUENCES, small_weights
from unsoftmax.verify.stated import LARGEST, errors_of, moves, statements
from unsoftmax.verify.ties import below_all, faint, typical_norm, with_component

_ONE_TOKEN = 4
"""Fresh single tokens: each answer has as many numbers as the layer has outputs, so that few suffice."""

_RANDOM = {2: 2, 3: 2, 5: 2, 13: 2, 34: 1, 300: 1}
"""Random sequences of each length: two of the short ones, and one of lengths at which windows or caches of a served
model would show."""

NEAR_TIES = 14
"""Fresh sequences with near ties, heads taking turns: 14 sequences of three tokens beside the last are 42 turns."""

LENGTH = 4
"""Tokens of a sequence with near ties: the last, and three that tie with it; one of small weight goes before them where
the domain allows it."""

SLACK = 1000.0
"""Units of the answers' rounding, times the root of the dimension, that a gap may reach: a layer's answer rounds in
projections, norms and weights alike."""

REACH = 10.0
"""Largest gap of an answer's many numbers over the root mean square that the stated error of every parameter leaves."""

MOST_CLAIMED = 0.05
"""Weights may be unknown along weak directions; answers that far off would belong to another layer."""

_MOST = 0.1
"""Gap, relative to what attention writes, that no noise and no stated error excuses."""


def queries(spec: OracleSpec) -> int:
    """How many fresh queries a verification asks."""
    longer = sum(n for length, n in _RANDOM.items() if length <= spec.domain.length_limit)
    return _ONE_TOKEN + longer + (NEAR_TIES + SEQUENCES) * (spec.domain.length_limit >= LENGTH)


def check(model: Model, spec: OracleSpec, seed: int, allows: Allowance) -> Asking[Checked]:
    """One-token, random and near-tie sequences; what the learner states says how close the answers can be."""
    rng = np.random.default_rng([seed, 0x1A7E5])
    sizes = token_norms(model, spec, rng)
    rounds = _designs(model, spec, sizes, rng)
    found: list[Claim] = []
    stated = Statement()
    for name, designs in rounds.items():
        noise, gap, reach = spec.eps, 0.0, 0.0
        for tokens in designs:
            X = representable(tokens)
            y = yield Probes(X, phase="verify")
            size = _size(model, X, y)
            noise = max(noise, rounding_unit(y), spec.tolerance / max(float(np.sqrt(np.mean(y**2))), 1e-300))
            gap = max(gap, float(np.abs(model(X) - y).max()) / size if size else 0.0)
            # Only near ties state errors; elsewhere what an error as large as a parameter does not move, none moves.
            largest = 1.0 if name != "near ties" else LARGEST
            moved = moves(model, lambda other, X=X: other(X), rng, largest)  # type: ignore[misc]
            reach = max(reach, math.sqrt(float(sum(moved.values(), np.zeros(len(X))).max())) / size if size else 0.0)
            if name == "near ties":
                stated = statements(
                    model, errors_of(moved, model(X) - y, y), f"{len(X)} fresh sequences with near ties"
                )
        # Strong scores show errors of W several times larger, which says nothing about rules for small weights.
        most = _MOST if name == "small weights" else MOST_CLAIMED
        bound = max(SLACK * math.sqrt(spec.dim) * noise, min(REACH * reach * allows.relative_error, most))
        found.append(Claim(name, min(bound, _MOST), gap, statement=_statement(name, sizes, spec)))
    return Checked(tuple(found), stated)


PLAN = Plan(exactly(queries), check)


def _designs(
    model: Model, spec: OracleSpec, sizes: tuple[float, float], rng: np.random.Generator
) -> dict[str, list[Array]]:
    """Tokens of every round by the name of its claim; random sequences are asked at both norms in turn."""
    lengths = [n for n in _RANDOM if n <= spec.domain.length_limit]
    norms = np.resize(np.array(sizes), sum(_RANDOM[n] for n in lengths))
    starts = np.cumsum([0, *(_RANDOM[n] for n in lengths)])
    return {
        "one-token answers": [sphere(rng, (_ONE_TOKEN, 1, spec.dim)) * sizes[0]],
        "random sequences": [
            sphere(rng, (_RANDOM[n], n, spec.dim)) * norms[start : start + _RANDOM[n], None, None]
            for n, start in zip(lengths, starts, strict=False)
        ],
        "near ties": [near_ties(model, sizes[0], spec, rng)] if spec.domain.length_limit >= LENGTH else [],
        "small weights": [_faintest(model, sizes[0], spec, rng)] if spec.domain.length_limit >= LENGTH else [],
    }


def _faintest(model: Model, size: float, spec: OracleSpec, rng: np.random.Generator) -> Array:
    """Sequences of small weights, down to where they drown in the format that was declared."""
    if not isinstance(model, AttentionLayer) or not model.heads:
        return sphere(rng, (SEQUENCES, LENGTH, spec.dim)) * size
    return small_weights(model, size, spec, rng, SLACK * math.sqrt(spec.dim) * spec.eps)


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
    return max(float(np.sqrt(np.mean((part - kept) ** 2))) for part in (model(X), y))


def near_ties(model: Model, size: float, spec: OracleSpec, rng: np.random.Generator) -> Array:
    """Sequences (batch, 5, d) in which tokens score within +-1.5 of the last one under a head, heads taking turns.

    The first token scores far below under all heads, so that it disturbs no tie; it is left out if the domain allows
    only four.
    """
    levels = rng.uniform(-1.5, 1.5, (NEAR_TIES, LENGTH - 1))
    if spec.domain.length_limit > LENGTH:
        levels = np.hstack([faint((NEAR_TIES, 1), rng), levels])
    others = levels.shape[1]
    tokens = sphere(rng, (NEAR_TIES, others + 1, spec.dim)) * size
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
        if i < others - (LENGTH - 1):
            tokens[:, i] = below_all(tokens[:, i], directions, q, levels[:, i], keep_norm=normed)
            continue
        turns = np.arange(NEAR_TIES * others) % len(directions)
        u = directions[turns[i * NEAR_TIES : (i + 1) * NEAR_TIES], np.arange(NEAR_TIES)]
        lengths = np.maximum(np.linalg.norm(u, axis=1), 1e-300)
        wanted = (np.einsum("bd,bd->b", u, q) + levels[:, i]) / lengths
        tokens[:, i] = with_component(tokens[:, i], u / lengths[:, None], wanted, keep_norm=normed)
    limit = 0.99 * spec.domain.norm_limit
    norms = np.linalg.norm(tokens, axis=2, keepdims=True)
    return np.asarray(tokens * np.minimum(1.0, limit / np.maximum(norms, 1e-300)))


def _directions(model: Model, q: Array, distance: int) -> Array:
    """Key directions at q of tokens `distance` away, where that matters."""
    return model.key_directions(q, distance) if isinstance(model, AttentionLayer) else model.key_directions(q)
