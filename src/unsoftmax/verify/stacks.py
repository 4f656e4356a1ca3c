"""Equivalence of stacks: held-out frozen contexts in which scores nearly tie, and ordinary sequences.

The misfit of the answers that a model was made from certifies nothing: heads exchanged between two steps once fitted
theirs to rounding. Fresh contexts show every head of every layer in the first order, and with weights as small as
normalised tokens allow; ordinary sequences show all the rest.

Theory: docs/theory/verification.md, "Vector answers", stacks.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from unsoftmax.inversion import rounding_unit
from unsoftmax.learners.core.base import Allowance, Asking
from unsoftmax.learners.core.settling import settle
from unsoftmax.learners.stack.far import EXTRAPOLATED, Far
from unsoftmax.learners.stack.frame import Final, Frame
from unsoftmax.models.attention_layer import AttentionLayer
from unsoftmax.models.attention_stack import AttentionStack
from unsoftmax.models.base import attention_weights
from unsoftmax.probes.base import Array, Probes
from unsoftmax.probes.sphere import sphere
from unsoftmax.results.recovery import Claim
from unsoftmax.spec import OracleSpec
from unsoftmax.verify.constants import VERIFY
from unsoftmax.verify.constants_models import MODELS
from unsoftmax.verify.gaps import representable, size_of
from unsoftmax.verify.layers import near_ties
from unsoftmax.verify.plan import Checked, Count, Plan
from unsoftmax.verify.sent import settled_norms
from unsoftmax.verify.small_weights import small_weights

ORDINARY = {1: 2, 2: 2, 3: 2, 5: 2, 9: 3, 11: 3, 34: 1, 300: 1}
"""Ordinary sequences by length: one each of lengths at which windows or caches of a served model would show."""

_KINKS = {"frozen contexts": 3, "small weights": 2}
"""Contexts that may be asked again where networks are unknown, about a fifth: near a kink of a ReLU the extrapolation
is off, for one of a hundred; a head that is wrong shows in most, and in those asked again."""


def count(spec: OracleSpec, heads: Count) -> Count:
    """Frozen contexts, and ordinary sequences where the stack can be called; else, behind networks that are unknown,
    contexts at every length, with and without the frozen tokens."""
    limit = spec.domain.length_limit
    lengths = len(EXTRAPOLATED[spec.dtype])
    ordinary = sum(n for length, n in ORDINARY.items() if length <= limit)
    contexts = MODELS.layer_ties + MODELS.small_weight_sequences
    frozen, plain = contexts + ordinary, MODELS.small_weight_sequences + 2 * ordinary
    behind = 2 * lengths * (contexts + sum(tokens < limit for tokens in MODELS.long_contexts))
    return min(frozen, plain, behind), max(frozen, plain, behind + 2 * lengths * sum(_KINKS.values()))


def check(model: AttentionStack, spec: OracleSpec, seed: int, allows: Allowance) -> Asking[Checked]:
    """Frozen contexts always; ordinary sequences where the model can be called."""
    rng = np.random.default_rng([seed, 0x57ACC])
    claimed = min(allows.relative_error, MODELS.stack_claimed)
    found: list[Claim] = []
    if model.norm is not None:
        found += yield from _frozen(model, spec, claimed, rng)
    if model.networks != "unknown":
        found += yield from _ordinary(model, spec, claimed, rng)
    return Checked(tuple(found))


PLAN = Plan(count, check)


def _frozen(model: AttentionStack, spec: OracleSpec, claimed: float, rng: np.random.Generator) -> Asking[list[Claim]]:
    """What contexts add to a long last token, against the sum of all heads; behind networks by differences."""
    d = spec.dim
    T = np.linalg.qr(np.column_stack([np.ones(d), np.eye(d)[:, 1:]]))[0][:, 1:] if model.norm == "layer" else np.eye(d)
    final = None
    if model.final_norm:
        beta = np.zeros(d) if model.beta is None else model.beta
        final = Final(np.ones(d) if model.gamma is None else model.gamma, beta)
    far = Far(Frame(model.norm or "rms", T, spec.dtype, final=final), EXTRAPOLATED[spec.dtype], rng, places=True)
    long = [n for n in MODELS.long_contexts if n < spec.domain.length_limit and model.networks == "unknown"]
    layer, radius = _as_layer(model), far.frame.radius
    # More ties in a context than for layers: heads of all layers share them.
    shapes = [(MODELS.layer_ties, VERIFY.tie_length), *((1, n - 1) for n in long)]
    ties = [near_ties(layer, radius, spec, rng, shape) @ T for shape in shapes]
    deep = [small_weights(layer, radius, spec, rng, claimed) @ T]
    found = []
    for name, drawn, what in (
        ("frozen contexts", ties, "whose scores nearly tie"),
        ("small weights", deep, "with weights as small as normalised tokens allow"),
    ):
        contexts = yield from settle(name, *drawn)
        gap, bound, again = yield from _contexts(model, far, spec, name, contexts, claimed, rng)
        statement = f"max gap relative to what the heads write, in frozen contexts {what}"
        if again:
            statement += f"; {again} contexts were asked again, as near a kink of a network"
        found.append(Claim(name, bound, gap, statement=statement))
    return found


def _contexts(
    model: AttentionStack,
    far: Far,
    spec: OracleSpec,
    name: str,
    contexts: list[Array],
    claimed: float,
    rng: np.random.Generator,
) -> Asking[tuple[float, float, int]]:
    """Largest gap over the typical size of what is written, what it may be, and how many contexts were asked again.

    Contexts are (m, tokens, D) on the sphere, the last one q.
    """
    gaps, sizes, allowed = [], [], []
    for X in contexts:
        gap, size, noise = yield from _gaps(model, far, spec, X[:, -1], X[:, :-1])
        gaps.append(gap)
        sizes.append(size)
        allowed.append(noise)
    size = sizes[0] or 1.0
    bound = min(max(max(allowed) / size, claimed), VERIFY.one_digit)
    bent = [gap / size > bound for gap in gaps]
    again = int(sum(map(np.sum, bent)))
    if model.networks != "unknown" or again > _KINKS[name]:
        again = 0
    for i, X in enumerate(contexts if again else []):
        if bent[i].any():
            q, others = X[bent[i], -1], X[bent[i], :-1]
            turned = q + MODELS.turned * far.frame.radius * sphere(rng, q.shape)
            turned *= far.frame.radius / np.linalg.norm(turned, axis=1, keepdims=True)
            gaps[i][bent[i]] = (yield from _gaps(model, far, spec, turned, others))[0]
    return max(float(gap.max()) for gap in gaps) / size, bound, again


def _gaps(
    model: AttentionStack, far: Far, spec: OracleSpec, q: Array, others: Array
) -> Asking[tuple[Array, float, float]]:
    """Gaps (m,) of contexts, the typical size of what is written, and what rounding leaves of a gap."""
    counts = np.ones(others.shape[:2], np.int64)
    if model.networks == "unknown":
        y = yield from far.written(q, others, counts, "verify")
        predicted, noise = _wide(model, far.frame, q, others), MODELS.stack_roundings * far.noise
    else:
        length = 2.0
        y = yield from far.ask(q, others, counts, length, "verify")
        as_tokens = far.frame.tokens
        long = np.concatenate([far.frame.frozen * as_tokens(others), length * as_tokens(q)[:, None]], axis=1)
        predicted = far.frame.added(model(long), q, long[:, -1], np.full(len(q), length))
        noise = MODELS.layer_roundings * length * max(spec.eps, rounding_unit(y))
    return np.abs(y - predicted).max(axis=1), size_of(y), noise


def _as_layer(model: AttentionStack) -> AttentionLayer:
    """All heads of all layers side by side, as they are where tokens are long."""
    layers = model.canonical().layers
    r, s = max(layer.K.shape[1] for layer in layers), max(layer.V.shape[1] for layer in layers)

    def side_by_side(name: str, axis: int, rank: int) -> Array:
        parts = [getattr(layer, name) for layer in layers]
        pad = [[(0, rank - part.shape[axis]) if i == axis else (0, 0) for i in range(3)] for part in parts]
        return np.concatenate([np.pad(part, width) for part, width in zip(parts, pad, strict=True)])

    return AttentionLayer(
        side_by_side("K", 1, r),
        side_by_side("Q", 1, r),
        np.concatenate([layer.c for layer in layers]),
        side_by_side("O", 2, s),
        side_by_side("V", 1, s),
        np.zeros(model.dim, model.dtype),
        norm="pre" if model.norm == "layer" else model.norm,
    )


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


def _readable(model: AttentionStack) -> float:
    """Length of tokens at which no score of a stack without norms is beyond a few: elsewhere strong heads saturate and
    show nothing."""
    strongest = max(float(np.linalg.norm(W)) for layer in model.layers for W in layer.W)
    return float(np.sqrt(1.5 / max(strongest, 1.5e-6)))


def _ordinary(model: AttentionStack, spec: OracleSpec, claimed: float, rng: np.random.Generator) -> Asking[list[Claim]]:
    """Sequences as users send them; without norms at two lengths of their tokens, and such with small weights."""
    found = {"ordinary sequences": 0.0}
    noise = spec.eps
    # Without norms nothing is frozen, and the same sequences are asked at two lengths of their tokens instead.
    (sizes,) = yield from settled_norms([1.0, _readable(model)] if model.norm is None else [1.0])
    asked = [
        ("ordinary sequences", scale * rng.standard_normal((n, length, spec.dim)))
        for scale, (length, n) in product(sizes, ORDINARY.items())
        if length <= spec.domain.length_limit
    ]
    if model.norm is None:
        asked.append(("small weights", small_weights(model.layers[0], 1.0, spec, rng)))
    for name, tokens in asked:
        X = representable(tokens)
        if name == "small weights":
            (X,) = yield from settle(name, X)
        y = yield Probes(X, phase="verify")
        kept = 0.0 if model.final_norm else X[:, -1]
        size = max(size_of(y - kept), 1e-300)
        noise = max(noise, rounding_unit(y))
        found[name] = max(found.get(name, 0.0), float(np.abs(model(X) - y).max()) / size)
    bound = min(max(MODELS.layer_roundings * noise, claimed), VERIFY.one_digit)
    statement = "max gap relative to what the layers add, on {}"
    return [Claim(name, bound, gap, statement=statement.format(name)) for name, gap in found.items()]
