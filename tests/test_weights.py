"""The real weights are what the tests believe they are."""

import numpy as np

from tests.weights import DIM, HEAD_DIM, minilm_attention, minilm_head


def test_a_head_of_the_layer_is_a_low_rank_head() -> None:
    head, weights = minilm_head(2, 5, output=7), minilm_attention(2)
    rows = slice(5 * HEAD_DIM, 6 * HEAD_DIM)
    x, q = np.random.default_rng(0).standard_normal((2, DIM))
    score = (weights["Wk"][rows] @ x) @ (weights["Wq"][rows] @ q) / np.sqrt(HEAD_DIM)
    assert np.isclose(x @ head.W @ q, score, rtol=1e-12)
    assert np.isclose(x @ head.v, (weights["Wo"][:, rows] @ weights["Wv"][rows] @ x)[7], rtol=1e-12)
    assert np.linalg.matrix_rank(head.W) == HEAD_DIM
