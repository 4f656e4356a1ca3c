"""The laws of softmax attention: scores are affine in a token, and weights add up to 1 and hang on scores alone.

Heads that come apart whatever their scores are, by where they write or by algebra, show whether theirs are affine.
Under weights that add up to 1 several copies of every token are answered as one of each; copies of a single token are
at any temperature.

Theory: docs/theory/attention-layer.md, "LayerNorm before".
"""

from __future__ import annotations

from unsoftmax.errors import Code, ModelMismatch
from unsoftmax.learners.core.constants import CORE


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
    return "weights hang on the length of the sequence, or on places in it (a temperature by length, a window)"
