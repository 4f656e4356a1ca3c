"""Error against the digits a service keeps, when it does not say how many."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unsoftmax import theory
from unsoftmax.adapters.callable import oracle
from unsoftmax.experiments.base import Experiment, Figure, Row, Verdict
from unsoftmax.experiments.theorem_6_1 import DRAWN, W_NORM, target
from unsoftmax.learners.approximate import Approximate
from unsoftmax.run.recovery import recover


def points(quick: bool) -> list[Row]:
    dims, seeds = ((8, 16), 3) if quick else ((8, 16, 32), 20)
    return [
        {"d": d, "digits": digits, "seed": seed}
        for d in dims
        for digits in ((3, 6, 9) if quick else range(3, 12))
        for seed in range(seeds)
    ]


def expected(d: int, digits: int) -> float:
    """Rounding is uniform: its deviation is 10^-digits / sqrt 12."""
    return theory.norm_budget_error(d, 10.0**-digits / np.sqrt(12), 1.0, 1.0)


def row(point: Row) -> Row:
    head, _ = target(point["d"], point["seed"])
    service = oracle(lambda X: np.round(head(X), point["digits"]), point["d"], max_norm=1.0)
    found = recover(service, Approximate(), seed=point["seed"])
    return {
        "error": float(np.linalg.norm(found.model.W - head.W)),
        "stated": found.certificate.claims[0].bound,
        "expected": expected(point["d"], point["digits"]),
        "line": expected(DRAWN, point["digits"]),
    }


def judge(rows: Sequence[Row]) -> Verdict:
    broken = sum(r["error"] > r["stated"] for r in rows)
    worst = max(r["error"] / r["expected"] for r in rows)
    return Verdict(
        broken == 0 and 0.1 <= worst <= 10,
        f"{broken} of {len(rows)} stated errors were exceeded; the error was at most {worst:.2g} times what rounding "
        "and the design's conditioning predict.",
    )


EXPERIMENT = Experiment(
    name="digits-kept",
    result="Error against digits kept",
    claim=f"Answers rounded to k decimals give a head with ||W||_F = {W_NORM:g} away up to about 10^-k, as stated.",
    points=points,
    row=row,
    judge=judge,
    figure=Figure(
        x="digits",
        y="error",
        group=("d",),
        log_x=False,
        reference=(f"predicted, d = {DRAWN}", "line"),
        labels=(None, "error of W, Frobenius norm"),
    ),
    code="unsoftmax/learners/core/noise.py",
)
