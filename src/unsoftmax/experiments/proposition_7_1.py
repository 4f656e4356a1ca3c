"""Proposition 7.1: heads that share W show only the sum of their v; heads that do not are told apart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unsoftmax.adapters.callable import oracle
from unsoftmax.experiments.base import Experiment, Figure, Row, Verdict
from unsoftmax.learners.multi_head import MultiHead
from unsoftmax.models.equivalence import equivalent
from unsoftmax.models.multi_head import MultiHead as Heads
from unsoftmax.run.recovery import recover

ROUNDING = 1e-13
"""Largest gap, over the answers, of two models that are the same function: some hundred units of rounding."""

VISIBLE = 1e-3
"""Least gap, over the answers, of two models that are not the same: ten digits above `ROUNDING`."""

SHARED, OWN = "same W", "own W"
SEQUENCES = 400
"""Random sequences of each length on which two models are compared."""

LONGEST = 6
"""Largest of these lengths, from 1 on; one token shows the sum of the v_h alone, two and more show the W_h."""


def points(quick: bool) -> list[Row]:
    dims, seeds = ((4, 8, 16), 3) if quick else ((4, 8, 16, 32), 20)
    return [{"heads": kind, "d": d, "seed": seed} for d in dims for kind in (SHARED, OWN) for seed in range(seeds)]


def pair(d: int, shared: bool, seed: int) -> tuple[Heads, Heads]:
    """Two models of two heads: v_1 + v_2 is the same in both, v_1 - v_2 is not."""
    rng = np.random.default_rng(seed)
    W = rng.standard_normal((2, d, d)) / np.sqrt(d)
    if shared:
        W[1] = W[0]
    v, moved = rng.standard_normal((2, d)), rng.standard_normal(d)
    return Heads(W, v), Heads(W, v + np.array([moved, -moved]))


def row(point: Row) -> Row:
    d = point["d"]
    first, second = pair(d, point["heads"] == SHARED, point["seed"])
    rng = np.random.default_rng([point["seed"], 1])
    gap = size = 0.0
    for length in range(1, LONGEST + 1):
        X = rng.standard_normal((SEQUENCES, length, d))
        gap = max(gap, float(np.abs(first(X) - second(X)).max()))
        size = max(size, float(np.abs(first(X)).max()))
    found = recover(oracle(first), MultiHead(), seed=point["seed"])
    return {"gap": gap / size, "same": equivalent(first, second), "found": found.model.heads}


def judge(rows: Sequence[Row]) -> Verdict:
    shared, own = ([r for r in rows if r["heads"] == kind] for kind in (SHARED, OWN))
    hidden, seen = max(r["gap"] for r in shared), min(r["gap"] for r in own)
    decided = all(r["same"] for r in shared) and not any(r["same"] for r in own)
    merged = all(r["found"] == 1 for r in shared) and all(r["found"] == 2 for r in own)
    return Verdict(
        hidden <= ROUNDING and seen >= VISIBLE and decided and merged,
        f"models with different v_h but the same W and the same sum differed by at most {hidden:.1e} of their size on "
        f"{SEQUENCES * LONGEST} sequences, and by at least {seen:.1e} as soon as the W_h differ; `equivalent` decided "
        f"{'every' if decided else 'not every'} pair rightly, and the learner found "
        f"{'one head where W is shared and two where not' if merged else 'a wrong number of heads'}.",
    )


EXPERIMENT = Experiment(
    name="proposition-7.1",
    result="Proposition 7.1",
    claim="Heads with equal W cannot be told apart by any query: only the sum of their v_h is visible.",
    points=points,
    row=row,
    judge=judge,
    figure=Figure(x="d", y="gap", group=("heads",), labels=(None, "largest gap of the two models, relative")),
    code="unsoftmax/models/equivalence.py",
)
