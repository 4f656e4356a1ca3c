"""Do scores grow with the tokens? Under softmax long tokens leave all the weight to one; capped scores tie at the cap.

With every token so long that scores lie far apart, a second copy of a token does not change what softmax answers: the
winner has all the weight already. Where scores are bounded (a soft cap, normed queries and keys) tokens at the bound
share the weight, and copies count, however long the tokens are.
"""

from __future__ import annotations

import numpy as np

from unsoftmax.diagnosis.answers import PHASE, Answers, sphere
from unsoftmax.diagnosis.constants import DIAGNOSIS
from unsoftmax.diagnosis.findings import Finding
from unsoftmax.learners.core.base import Asking
from unsoftmax.probes.base import Array, Probes
from unsoftmax.spec import OracleSpec

WEIGHT_QUERIES = 2 * len(DIAGNOSIS.bound_norms) * DIAGNOSIS.sequences
"""Queries of `weights`: every sequence with and without copies, at each norm."""


def weights(spec: OracleSpec, known: Answers, rng: np.random.Generator) -> Asking[Finding | None]:
    """Whether copies still count among long tokens; None if the domain forbids them, or longer ones change that."""
    lengths = [n for n in DIAGNOSIS.bound_norms if n <= spec.domain.with_room]
    if (
        len(lengths) < len(DIAGNOSIS.bound_norms)
        or spec.domain.length_limit < DIAGNOSIS.bound_copies * DIAGNOSIS.bound_tokens
    ):
        return None
    X = sphere(rng, (DIAGNOSIS.sequences, DIAGNOSIS.bound_tokens, spec.dim))
    more = np.ones((DIAGNOSIS.sequences, DIAGNOSIS.bound_tokens), dtype=np.int64)
    more[:, :-1:2] = DIAGNOSIS.bound_copies
    moved = []
    for length in lengths:
        plain = yield Probes(X * length, phase=PHASE)
        copies = yield Probes(X * length, more, phase=PHASE)
        moved.append(_moved(plain, copies))
    evidence = {f"moved by copies at norm {n:g}": m for n, m in zip(lengths, moved, strict=True)}
    floor = max(DIAGNOSIS.bound_moved, 100 * known.relative_noise)
    if min(moved) > floor and moved[1] > moved[0] / 2:
        words = "Copies of a token count however long the tokens are: scores are bounded, or weights not exp(score)."
        return Finding("scores", "bounded", words, evidence=evidence)
    if moved[1] <= floor:
        return Finding("scores", "free", "Long tokens leave all the weight to one of them.", evidence=evidence)
    return None


def _moved(plain: Array, copies: Array) -> float:
    """Median over sequences of the change, relative to the size of the answers."""
    change = np.sqrt(np.mean((copies - plain).reshape(len(plain), -1) ** 2, axis=1))
    size = float(np.sqrt(np.mean(plain**2)))
    return float(np.median(change)) / size if size else 0.0
