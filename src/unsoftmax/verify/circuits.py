"""One-layer language models on fresh prompts of every kind of length; what gaps there say of every parameter.

Theory: docs/theory/verification.md, "One-layer language models".
"""

from __future__ import annotations

import numpy as np

from unsoftmax.inversion import rounding_unit
from unsoftmax.learners.core.base import Allowance, Asking
from unsoftmax.learners.output.reading import centre
from unsoftmax.models.base import Array, Model
from unsoftmax.models.token_layer import TokenLayer
from unsoftmax.probes.base import Probes
from unsoftmax.results.recovery import Claim
from unsoftmax.spec import OracleSpec
from unsoftmax.verify.constants import VERIFY
from unsoftmax.verify.constants_models import MODELS
from unsoftmax.verify.plan import Checked, Plan
from unsoftmax.verify.stated import errors_of, moves, statements


def check(model: TokenLayer, spec: OracleSpec, seed: int, allows: Allowance) -> Asking[Checked]:
    """Ask random prompts; their logits against the model's, and what the gaps say of the parameters."""
    rng = np.random.default_rng([seed, 0xC1C])
    lengths = np.resize(
        np.unique(np.linspace(1, model.length, MODELS.circuit_prompts).astype(int)), MODELS.circuit_prompts
    )
    prompts = [rng.choice(spec.allowed, (int(np.sum(lengths == n)), n)) for n in np.unique(lengths)]
    gaps, answers = [], []
    for ids in prompts:
        y = yield Probes(ids, phase="verify")
        answers.append(y)
        gaps.append(y - model(ids))
    y, gap = np.concatenate(answers), np.concatenate(gaps)
    # A constant per prompt is no part of logits that are read from log-probabilities.
    y, gap = (centre(y), centre(gap)) if model.centred else (y, gap)
    size = float(np.sqrt(np.mean(y**2))) or 1.0
    moved = moves(model, lambda other: _hidden(other, prompts), rng)
    errors = errors_of(moved, gap @ model.basis.T, y @ model.basis.T)
    # Mean squares over d coordinates of what the stated error of every parameter moves, as a logit of V.
    reach = np.sqrt(max(m.max() for m in moved.values()) * model.width / model.vocabulary) / size
    bound = max(
        MODELS.circuit_roundings * max(spec.eps, rounding_unit(y)),
        min(MODELS.reach * reach * allows.relative_error, VERIFY.claimed),
    )
    found = Claim(
        "random prompts",
        bound,
        float(np.abs(gap).max()) / size,
        statement=f"max gap of a logit relative to the root mean square, on {len(y)} fresh prompts of 1 to "
        f"{model.length} tokens",
    )
    return Checked((found,), statements(model, errors, f"{len(y)} fresh prompts"))


PLAN = Plan(lambda spec, heads: (MODELS.circuit_prompts, MODELS.circuit_prompts), check)


def _hidden(model: Model, prompts: list[Array]) -> Array:
    """What the model answers, in coordinates of its output layer (n, d)."""
    assert isinstance(model, TokenLayer)
    return np.concatenate([model.hidden(ids) for ids in prompts])
