"""Equivalence of stacks: held-out frozen contexts in which scores nearly tie, and ordinary sequences.

The misfit of the answers that a model was made from certifies nothing: heads exchanged between two steps once fitted
theirs to rounding. Fresh contexts show every head of every layer in the first order, ordinary sequences all the rest.

Theory: docs/theory/verification.md, "Vector answers", stacks.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from unsoftmax.inversion import rounding_unit
from unsoftmax.learners.core.base import Allowance, Asking
from unsoftmax.learners.stack.far import EXTRAPOLATED, Far
from unsoftmax.learners.stack.frame import Final, Frame
from unsoftmax.models.attention_stack import AttentionStack
from unsoftmax.models.base import attention_weights
from unsoftmax.probes.base import Array, Probes
from unsoftmax.probes.sphere import sphere
from unsoftmax.results.recovery import Claim
from unsoftmax.spec import OracleSpec
from unsoftmax.verify.gaps import representable
from unsoftmax.verify.layers import NEAR_TIES, SLACK
from unsoftmax.verify.plan import Checked, Count, Plan
from unsoftmax.verify.ties import faint

ORDINARY = {1: 2, 2: 2, 3: 2, 5: 2, 9: 3, 11: 3, 34: 1, 300: 1}
"""Ordinary sequences by length: one each of lengths at which windows or caches of a served model would show."""

LONG = (33, 299)
"""Frozen tokens of two more contexts, for the same reason, where ordinary sequences cannot be foretold."""

_TOKENS = 5
"""Frozen tokens of a context: four that tie, and one of small weight."""

_KINKS = 3
"""Contexts that may be drawn again where networks are unknown: near a kink of a ReLU the extrapolation is off, for one
of a hundred; a head that is wrong shows in most, and in those drawn again."""

_MOST_CLAIMED = 1e-3
"""Largest stated error that widens the bound: answers further off belong to another stack."""


def count(spec: OracleSpec, heads: Count) -> Count:
    """Frozen contexts, and ordinary sequences where the stack can be called; else, behind networks that are unknown,
    contexts at every length, with and without the frozen tokens."""
    limit = spec.domain.length_limit
    called, behind = (
        NEAR_TIES + sum(n for length, n in ORDINARY.items() if length <= limit),
        2 * len(EXTRAPOLATED[spec.dtype]),
    )
    contexts = NEAR_TIES + sum(tokens < limit for tokens in LONG)
    return min(called, behind * contexts), max(called, behind * (contexts + _KINKS))


def check(model: AttentionStack, spec: OracleSpec, seed: int, allows: Allowance) -> Asking[Checked]:
    """Frozen contexts always; ordinary sequences where the model can be called."""
    rng = np.random.default_rng([seed, 0x57ACC])
    claimed = min(allows.relative_error, _MOST_CLAIMED)
    found = []
    if model.norm is not None and (not model.final_norm or model.networks == "unknown"):
        found.append((yield from _frozen(model, spec, claimed, rng)))
    if model.networks != "unknown":
        found.append((yield from _ordinary(model, spec, claimed, rng)))
    return Checked(tuple(found))


PLAN = Plan(count, check)


def _frozen(model: AttentionStack, spec: OracleSpec, claimed: float, rng: np.random.Generator) -> Asking[Claim]:
    """What contexts add to a long last token, against the sum of all heads; behind networks by differences."""
    d = spec.dim
    T = np.linalg.qr(np.column_stack([np.ones(d), np.eye(d)[:, 1:]]))[0][:, 1:] if model.norm == "layer" else np.eye(d)
    final = None
    if model.final_norm:
        beta = np.zeros(d) if model.beta is None else model.beta
        final = Final(np.ones(d) if model.gamma is None else model.gamma, beta)
    far = Far(Frame(model.norm or "rms", T, spec.dtype, final=final), EXTRAPOLATED[spec.dtype], places=True)
    gap, size, noise = yield from _gaps(model, far, spec, NEAR_TIES, rng)
    tokens = [_TOKENS] * NEAR_TIES
    if model.networks == "unknown":
        tokens += [n for n in LONG if n < spec.domain.length_limit]
        for n in tokens[NEAR_TIES:]:
            gap = np.append(gap, (yield from _gaps(model, far, spec, 1, rng, n))[0])
    bound = min(max(SLACK * noise / size, claimed), 0.1)
    bent = gap > bound
    if model.networks == "unknown" and 0 < bent.sum() <= _KINKS:
        for i in np.flatnonzero(bent):
            gap[i] = (yield from _gaps(model, far, spec, 1, rng, tokens[i]))[0][0]
    statement = "max gap relative to what the heads write, in frozen contexts whose scores nearly tie"
    if bent.any():
        statement += f"; {bent.sum()} contexts were drawn again, as near a kink of a network"
    return Claim("frozen contexts", bound, float(gap.max()), statement=statement)


def _gaps(
    model: AttentionStack, far: Far, spec: OracleSpec, n: int, rng: np.random.Generator, tokens: int = _TOKENS
) -> Asking[tuple[Array, float, float]]:
    """Gaps (n,) of fresh contexts over the typical size of what is written, that size, and its rounding."""
    q, others = _near_ties(model, far.frame, n, rng, tokens)
    counts = np.ones(others.shape[:2], np.int64)
    if model.networks == "unknown":
        y = yield from far.written(q, others, counts, "verify")
        predicted, noise = _wide(model, far.frame, q, others), far.noise
    else:
        length = 2.0
        y = yield from far.ask(q, others, counts, length, "verify")
        as_tokens = far.frame.tokens
        long = np.concatenate([far.frame.frozen * as_tokens(others), length * as_tokens(q)[:, None]], axis=1)
        predicted = model(long) - long[:, -1]
        noise = length * max(spec.eps, rounding_unit(y))
    size = float(np.sqrt(np.mean(y**2))) or 1.0
    return np.abs(y - predicted).max(axis=1) / size, size, noise


def _wide(model: AttentionStack, frame: Frame, q: Array, others: Array) -> Array:
    """Sum of all heads at frozen tokens, less what they answer to the last one alone."""
    X = frame.tokens(np.concatenate([others, q[:, None]], axis=1))
    u = model.key_directions(X[:, -1])
    weights = attention_weights(np.einsum("bnd,hbd->bhn", X, u), None)
    P = np.concatenate([layer.P for layer in model.layers])
    mixed = np.einsum("bhn,bnd->bhd", weights, X) - X[:, None, -1]
    out = np.einsum("hed,bhd->be", P, mixed)
    if frame.final is None:
        return out
    # A final norm leaves what is across the last token.
    out = out @ frame.T
    return np.asarray(out - q * (q * out).sum(axis=1, keepdims=True) / frame.d)


def _near_ties(
    model: AttentionStack, frame: Frame, n: int, rng: np.random.Generator, tokens: int
) -> tuple[Array, Array]:
    """q (m, D) and others (m, tokens, D) on the sphere, each scoring within +-1.5 of q under a head of its own.

    The first of them scores far below q.
    """
    levels = rng.uniform(-1.5, 1.5, (n, tokens))
    levels[:, :1] = faint((n, 1), rng)
    q = frame.radius * sphere(rng, (n, frame.D))
    others = frame.radius * sphere(rng, (n, tokens, frame.D))
    u = model.key_directions(frame.tokens(q)) @ frame.T
    turns = rng.permutation(n * tokens).reshape(n, tokens) % len(u)
    for i in range(tokens):
        own = u[turns[:, i], np.arange(n)]
        length = np.maximum(np.linalg.norm(own, axis=1), 1e-300)
        unit = own / length[:, None]
        wanted = (np.einsum("bd,bd->b", own, q) + levels[:, i]) / length
        wanted = np.clip(wanted, -0.9 * frame.radius, 0.9 * frame.radius)
        rest = others[:, i] - np.einsum("bd,bd->b", others[:, i], unit)[:, None] * unit
        rest *= (np.sqrt(frame.radius**2 - wanted**2) / np.linalg.norm(rest, axis=1))[:, None]
        others[:, i] = rest + wanted[:, None] * unit
    return q, others


def _readable(model: AttentionStack) -> float:
    """Length of tokens at which no score of a stack without norms is beyond a few: elsewhere strong heads saturate and
    show nothing."""
    strongest = max(float(np.linalg.norm(W)) for layer in model.layers for W in layer.W)
    return float(np.sqrt(1.5 / max(strongest, 1.5e-6)))


def _ordinary(model: AttentionStack, spec: OracleSpec, claimed: float, rng: np.random.Generator) -> Asking[Claim]:
    worst, noise = 0.0, spec.eps
    # Without norms nothing is frozen, and the same sequences are asked at two lengths of their tokens instead.
    sizes = (1.0, _readable(model)) if model.norm is None else (1.0,)
    for scale, (length, n) in product(sizes, ORDINARY.items()):
        if length > spec.domain.length_limit:
            continue
        X = representable(scale * rng.standard_normal((n, length, spec.dim)))
        y = yield Probes(X, phase="verify")
        kept = 0.0 if model.final_norm else X[:, -1]
        size = max(float(np.sqrt(np.mean((y - kept) ** 2))), 1e-300)
        noise = max(noise, rounding_unit(y))
        worst = max(worst, float(np.abs(model(X) - y).max()) / size)
    bound = min(max(SLACK * noise, claimed), 0.1)
    statement = "max gap relative to what the layers add, on ordinary sequences"
    return Claim("ordinary sequences", bound, worst, statement=statement)
