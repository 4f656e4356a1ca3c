"""Language models: requests for the output layer. d hidden width, V vocabulary, k tokens that an answer names."""

from __future__ import annotations

import math

from unsoftmax.arguments import checked


@checked
def output_layer_unknowns(V: int, d: int) -> int:
    """A d-dimensional subspace of V dimensions: d (V - d) numbers."""
    return d * (V - d)


@checked
def output_layer_requests(d: int, block: int = 16) -> int:
    """Prompts that show the width d when all logits are answered: d + 1 to 16 to the next block, and one block more."""
    return (math.ceil(d / block) + 1) * block


@checked
def output_layer_requests_per_prompt(V: int, k: int) -> int:
    """Requests that show all V tokens of a prompt, k chosen ones each, a reference token among them."""
    return math.ceil((V - 1) / (k - 1))


@checked
def output_layer_chosen_requests(V: int, d: int, k: int) -> int:
    """Width and row space where k tokens can be chosen: every prompt takes ceil((V - 1) / (k - 1)) requests."""
    return output_layer_requests(d) * output_layer_requests_per_prompt(V, k)


@checked
def output_layer_rotation_requests(d: int) -> int:
    """Prompts that leave only a rotation behind a final norm: the d(d+1)/2 + d unknowns of an ellipsoid and an eighth.

    With one more for every eight unknowns the least squares problem is conditioned like 1 / (1 - sqrt(8/9)) = 17.
    """
    unknowns = d * (d + 1) // 2 + d
    return unknowns + max(16, math.ceil(unknowns / 8))
