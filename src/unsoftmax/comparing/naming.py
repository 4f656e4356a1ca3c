"""Which number format explains the answers? Every candidate predicts every answer; likelihoods tell them apart."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from unsoftmax.comparing import statistics
from unsoftmax.comparing.arithmetic import computed
from unsoftmax.comparing.constants_explaining import EXPLAINING
from unsoftmax.comparing.designs import Asked
from unsoftmax.comparing.formats import INT8, PLAIN, SHORT, Variant, symmetric, variants
from unsoftmax.comparing.heads import Heads, heads_of
from unsoftmax.comparing.references import Reference
from unsoftmax.comparing.scales import Sample, rounding_only
from unsoftmax.models.base import Array, attention_weights
from unsoftmax.probes.sphere import sphere

Predict = Callable[[Array], Array]

AS_DECLARED = "as declared"
_RATIO = math.log(1e3)
"""Likelihood ratio at which a format is named."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A way to serve the same weights: their format, that of activations, and what it predicts."""

    weights: str
    activations: str
    predict: Predict


def candidates(reference: Reference, names: Iterable[str] | None = None) -> Iterator[Candidate]:
    """Formats of the weights alone in their usual variants; for `names`, every variant, and activations as well."""
    if reference.rebuilt is None:
        return
    for variant in variants(reference.weights, names):
        with np.errstate(over="ignore"):
            rounded = variant.weights(reference.weights)
        if not all(np.isfinite(a).all() for a in rounded.values()):
            continue  # The format ends below these weights.
        yield Candidate(variant.name, AS_DECLARED, reference.rebuilt(rounded))
        if names is not None and variant.vectors == (variant.name in PLAIN) and reference.heads is not None:
            yield from _with_activations(reference, variant, rounded)
    if names is not None and reference.heads is not None:
        for name in ("bfloat16", "float16"):
            yield from _in(reference.heads, "", name)


def likely(reference: Reference, samples: list[Sample]) -> list[Candidate]:
    """All candidates of the few formats that come nearest as weights alone."""
    usual = list(candidates(reference))
    best: dict[str, float] = {}
    for candidate in usual:
        misfit = float(_misfit(candidate.predict, samples).mean())
        best[candidate.weights] = min(misfit, best.get(candidate.weights, math.inf))
    nearest = sorted(best, key=lambda name: best[name])[: EXPLAINING.nearest_formats]
    rest = [candidate for candidate in usual if candidate.weights not in nearest]
    return [*rest, *candidates(reference, nearest)] if usual else []


def _with_activations(reference: Reference, variant: Variant, rounded: dict[str, Array]) -> Iterator[Candidate]:
    assert reference.model is not None
    heads = heads_of(reference.model.from_parameters(reference.model.parameters() | rounded))
    if heads is None:
        return
    if variant.name in ("bfloat16", "float16"):
        yield from _in(heads, variant.name, variant.name)
    elif variant.name in INT8:
        yield Candidate(f"{variant.name}, dynamic", "int8", dynamic(heads))
        yield from _in(heads, variant.name, "bfloat16")
    elif variant.name in SHORT:
        yield from _in(heads, variant.name, "bfloat16")


def _in(heads: Heads, weights: str, arithmetic: str) -> Iterator[Candidate]:
    """Every intermediate rounded, in both usual orders of operations: the right one predicts the rounding itself."""
    for order in (0, 1):
        yield Candidate(weights, arithmetic, lambda X, order=order: computed(heads, X, arithmetic, order))  # type: ignore[misc]


def dynamic(heads: Heads) -> Predict:
    """Inputs of every weight product as int8 of their own scale, token by token."""

    def predict(X: Array) -> Array:
        seen = symmetric(X, 127, -1)
        q = seen[:, -1]
        total = np.zeros((len(X), len(heads.constant)))
        for h in range(heads.count):
            if heads.stored is not None:
                s = np.einsum("bnd,bd->bn", X, q @ heads.stored[h].T + heads.c[h])
            else:
                assert heads.K is not None
                assert heads.Q is not None
                s = np.einsum("bnr,br->bn", seen @ heads.K[h].T, q @ heads.Q[h].T) + X @ heads.c[h]
            mixed = np.einsum("bn,bns->bs", attention_weights(s, None), seen @ heads.V[h].T)
            total += (mixed if heads.scalar else symmetric(mixed, 127, -1)) @ heads.O[h].T
        y = total + heads.constant + (X[:, -1] if heads.residual else 0)
        return np.asarray(y[:, 0] if heads.scalar else y)

    return predict


