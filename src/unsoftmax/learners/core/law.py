"""The law of scores: those of attention are affine in a token. Heads that come apart whatever their scores are, by where
they write or by algebra, show whether theirs are.

Theory: docs/theory/attention-layer.md, "LayerNorm before".
"""

from __future__ import annotations

from unsoftmax.errors import Code, ModelMismatch
from unsoftmax.learners.core.constants import CORE


def require_affine(missed: float, left_open: float, told_by: str, of: str) -> None:
    """Refuse logits that miss what affine ones `of` a token would be by more than the answers leave open of them."""
    if missed > CORE.bent_over_open * left_open:
        raise ModelMismatch(
            f"heads are told apart by {told_by}, and their scores are not q'k: logits {of} by {missed:.1g}, where "
            f"{left_open:.1g} is left open (a soft cap, normed queries and keys, or another kernel).",
            code=Code.LAW,
        )
