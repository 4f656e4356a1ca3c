"""Networks of one vector: fresh vectors, vectors beside the kinks of the recovered neurons, and whether the answer
depends on one token alone.

Theory: docs/theory/verification.md, "Behind a network", networks.
"""

from __future__ import annotations

import math

import numpy as np

from unsoftmax.learners.core.base import Allowance, Asking
from unsoftmax.models.relu_network import ReluNetwork
from unsoftmax.probes.base import Array, Probes
from unsoftmax.probes.scales import held
from unsoftmax.results.recovery import Claim
from unsoftmax.spec import OracleSpec
from unsoftmax.verify.constants import VERIFY
from unsoftmax.verify.constants_models import MODELS
from unsoftmax.verify.plan import Checked, Plan, exactly
from unsoftmax.verify.sent import made, settled_norms

_FACTORS = 2.0 ** np.array([0, 6, 12, 20])
"""Sizes of fresh vectors for networks without biases: what starts far out, a bias or a ceiling, shows there."""


def queries(spec: OracleSpec) -> int:
    """How many fresh queries a verification asks."""
    return 2 * MODELS.network_vectors + MODELS.network_pairs * (spec.domain.length_limit >= 2)


def check(model: ReluNetwork, spec: OracleSpec, seed: int, allows: Allowance) -> Asking[Checked]:
    """Ask fresh one-token queries, and pairs if the domain has them; the learner's stated residual is the bound."""
    rng = np.random.default_rng([seed, 0x7E51F7])
    ((radius,),) = yield from settled_norms([_radius(model, spec)])
    x = rng.standard_normal((MODELS.network_vectors, spec.dim))
    x = held(x / np.linalg.norm(x, axis=1, keepdims=True) * radius)
    factor = np.append(_sizes(model, radius, spec), np.ones(MODELS.network_vectors))
    beside = yield from made("beside kinks", near_kinks(model, radius, rng))
    asked = np.concatenate([x, beside]) * factor[:, None]
    y = (yield Probes(asked[:, None, :], phase="verify")) / factor
    predicted = model.of(np.concatenate([x, beside]))
    # Few vectors may all lie where the network is off: its size is that of many of its own answers.
    many = model.of(rng.standard_normal((512, spec.dim)) * (radius / math.sqrt(spec.dim)))
    size = max(float(np.sqrt(np.mean(y**2))), float(np.sqrt(np.mean(many**2))), 1e-300)
    gaps = np.abs(predicted - y) / size
    bound = min(
        max(allows.network_error, VERIFY.roundings * math.sqrt(spec.dim) * spec.eps, spec.tolerance / size),
        VERIFY.one_digit,
    )
    found = [
        Claim(
            "fresh vectors",
            bound,
            float(gaps[: MODELS.network_vectors].max()),
            statement=f"max relative gap on {MODELS.network_vectors} vectors",
        ),
        Claim(
            "beside kinks",
            bound,
            float(gaps[MODELS.network_vectors :].max()),
            statement=f"max relative gap on {MODELS.network_vectors} vectors beside the hyperplane of a neuron",
        ),
    ]
    if spec.domain.length_limit >= 2:
        pairs = held(rng.standard_normal((MODELS.network_pairs, 2, spec.dim)) * (radius / math.sqrt(spec.dim) / 2))
        y = yield Probes(pairs, phase="verify")
        # A function of one vector may sit on the last token or, wrapped by its owner, on the first.
        gap = min(float(np.abs(model.of(pairs[:, k]) - y).max()) for k in (-1, 0)) / size
        found.append(
            Claim(
                "one token decides",
                bound,
                gap,
                statement=f"{MODELS.network_pairs} pairs of tokens answer as one of the two alone",
            )
        )
    return Checked(tuple(found))


PLAN = Plan(exactly(queries), check)


def _sizes(model: ReluNetwork, radius: float, spec: OracleSpec) -> Array:
    """Factors (n,) by which fresh vectors exceed the radius; without biases the answers of g grow alike."""
    inside = _FACTORS[_FACTORS * radius <= max(spec.domain.inside, radius)]
    biased = model.b is not None or bool(model.b_o)
    return (
        np.ones(MODELS.network_vectors)
        if biased or spec.link is not None
        else np.resize(inside, MODELS.network_vectors)
    )


def near_kinks(model: ReluNetwork, radius: float, rng: np.random.Generator) -> Array:
    """Vectors (batch, d) of about the given norm, a little to either side of the hyperplanes of random neurons."""
    x = rng.standard_normal((MODELS.network_vectors, model.dim)) * (0.7 * radius / math.sqrt(model.dim))
    size = np.linalg.norm(model.A, axis=0)
    usable = np.flatnonzero(size > 0)
    if not len(usable):
        return x
    k = rng.choice(usable, MODELS.network_vectors)
    normal = (model.A[:, k] / size[k]).T
    b = np.zeros(model.width) if model.b is None else model.b
    offset = (x * normal).sum(axis=1) + b[k] / size[k]
    side = np.where(rng.random(MODELS.network_vectors) < 0.5, -1.0, 1.0) * MODELS.beside_kink * radius
    moved = x - (offset - side)[:, None] * normal
    norms = np.linalg.norm(moved, axis=1, keepdims=True)
    # Without biases a hyperplane is a cone and shrinking stays beside it; far biased ones are left out of reach.
    return np.asarray(np.where(norms <= radius, moved, x if model.b is not None else moved * (radius / norms)))


def _radius(model: ReluNetwork, spec: OracleSpec) -> float:
    """Norm of vectors that reach the kinks of half of the neurons, at least that of a standard normal vector."""
    radius = 1.0
    if model.b is not None and model.width:
        distance = np.abs(model.b) / np.maximum(np.linalg.norm(model.A, axis=0), 1e-300)
        radius = max(1.0, float(np.median(distance))) * math.sqrt(spec.dim)
    return min(radius, spec.domain.with_room)
