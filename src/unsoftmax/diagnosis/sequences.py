"""What the other tokens do: whether they matter, whether their order does, what a zero query token shows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.diagnosis.answers import PHASE, Answers, sphere
from unsoftmax.diagnosis.findings import Finding
from unsoftmax.learners.core.base import Asking
from unsoftmax.probes.base import Array, Probes
from unsoftmax.spec import OracleSpec

_SEQUENCES = 5
"""Random sequences for each question: a coincidence at all of them does not happen."""


@dataclass(frozen=True)
class Sequences:
    """`others`: other tokens matter; `ordered`: their order does; `tied`: with a zero query token all scores tie;
    `residual`: the query token is added behind the attention (None where the answers cannot tell)."""

    others: bool
    ordered: bool
    tied: bool
    residual: bool | None
    findings: tuple[Finding, ...]


def sequences(spec: OracleSpec, norm: float, known: Answers, rng: np.random.Generator) -> Asking[Sequences]:
    """Replace, permute and pad the other tokens; then ask [2x ; 0], which ties every score that is bilinear."""
    if spec.domain.length_limit < 2:
        words = "Only sequences of one token are allowed, so nothing can be said about attention."
        return Sequences(False, False, True, None, (Finding("other tokens", None, words, 0.0),))
    length = int(min(5, spec.domain.length_limit))
    X = sphere(rng, (_SEQUENCES, length, spec.dim)) * norm
    replaced = X.copy()
    replaced[:, :-1] = sphere(rng, (_SEQUENCES, length - 1, spec.dim)) * norm
    turned = np.concatenate([X[:, :-1][:, ::-1], X[:, -1:]], axis=1)
    padded = X.copy()
    padded[:, 0] = 0.0
    y = yield Probes(np.concatenate([X, replaced, turned, padded]), phase=PHASE)
    base, other, reverse, pad = np.split(y, 4)
    x = sphere(rng, (_SEQUENCES, spec.dim)) * (norm / 4)
    one = yield Probes(x[:, None], phase=PHASE)
    zero = np.zeros_like(x)
    two = yield Probes(np.concatenate([np.stack([2 * x, zero], 1), np.stack([4 * x, zero], 1)]), phase=PHASE)
    single = one[:_SEQUENCES]
    tie, tie_double = np.split(two, 2)
    size = max(_size(base), known.size) or 1.0
    tolerance = known.tolerance(size)
    gaps = {
        "replaced": _size(other - base) / size,
        "reversed": _size(reverse - base) / size if length > 2 else 0.0,
        "first token zeroed": _size(pad - base) / size,
        "f([2x;0]) - f([x])": _size(tie - single) / size,
        "f([4x;0]) - f([x])": _size(tie_double - single) / size,
    }
    others, ordered = gaps["replaced"] > tolerance, gaps["reversed"] > tolerance
    plain, shifted = gaps["f([2x;0]) - f([x])"] <= tolerance, gaps["f([4x;0]) - f([x])"] <= tolerance
    if spec.outputs == spec.dim:
        gaps["f([2x;0]) + x - f([x])"] = _size(tie + x - single) / size
        shifted |= gaps["f([2x;0]) + x - f([x])"] <= tolerance
    return Sequences(
        others,
        ordered,
        plain or shifted,
        None if not (plain or shifted) else shifted and not plain,
        tuple(_findings(gaps, others, ordered, plain or shifted, shifted and not plain, tolerance)),
    )


def _findings(
    gaps: dict[str, float], others: bool, ordered: bool, tied: bool, residual: bool, tolerance: float
) -> list[Finding]:
    evidence = {**gaps, "tolerance": tolerance}
    found = [
        Finding("other tokens", others, f"The other tokens {'matter' if others else 'do not matter'}.", 0.99, evidence),
        Finding(
            "order",
            ordered,
            "The order of the other tokens changes the answer: a positional encoding."
            if ordered
            else "The order of the other tokens does not matter: no positional encoding.",
            0.98,
            {"reversed": gaps["reversed"], "tolerance": tolerance},
        ),
        Finding(
            "padding",
            gaps["first token zeroed"],
            "A zero token in place of the first changes the answer by "
            f"{gaps['first token zeroed']:.1e} of its size: zero vectors are attended to like others.",
            0.9,
        ),
    ]
    if others:
        words = (
            "ties all scores: they have no affine part" if tied else "does not tie the scores: they have an affine part"
        )
        found.append(Finding("affine scores", not tied, f"A zero query token {words}.", 0.9, evidence))
        if residual:
            found.append(Finding("residual", True, "The query token is added behind the attention (residual).", 0.9))
    return found


def _size(part: Array) -> float:
    return float(np.sqrt(np.mean(np.asarray(part) ** 2)))
