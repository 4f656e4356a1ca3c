"""Low-rank heads at the degrees of freedom, rank unknown; and the targets that could mislead the rank."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import unsoftmax as us
from tests.weights import HEAD_DIM, HEADS, LAYERS, minilm_head


def with_spectrum(d: int, s, seed: int, *, K=None, v=None) -> us.models.LowRankHead:
    rng = np.random.default_rng(seed)
    K = np.linalg.qr(rng.standard_normal((d, len(s))))[0] if K is None else K
    Q = np.linalg.qr(rng.standard_normal((d, len(s))))[0]
    return us.models.LowRankHead(K * np.asarray(s), Q, rng.standard_normal(d) if v is None else v)


def check(head, rank: int, error: float, *, learner=None, seed: int = 0, **options) -> us.Recovery:
    d = head.dim
    recovery = us.recover(us.oracle(head, **options), learner or us.learners.LowRank(), seed=seed)
    assert isinstance(recovery.model, us.models.LowRankHead)
    assert recovery.model.rank == rank
    assert us.models.distance(recovery.model, head) <= error
    phases = recovery.usage.phases
    assert phases["values"] + phases["main"] == us.theory.low_rank_queries(d, rank)
    return recovery


@pytest.mark.parametrize(("d", "r"), [(256, 8), (512, 16), (1024, 32)])
def test_unknown_rank_at_the_degrees_of_freedom(d: int, r: int) -> None:
    recovery = check(us.models.LowRankHead.random(d, r, seed=d), r, 1e-12, seed=r)
    assert recovery.usage.billed <= 1.02 * us.theory.low_rank_unknowns(d, r) + 2 * (r + 64)
    assert f"rank found: {r}" in repr(recovery)


@pytest.mark.parametrize("seed", range(5))
def test_condition_number_a_thousand(seed: int) -> None:
    check(with_spectrum(256, np.geomspace(1, 1e-3, 8), seed), 8, 1e-12, seed=seed)


def test_float32_target() -> None:
    head = us.models.LowRankHead.random(512, 16, seed=2)
    low = head.astype("float32")
    for dtype in ("float32", "float64"):
        recovery = us.recover(us.oracle(low, dtype=dtype), us.learners.LowRank())
        assert recovery.model.rank == 16
        assert us.models.distance(recovery.model, head) <= 1e-4


def test_a_cast_hidden_before_the_target_costs_no_accuracy() -> None:
    head = us.models.LowRankHead.random(128, 4, seed=2)
    oracle = us.oracle(lambda X: head(X.astype(np.float32).astype(np.float64)), 128)
    recovery = us.recover(oracle, us.learners.LowRank())
    assert recovery.model.rank == 4
    assert us.models.distance(recovery.model, head) <= 1e-12


@settings(max_examples=40, deadline=None)
@given(
    d=st.integers(2, 24),
    r=st.integers(1, 23),
    log_norm=st.floats(-9, 9),
    log_v=st.floats(-9, 9),
    sparsity=st.floats(0, 0.95),
    seed=st.integers(0, 10**6),
)
def test_any_size_rank_and_v(d: int, r: int, log_norm: float, log_v: float, sparsity: float, seed: int) -> None:
    head = us.models.LowRankHead.random(d, min(r, d - 1), norm=10**log_norm, sparsity=sparsity, seed=seed)
    check(us.models.LowRankHead(head.K, head.Q, head.v * 10**log_v), head.rank, 1e-10, seed=seed)


def test_structured_heads() -> None:
    d = 64
    e = np.eye(d)
    v = np.random.default_rng(0).standard_normal(d)
    unit = v[:, None] / np.linalg.norm(v)
    check(us.models.LowRankHead(e[:, [3, 7, 9]], e[:, [1, 7, 40]], v), 3, 1e-12)
    check(us.models.LowRankHead(e[:, :10], e[:, :10], e[5]), 10, 1e-12)
    check(with_spectrum(d, [5.0], 1, K=unit, v=v), 1, 1e-12)
    check(with_spectrum(d, np.ones(3), 1, K=np.linalg.qr(np.hstack([unit, e[:, :2]]))[0], v=v), 3, 1e-12)


def test_a_decaying_spectrum_gets_a_stated_numerical_rank() -> None:
    head = with_spectrum(96, 10.0 ** -np.arange(0, 20), 1)
    recovery = us.recover(us.oracle(head), us.learners.LowRank())
    assert 10 <= recovery.model.rank <= 16
    assert us.models.distance(recovery.model, head) <= 1e-10
    assert "cannot be told from the answers' own error" in recovery.notes[0]


def test_full_rank_falls_back_and_says_so() -> None:
    head = us.models.SingleHead.random(24, seed=1)
    recovery = us.recover(us.oracle(head), us.learners.LowRank())
    assert isinstance(recovery.model, us.models.SingleHead)
    assert us.models.distance(recovery.model, head) <= 1e-12
    assert recovery.usage.phases["main"] == 24**2
    assert "full" in recovery.notes[0]


def test_zero_scores_are_rank_zero() -> None:
    head = us.models.LowRankHead(np.zeros((16, 1)), np.zeros((16, 1)), np.ones(16))
    recovery = us.recover(us.oracle(head), us.learners.LowRank())
    assert recovery.model.rank == 0
    assert us.models.distance(recovery.model, head) == 0
    assert "main" not in recovery.usage.phases


def test_given_rank_is_an_upper_bound() -> None:
    head = us.models.LowRankHead.random(24, 3, seed=1)
    recovery = us.recover(us.oracle(head), us.learners.LowRank(rank=5))
    assert recovery.model.rank == 3
    assert recovery.usage.phases["main"] == 5 * (48 - 5)
    assert us.models.distance(recovery.model, head) <= 1e-12
    with pytest.raises(us.errors.ModelMismatch, match=r"higher rank.*rank=None"):
        us.recover(us.oracle(head), us.learners.LowRank(rank=2))


@pytest.mark.parametrize("rank", [0, -1, 25])
def test_rank_out_of_range(rank: int) -> None:
    with pytest.raises(us.errors.InvalidArgument, match="between 1 and dim"):
        us.recover(us.oracle(us.models.LowRankHead.random(24, 3)), us.learners.LowRank(rank=rank))


def test_bounded_tokens() -> None:
    head = us.models.LowRankHead.random(64, 4, seed=1)
    check(head, 4, 1e-9, max_norm=1.0, max_length=2)
    with pytest.raises(us.errors.NotIdentifiable, match="rank cannot be told"):
        us.recover(us.oracle(head, max_norm=1e-5), us.learners.LowRank())
    with pytest.raises(us.errors.NotIdentifiable, match="no score is visible") as invisible:
        us.recover(us.oracle(head, max_norm=1e-7), us.learners.LowRank())
    assert float(str(invisible.value).split("|| < ")[1].split()[0]) >= np.linalg.norm(head.W)
    with pytest.raises(us.errors.DomainError, match="two tokens"):
        us.recover(us.oracle(head, max_length=1), us.learners.LowRank())


def real_head(layer: int, head: int) -> None:
    target = minilm_head(layer, head, output=7 * layer + head)
    recovery = check(target, HEAD_DIM, 1e-9, seed=layer * HEADS + head)
    assert recovery.usage.billed <= 1.05 * us.theory.low_rank_unknowns(target.dim, HEAD_DIM)


@pytest.mark.parametrize(("layer", "head"), [(0, 0), (1, 7), (2, 3), (3, 11), (4, 5), (5, 9)])
def test_real_trained_heads(layer: int, head: int) -> None:
    real_head(layer, head)


@pytest.mark.long
@pytest.mark.parametrize("layer", range(LAYERS))
def test_every_real_trained_head(layer: int) -> None:
    for head in range(HEADS):
        real_head(layer, head)


@pytest.mark.parametrize("runs", [6, pytest.param(20, marks=pytest.mark.long)])
@pytest.mark.parametrize("method", ["nuclear", "altmin"])
def test_the_papers_random_probes(method: str, runs: int) -> None:
    d, r = 32, 2
    m = us.theory.nuclear_norm_measurements(d, r)
    assert m == 4 * r * (2 * d - r)
    recovered = 0
    for seed in range(runs):
        head = us.models.LowRankHead.random(d, r, seed=seed)
        try:
            recovery = us.recover(us.oracle(head), us.learners.LowRank(rank=r, method=method), seed=seed)
        except us.errors.ModelMismatch:
            continue
        assert recovery.usage.phases["main"] == m
        recovered += us.models.distance(recovery.model, head) <= 1e-6
    assert recovered >= runs - 1


def test_nuclear_norm_needs_no_rank() -> None:
    head = us.models.LowRankHead.random(24, 2, seed=1)
    recovery = us.recover(us.oracle(head), us.learners.LowRank(method="nuclear", measurements=400))
    assert recovery.model.rank == 2
    assert us.models.distance(recovery.model, head) <= 1e-6
    assert "duality gap" in recovery.notes[0]


@pytest.mark.parametrize("method", ["nuclear", "altmin"])
def test_random_probes_of_a_float32_target(method: str) -> None:
    head = us.models.LowRankHead.random(24, 2, seed=1)
    for dtype in ("float32", "float64"):
        oracle = us.oracle(head.astype("float32"), dtype=dtype)
        recovery = us.recover(oracle, us.learners.LowRank(rank=2, method=method))
        assert us.models.distance(recovery.model, head) <= 1e-5


@pytest.mark.parametrize("method", ["nuclear", "altmin"])
def test_measurements_that_do_not_determine_W_are_a_status(method: str) -> None:
    head = us.models.LowRankHead.random(24, 4, seed=1)
    few = us.learners.LowRank(rank=2, method=method, measurements=100)
    with pytest.raises(us.errors.ModelMismatch, match="held-out") as error:
        us.recover(us.oracle(head), few)
    assert error.value.recovery.status is us.Status.MISMATCH
    assert error.value.recovery.usage.phases["main"] == 100


@pytest.mark.parametrize(
    ("learner", "message"),
    [
        (us.learners.LowRank(rank=2, method="nuclear", measurements=50), "unknowns of W, 92"),
        (us.learners.LowRank(rank=2, method="nuclear", measurements=577), r"d\^2 = 576"),
        (us.learners.LowRank(method="nuclear"), "`rank` or `measurements`"),
        (us.learners.LowRank(method="altmin", measurements=400), "needs `rank`"),
        (us.learners.LowRank(measurements=400), 'for method="nuclear"'),
        (us.learners.LowRank(method="magic"), "'cross', 'nuclear' or 'altmin'"),
    ],
)
def test_arguments_that_cannot_work_are_refused_before_a_query(learner, message: str) -> None:
    def never(tokens):
        raise AssertionError("asked")

    with pytest.raises(us.errors.InvalidArgument, match=message):
        us.recover(us.oracle(never, 24), learner)


def test_the_nuclear_program_refuses_what_it_cannot_hold() -> None:
    with pytest.raises(us.errors.InvalidArgument, match="m\\^2 numbers"):
        us.recover(us.oracle(us.models.LowRankHead.random(512, 16)), us.learners.LowRank(rank=16, method="nuclear"))


@pytest.mark.long
def test_nuclear_norm_at_dimension_256() -> None:
    head = us.models.LowRankHead.random(256, 4, seed=0)
    recovery = us.recover(us.oracle(head), us.learners.LowRank(rank=4, method="nuclear"))
    assert us.models.distance(recovery.model, head) <= 1e-6


@pytest.mark.parametrize("tolerance", [1e-9, 1e-6, 1e-4])
def test_noise_lowers_the_accuracy_not_the_rank(tolerance: float) -> None:
    head = us.models.LowRankHead.random(64, 4, seed=1)
    oracle = us.oracles.Perturbed(us.oracle(head), tolerance, adversarial=True)
    recovery = us.recover(oracle, us.learners.LowRank())
    assert recovery.model.rank == 4
    assert us.models.distance(recovery.model, head) <= 100 * tolerance
    assert recovery.certificate.holds
