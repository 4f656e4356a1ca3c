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
def output_layer_least_top(d: int, block: int = 16) -> int:
    """Likeliest tokens that an answer must show, all prompts the same ones, for the width d to show without a bias.

    Their differences span d dimensions, and a block of singular values beyond must be noise; 64 prompts then do, and
    up to 2048 where prompts share only some of the tokens.
    """
    return d + block + 1


@checked
def output_layer_rotation_requests(d: int) -> int:
    """Prompts that leave only a rotation behind a final norm: the d(d+1)/2 + d unknowns of an ellipsoid and an eighth.

    With one more for every eight unknowns the least squares problem is conditioned like 1 / (1 - sqrt(8/9)) = 17.
    """
    unknowns = d * (d + 1) // 2 + d
    return unknowns + max(16, math.ceil(unknowns / 8))


@checked
def token_layer_unknowns(V: int, d: int, H: int, k: int, T: int) -> int:
    """A one-layer attention-only language model: V tokens, T places, H heads of k dimensions, d wide.

    Embeddings, places and unembedding less the choice of the residual stream's basis (d^2) and of what tokens and
    places share (d); scores and value maps of rank k.
    """
    return 2 * V * d + T * d - d - d * d + 2 * H * (2 * d * k - k * k)


@checked
def token_layer_queries(V: int, d: int, H: int, k: int, T: int, K: int = 7) -> int:
    """Prompts that show its circuits: V tokens alone, then a cube over K places, values, scores and the places left.

    The cube takes H K + 13, the directions heads write into H + 1 for each of k + 3 - K tokens, values 2 for each other
    of d + 4 and d more, scores of k queries 1.3 d / K each and of d + 4 - k others 1.5 k / K, places beyond K + 1 two
    each; K - 1 more where heads leave directions free.
    """
    cube = min(2**K, H * K + 13)
    ranges = max(1, k + 3 - K)
    values = (H + 1) * ranges + 2 * (d + 4 - ranges) + d + (K - 1) * (H * k < d)
    scores = k * math.ceil(1.3 * d / K) + (d + 4 - k) * math.ceil(1.5 * k / K)
    return V + cube + values + scores + 2 * max(0, T - K - 1)
