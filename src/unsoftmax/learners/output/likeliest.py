"""Only the likeliest tokens of each prompt: a block of prompts and tokens that has no holes, if there is one.

Theory: docs/theory/output-layer.md, "The output layer", statement.
"""

from __future__ import annotations

import numpy as np

from unsoftmax.errors import NotIdentifiable
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.output.prompts import random_prompts
from unsoftmax.learners.output.reading import centre
from unsoftmax.learners.output.width import BLOCK, Width
from unsoftmax.probes.base import Array, Probes
from unsoftmax.solvers.row_space import rank_of
from unsoftmax.spec import OracleSpec

FIRST = 64
"""Prompts asked at first; doubled until a block shows a width, or the next doubling promises none."""

_DOUBLINGS = 5
"""2048 prompts at most: a block grows slower than the prompts, so one that is too narrow then stays so."""


MOST = FIRST * 2**_DOUBLINGS
"""Prompts asked at most."""


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
