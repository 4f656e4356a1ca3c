"""What changed: the hypotheses in the order in which they can be told apart."""

from __future__ import annotations

from unsoftmax.comparing.detection import Detection, Plan
from unsoftmax.comparing.findings import Finding
from unsoftmax.learners.core.base import Asking


def explain(seen: Detection, made: Plan, base: Finding, alpha: float, seed: int) -> Asking[Finding]:
    """A verdict for a target that differs."""
    return base.said("unexplained", f"The answers differ from the reference's (p = {base.p_value:.1g}).")
    yield  # the explanations ask more
