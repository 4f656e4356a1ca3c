"""Heads from recorded traffic: records per unknown, stated errors, and targets of another class."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unsoftmax.experiments.base import Experiment, Figure, Row, Verdict, grouped
from unsoftmax.fitting import Log, fit
from unsoftmax.models.distance import distance
from unsoftmax.models.multi_head import MultiHead
from unsoftmax.models.single_head import SingleHead
from unsoftmax.results.recovery import Status

ERROR = 1e-8
"""Largest relative error of a fitted head that counts as recovered."""

ENOUGH = 0.95
"""Share of the logs at each deviation that must be recovered: a fit starts at random and may fail."""

LENGTH = 8
"""Tokens of each recorded sequence."""

HELD_OUT = 0.15
"""Share of the records that are not fitted and judge the fit."""

RATIOS = {1.0: 1.25, 3.0: 1.35, 8.0: 2.0, 20.0: 3.0}
"""Deviation of the scores -> fitted records per unknown: hot heads show a tie in few records only."""


def points(quick: bool) -> list[Row]:
    dims, seeds = ((8,), 10) if quick else ((8, 16), 20)
    targets = [(std, ratio, "head") for std, ratio in RATIOS.items()] + [(1.0, 4.0, "two heads")]
    return [
        {"d": d, "std": std, "ratio": ratio, "target": target, "seed": seed}
        for d in dims
        for std, ratio, target in targets
        for seed in range(seeds)
    ]


def row(point: Row) -> Row:
    d, rng = point["d"], np.random.default_rng(point["seed"])
    W, v = rng.standard_normal((2, d, d)) * point["std"] / d, rng.standard_normal((2, d))
    head = SingleHead(W[0], v[0])
    unknowns = d * d + d
    X = rng.standard_normal((int(np.ceil(point["ratio"] * unknowns / (1 - HELD_OUT))), LENGTH, d))
    y = head(X) if point["target"] == "head" else MultiHead(W, v)(X)
    found = fit(Log(X, y), holdout=HELD_OUT, seed=point["seed"], starts=120 if point["target"] == "head" else 6)
    recovered = found.status is Status.RECOVERED
    stated = found.certificate.stated_error
    error = distance(found.model, head)
    return {
        "recovered": recovered,
        "error": error,
        "kept": stated is None or not recovered or error <= stated,
        "per_unknown": found.usage.phases["fitted"] / unknowns,
    }


def judge(rows: Sequence[Row]) -> Verdict:
    heads = [r for r in rows if r["target"] == "head"]
    false = sum(r["recovered"] for r in rows if r["target"] != "head")
    good = {
        std: [r["recovered"] and r["error"] <= ERROR for r in part] for (std,), part in grouped(heads, "std").items()
    }
    shares = ", ".join(f"{sum(ok)} of {len(ok)} at deviation {std:g}" for std, ok in good.items())
    broken = sum(not r["kept"] for r in rows)
    most = max(r["per_unknown"] for r in heads)
    return Verdict(
        all(np.mean(ok) >= ENOUGH for ok in good.values()) and not false and not broken and most <= 3.1,
        f"heads were recovered to 1e-8 in {shares} of the scores, from at most {most:.2f} fitted records per unknown; "
        f"{broken} stated errors were exceeded; {false} of {len(rows) - len(heads)} logs of two heads were called "
        "recovered.",
    )


EXPERIMENT = Experiment(
    name="recorded-traffic",
    result="Recorded traffic",
    claim="A head is recovered from one to three recorded answers per unknown; no other class is called recovered.",
    points=points,
    row=row,
    judge=judge,
    figure=Figure(x="std", y="error", group=("target", "d")),
    code="unsoftmax/fitting/fit.py",
)
