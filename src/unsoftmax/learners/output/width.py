"""Rows until nothing new shows: the width of the hidden states and the row space of the unembedding.

Only the likeliest tokens of each prompt: a block of prompts and tokens that has no holes, if there is one.

Theory: docs/theory/output-layer.md, "The output layer", when is the rank certain.
Theory: docs/theory/output-layer.md, "The output layer", statement.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from unsoftmax.errors import ModelMismatch, NotIdentifiable
from unsoftmax.inversion import decimal_error, rounding_unit
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.output.constants import OUTPUT
from unsoftmax.learners.output.reading import Table, are_log_probabilities, centre, random_prompts
from unsoftmax.probes.base import Array, Probes
from unsoftmax.solvers.row_space import ARITHMETIC as ROUNDINGS
from unsoftmax.solvers.row_space import RankFound, curved, rank_of
from unsoftmax.solvers.softcap import find_cap, uncapped
from unsoftmax.spec import OracleSpec

ROW_SPACE = "angle of the row space"
"""Name of the claim on the sine of the largest angle between the row space read and the true one."""

MOST = OUTPUT.first_tokens * 2**OUTPUT.most_doublings
"""Prompts asked at most."""


@dataclass(frozen=True)
class Width:
    """Rows (n, m) as used (centred, uncapped), what their singular values tell, and how they were read."""

    rows: Array
    found: RankFound
    centred: bool
    softcap: float | None


def grow(table: Table) -> Asking[Width]:
    """Ask blocks of prompts until as many rows as a block has are noise beyond a gap; then every token that is left."""
    centred = table.spec.shows != "logits"
    caps_from = 2 * OUTPUT.prompts_of_noise
    while True:
        if len(table.rows) + OUTPUT.prompts_of_noise > len(table.tokens):
            if table.whole:
                raise _no_width(table)
            yield from table.more_columns(2 * len(table.tokens))
        yield from table.more_rows(OUTPUT.prompts_of_noise)
        if len(table.rows) == OUTPUT.prompts_of_noise:
            _check(table)
        centred = centred or (len(table.rows) == OUTPUT.prompts_of_noise and are_log_probabilities(table.rows))
        rows = centre(table.rows) if centred else table.rows
        if _rank(rows) is not None:
            if not table.whole:
                yield from table.more_columns(table.spec.vocabulary or 0)
            rows = centre(table.rows) if centred else table.rows
            found = rank_of(np.linalg.svd(rows, compute_uv=False), rows.shape[1], OUTPUT.prompts_of_noise)
            if found is not None:
                _check(table)
                return _straight(Width(rows, found, centred, None), table)
        if not centred and len(rows) >= caps_from:
            caps_from = 2 * len(rows)
            capped = _capped(rows)
            if capped is not None and _explained(capped, table):
                return capped


def _check(table: Table) -> None:
    """Refuse answers that are the same for every prompt, or that are cut off below."""
    rows = table.rows
    low = _floor(rows)
    if low is not None:
        raise NotIdentifiable(
            f"the smallest answer, {low:.6g}, stands in for numbers that are not shown: answers are cut off there, "
            "tokens are masked, or probabilities underflow. Ask for logits, at temperature 1 and without a mask."
        )
    # Log-probabilities that differ by a constant alone say as little as equal ones.
    rows = rows if table.spec.shows == "logits" else centre(rows)
    if np.ptp(rows, axis=0).max() <= ROUNDINGS * np.finfo(np.float64).eps * np.abs(table.rows).max():
        raise NotIdentifiable(
            f"{len(rows)} prompts were answered alike: the answers do not depend on the prompt, so no width shows."
        )


def _floor(rows: Array) -> float | None:
    """The smallest entry of rows (n, m), if it is a stand-in; tokens whose logit is always 0 are none."""
    low, high = float(rows.min()), float(rows.max())
    cut = rows == low
    if cut.all() or (low == 0.0 and (cut.all(axis=0) == cut.any(axis=0)).all()):
        return None
    next_one = float(rows[~cut].min())
    having = int(cut.any(axis=1).sum())
    repeated = having >= OUTPUT.floor_apart * max(1, int((rows == next_one).any(axis=1).sum()))
    return low if repeated or next_one - low > OUTPUT.floor_apart * (high - next_one) > 0.0 else None


def _straight(width: Width, table: Table) -> Width:
    """The width, if what is left beside it is noise; of the logits before their cap, if it is bent by one."""
    if width.found.noise <= ROUNDINGS * np.finfo(np.float64).eps * width.found.values[0]:
        return width
    share = curved(_sketch(width.rows), width.found.rank)
    explained = _explained(width, table)
    if share <= OUTPUT.explained_by_curves and explained:
        return width
    capped = None if width.centred else _capped(width.rows)
    if capped is not None and capped.found.gap > width.found.gap and _explained(capped, table):
        return capped
    if share <= OUTPUT.explained_by_curves:
        raise ModelMismatch(
            f"the logits are nearly of rank {width.found.rank}, but what is left is more than the digits of the "
            "answers explain: something that is not linear stands behind the unembedding, or the answers are noisy; "
            "then declare tolerance=."
        )
    raise ModelMismatch(
        f"the logits are nearly of rank {width.found.rank}, but {100 * share:.0f} % of what is left is a smooth "
        "function of them: something that is not linear stands behind the unembedding (a cap on log-probabilities, "
        "a second output layer). Logits before it would show the width."
    )


def _explained(width: Width, table: Table) -> bool:
    """Whether rounding, as the digits of the answers show it or as it was declared, explains what is left.

    Weights and activations of 8 bits behind float32 answers left 450 of its units, sums of 576 products in it 20.
    """
    n, m = width.rows.shape
    entry = width.found.noise / (math.sqrt(n) + math.sqrt(m))
    said = table.spec.tolerance + decimal_error(table.rows)
    unit = max(table.spec.eps, rounding_unit(table.rows))
    largest = float(np.abs(table.rows).max())
    if width.softcap is None:
        return entry <= OUTPUT.noise_over_declared * (said + CORE.loud * unit * largest)
    # Undoing a cap enlarges the errors of the largest answers, and the cap itself is known to some digits only.
    steep = 1 / (1 - (largest / width.softcap) ** 2)
    return entry <= OUTPUT.noise_over_declared * steep * (said + (CORE.loud * unit + OUTPUT.left_by_a_cap) * largest)


def _no_width(table: Table) -> NotIdentifiable:
    n, m = table.rows.shape
    return NotIdentifiable(
        f"{n} prompts and {m} tokens show no width: one shows only where both exceed it by {OUTPUT.prompts_of_noise} "
        "and more. The "
        f"vocabulary ({m}) is too small for the hidden states, the digits of the answers are too few, or the logits "
        "pass through something that is not linear (a cap on log-probabilities, a mixture of softmaxes)."
    )


def _sketch(rows: Array) -> Array:
    """Some columns of the rows, evenly spread."""
    wanted = OUTPUT.columns_over_rows * len(rows) + OUTPUT.prompts_of_noise
    if wanted >= rows.shape[1]:
        return rows
    return np.ascontiguousarray(rows[:, np.linspace(0, rows.shape[1] - 1, wanted).astype(np.int64)])


def _rank(rows: Array) -> RankFound | None:
    part = _sketch(rows)
    before, new = part[: -OUTPUT.prompts_of_noise], part[-OUTPUT.prompts_of_noise :]
    Q = np.linalg.qr(before.T)[0]
    if not len(before) or np.linalg.norm(new - (new @ Q) @ Q.T) > OUTPUT.new_part_of_a_row * np.linalg.norm(new):
        return None
    return rank_of(np.linalg.svd(part, compute_uv=False), part.shape[1], OUTPUT.prompts_of_noise)


def _capped(rows: Array) -> Width | None:
    """The rows as they were before a cap: the one that makes them low rank, if any does."""
    c = find_cap(_sketch(rows), OUTPUT.prompts_of_noise, float(np.abs(rows).max()))
    free = uncapped(rows, c)
    found = rank_of(np.linalg.svd(free, compute_uv=False), free.shape[1], OUTPUT.prompts_of_noise)
    return None if found is None else Width(free, found, False, c)


def from_tops(spec: OracleSpec, rng: np.random.Generator) -> Asking[tuple[Width, Array]]:
    """The width and the tokens (m,) it is seen on, from the top-k of random prompts."""
    k = (spec.outputs or 2) // 2
    ids = np.zeros((0, k), dtype=np.int64)
    logits = np.zeros((0, k))
    for doubling in range(OUTPUT.most_doublings + 1):
        count = OUTPUT.first_tokens if doubling == 0 else len(ids)
        answers = yield Probes(random_prompts(spec, count, rng), phase="main")
        ids = np.concatenate([ids, answers[:, :k].astype(np.int64)])
        logits = np.concatenate([logits, answers[:, k:]])
        tokens, rows = common_block(ids, logits, spec.vocabulary or 0)
        if min(rows.shape) > OUTPUT.prompts_of_noise:
            rows = centre(rows)
            part = rows if rows.shape[1] >= rows.shape[0] else rows[: rows.shape[1]]
            found = rank_of(np.linalg.svd(part, compute_uv=False)[:-1], part.shape[1], OUTPUT.prompts_of_noise)
            if found is not None:
                return Width(rows, found, True, None), tokens
    raise NotIdentifiable(
        f"the {k} likeliest tokens of {len(ids)} prompts share a block of {rows.shape[0]} prompts and {rows.shape[1]} "
        f"tokens, and a width shows only in a block {OUTPUT.prompts_of_noise} larger than it both ways. A service that "
        "lets tokens be "
        'chosen (logit_bias: us.logit_oracle(shows="chosen")) or shows more of them tells more.'
    )


def common_block(ids: Array, logits: Array, vocabulary: int) -> tuple[Array, Array]:
    """Tokens (m,) and rows (n', m) of a block without holes in tops (n, k): the largest square by a greedy choice."""
    order = np.argsort(-np.bincount(ids.ravel(), minlength=vocabulary), kind="stable")[: ids.shape[1]]
    has = np.stack([(ids == token).any(axis=1) for token in order], axis=1)
    complete = np.logical_and.accumulate(has, axis=1).sum(axis=0)
    m = int(np.argmax(np.minimum(complete, np.arange(1, len(order) + 1)))) + 1
    tokens, rows = order[:m], np.flatnonzero(has[:, :m].all(axis=1))
    place = np.argmax(ids[rows][:, :, None] == tokens, axis=1)
    return tokens, np.take_along_axis(logits[rows], place, axis=1)
