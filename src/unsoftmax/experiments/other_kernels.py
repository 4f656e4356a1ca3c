"""Heads with other kernels than the exponential: the kernel is named, W and v come out, the bill is as stated."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unsoftmax import learners, theory
from unsoftmax.adapters.callable import oracle
from unsoftmax.experiments.base import Experiment, Figure, Row, Verdict, grouped
from unsoftmax.models.distance import distance
from unsoftmax.models.kernel_head import KernelHead
from unsoftmax.run.recovery import recover

KERNELS = ("exp", "softplus", "1 + elu", "sigmoid", "softcap 5", "linear", "quadratic", "relu", "relu^2")
"""Kernels of the catalogue that are tried, each normalised and as a plain sum."""

ERROR = 1e-8
"""Largest relative error of W and v, up to the scale of W where the kernel hides it."""

MEDIAN = 1e-10
"""Largest median of these errors for one kernel."""


def points(quick: bool) -> list[Row]:
    dims, seeds = ((6,), 2) if quick else ((8, 16, 32), 5)
    return [
        {"kernel": kernel, "normalised": normalised, "d": d, "seed": seed}
        for kernel in KERNELS
        for normalised in (True, False)
        for d in dims
        for seed in range(seeds)
    ]


def row(point: Row) -> Row:
    d, kernel, normalised = point["d"], point["kernel"], point["normalised"]
    norm = 10 ** np.random.default_rng(point["seed"]).uniform(-1, 1)
    head = KernelHead.random(d, kernel, normalised=normalised, norm=norm, seed=point["seed"])
    found = recover(oracle(head), learners.KernelHead(), seed=point["seed"])
    phases = found.usage.phases
    form = (
        theory.power_head_queries(d, kernel, normalised) if head.kernel.zero_at_zero else theory.kernel_head_queries(d)
    )
    asked = found.usage.billed - sum(phases.get(name, 0) for name in ("pilot", "repair", "verify"))
    assert isinstance(found.model, KernelHead)
    stated = found.certificate.stated_error or 0.0
    error = distance(found.model, head)
    return {
        "named": found.model.kernel.name == head.kernel.name and found.model.normalised == normalised,
        "error": error,
        "kept": error <= stated,
        "off the form": asked - form,
        "beside d^2 + d": found.usage.billed - phases["verify"] - d * d - d,
    }


def judge(rows: Sequence[Row]) -> Verdict:
    named = sum(r["named"] for r in rows)
    worst = max(r["error"] for r in rows)
    medians = {name: float(np.median([r["error"] for r in part])) for (name,), part in grouped(rows, "kernel").items()}
    billed = all(r["off the form"] == 0 for r in rows)
    broken = sum(not r["kept"] for r in rows)
    holds = named == len(rows) and worst <= ERROR and max(medians.values()) <= MEDIAN and billed and not broken
    return Verdict(
        holds,
        f"the kernel was named rightly {named} of {len(rows)} times; errors of W and v were at most {worst:.1g} (the "
        f"largest median of a kernel {max(medians.values()):.1g}); the bill was the stated one "
        f"{'every' if billed else 'NOT every'} time; {broken} stated errors were exceeded.",
    )


EXPERIMENT = Experiment(
    name="other-kernels",
    result="Other kernels than the exponential",
    claim="Kernel, W and v of a head come out at the stated count, for positive kernels and powers of the score.",
    points=points,
    row=row,
    judge=judge,
    figure=Figure(x="d", y="error", group=("kernel", "normalised")),
    code="unsoftmax/learners/kernel_head.py",
)
