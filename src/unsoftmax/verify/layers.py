"""Equivalence of vector answers: fewer sequences than for scalars, since each answer is `outputs` numbers."""

from __future__ import annotations

import math

import numpy as np

from unsoftmax.learners.core.base import RELATIVE_ERROR, Asking
from unsoftmax.models.attention_layer import AttentionLayer
from unsoftmax.models.base import Model
from unsoftmax.probes.base import Array, Probes
from unsoftmax.probes.sphere import sphere
from unsoftmax.results.recovery import Certificate, Claim
from unsoftmax.spec import OracleSpec
from unsoftmax.verify.values import format_eps, representable, typical_norm

_ONE_TOKEN = 4
_RANDOM = {2: 2, 3: 2, 5: 2, 13: 2, 34: 1, 300: 1}
_NEAR_TIES = 14
_LENGTH = 4
_SLACK = 1000.0
_MOST_CLAIMED = 0.05
"""Weights may be unknown along weak directions; answers that far off would belong to another layer."""


def queries(spec: OracleSpec) -> int:
    """How many fresh queries a verification asks."""
    longer = sum(n for length, n in _RANDOM.items() if length <= spec.domain.length_limit)
    return _ONE_TOKEN + longer + _NEAR_TIES * (spec.domain.length_limit >= _LENGTH)


def check(model: Model, spec: OracleSpec, seed: int, claims: tuple[Claim, ...]) -> Asking[Certificate]:
    """One-token, random and near-tie sequences; `claims` of the learner say how close the answers can be."""
    rng = np.random.default_rng([seed, 0x1A7E5])
    size = _token_norm(model, spec, rng)
    rounds: dict[str, list[Array]] = {
        "one-token answers": [sphere(rng, (_ONE_TOKEN, 1, spec.dim)) * size],
        "random sequences": [
            sphere(rng, (n, length, spec.dim)) * size
            for length, n in _RANDOM.items()
            if length <= spec.domain.length_limit
        ],
        "near ties": [near_ties(model, size, spec, rng)] if spec.domain.length_limit >= _LENGTH else [],
    }
    gaps: dict[str, float] = {}
    noise = spec.eps
    for name, designs in rounds.items():
        for tokens in designs:
            X = representable(tokens)
            y = yield Probes(X, phase="verify")
            noise = max(noise, format_eps(y), spec.tolerance / max(float(np.sqrt(np.mean(y**2))), 1e-300))
            gaps[name] = max(gaps.get(name, 0.0), _gap(model, X, y))
    claimed = max((claim.bound for claim in claims if claim.name == RELATIVE_ERROR), default=0.0)
    bound = min(max(_SLACK * math.sqrt(spec.dim) * noise, min(claimed, _MOST_CLAIMED)), 0.1)
    statement = f"max gap relative to what attention writes, on fresh sequences ({spec.outputs} numbers each)"
    return Certificate(tuple(Claim(name, bound, gap, statement=statement) for name, gap in gaps.items()))


def _gap(model: Model, X: Array, y: Array) -> float:
    """Largest gap relative to the root mean square of the answers without the residual."""
    predicted = model(X)
    kept = X[:, -1] if isinstance(model, AttentionLayer) and model.residual and model.norm != "post" else 0.0
    size = max(float(np.sqrt(np.mean((part - kept) ** 2))) for part in (predicted, y))
    return float(np.abs(predicted - y).max()) / size if size else 0.0


def _token_norm(model: Model, spec: OracleSpec, rng: np.random.Generator) -> float:
    if isinstance(model, AttentionLayer) and model.norm in ("pre", "rms"):
        return min(math.sqrt(spec.dim), 0.9 * spec.domain.norm_limit)
    return typical_norm(model, spec, rng)


def near_ties(model: Model, size: float, spec: OracleSpec, rng: np.random.Generator) -> Array:
    """Sequences (batch, 4, d) in which tokens score within +-1.5 of the last one under a head, heads taking turns."""
    tokens = sphere(rng, (_NEAR_TIES, _LENGTH, spec.dim)) * size
    normed = isinstance(model, AttentionLayer) and model.norm in ("pre", "rms")
    if normed:
        assert isinstance(model, AttentionLayer)
        model = model.canonical()
        tokens = model.normalised(tokens)
    q = tokens[:, -1]
    if len(model.key_directions(q)) == 0:
        return tokens
    ordered = isinstance(model, AttentionLayer) and model.ordered
    for i in range(_LENGTH - 1):
        directions = _directions(model, q, _LENGTH - 1 - i if ordered else 0)
        turns = np.arange(_NEAR_TIES * (_LENGTH - 1)) % len(directions)
        u = directions[turns[i * _NEAR_TIES : (i + 1) * _NEAR_TIES], np.arange(_NEAR_TIES)]
        lengths = np.maximum(np.linalg.norm(u, axis=1), 1e-300)
        wanted = (np.einsum("bd,bd->b", u, q) + rng.uniform(-1.5, 1.5, _NEAR_TIES)) / lengths
        tokens[:, i] = _with_component(tokens[:, i], u / lengths[:, None], wanted, keep_norm=normed)
    limit = 0.99 * spec.domain.norm_limit
    norms = np.linalg.norm(tokens, axis=2, keepdims=True)
    return np.asarray(tokens * np.minimum(1.0, limit / np.maximum(norms, 1e-300)))


def _directions(model: Model, q: Array, distance: int) -> Array:
    """Key directions at q of tokens `distance` away, where that matters."""
    return model.key_directions(q, distance) if isinstance(model, AttentionLayer) else model.key_directions(q)


def _with_component(x: Array, unit: Array, wanted: Array, *, keep_norm: bool) -> Array:
    """x (batch, d) with its component along `unit` replaced; on its sphere if the norm is to be kept."""
    norm = np.linalg.norm(x, axis=1)
    wanted = np.clip(wanted, -0.9 * norm, 0.9 * norm) if keep_norm else np.clip(wanted, -1e4 * norm, 1e4 * norm)
    rest = x - np.einsum("bd,bd->b", x, unit)[:, None] * unit
    if keep_norm:
        rest *= (np.sqrt(norm**2 - wanted**2) / np.linalg.norm(rest, axis=1))[:, None]
    return np.asarray(rest + wanted[:, None] * unit)