def format_probes(reference: Reference, asked: Asked, n: int, norm: float, rng: np.random.Generator) -> Array:
    """Near ties of four tokens on the grid of bfloat16, where casts of tokens are exact; one in four of one token."""
    X = sphere(rng, (n, min(4, asked.longest), asked.spec.dim)) * norm
    heads = reference.heads
    if heads is not None and X.shape[1] > 1:
        u = heads.key_directions(X[:, -1])[rng.integers(heads.count, size=n), np.arange(n)]
        want = np.einsum("bd,bd->b", u, X[:, -1])[:, None] + rng.uniform(-1, 1, (n, X.shape[1] - 1))
        excess = want - np.einsum("bnd,bd->bn", X[:, :-1], u)
        X[:, :-1] += (excess / np.maximum((u**2).sum(axis=1), 1e-300)[:, None])[:, :, None] * u[:, None]
    X[::4] = X[::4, -1:]
    return Asked(asked.spec, "bfloat16").on_grid(X)


@dataclass(frozen=True, eq=False)
class Named:
    """The best candidate, the logarithm of its likelihood ratio to the best of another name, and the part of the
    squared difference that it leaves.

    `exact`: its residual is what rounding leaves; `nearly`: that, or at most a thousandth of the difference.
    """

    best: Candidate
    ratio: float
    left: float
    exact: bool
    nearly: bool

    @property
    def explained(self) -> float:
        return 1 - self.left

    @property
    def sure(self) -> bool:
        return self.ratio > _RATIO

    @property
    def worth_more(self) -> bool:
        return self.explained > EXPLAINING.worth_asking


def name_format(every: list[Candidate], truth: Predict, samples: list[Sample]) -> Named | None:
    """Compare all candidates on answers that were given."""
    base = _misfit(truth, samples)
    if not every or float(base.sum()) == 0:
        return None
    count = sum(len(y) * (1 if y.ndim == 1 else min(y.shape[1], EXPLAINING.independent_numbers)) for _, y, _ in samples)
    misfits = [_misfit(candidate.predict, samples) for candidate in every]
    level = np.array([-0.5 * count * math.log(max(float(m.mean()), 1.0)) for m in misfits])
    first = _first(every, level)
    others = [level[i] for i, c in enumerate(every) if c.weights != every[first].weights]
    # That the weights are the reference's is a hypothesis like the others.
    others.append(-0.5 * count * math.log(max(float(base.mean()), 1.0)))
    left = float(misfits[first].mean()) / float(base.mean())
    exact = rounding_only(misfits[first])
    return Named(
        every[first], float(level[first] - max(others)), left, exact, exact or left < EXPLAINING.exact_prediction**2
    )


def _first(every: list[Candidate], level: Array) -> int:
    """The best candidate; that activations are rounded as well must be as sure as a format."""
    best = int(np.argmax(level))
    plain = [i for i, c in enumerate(every) if c.weights == every[best].weights and c.activations == AS_DECLARED]
    simpler = max(plain, key=lambda i: float(level[i]), default=best)
    return best if level[best] - level[simpler] > _RATIO else simpler


def _misfit(predict: Predict, samples: list[Sample]) -> Array:
    """Mean squares of standardised residuals, one per sequence.

    Vector answers are compared up to a constant: biases that stand before a rounded projection are folded into it.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        r = np.concatenate([y - predict(X) for X, y, _ in samples])
        sd = np.maximum(np.concatenate([sd for _, _, sd in samples]), 1e-300)
        if r.ndim == 2:
            w = sd**-2
            r = r - (w * r).sum(axis=0) / w.sum(axis=0)
        found = statistics.energy(r / sd)
    return np.where(np.isfinite(found), found, 1e300)


def comes_with_slope_one(candidate: Candidate, truth: Predict, sample: Sample) -> bool:
    """On fresh questions the predicted difference must be in the answers once, and clearly so."""
    X, y, sd = sample
    expected, given = candidate.predict(X) - truth(X), y - truth(X)
    if y.ndim == 2:
        expected, given = expected - expected.mean(axis=0), given - given.mean(axis=0)
    sd = np.maximum(sd, 1e-150)
    predicted, seen = (expected / sd).reshape(len(X), -1), (given / sd).reshape(len(X), -1)
    size = float((predicted**2).sum())
    if size == 0:
        return False
    slope = float((predicted * seen).sum()) / size
    # Errors of one sequence's outputs go together: sequences are what is independent.
    per_sequence = (predicted * (seen - slope * predicted)).sum(axis=1)
    error = math.sqrt(float((per_sequence**2).sum())) / size
    return (
        abs(slope - 1) <= EXPLAINING.slope_one * error + EXPLAINING.exact_prediction
        and slope > EXPLAINING.slope_seen * error
    )
