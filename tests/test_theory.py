"""Closed forms against hand counts."""

from unsoftmax import theory


def test_single_head() -> None:
    assert theory.single_head_queries(64) == 4160 == theory.single_head_unknowns(64)


def test_low_rank_at_full_rank_is_the_single_head() -> None:
    assert theory.low_rank_unknowns(10, 10) == theory.single_head_unknowns(10)
    assert theory.low_rank_unknowns(4096, 128) == 128 * (8192 - 128) + 4096


def test_others() -> None:
    assert theory.relu_network_unknowns(3, 5) == 15
    assert theory.relu_network_unknowns(3, 5, bias=True) == 21
    assert theory.transformer_unknowns(3, 5) == 24
    assert theory.transformer_queries(3, 100) == 124
    assert theory.multi_head_unknowns(4, 3) == 60
    assert theory.orthogonal_heads_queries([2, 3]) == 6 + 12
