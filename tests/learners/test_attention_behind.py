"""W behind networks nobody described: activations, depth, rank, size of W, number formats, refusals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import erf, expit

import unsoftmax as us

KINDS = ["relu", "bias-free", "cancelling", "gelu", "deep", "swiglu"]


def network(kind, dim, width, rng):
    """A network g: (batch, d) -> (batch,)."""
    A, w = rng.standard_normal((dim, width)), rng.standard_normal(width)
    b, b_o = rng.standard_normal(width), float(rng.standard_normal())
    if kind == "cancelling":
        A, w, b = np.hstack([A, -A]), np.append(w, w), np.append(b, b)
    inner = [rng.standard_normal((width, width)) / np.sqrt(width) for _ in range(2)]
    gate = rng.standard_normal((dim, width))
    match kind:
        case "bias-free":
            return lambda z: np.maximum(z @ A, 0) @ w
        case "gelu":
            return lambda z: (z @ A + b) * (1 + erf((z @ A + b) / np.sqrt(2))) @ w + b_o
        case "deep":
            return lambda z: (
                np.maximum(np.maximum(np.maximum(z @ A + b, 0) @ inner[0] + b, 0) @ inner[1] - b, 0) @ w + b_o
            )
        case "swiglu":
            return lambda z: ((z @ A + b) * expit(z @ A + b) * (z @ gate)) @ w + b_o
        case _:
            return lambda z: np.maximum(z @ A + b, 0) @ w + b_o


def target(kind, dim, width, rank, residual, norm=1.0, seed=0):
    """W and a callable: attention, a residual matrix, the network."""
    rng = np.random.default_rng(seed)
    W = us.models.SingleHead.random(dim, rank=rank, norm=norm, seed=seed).W
    attention, g = us.models.AttentionBehind(W), network(kind, dim, width, rng)
    R = rng.standard_normal((dim, dim)) if residual else np.zeros((dim, dim))
    return W, lambda X: g(attention(X) + X[:, -1] @ R)


def relative(W, expected) -> float:
    return float(np.linalg.norm(W - expected) / np.linalg.norm(expected))


def limit(dim, rank) -> float:
    """Unknowns, calibration and repairs, and 12 verifying queries for what stands beside attention."""
    return 1.05 * rank * (2 * dim - rank) + 2 * dim + 64 + 12


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("dim", "rank", "residual"), [(32, 32, True), (32, 4, False), (64, 8, True)])
def test_bars(kind, dim, rank, residual) -> None:
    W, fn = target(kind, dim, 2 * dim, rank, residual, seed=dim + rank)
    recovery = us.recover(us.oracle(fn, dim), us.learners.AttentionBehind())
    assert relative(recovery.model.W, W) <= 1e-11
    assert recovery.usage.billed <= limit(dim, rank)
    assert recovery.model.degree == (2 if kind == "swiglu" else 1)


@pytest.mark.long
def test_a_hundred_random_models_are_right_or_say_that_they_are_not() -> None:
    wrong, refused = 0, 0
    for seed in range(100):
        rng = np.random.default_rng(9000 + seed)
        dim = int(rng.integers(4, 49))
        rank = dim if rng.random() < 0.5 else max(1, dim // 8)
        width, kind = int(2 ** rng.uniform(1, 8)), str(rng.choice(KINDS))
        W, fn = target(kind, dim, width, rank, rng.random() < 0.5, 10 ** rng.uniform(-4, 4), seed)
        try:
            recovery = us.recover(us.oracle(fn, dim), us.learners.AttentionBehind(), seed=seed)
        except us.errors.UnsoftmaxError:
            refused += 1
            continue
        wrong += relative(recovery.model.W, W) > 1e-11 or recovery.usage.billed > limit(dim, rank)
    assert wrong == 0
    assert refused <= 5


@pytest.mark.long
@pytest.mark.parametrize("dim", [32, 64])
@pytest.mark.parametrize("share", [1, 8])
def test_bars_on_many_models(dim, share) -> None:
    """All kinds of network with and without a residual, 30 models each; a miss is one that the learner reports."""
    reported = 0
    for seed in range(30):
        rng = np.random.default_rng([dim, share, seed])
        kind, residual, width = KINDS[seed % len(KINDS)], seed // len(KINDS) % 2 == 1, int(dim * 2 ** rng.integers(3))
        W, fn = target(kind, dim, width, dim // share, residual, 10 ** rng.uniform(-2, 2), 70_000 + 100 * dim + seed)
        try:
            recovery = us.recover(us.oracle(fn, dim), us.learners.AttentionBehind(), seed=seed)
        except us.errors.UnsoftmaxError:
            reported += 1
            continue
        assert relative(recovery.model.W, W) <= 1e-11
        assert recovery.usage.billed <= limit(dim, dim // share)
    assert reported <= 1


@settings(max_examples=15, deadline=None)
@given(
    dim=st.integers(2, 12),
    kind=st.sampled_from(KINDS),
    exponent=st.floats(-6, 6),
    residual=st.booleans(),
    seed=st.integers(0, 9999),
)
def test_any_size_of_W(dim, kind, exponent, residual, seed) -> None:
    W, fn = target(kind, dim, 4 * dim, None, residual, 10**exponent, seed)
    try:
        recovery = us.recover(us.oracle(fn, dim), us.learners.AttentionBehind(), seed=seed)
    except us.errors.NotIdentifiable:
        return
    assert relative(recovery.model.W, W) <= 1e-9


@pytest.mark.parametrize("width", [1, 2, 3])
def test_a_network_that_is_off_along_many_rays(width) -> None:
    """Some are off everywhere the learner looks, and it says so; most are not."""
    recovered = 0
    for seed in range(8):
        W, fn = target("relu", 8, width, 2, True, seed=seed)
        try:
            recovery = us.recover(us.oracle(fn, 8), us.learners.AttentionBehind(), seed=seed)
        except us.errors.NotIdentifiable:
            continue
        assert relative(recovery.model.W, W) <= 1e-11
        recovered += 1
    assert recovered >= 5


def test_no_attention_at_all_is_W_zero() -> None:
    zero = us.models.Transformer.random(6, 9, norm=0.0, seed=1)
    assert not us.recover(us.oracle(zero), us.learners.AttentionBehind()).model.W.any()


def test_float32() -> None:
    target32 = us.models.Transformer.random(16, 32, bias=True, seed=3).astype("float32")
    recovery = us.recover(us.oracle(target32, dtype="float32"), us.learners.AttentionBehind())
    assert relative(recovery.model.W, target32.W) <= 1e-4


def test_the_model_is_the_attention_alone_and_survives_a_file(tmp_path) -> None:
    reference = us.models.Transformer.random(6, 9, seed=1)
    recovery = us.recover(us.oracle(reference), us.learners.AttentionBehind())
    recovery.save(tmp_path / "behind.safetensors")
    model = us.models.load(tmp_path / "behind.safetensors")
    X = np.random.default_rng(0).standard_normal((5, 4, 6))
    np.testing.assert_allclose(reference.network.of(model(X)), reference(X), rtol=1e-12)
    assert us.models.distance(model, reference) < 1e-13


def test_bounded_tokens_are_refused_before_the_first_query() -> None:
    with pytest.raises(us.errors.DomainError, match="max_norm"):
        us.recover(us.oracle(us.models.Transformer.random(4, 5), max_norm=10.0), us.learners.AttentionBehind())


def test_several_heads_are_not_read() -> None:
    with pytest.raises(us.errors.InvalidArgument, match="heads"):
        us.recover(us.oracle(us.models.Transformer.random(4, 5)), us.learners.AttentionBehind(heads=2))


def test_a_wrong_W_fails_verification() -> None:
    from unsoftmax.oracles.stack import Stack
    from unsoftmax.run.engine import run
    from unsoftmax.verify import check

    reference = us.models.Transformer.random(6, 9, bias=True, seed=1)
    oracle = us.oracle(reference)
    right = us.recover(oracle, us.learners.AttentionBehind()).model
    wrong = us.models.AttentionBehind(right.W * (1 + 1e-9), right.degree, right.length)
    assert run(check(right, oracle.spec, 1), Stack(oracle)).holds
    assert not run(check(wrong, oracle.spec, 1), Stack(oracle)).holds


BESIDE = {
    "a network of the query token": lambda X, A: (np.tanh(X[:, -1] @ A) * (X[:, -1] @ A)).sum(axis=1),
    "a form of the query token": lambda X, A: np.einsum("nd,de,ne->n", X[:, -1], A[:, : X.shape[2]], X[:, -1]),
}


@pytest.mark.parametrize("beside", BESIDE)
def test_what_the_query_token_does_beside_attention_is_free_and_said_to_be(beside) -> None:
    """The note said that a function of attention's output alone explains such answers; none does."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        head, A = us.models.SingleHead.random(8, norm=2.0, seed=seed), rng.standard_normal((8, 12))
        recovery = us.recover(us.oracle(lambda X, h=head, A=A: h(X) + 0.1 * BESIDE[beside](X, A), 8), seed=seed)
        assert relative(recovery.model.W, head.W) <= 1e-11
        assert any("its output and of the last token explains the answers" in note for note in recovery.notes)
        assert "nothing else" in [claim.name for claim in recovery.certificate]


@pytest.mark.parametrize("size", [1.0, 1e-3, 1e-9])
def test_what_other_tokens_do_beside_attention_is_refused(size) -> None:
    """Bounded beside answers that grow: along rays it vanishes, and W had been accepted as all that other tokens do."""
    for seed in range(3):
        _, fn = target("relu", 8, 16, 8, False, seed=seed)
        A = np.random.default_rng(seed).standard_normal(8)
        with pytest.raises(us.errors.ModelMismatch, match="nothing else"):
            us.recover(
                us.oracle(lambda X, f=fn, A=A: f(X) + size * np.tanh(X @ A).mean(axis=1), 8),
                us.learners.AttentionBehind(),
                seed=seed,
            )
