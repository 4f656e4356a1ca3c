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
from unsoftmax.learners.core.noise import LOUD
from unsoftmax.learners.output.reading import FIRST, Table, are_log_probabilities, centre, random_prompts
from unsoftmax.probes.base import Array, Probes
from unsoftmax.solvers.row_space import ARITHMETIC as ROUNDINGS
from unsoftmax.solvers.row_space import RankFound, curved, rank_of
from unsoftmax.solvers.softcap import find_cap, uncapped
from unsoftmax.spec import OracleSpec

BLOCK = 16
"""Prompts a round, and rows beyond the width that must be noise: a width d takes at most d + 31 prompts."""

ROW_SPACE = "angle of the row space"
"""Name of the claim on the sine of the largest angle between the row space read and the true one."""

_SKETCH = 3
"""Columns looked at for each row when only the rank is asked for: a rank is the same in three times as many columns."""

_NOISE = 4.0
"""Noise over what was declared or seen in decimals: an entry's standard deviation is below its largest error."""

_CAP = 1e-7
"""Part of the largest answer that a cap known to its own digits leaves: caps are found to 1e-9 and better, and other
functions in the place of a cap left a thousandth and more."""

_APART = 4.0
"""What shows that the smallest answer stands in for numbers that are not shown (a floor, a mask, the logarithm of an
underflow): this many times as many rows have it as have the next one, or it lies below the next by this many times the
range of all others. Gaussian logits of 16 prompts stayed at 1 and 0.6, with two decimals or in float16 at 2 and 0.6."""

_NEW = 0.5
"""Part of a new row that lies outside the rows before it, below which the rank is worth computing."""

_CURVED = 0.02
"""Most of the rest that squares and cubes of logits may explain: of independent noise in 48 x 160 entries they explain
2 / 7680, and of float16 rounding, which grows with the entries, 0.1 %; of a cap five times beyond the logits, 60 %."""

_DOUBLINGS = 5
"""2048 prompts at most: a block grows slower than the prompts, so one that is too narrow then stays so."""

MOST = FIRST * 2**_DOUBLINGS
"""Prompts asked at most."""


@dataclass(frozen=True)
class Width:
    """Rows (n, m) as used (centred, uncapped), what their singular values tell, and how they were read."""

    rows: Array
    found: RankFound
    centred: bool
    softcap: float | None


def grow(table: Table) -> Asking[Width]:
    """Ask blocks of prompts until at least `BLOCK` rows are noise beyond a gap; then every token that is left."""
    centred = table.spec.shows != "logits"
    caps_from = 2 * BLOCK
    while True:
        if len(table.rows) + BLOCK > len(table.tokens):
            if table.whole:
                raise _no_width(table)
            yield from table.more_columns(2 * len(table.tokens))
        yield from table.more_rows(BLOCK)
        if len(table.rows) == BLOCK:
            _check(table)
        centred = centred or (len(table.rows) == BLOCK and are_log_probabilities(table.rows))
        rows = centre(table.rows) if centred else table.rows
        if _rank(rows) is not None:
            if not table.whole:
                yield from table.more_columns(table.spec.vocabulary or 0)
            rows = centre(table.rows) if centred else table.rows
            found = rank_of(np.linalg.svd(rows, compute_uv=False), rows.shape[1], BLOCK)
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
    repeated = having >= _APART * max(1, int((rows == next_one).any(axis=1).sum()))
    return low if repeated or next_one - low > _APART * (high - next_one) > 0.0 else None


def _straight(width: Width, table: Table) -> Width:
    """The width, if what is left beside it is noise; of the logits before their cap, if it is bent by one."""
    if width.found.noise <= ROUNDINGS * np.finfo(np.float64).eps * width.found.values[0]:
        return width
    share = curved(_sketch(width.rows), width.found.rank)
    explained = _explained(width, table)
    if share <= _CURVED and explained:
        return width
    capped = None if width.centred else _capped(width.rows)
    if capped is not None and capped.found.gap > width.found.gap and _explained(capped, table):
        return capped
    if share <= _CURVED:
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
        return entry <= _NOISE * (said + LOUD * unit * largest)
    # Undoing a cap enlarges the errors of the largest answers, and the cap itself is known to some digits only.
    steep = 1 / (1 - (largest / width.softcap) ** 2)
    return entry <= _NOISE * steep * (said + (LOUD * unit + _CAP) * largest)


def _no_width(table: Table) -> NotIdentifiable:
    n, m = table.rows.shape
    return NotIdentifiable(
        f"{n} prompts and {m} tokens show no width: one shows only where both exceed it by {BLOCK} and more. The "
        f"vocabulary ({m}) is too small for the hidden states, the digits of the answers are too few, or the logits "
        "pass through something that is not linear (a cap on log-probabilities, a mixture of softmaxes)."
    )


def _sketch(rows: Array) -> Array:
    """Some columns of the rows, evenly spread."""
    wanted = _SKETCH * len(rows) + BLOCK
    if wanted >= rows.shape[1]:
        return rows
    return np.ascontiguousarray(rows[:, np.linspace(0, rows.shape[1] - 1, wanted).astype(np.int64)])


def _rank(rows: Array) -> RankFound | None:
    part = _sketch(rows)
    before, new = part[:-BLOCK], part[-BLOCK:]
    Q = np.linalg.qr(before.T)[0]
    if not len(before) or np.linalg.norm(new - (new @ Q) @ Q.T) > _NEW * np.linalg.norm(new):
        return None
    return rank_of(np.linalg.svd(part, compute_uv=False), part.shape[1], BLOCK)


def _capped(rows: Array) -> Width | None:
    """The rows as they were before a cap: the one that makes them low rank, if any does."""
    c = find_cap(_sketch(rows), BLOCK, float(np.abs(rows).max()))
    free = uncapped(rows, c)
    found = rank_of(np.linalg.svd(free, compute_uv=False), free.shape[1], BLOCK)
    return None if found is None else Width(free, found, False, c)


def from_tops(spec: OracleSpec, rng: np.random.Generator) -> Asking[tuple[Width, Array]]:
    """The width and the tokens (m,) it is seen on, from the top-k of random prompts."""
    k = (spec.outputs or 2) // 2
    ids = np.zeros((0, k), dtype=np.int64)
    logits = np.zeros((0, k))
    for doubling in range(_DOUBLINGS + 1):
        count = FIRST if doubling == 0 else len(ids)
        answers = yield Probes(random_prompts(spec, count, rng), phase="main")
        ids = np.concatenate([ids, answers[:, :k].astype(np.int64)])
        logits = np.concatenate([logits, answers[:, k:]])
        tokens, rows = common_block(ids, logits, spec.vocabulary or 0)
        if min(rows.shape) > BLOCK:
            rows = centre(rows)
            part = rows if rows.shape[1] >= rows.shape[0] else rows[: rows.shape[1]]
            found = rank_of(np.linalg.svd(part, compute_uv=False)[:-1], part.shape[1], BLOCK)
            if found is not None:
                return Width(rows, found, True, None), tokens
    raise NotIdentifiable(
        f"the {k} likeliest tokens of {len(ids)} prompts share a block of {rows.shape[0]} prompts and {rows.shape[1]} "
        f"tokens, and a width shows only in a block {BLOCK} larger than it both ways. A service that lets tokens be "
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
