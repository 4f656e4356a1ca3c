"""Detection: unchanged targets in any kernel are the same, changed ones are not, whatever the reference is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unsoftmax as us
from unsoftmax.comparing.designs import Asked, open_pairs
from unsoftmax.comparing.detection import SINGLES, TIES, plan
from unsoftmax.comparing.references import reference_of

REFERENCES = {
    "single head": us.models.SingleHead.random(16, seed=1),
    "low rank": us.models.LowRankHead.random(16, 3, seed=2),
    "heads": us.models.MultiHead.random(16, 3, seed=3),
    "layer": us.models.AttentionLayer.random(16, 2, seed=4),
    "layer, norm before": us.models.AttentionLayer.random(16, 2, norm="pre", residual=True, seed=5),
    "layer, norm after": us.models.AttentionLayer.random(16, 2, norm="post", residual=True, seed=6),
    "transformer": us.models.Transformer.random(12, 16, seed=7),
    "transformer of heads": us.models.MultiHeadTransformer.random(8, 2, 16, seed=8),
    "network": us.models.ReluNetwork.random(12, 16, seed=9),
    "token head": us.models.TokenHead.random(40, 6, seed=10),
}


def oracle_of(model: Any, **options: Any) -> Any:
    return us.token_oracle(model, **options) if hasattr(model, "vocabulary") else us.oracle(model, **options)


def changed(model: Any, size: float, seed: int = 0) -> Any:
    """The first matrix of a model with a dense relative change."""
    weights = model.parameters()
    name = next(name for name, a in weights.items() if a.ndim >= 2)
    change = np.random.default_rng(seed).standard_normal(weights[name].shape)
    change *= size * np.linalg.norm(weights[name]) / np.linalg.norm(change)
    return type(model).from_parameters(weights | {name: weights[name] + change})


@pytest.mark.parametrize("name", REFERENCES)
def test_unchanged_is_the_same_in_float64_and_float32(name: str) -> None:
    model = REFERENCES[name]
    for target in (oracle_of(model), oracle_of(model.astype("float32"), dtype="float32")):
        result = us.compare(target, model)
        assert (result.verdict, result.differs) == ("same", False)
        assert result.p_value > 1e-3
        assert result.usage.billed == result.usage.phases["detect"] <= 60


@pytest.mark.parametrize("name", REFERENCES)
def test_a_change_of_a_billionth_shows(name: str) -> None:
    model = REFERENCES[name]
    result = us.compare(oracle_of(changed(model, 1e-9)), model, explain=False)
    assert (result.verdict, result.differs) == ("unexplained", True)
    assert result.p_value < 1e-6
    assert result.e_value > 1e6


@pytest.mark.parametrize("name", ["single head", "heads"])
def test_three_times_the_detectable_change_is_never_called_same(name: str) -> None:
    model = REFERENCES[name]
    size = us.compare(oracle_of(model), model).detectable
    assert size < 1e-13
    verdicts = [us.compare(oracle_of(changed(model, 3 * size, s)), model, explain=False, seed=s) for s in range(4)]
    assert all(result.differs for result in verdicts)


@pytest.mark.parametrize("name", ["single head", "heads"])
def test_a_temperature_shows_from_six_times_the_detectable_change_on(name: str) -> None:
    """Ties show none, so fewer questions do: at three times it p was up to 2e-3, at six times below 1e-17."""
    model = REFERENCES[name]
    warmer = type(model)(model.W * (1 + 6 * us.compare(oracle_of(model), model).detectable), model.v)
    assert all(us.compare(oracle_of(warmer), model, explain=False, seed=s).differs for s in range(4))


def test_answers_that_are_float32_are_judged_by_float32_rounding() -> None:
    model = us.models.SingleHead.random(16, seed=1)
    result = us.compare(us.oracle(model.astype("float32")), model)
    assert result.verdict == "same"
    assert any("float32" in note for note in result.notes)
    assert result.detectable > 1e-8


def test_random_and_drifting_targets_are_not_judged() -> None:
    model = us.models.SingleHead.random(16, seed=1)
    rng = np.random.default_rng(0)
    noisy = us.oracle(lambda X: model(X) + 1e-6 * rng.standard_normal(len(X)), 16)
    result = us.compare(noisy, model)
    assert (result.verdict, result.differs) == ("stochastic", None)
    calls = []

    def drifts(X: np.ndarray) -> np.ndarray:
        calls.append(len(X))
        return model(X) * (1 + 1e-5 * (sum(calls) > 40))

    assert us.compare(us.oracle(drifts, 16), model).verdict == "stochastic"


def test_a_declared_tolerance_is_no_difference_and_longer_tokens_outscale_it() -> None:
    model = us.models.SingleHead.random(16, seed=1)
    rounded = us.oracle(lambda X: np.round(model(X), 4), 16, tolerance=5e-5)
    result = us.compare(rounded, model)
    assert result.verdict == "same"
    assert result.detectable < 1e-6


def test_a_budget_that_ends_first_leaves_it_undecided() -> None:
    model = us.models.SingleHead.random(16, seed=1)
    result = us.compare(us.oracle(model), model, budget=20)
    assert (result.verdict, result.differs) == ("undecided", None)
    assert result.usage.billed <= 20
    assert us.compare(us.oracle(changed(model, 1e-3)), model, budget=40).differs


def test_a_change_that_rounding_hides_is_undecided_not_same() -> None:
    model = us.models.SingleHead.random(16, seed=1)
    target = us.oracle(model.astype("float32"), dtype="float32")
    assert us.compare(target, model, smallest=1e-3).verdict == "same"
    assert us.compare(target, model, smallest=1e-12).verdict == "undecided"


def test_references_of_every_kind(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    layer = us.models.AttentionLayer.random(16, 2, seed=4)
    module = layer.astype("float32").to_torch()
    target = us.adapters.torch_module(module)
    layer.save(tmp_path / "layer.safetensors")
    layer.astype("float32").to_onnx(tmp_path / "layer.onnx")
    for reference in (
        layer,
        module,
        target,
        tmp_path / "layer.safetensors",
        tmp_path / "layer.onnx",
        lambda X: layer(X),
    ):
        assert us.compare(target, reference).verdict == "same"
    other = us.models.AttentionLayer.random(16, 2, seed=5)
    wrong = us.oracle(other, dtype="float32")
    for reference in (module, target, tmp_path / "layer.onnx", lambda X: layer(X)):
        result = us.compare(wrong, reference, explain=False)
        assert result.differs
    assert torch is not None


def test_kernels_that_calibration_has_not_seen_raise_no_alarm() -> None:
    torch = pytest.importorskip("torch")
    for seed in range(8):
        model = us.models.MultiHead.random(12, 2, seed=100 + seed).astype("float32")
        W, v = torch.tensor(np.array(model.W)), torch.tensor(np.array(model.v))

        def served(X: np.ndarray, W: Any = W, v: Any = v) -> np.ndarray:
            x = torch.tensor(X, dtype=torch.float32)
            total = 0
            for h in range(2):
                s = (x @ W[h] @ x[:, -1:].transpose(1, 2))[..., 0]
                total = total + (torch.softmax(s, 1)[:, None] @ x)[:, 0] @ v[h]
            return np.asarray(total, dtype=np.float64)

        assert us.compare(us.oracle(served, 12, dtype="float32"), model, seed=seed).verdict == "same"


def test_long_sequences_are_among_the_probes() -> None:
    model = us.models.SingleHead.random(16, seed=1)

    def windowed(X: np.ndarray) -> np.ndarray:
        return np.asarray(model(X[:, -400:]))

    assert us.compare(us.oracle(windowed, 16), model).differs
    made = plan(reference_of(model, us.oracle(model).spec), us.oracle(model).spec, "float64", 1e-3, None, 0)
    assert max(g.X.shape[1] for g in made.groups) == 512
    limited = us.oracle(model, max_length=2, max_norm=0.5)
    made = plan(reference_of(model, limited.spec), limited.spec, "float64", 1e-3, None, 0)
    assert max(g.X.shape[1] for g in made.groups) == 2
    assert max(np.linalg.norm(g.X, axis=2).max() for g in made.groups) <= 0.5
    assert {g.name for g in made.groups} >= {TIES, SINGLES}


def test_a_ledger_resumes_and_pays_nothing(tmp_path: Path) -> None:
    model = us.models.SingleHead.random(16, seed=1)
    first = us.compare(us.oracle(model), model, ledger=tmp_path / "run.ledger")
    again = us.compare(us.oracle(model), model, ledger=tmp_path / "run.ledger")
    assert (first.verdict, again.verdict) == ("same", "same")
    assert (first.usage.billed, again.usage.billed) == (first.usage.asked, 0)


def test_what_cannot_be_compared_is_refused_before_a_query() -> None:
    model = us.models.SingleHead.random(16, seed=1)
    for wrong in (
        {"reference": us.models.SingleHead.random(8, seed=1)},
        {"reference": us.models.AttentionLayer.random(16, 2)},
        {"reference": 3},
        {"reference": model, "alpha": 0.9},
        {"reference": model, "arithmetic": "float8"},
        {"reference": model, "smallest": -1.0},
    ):
        asked: list[int] = []

        def counting(X: np.ndarray, asked: list[int] = asked) -> np.ndarray:
            asked.append(len(X))
            return model(X)

        with pytest.raises(us.errors.InvalidArgument):
            us.compare(us.oracle(counting, 16), **wrong)  # type: ignore[arg-type]
        assert asked == []
    with pytest.raises(us.errors.InvalidArgument, match="labels"):
        us.compare(us.oracle(model, kind="membership"), model)


@pytest.mark.parametrize("longest", [2, 3, 40, 300, 1000])
def test_the_closed_form_is_the_bill(longest: int) -> None:
    model = us.models.SingleHead.random(16, seed=1)
    result = us.compare(us.oracle(model, max_length=longest), model)
    assert result.usage.phases == {"detect": us.theory.comparison_queries(longest)}


def one_by_one(model: Any) -> Any:
    """Heads in float32, every sum term by term from the last term on."""
    W, v = np.asarray(model.W), np.asarray(model.v)
    summed = lambda a, axis: np.take(np.cumsum(np.flip(a, axis), axis=axis, dtype=np.float32), -1, axis)  # noqa: E731

    def answer(X: Any) -> Any:
        x = X.astype(np.float32)
        u = summed(W[:, None] * x[None, :, -1, None, :], -1)
        s = summed(x[None] * u[:, :, None], -1)
        e = np.exp(s - s.max(axis=2, keepdims=True))
        mixed = summed(e[..., None] * x[None], 2) / summed(e, 2)[..., None]
        return summed(mixed * v[:, None], -1).sum(axis=0).astype(np.float64)

    return answer


@pytest.mark.parametrize("seed", [6000205, 6000487])
def test_scores_that_tokens_share_are_rounded_by_head_and_by_token(seed: int) -> None:
    """Heads that attend to what is alike: near ties share a large score, and a long sequence is its own last token."""
    rng = np.random.default_rng([seed, 77])
    dim, heads = int(rng.integers(4, 41)), int(rng.integers(1, 4))
    W = rng.standard_normal((heads, dim, dim)) / np.sqrt(dim) + np.eye(dim) * rng.uniform(1, 5)
    v = rng.standard_normal((heads, dim)) * 10 ** rng.uniform(-2, 2)
    model = us.models.MultiHead(W * 10 ** rng.uniform(-1, 1), v).astype("float32")
    target = us.oracle(one_by_one(model), dim, dtype="float32")
    assert us.compare(target, model, seed=seed).verdict == "same"


@pytest.mark.parametrize("seed", [7, 10, 11, 14])
def test_values_written_in_another_basis_are_the_same(seed: int) -> None:
    """No query sees the basis; every number of V and O is off by its own rounding."""
    layer = us.models.AttentionLayer.random(12, 3, scale=2.0, seed=seed)
    turn = np.linalg.qr(np.random.default_rng(seed).standard_normal((3, 4, 4)))[0]
    turned = replace(layer, V=turn @ layer.V, O=layer.O @ turn.transpose(0, 2, 1))
    assert us.compare(us.oracle(turned), layer).verdict == "same"


def test_a_weight_that_no_answer_shows_is_not_said_to_show() -> None:
    layer = us.models.AttentionLayer.random(12, 2, positions=us.models.Alibi(np.array([0.5, 0.25])), seed=5)
    result = us.compare(us.oracle(layer), layer)
    assert result.verdict == "same"
    assert result.detectable < 1e-11
    assert any("features.key_bias" in note for note in result.notes)


def test_a_window_that_short_sequences_do_not_show() -> None:
    layer = us.models.AttentionLayer.random(12, 2, scale=2.0, window=20, seed=3)
    for kind in ("float64", "float32"):
        assert us.compare(us.oracle(layer.astype(kind), dtype=kind), layer).verdict == "same"
    wider = us.models.AttentionLayer.random(12, 2, scale=2.0, window=40, seed=3)
    assert us.compare(us.oracle(wider), layer, explain=False).differs


@pytest.mark.parametrize("heads", [1, 3])
def test_last_digits_of_the_reference_do_not_choose_what_is_asked(heads: int) -> None:
    """Candidates cut to one length are equally short: on another processor others of them had been taken."""
    rng = np.random.default_rng(0)
    for seed in range(20):
        model = us.models.MultiHead.random(8, heads, norm=2.0, seed=seed)
        shaken = us.models.MultiHead(model.W * (1 + 1e-15 * rng.standard_normal(model.W.shape)), model.v)
        asked = []
        for reference in (model, shaken):
            spec = us.oracle(reference).spec
            draws = np.random.default_rng(seed)
            asked.append(open_pairs(reference_of(reference, spec), Asked(spec, "float64"), 4, 1.0, draws))
        np.testing.assert_allclose(asked[1], asked[0], rtol=0, atol=1e-5)
