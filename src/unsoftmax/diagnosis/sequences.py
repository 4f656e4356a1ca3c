"""What the other tokens do: whether they matter, whether their order does, what a zero query token shows."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from unsoftmax.diagnosis.answers import PHASE, Answers, sphere, telling
from unsoftmax.diagnosis.constants import DIAGNOSIS
from unsoftmax.diagnosis.findings import Finding
from unsoftmax.learners.core.base import Asking
from unsoftmax.probes.base import Array, Probes
from unsoftmax.spec import OracleSpec


@dataclass(frozen=True)
class Sequences:
    """`others`: other tokens matter; `ordered`: their order does; `tied`: with a zero query token all scores tie;
    `residual`: the query token is added behind the attention (None where the answers cannot tell). `speaks`: whose
    answer it is: "last" or "first" token's, "all" if all orders are answered alike, None if none of these."""

    others: bool
    ordered: bool
    tied: bool
    residual: bool | None
    findings: tuple[Finding, ...]
    speaks: str | None = "last"


def sequences(spec: OracleSpec, norm: float, known: Answers, rng: np.random.Generator) -> Asking[Sequences]:
    """Replace and permute the other tokens, and pad them unless they have positions."""
    if spec.domain.length_limit < 2:
        words = "Only sequences of one token are allowed, so nothing can be said about attention."
        return Sequences(False, False, True, None, (Finding("other tokens", None, words, 0.0),))
    length, n = int(min(5, spec.domain.length_limit)), telling(spec, DIAGNOSIS.few, DIAGNOSIS.sequences)
    X = sphere(rng, (n, length, spec.dim)) * norm
    replaced = X.copy()
    replaced[:, :-1] = sphere(rng, (n, length - 1, spec.dim)) * norm
    turned = np.concatenate([X[:, :-1][:, ::-1], X[:, -1:]], axis=1)
    y = yield Probes(np.concatenate([X, replaced, turned]), phase=PHASE)
    base, other, reverse = np.split(y, 3)
    size = max(_size(base), known.size) or 1.0
    tolerance = known.tolerance(size)
    gaps = {
        "replaced": _size(other - base) / size,
        "reversed": _size(reverse - base) / size if length > 2 else 0.0,
    }
    others, ordered = gaps["replaced"] > tolerance, gaps["reversed"] > tolerance
    if not ordered or spec.outputs is None:
        padded = X.copy()
        padded[:, 0] = 0.0
        gaps["first token zeroed"] = _size((yield Probes(padded, phase=PHASE)) - base) / size
    speaks = None
    if length > 2 and others:
        # Another order of all tokens but the first, or of all: who stays where the answer does not change?
        moved = np.concatenate([X[:, :1], X[:, 1:][:, ::-1]], axis=1) if ordered else X[:, ::-1]
        y = yield Probes(moved, phase=PHASE)
        alike = _size(y - base) / size <= tolerance
        gaps["moved"] = _size(y - base) / size
        if alike and not ordered:
            alike = yield from _alike_at_length(X, spec, norm, known)
        speaks = ("first" if alike else None) if ordered else ("all" if alike else "last")
    found = _findings(gaps, others, ordered, tolerance, speaks)
    return Sequences(others, ordered, False, None, tuple(found), speaks)


def _alike_at_length(X: Array, spec: OracleSpec, norm: float, known: Answers) -> Asking[bool]:
    """Whether the order of all tokens does not matter to long ones either: noise may hide what small scores change."""
    longer = X * min(DIAGNOSIS.longer, spec.domain.with_room / norm)
    one, other = np.split((yield Probes(np.concatenate([longer, longer[:, ::-1]]), phase=PHASE)), 2)
    size = max(_size(one), known.size) or 1.0
    return _size(other - one) / size <= known.tolerance(known.size)


def tied(
    seen: Sequences, spec: OracleSpec, norm: float, known: Answers, rng: np.random.Generator, straight: bool
) -> Asking[Sequences]:
    """With what [2x ; 0] shows, which ties every score that is bilinear, and so whether there is a residual.

    `straight`: single vectors are answered linearly or affinely; else [2x ; 0] says nothing about scores.
    """
    if spec.domain.length_limit < 2:
        return seen
    n = telling(spec, DIAGNOSIS.few, DIAGNOSIS.sequences)
    x = sphere(rng, (n, spec.dim)) * (norm / 4)
    single = yield Probes(x[:, None], phase=PHASE)
    zero = np.zeros_like(x)
    two = yield Probes(np.concatenate([np.stack([2 * x, zero], 1), np.stack([4 * x, zero], 1)]), phase=PHASE)
    tie, tie_double = np.split(two, 2)
    size = max(_size(single), known.size) or 1.0
    tolerance = known.tolerance(size)
    gaps = {
        "f([2x;0]) - f([x])": _size(tie - single) / size,
        "f([4x;0]) - f([x])": _size(tie_double - single) / size,
    }
    plain, shifted = gaps["f([2x;0]) - f([x])"] <= tolerance, gaps["f([4x;0]) - f([x])"] <= tolerance
    if spec.outputs == spec.dim:
        gaps["f([2x;0]) + x - f([x])"] = _size(tie + x - single) / size
        shifted |= gaps["f([2x;0]) + x - f([x])"] <= tolerance
    ties, residual = plain or shifted, shifted and not plain
    found = _ties(gaps, ties, residual, tolerance) if seen.others and straight else []
    return replace(seen, tied=ties, residual=residual if ties else None, findings=(*seen.findings, *found))


_SPEAKS = {
    "last": "The answer is that of the last token: the order of the others does not matter, its own place does.",
    "first": "The answer is that of the first token: the order of the others does not matter, its own place does.",
    "all": "The tokens in any order get the same answer: all of them speak, or none.",
    None: "The answer changes with the order of the tokens, whichever of them stays in its place.",
}


def _findings(
    gaps: dict[str, float], others: bool, ordered: bool, tolerance: float, speaks: str | None
) -> list[Finding]:
    words = "changes the answer" if ordered else "does not matter"
    found = [
        Finding(
            "other tokens",
            others,
            f"The other tokens {'matter' if others else 'do not matter'}.",
            evidence={**gaps, "tolerance": tolerance},
        ),
        Finding(
            "order",
            ordered,
            f"The order of the tokens before the last {words}.",
            evidence={"reversed": gaps["reversed"], "tolerance": tolerance},
        ),
    ]
    if "first token zeroed" in gaps:
        padding = gaps["first token zeroed"]
        words = f"A zero token in place of the first changes the answer by {padding:.1e} of its size."
        found.append(Finding("padding", padding, words))
    if "moved" in gaps:
        evidence = {"moved": gaps["moved"], "tolerance": tolerance}
        found.append(Finding("answering position", speaks, _SPEAKS[speaks], evidence=evidence))
    return found


def _ties(gaps: dict[str, float], tied: bool, residual: bool, tolerance: float) -> list[Finding]:
    words = (
        "A zero query token weighs all tokens alike" if tied else "A zero query token does not weigh all tokens alike"
    )
    evidence = {**gaps, "tolerance": tolerance}
    found = [Finding("affine scores", not tied, f"{words}.", evidence=evidence)]
    if residual:
        found.append(Finding("residual", True, "The query token is added to the answer."))
    return found


def _size(part: Array) -> float:
    return float(np.sqrt(np.mean(np.asarray(part) ** 2)))
