"""Is it one softmax head, and of which rank?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from unsoftmax.diagnosis.answers import Answers
from unsoftmax.diagnosis.choice import learner_of
from unsoftmax.diagnosis.constants import DIAGNOSIS
from unsoftmax.diagnosis.findings import Finding
from unsoftmax.diagnosis.sketch import Sketch, sketch
from unsoftmax.learners.core.base import Asking, Learner
from unsoftmax.spec import OracleSpec


@dataclass(frozen=True)
class Trial:
    """What a class says of the target: a learner if it explains it, else the reason why not."""

    family: str
    learner: Any
    findings: tuple[Finding, ...]
    queries: int
    reason: str = ""
    reasons: tuple[str, ...] = ()
    near: Any = None
    """A learner whose sketch was near, or could not be paid for."""
    jumps: int = 0
    """Heads that were seen as jumps, inside which copies move the logit as under softmax."""


def single_head(spec: OracleSpec, known: Answers, affine: bool, seed: int, allowed: int) -> Asking[Trial]:
    """Theorem 4.1 on four dimensions; then, if it holds, on as many as the allowance pays for, to see the rank."""
    noisy = known.relative_noise > DIAGNOSIS.noisy_rank or spec.kind == "approximate"
    learner = _learner(affine, noisy)
    trial = yield from sketch(learner, DIAGNOSIS.sketch_dimensions, spec, seed, allowed, _felt(known))
    evidence = {
        "dimensions": DIAGNOSIS.sketch_dimensions,
        "queries": trial.queries,
        "gap": trial.gap,
        "reason": trial.reason,
    }
    if not trial.explains(known.relative_noise):
        finding = Finding("single head", False, "One softmax head does not explain the answers.", evidence=evidence)
        return Trial("", None, (finding,), trial.queries, why(trial), near=near(trial, learner))
    found = [Finding("heads", 1, "One softmax head explains the answers.", evidence=evidence)]
    k = min(spec.dim, math.isqrt(max(1, allowed - trial.queries - DIAGNOSIS.sketch_overhead)) - 1)
    queries = trial.queries
    rank, seen = spec.dim, False
    if k > DIAGNOSIS.sketch_dimensions and not noisy:
        large = yield from sketch(learner, k, spec, seed, allowed - queries, _felt(known))
        queries += large.queries
        if large.model is not None:
            rank, seen = numerical_rank(np.asarray(large.model.W), known.relative_noise), True  # type: ignore[attr-defined]
            found.append(_rank_finding(rank, k, spec.dim))
    return _chosen(spec, affine, noisy, rank, k if seen else spec.dim, tuple(found), queries)


def _felt(known: Answers) -> float:
    """Noise that is more than rounding; rounding is relative and judged as such."""
    return known.noise if known.relative_noise > 1e-9 else 0.0


def _learner(affine: bool, noisy: bool) -> Learner:
    return learner_of("single head", affine=True) if affine else learner_of("single head", noisy=noisy)


def _chosen(
    spec: OracleSpec, affine: bool, noisy: bool, rank: int, k: int, found: tuple[Finding, ...], queries: int
) -> Trial:
    if noisy:
        return Trial("single head", _learner(affine, noisy), found, queries, reasons=("The answers are noisy.",))
    low = rank < k or (k < spec.dim / 2)
    if low and not affine:
        family = "low-rank head" if rank < k else "single head"
        return Trial(family, learner_of("low-rank head"), found, queries)
    if low:
        return Trial("affine head", learner_of("low-rank head", affine=True), found, queries)
    return Trial("affine head" if affine else "single head", _learner(affine, noisy), found, queries)


def numerical_rank(W: Any, noise: float) -> int:
    """Singular values that stand out of what noise can make."""
    values = np.linalg.svd(W, compute_uv=False)
    return int((values > max(1e-9, 1e4 * noise) * values[0]).sum()) if len(values) and values[0] > 0 else 0


def _rank_finding(rank: int, k: int, dim: int) -> Finding:
    if rank < k:
        return Finding("rank", rank, f"W has rank {rank}.", evidence={"dimensions": k})
    if k == dim:
        return Finding("rank", dim, "W has full rank.", evidence={"dimensions": k})
    return Finding("rank", None, f"W has rank at least {k}.", evidence={"dimensions": k})


def near(trial: Sketch, learner: Any) -> Any:
    """The learner, if its sketch came near the answers or was not finished: then it may fit all the same."""
    return learner if trial.unfinished or (trial.gap is not None and trial.gap <= DIAGNOSIS.near_sketch) else None


def why(trial: Sketch) -> str:
    """Why a sketch does not explain the target."""
    return trial.reason or f"fresh answers are off by {trial.gap:.1e} of their size"
