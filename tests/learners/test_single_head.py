"""Theorem 4.1 at machine precision, on the targets where coordinate probes fail."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import unsoftmax as us

V_KINDS = ("dense", "sparse", "tiny")


def target(d: int, norm: float, kind: str, seed: int) -> us.models.SingleHead:
    head = us.models.SingleHead.random(d, norm=norm, sparsity=0.9 if kind == "sparse" else 0.0, seed=seed)
    if kind == "tiny":
        head = us.models.SingleHead(head.W, head.v * np.geomspace(1, 1e-9, d))
    return head


def check(head, *, error: float = 1e-13, seed: int = 0, **options) -> us.Recovery:
    d = head.dim
    recovery = us.recover(us.oracle(head, **options), us.learners.SingleHead(), seed=seed)
    phases = recovery.usage.phases
    assert us.models.distance(recovery.model, head) <= error
    assert phases["values"] + phases["main"] == us.theory.single_head_queries(d)
    assert phases["pilot"] + phases.get("repair", 0) <= 64 + (d + d * d) // 100
    return recovery


@pytest.mark.parametrize("norm", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("kind", V_KINDS)
def test_fifty_seeds_at_d_8(kind, norm) -> None:
    for seed in range(50):
        check(target(8, norm, kind, seed), seed=seed)


@pytest.mark.parametrize("d", [1, 2, 3, 64, 256])
@pytest.mark.parametrize("kind", V_KINDS)
def test_other_sizes(d, kind) -> None:
    for norm in (1e-3, 1e3):
        check(target(d, norm, kind, d))


@settings(max_examples=60, deadline=None)
@given(
    d=st.integers(1, 12),
    log_norm=st.floats(-12, 12),
    log_v=st.floats(-12, 12),
    rank=st.integers(1, 12),
    seed=st.integers(0, 10**6),
)
def test_any_size_of_W_and_v_and_any_rank(d, log_norm, log_v, rank, seed) -> None:
    head = us.models.SingleHead.random(d, rank=min(rank, d), norm=10**log_norm, seed=seed)
    check(us.models.SingleHead(head.W, head.v * 10**log_v), seed=seed)


def test_concentrated_scores_are_repaired_not_lost() -> None:
    d = 32
    rng = np.random.default_rng(0)
    W = 1e-3 * rng.standard_normal((d, d))
    W[3, 7] = 500.0
    recovery = check(us.models.SingleHead(W, rng.standard_normal(d)))
    assert recovery.usage.phases.get("repair", 0) > 0


def test_uniform_attention_gives_zero_scores() -> None:
    head = us.models.SingleHead(np.zeros((6, 6)), np.arange(1.0, 7))
    recovery = us.recover(us.oracle(head), us.learners.SingleHead())
    assert np.abs(recovery.model.W).max() < 1e-12
    assert np.array_equal(recovery.model.v, head.v)


@pytest.mark.parametrize("declared", ["float32", "float64"])
def test_float32_target(declared) -> None:
    head = us.models.SingleHead.random(64, norm=2.0, seed=3).astype("float32")
    check(head, error=1e-5, dtype=declared)


def test_float64_model_behind_a_float32_cast_of_its_inputs() -> None:
    head = us.models.SingleHead.random(16, norm=2.0, seed=3)

    def casts(X):
        return head(X.astype(np.float32).astype(np.float64))

    recovery = us.recover(us.oracle(casts, 16), us.learners.SingleHead())
    assert us.models.distance(recovery.model, head) <= 1e-13


@pytest.mark.parametrize("max_norm", [0.1, 1.0, 30.0])
def test_stays_inside_a_norm_limit(max_norm) -> None:
    head = us.models.SingleHead.random(16, norm=3.0, seed=3)
    seen = []

    def refuses(X):
        seen.append(np.linalg.norm(X, axis=2).max())
        assert seen[-1] <= max_norm * (1 + 1e-12)
        return head(X)

    recovery = us.recover(us.oracle(refuses, 16, max_norm=max_norm), us.learners.SingleHead())
    assert us.models.distance(recovery.model, head) <= 1e-11


def test_the_coordinate_baseline_fails_where_it_must_and_says_so() -> None:
    with pytest.raises(us.errors.NotIdentifiable, match="saturated"):
        us.recover(us.oracle(target(16, 1e3, "dense", 0)), us.learners.SingleHead("coordinate"))
    with pytest.raises(us.errors.ModelMismatch):
        us.recover(us.oracle(target(16, 1.0, "tiny", 0)), us.learners.SingleHead("coordinate"))


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"max_length": 1}, us.errors.DomainError),
        ({"kind": "membership"}, us.errors.InvalidArgument),
        ({"outputs": 3}, us.errors.InvalidArgument),
    ],
)
def test_oracles_it_cannot_serve_are_refused_before_a_query(options, error) -> None:
    def never(X):
        raise AssertionError("asked")

    with pytest.raises(error):
        us.recover(us.oracle(never, 4, **options), us.learners.SingleHead())


def test_unknown_probes_are_refused() -> None:
    with pytest.raises(us.errors.InvalidArgument, match="probes"):
        us.recover(us.oracle(us.models.SingleHead.random(4)), us.learners.SingleHead("fancy"))


def test_zero_v_is_not_identifiable_and_says_why() -> None:
    with pytest.raises(us.errors.NotIdentifiable, match="v = 0"):
        us.recover(us.oracle(us.models.SingleHead(np.eye(3), np.zeros(3))))


@pytest.mark.parametrize(("max_norm", "dtype"), [(1e-8, "float64"), (1e-3, "float32")])
def test_scores_hidden_below_rounding_by_a_norm_limit_are_not_made_up(max_norm, dtype) -> None:
    head = us.models.SingleHead.random(8, norm=3.0, seed=1).astype(dtype)
    with pytest.raises(us.errors.NotIdentifiable, match="Raise max_norm"):
        us.recover(us.oracle(head, dtype=dtype, max_norm=max_norm), us.learners.SingleHead())


@pytest.mark.parametrize("max_norm", [1e-5, 1e-4, 1e-3, 1e-2])
def test_what_a_norm_limit_costs_is_stated(max_norm) -> None:
    head = us.models.SingleHead.random(8, norm=3.0, seed=1)
    recovery = us.recover(us.oracle(head, max_norm=max_norm), us.learners.SingleHead())
    stated = next(c.bound for c in recovery.certificate if "parameter" in c.name)
    assert us.models.distance(recovery.model, head) <= stated <= 0.1


def test_uniform_attention_under_a_norm_limit_is_recovered() -> None:
    head = us.models.SingleHead(np.zeros((5, 5)), np.arange(1.0, 6))
    recovery = us.recover(us.oracle(head, max_norm=1.0), us.learners.SingleHead())
    assert np.abs(recovery.model.W).max() < 1e-12


@pytest.mark.parametrize(
    "bend",
    [
        lambda y: np.clip(y, -3, 3),
        lambda y: y + np.maximum(y - 4, 0),
        lambda y: y + 1e-6,
        lambda y: y + 1e-6 * np.maximum(y, 0),
        lambda y: y + 1e-6 * y * y,
    ],
    ids=["clipped", "bent", "constant", "weak ReLU", "weak square"],
)
def test_answers_bent_a_little_or_far_out_are_not_a_head(bend) -> None:
    head = us.models.SingleHead.random(8, norm=2.0, seed=1)
    with pytest.raises(us.errors.ModelMismatch):
        us.recover(us.oracle(lambda X: bend(head(X)), 8), us.learners.SingleHead())


def test_repairs_end_where_no_head_would_need_more() -> None:
    head = us.models.SingleHead.random(8, norm=2.0, seed=1)
    with pytest.raises(us.errors.ModelMismatch) as error:
        us.recover(us.oracle(lambda X: 2 * np.maximum(head(X), 0), 8), us.learners.SingleHead())
    assert error.value.recovery.usage.phases.get("repair", 0) <= 256 + 32


def test_a_target_may_work_in_place() -> None:
    head = us.models.SingleHead.random(8, norm=2.0, seed=1)

    def careless(X):
        y = head(X)
        X -= X.mean()
        return y

    recovery = us.recover(us.oracle(careless, 8), us.learners.SingleHead())
    assert us.models.distance(recovery.model, head) < 1e-13


@pytest.mark.parametrize(
    "arguments", [{"learner": us.learners.SingleHead}, {"learner": "SingleHead"}, {"seed": -1}, {"ledger": 3}]
)
def test_wrong_arguments_of_recover_are_typed(arguments) -> None:
    with pytest.raises(us.errors.InvalidArgument):
        us.recover(us.oracle(us.models.SingleHead.random(4)), **arguments)


def test_a_declared_size_replaces_the_pilot() -> None:
    head = us.models.SingleHead.random(12, norm=2.0, seed=4)
    bound = float(np.linalg.norm(head.W))
    found = us.recover(us.oracle(head), us.learners.SingleHead(W_bound=bound), verify=False)
    assert found.usage.billed == us.theory.single_head_queries(12)
    assert us.models.distance(found.model, head) < 1e-13
    loose = us.recover(us.oracle(head), us.learners.SingleHead(W_bound=1e4 * bound))
    assert 1e-13 < us.models.distance(loose.model, head) < loose.certificate.claims[0].bound < 1e-8


def test_a_size_declared_too_small_is_repaired_or_named() -> None:
    head = us.models.SingleHead.random(12, norm=2.0, seed=4)
    close = us.recover(us.oracle(head), us.learners.SingleHead(W_bound=0.2 * float(np.linalg.norm(head.W))))
    assert us.models.distance(close.model, head) < 1e-12
    with pytest.raises(us.errors.ModelMismatch, match="W_bound=1e-09"):
        us.recover(us.oracle(head), us.learners.SingleHead(W_bound=1e-9))
    for wrong in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(us.errors.InvalidArgument, match="W_bound"):
            us.recover(us.oracle(head), us.learners.SingleHead(W_bound=wrong))
    with pytest.raises(us.errors.InvalidArgument, match="W_bound"):
        us.recover(us.oracle(head), us.learners.SingleHead(probes="coordinate", W_bound=1.0))
