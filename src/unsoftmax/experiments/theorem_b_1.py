"""Theorem B.1: labels alone. The paper's random directions and bisection beside each other, over the one-bit floor."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from unsoftmax import theory
from unsoftmax.adapters.callable import oracle
from unsoftmax.experiments.base import Experiment, Figure, Row, Verdict, grouped
from unsoftmax.learners.membership import Membership
from unsoftmax.models.distance import distance, relative
from unsoftmax.models.single_head import SingleHead as Head
from unsoftmax.run.recovery import recover

D = 4
"""Dimension of the target: small, for the theorem's own count grows beyond what a machine would finish."""

NORM = 1.5
"""||W||_F of the target."""

W_BOUND = 2.0
"""Bound on ||W||_F that the theorem is given: a third above the truth, as a bound is."""

DELTA = 0.05
"""Probability of failure that is granted."""

STATED, BY_HAND, BISECTION = "Theorem B.1, as stated", "Theorem B.1, eps_v by hand", "bisection"


def points(quick: bool) -> list[Row]:
    exponents = (1, 2, 3, 6, 9, 12) if quick else range(1, 13)
    by_hand = (0.3, 0.1) if quick else (0.3, 0.1, 0.03)
    seeds = 2 if quick else 10
    return (
        [{"method": STATED, "accuracy": 10.0**-k, "seed": 0} for k in exponents]
        + [{"method": BY_HAND, "accuracy": a, "seed": seed} for a in by_hand for seed in range(seeds)]
        + [{"method": BISECTION, "accuracy": 10.0**-k, "seed": seed} for k in exponents for seed in range(seeds)]
    )


def target_of(seed: int) -> Head:
    """A head the theorem favours: ||W||_F = 1.5 below the bound 2, every |v_i| as large as it can be."""
    rng = np.random.default_rng(seed)
    W = rng.standard_normal((D, D))
    return Head(W * (NORM / np.linalg.norm(W)), rng.choice([-1.0, 1.0], D) / math.sqrt(D))


def row(point: Row) -> Row:
    accuracy, method = point["accuracy"], point["method"]
    floor = theory.membership_floor(D, accuracy)
    if method == STATED:
        # Not run: the count is the theorem's own, and at most accuracies no machine would finish it.
        queries = theory.membership_queries(D, accuracy * NORM, W_BOUND, D**-0.5, DELTA)
        return {"queries": float(queries), "floor": floor, "error": None}
    target = target_of(point["seed"])
    if method == BISECTION:
        learner = Membership(accuracy=accuracy)
    else:
        # Errors of W come out near ten times those of v, far below what the theorem allows for.
        options = {"W_bound": W_BOUND, "margin": D**-0.5, "delta": DELTA, "eps_v": accuracy / 20}
        learner = Membership(method="paper", accuracy=accuracy * NORM / 4, **options)
    recovery = recover(oracle(target, kind="membership"), learner, seed=point["seed"])
    error = distance(recovery.model, target) if method == BISECTION else relative(recovery.model.W, target.W)
    return {"queries": recovery.usage.billed, "floor": floor, "error": error}


def judge(rows: Sequence[Row]) -> Verdict:
    by_method = grouped(rows, "method")
    ours = by_method[(BISECTION,)]
    held = all(r["error"] <= r["accuracy"] for r in ours)
    fine, coarse = min(ours, key=lambda r: r["accuracy"]), max(ours, key=lambda r: r["accuracy"])
    slope = (fine["queries"] - coarse["queries"]) / (fine["floor"] - coarse["floor"])
    stated = {r["accuracy"]: r["queries"] for r in by_method[(STATED,)]}
    factor = min(stated[r["accuracy"]] / r["queries"] for r in ours)
    return Verdict(
        held and 0.9 <= slope <= 1.25 and factor >= 1e4,
        f"bisection met the accuracy asked for in {'every run' if held else 'not every run'}, each further bit of all "
        f"unknowns cost {slope:.2f} times the one-bit floor, and the theorem's own count is larger by a factor of at "
        f"least {factor:.1g} (and {stated[fine['accuracy']] / fine['queries']:.1g} at accuracy {fine['accuracy']:g}).",
    )


EXPERIMENT = Experiment(
    name="theorem-b.1",
    result="Theorem B.1",
    claim="A single head is learned from labels f > 0 alone; by bisection at about one query per unknown bit.",
    points=points,
    row=row,
    judge=judge,
    figure=Figure(x="accuracy", y="queries", group=("method",), reference=("one bit per label", "floor")),
    code="unsoftmax/learners/membership.py",
)
