"""Closed forms against hand counts."""

from unsoftmax import theory


def test_single_head() -> None:
    assert theory.single_head_queries(64) == 4160 == theory.single_head_unknowns(64)


def test_low_rank_at_full_rank_is_the_single_head() -> None:
    assert theory.low_rank_unknowns(10, 10) == theory.single_head_unknowns(10)
    assert theory.low_rank_unknowns(4096, 128) == 128 * (8192 - 128) + 4096


def test_low_rank_counts() -> None:
    assert theory.low_rank_queries(256, 8) == theory.low_rank_unknowns(256, 8) == 256 + 8 * 504
    assert theory.nuclear_norm_measurements(32, 2) == 4 * 2 * 62
    assert theory.nuclear_norm_measurements(32, 2, constant=2.5) == 310
    assert theory.nuclear_norm_measurements(6, 3) == 36
    assert theory.nuclear_norm_queries(32, 2) == 32 + 496


def test_others() -> None:
    assert theory.relu_network_unknowns(3, 5) == 15
    assert theory.relu_network_unknowns(3, 5, bias=True) == 21
    assert theory.transformer_unknowns(3, 5) == 24
    assert theory.transformer_queries(3, 100) == 124
    assert theory.multi_head_unknowns(4, 3) == 60
    assert theory.orthogonal_heads_queries([2, 3]) == 6 + 12
