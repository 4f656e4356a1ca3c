"""The laws of softmax attention: scores are affine in a token, and weights add up to 1 and hang on scores alone.

Heads that come apart whatever their scores are, by where they write or by algebra, show whether theirs are affine.
Under weights that add up to 1 several copies of every token are answered as one of each; copies of a single token are
at any temperature.

Theory: docs/theory/attention-layer.md, "LayerNorm before".
"""

from __future__ import annotations

import numpy as np

from unsoftmax.errors import Code, ModelMismatch
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.probes.base import Array, Probes

OTHER_WEIGHTS = (
    "a soft cap, weights that are not exp(score) (its square, entmax, sparsemax), or a share of the weight that no "
    "score moves"
)
"""What bends the logs of weights, where nothing tells which."""


def bent(missed: float, left_open: float) -> bool:
    """Whether logits miss an affine function of a token by more than the answers leave open of them."""
    return missed > CORE.bent_over_open * left_open


def require_affine(missed: float, left_open: float, told_by: str, of: str) -> None:
    """Refuse logits `of` heads that are bent."""
    if bent(missed, left_open):
        raise ModelMismatch(
            f"heads are told apart by {told_by}, and their scores are not q'k: logits {of} by {missed:.1g}, where "
            f"{left_open:.1g} is left open (a soft cap, normed queries and keys, or another kernel, if they do not "
            "write into each other's ranges).",
            code=Code.LAW,
        )


def why_copies_count(of_one: bool) -> str:
    """What may make copies of every token count, and whether those of a token alone do."""
    if of_one:
        return "weights do not add up to 1 (a sink, or weights that are summed up)"
    return (
        "weights hang on the length of the sequence, or on places in it (a temperature by length, a window), or are no "
        "shares of exp(score) (entmax, sparsemax)"
    )


def in_copies(tokens: Array, copies: int, phase: str) -> Asking[tuple[Array, Array]]:
    """Answers to sequences (n, k, d) as they are, and with every token that many times, from 2 n queries."""
    counts = np.repeat([1, copies], len(tokens))[:, None] * np.ones((1, tokens.shape[1]), dtype=int)
    once, often = np.split((yield Probes(np.concatenate([tokens, tokens]), counts, phase=phase)), 2)
    return once, often


def require_copies(
    tokens: Array, longest: float, least: Array, felt: float, absolute: float, phase: str
) -> Asking[None]:
    """Refuse numbers by which copies of both tokens of pairs (n, 2, d) are answered otherwise than one of each: by more
    than `felt` times the larger of the answer and `least` (n,), and `absolute`. 2 n queries, 2 n more to say why."""
    copies = int(min(CORE.copies_of_all, longest / 2))
    if copies < 2:
        return
    once, often = yield from in_copies(tokens, copies, phase)
    allowed = felt * np.maximum(np.abs(once), least) + absolute
    if (np.abs(often - once) <= allowed).all():
        return
    once, often = yield from in_copies(tokens[:, -1:], copies, phase)
    raise ModelMismatch(copies_count(copies, bool((np.abs(often - once) > allowed).any())), code=Code.LAW)


def copies_count(copies: int, of_one: bool) -> str:
    """That copies count, and what may make them."""
    return f"{copies} copies of every token are answered otherwise than one of each: {why_copies_count(of_one)}."
