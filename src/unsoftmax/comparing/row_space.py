"""An output layer as the reference: do the logits of a language model lie in its row space?

What stands before the output layer is not compared: any hidden state gives logits in the row space. Behind a change
of the unembedding by rank r the parts outside have rank r.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from unsoftmax.comparing.constants import COMPARING
from unsoftmax.comparing.constants_explaining import EXPLAINING
from unsoftmax.errors import InvalidArgument
from unsoftmax.inversion import decimal_error, rounding_unit
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.output.constants import OUTPUT
from unsoftmax.learners.output.reading import are_log_probabilities, centre, random_prompts, read
from unsoftmax.models.base import Array
from unsoftmax.models.output_layer import OutputLayer
from unsoftmax.results.comparison import Finding
from unsoftmax.solvers.ellipsoid import Ellipsoid
from unsoftmax.solvers.row_space import rank_of
from unsoftmax.solvers.softcap import uncapped
from unsoftmax.spec import OracleSpec
from unsoftmax.verify.constants_models import MODELS

PROMPTS = OUTPUT.prompts_of_noise + 8
"""Prompts asked: a change of rank 8 and below leaves sixteen parts outside that are rounding alone."""


def check_reference(layer: OutputLayer, spec: OracleSpec) -> None:
    """Refuse what cannot be compared, before anything is asked."""
    if spec.shows not in ("logits", "log-probabilities", "chosen"):
        raise InvalidArgument(
            "an output layer is compared with a language model that shows all logits, log-probabilities or chosen "
            f"tokens (us.logit_oracle; got shows={spec.shows!r})."
        )
    if layer.tokens is not None or layer.vocabulary != spec.vocabulary:
        raise InvalidArgument(
            f"the target has vocabulary {spec.vocabulary} and the reference {layer.vocabulary}"
            f"{'' if layer.tokens is None else ' of its tokens'}; they cannot be the same output layer."
        )
    if layer.softcap is not None and spec.shows != "logits":
        raise InvalidArgument("a cap is undone on logits alone, and the target shows log-probabilities.")


def row_space(layer: OutputLayer, spec: OracleSpec, seed: int) -> Asking[Finding]:
    """The comparison as a generator."""
    rng = np.random.default_rng([seed, 0x0C3])
    columns = np.arange(layer.vocabulary)
    if spec.shows == "chosen":
        columns = rng.choice(columns, min(layer.vocabulary, 2 * layer.width + MODELS.output_columns), replace=False)
    prompts = random_prompts(spec, PROMPTS, rng)
    answers = yield from read(spec, prompts, columns, "compare")
    again = yield from read(spec, prompts[: COMPARING.repeated], columns, "repeat")
    centred = layer.centred or spec.shows != "logits" or are_log_probabilities(answers)
    if centred and layer.softcap is not None:
        raise InvalidArgument("a cap is undone on logits alone, and the target shows log-probabilities.")
    rows = centre(answers) if centred else answers
    rows = rows if layer.softcap is None else uncapped(rows, layer.softcap)
    basis = layer.basis[:, columns]
    Q, R = np.linalg.qr((basis - basis.mean(axis=1, keepdims=True) if centred else basis).T)
    outside = rows - (rows @ Q) @ Q.T
    noise = _noise(layer, answers, spec)
    return _judged(
        layer,
        rows,
        outside,
        np.abs(again - answers[: COMPARING.repeated]).max(),
        noise,
        np.linalg.solve(R, (rows @ Q).T),
    )


def _noise(layer: OutputLayer, answers: Array, spec: OracleSpec) -> tuple[float, float]:
    """Largest entry that rounding leaves outside, and that the reference's own error does, relative to a row's size."""
    largest = float(np.abs(answers).max())
    unit = max(spec.eps if spec.dtype != "float64" else 0.0, rounding_unit(answers))
    said = spec.tolerance + decimal_error(answers)
    rounding = EXPLAINING.above_noise * (said + COMPARING.row_roundings * math.sqrt(layer.width) * unit * largest)
    s = layer.singular_values
    found = None if s is None else rank_of(s, layer.vocabulary, OUTPUT.prompts_of_noise)
    return rounding, 0.0 if found is None else EXPLAINING.above_noise * min(1.0, found.angle)


def _judged(
    layer: OutputLayer, rows: Array, outside: Array, change: float, noise: tuple[float, float], z: Array
) -> Finding:
    size = float(np.sqrt(np.mean(rows**2))) or 1.0
    bound = noise[0] / size + noise[1]
    seen = float(np.abs(outside).max()) / size
    V, d = layer.vocabulary, layer.width
    base = Finding(
        verdict="same",
        sentence="",
        p_value=1.0 if seen <= bound else 0.0,
        e_value=1.0 if seen <= bound else math.inf,
        detectable=bound * math.sqrt(V / max(V - d, 1)),
        evidence=_evidence(rows, seen, bound),
        notes=("p is 0 or 1 here: rounding is bounded, not drawn.",),
    )
    if change > 2 * noise[0]:
        return base.said("stochastic", "The target answers at random: the same prompt got different logits.")
    if seen <= bound:
        return _inside(layer, base, z)
    share = float(np.linalg.norm(outside) / np.linalg.norm(rows))
    if share >= COMPARING.outside_row_space:
        return base.said("different", f"Another output layer: {share:.2g} of the logits lies outside the row space.")
    found = rank_of(np.linalg.svd(outside, compute_uv=False), outside.shape[1], OUTPUT.prompts_of_noise)
    if found is None:
        return base.said("dense", f"The unembedding differs by {share:.1g} of its size, in many directions.")
    return base.said(
        "low rank", f"The unembedding differs by {share:.1g} of its size, by rank {found.rank}.", rank=found.rank
    )


def _inside(layer: OutputLayer, base: Finding, z: Array) -> Finding:
    """The row space is the reference's; whether hidden states lie on its ellipsoid, where it has one."""
    words = f"The logits lie in the row space of the reference to rounding ({base.evidence['outside']:.1g}); "
    if layer.metric is not None:
        centre_ = np.zeros(layer.width) if layer.centre is None else layer.centre
        off = float(np.abs(Ellipsoid(layer.metric, centre_, layer.width, 0.0).off(z.T)).max())
        if off > MODELS.output_off:
            return base.said(
                "unexplained",
                words + f"but hidden states lie off its ellipsoid by {off:.1g}: the final norm is another.",
                evidence={"off the ellipsoid": off},
            )
        words += "hidden states lie on its ellipsoid; "
    return base.said(
        "same",
        words + f"a relative change of the unembedding by {base.detectable:.1g} would have been seen. What stands "
        "before the output layer was not compared.",
    )


def _evidence(rows: Array, seen: float, bound: float) -> dict[str, Any]:
    return {
        "prompts": len(rows),
        "outside": seen,
        "bound": bound,
        "not looked at": "everything before the output layer, and directions that the hidden states of "
        f"{len(rows)} prompts do not have.",
    }
