"""What changed is named: scales, formats, arithmetic, values, entries, low rank, dense, another model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import unsoftmax as us
from unsoftmax.comparing.arithmetic import computed
from unsoftmax.comparing.formats import FORMATS, PLAIN
from unsoftmax.comparing.heads import heads_of

D = 24
SINGLE = us.models.SingleHead.random(D, norm=2.0, seed=11)
HEADS = us.models.MultiHead.random(D, 3, norm=2.0, seed=12)
LAYER = us.models.AttentionLayer.random(D, 3, scale=2.0, seed=13)


def compared(target: Any, reference: Any, **options: Any) -> us.Comparison:
    """The result, its bill checked: what was billed is the sum of the phases, and nothing else was asked."""
    result = us.compare(us.oracle(target, reference.dim), reference, **options)
    assert result.usage.billed == result.usage.asked == sum(result.usage.phases.values())
    return result


def without_verification(result: us.Comparison) -> int:
    return result.usage.billed - result.usage.phases.get("verify", 0)


USUAL = ("float32", "bfloat16", "int8 per tensor", "int8 per row", "fp8 e4m3", "nf4 blocks of 64")


@pytest.mark.parametrize("name", [n if n in USUAL else pytest.param(n, marks=pytest.mark.long) for n in FORMATS])
def test_formats_of_weights_are_named_from_eight_questions(name: str) -> None:
    v = SINGLE.v if name not in PLAIN else FORMATS[name](np.array(SINGLE.v))
    target = us.models.SingleHead(FORMATS[name](np.array(SINGLE.W)), v)
    result = compared(target, SINGLE)
    assert (result.verdict, result.format) == ("format", name)
    assert result.usage.phases["format"] == 8
    assert without_verification(result) <= 200


def test_formats_of_layers_whole_or_by_head() -> None:
    def whole(a: Any) -> Any:
        return FORMATS["int8 per tensor"](np.array(a).reshape(-1, D)).reshape(a.shape)

    O = np.array(LAYER.O).transpose(1, 0, 2)
    rounded = FORMATS["int8 per tensor"](O.reshape(D, -1)).reshape(O.shape).transpose(1, 0, 2)
    target = replace(LAYER, K=whole(LAYER.K), Q=whole(LAYER.Q), V=whole(LAYER.V), O=rounded)
    assert compared(target, LAYER).format == "int8 per tensor"
    by_head = {n: np.stack([FORMATS["int8 per row"](x) for x in getattr(LAYER, n)]) for n in "KQVO"}
    assert compared(replace(LAYER, **by_head), LAYER).format == "int8 per row"


def test_a_format_beside_another_change_is_not_called_rounding_alone() -> None:
    W = FORMATS["int4 blocks of 64"](np.array(SINGLE.W))
    scaled = compared(us.models.SingleHead(W, SINGLE.v * (1 + 1e-7)), SINGLE)
    assert (scaled.verdict, scaled.format) == ("format", "int4 blocks of 64")
    assert "no rounding" in scaled.sentence
    heads = np.stack([FORMATS["nf4 blocks of 64"](x) for x in np.array(HEADS.W)])
    heads[0, 3, 5] += 0.02 * np.linalg.norm(HEADS.W)
    both = compared(us.models.MultiHead(heads, HEADS.v), HEADS)
    assert "Activations are rounded" not in both.sentence


def test_a_rank_of_a_quarter_of_the_dimension_is_low() -> None:
    shipped = us.models.SingleHead.random(16, norm=2.0, seed=1)
    rng = np.random.default_rng(0)
    for rank in (1, 4):
        change = rng.standard_normal((16, rank)) @ rng.standard_normal((rank, 16))
        change *= 1e-3 * np.linalg.norm(shipped.W) / np.linalg.norm(change)
        result = compared(us.models.SingleHead(shipped.W + change, shipped.v), shipped)
        assert (result.verdict, result.rank) == ("low rank", rank)
        assert result.usage.phases["delta"] <= 1.25 * rank * (32 - rank)
        assert np.linalg.norm(result.delta - change) <= 1e-9 * np.linalg.norm(change)
    full = compared(us.models.SingleHead(shipped.W + 1e-3 * rng.standard_normal((16, 16)), shipped.v), shipped)
    assert full.verdict == "dense"
    assert "no rank up to 4" in full.sentence


def test_entries_in_two_heads_are_entries() -> None:
    W = np.array(HEADS.W)
    W[0, 2, 3] *= 1.01
    W[2, 7, 1] *= 1.01
    result = compared(us.models.MultiHead(W, HEADS.v), HEADS)
    assert (result.verdict, result.heads) == ("sparse", (0, 2))
    assert np.array_equal(result.delta != 0, W != HEADS.W)
    assert np.abs(result.delta - (W - HEADS.W)).max() <= 1e-9


def test_scaled_answers_of_rounded_weights_are_no_other_model() -> None:
    W = FORMATS["float16"](np.array(SINGLE.W))
    result = compared(us.models.SingleHead(W, 1.5 * np.array(SINGLE.v)), SINGLE)
    assert result.verdict != "different"
    assert "scaled by about 1.5" in result.sentence


def test_an_unlisted_recipe_is_no_format() -> None:
    W = np.array(SINGLE.W)
    step = np.abs(W).max() / 31
    result = compared(us.models.SingleHead(np.round(W / step) * step, SINGLE.v), SINGLE)
    assert result.format is None
    assert result.verdict == "dense"


def test_a_module_in_bfloat16_weights_is_named() -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    module = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True).eval()
    twin = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True).eval()
    twin.load_state_dict({k: v.bfloat16().float() for k, v in module.state_dict().items()})
    result = us.compare(us.adapters.torch_module(twin), module)
    assert (result.verdict, result.format) == ("format", "bfloat16")


@pytest.mark.parametrize("reference", [SINGLE, HEADS], ids=["one head", "heads"])
def test_other_arithmetic_is_not_called_a_change_of_weights(reference: Any) -> None:
    weights = reference.parameters()
    same = type(reference)(FORMATS["bfloat16"](weights["W"]), FORMATS["bfloat16"](weights["v"]))
    heads = heads_of(same)
    assert heads is not None
    result = us.compare(us.oracle(lambda X: computed(heads, X, "bfloat16", 2), D, dtype="float32"), same)
    assert (result.verdict, result.format) == ("arithmetic", "bfloat16")
    declared = us.compare(us.oracle(lambda X: computed(heads, X, "bfloat16", 2), D), same, arithmetic="bfloat16")
    assert declared.verdict == "same"
    assert declared.detectable < 0.1


def test_scales_shifts_and_temperatures() -> None:
    W, v = HEADS.W, HEADS.v
    for target, words in (
        (us.models.MultiHead(W * 1.01, v), "temperature"),
        (us.models.MultiHead(W, v * 0.999), "scaled by 0.999"),
        (lambda X: HEADS(X) + 1e-3, "shifted"),
        (us.models.MultiHead(W, v * np.array([[1.0], [0.0], [1.0]])), "Head 1 is removed"),
    ):
        result = compared(target, HEADS)
        assert result.verdict == "scale"
        assert words in result.sentence
    removed = compared(us.models.MultiHead(W, v * np.array([[1.0], [0.0], [1.0]])), HEADS)
    assert removed.heads == (1,)
    assert compared(replace(LAYER, constant=LAYER.constant + 1e-3), LAYER).verdict == "scale"


def test_permuted_heads_are_the_same() -> None:
    order = [2, 0, 1]
    assert compared(us.models.MultiHead(HEADS.W[order], HEADS.v[order]), HEADS).verdict == "same"


@pytest.mark.parametrize("reference", [SINGLE, HEADS], ids=["one head", "heads"])
def test_one_entry(reference: Any) -> None:
    W = np.array(reference.W)
    place = (5, 7) if W.ndim == 2 else (1, 5, 7)
    W[place] += 1e-3 * np.linalg.norm(W) / D
    result = compared(type(reference)(W, reference.v), reference)
    assert result.verdict == "sparse"
    assert result.usage.phases["locate"] <= 10
    assert without_verification(result) <= 260
    change = W - reference.W
    assert np.array_equal(result.delta != 0, change != 0)
    assert np.abs(result.delta - change).max() <= 1e-8 * np.abs(change).max()
    assert result.heads == ((0,) if W.ndim == 2 else (1,))


def test_three_entries() -> None:
    W = np.array(SINGLE.W)
    W[[1, 8, 20], [3, 3, 11]] *= 1.3
    result = compared(us.models.SingleHead(W, SINGLE.v), SINGLE)
    assert result.verdict == "sparse"
    assert np.array_equal(result.delta != 0, W != SINGLE.W)


@pytest.mark.parametrize("rank", [1, 3])
def test_low_rank_change_of_one_head(rank: int) -> None:
    rng = np.random.default_rng(3)
    change = rng.standard_normal((D, rank)) @ rng.standard_normal((rank, D))
    change *= 1e-2 * np.linalg.norm(SINGLE.W) / np.linalg.norm(change)
    result = compared(us.models.SingleHead(SINGLE.W + change, SINGLE.v), SINGLE)
    assert (result.verdict, result.rank) == ("low rank", rank)
    free = rank * (2 * D - rank)
    assert result.usage.phases["delta"] <= 1.25 * free
    assert without_verification(result) <= 250 + 1.25 * free
    error = np.linalg.norm(result.delta - change) / np.linalg.norm(change)
    assert error <= 1000 * rank * 2.0**-53 / 1e-2


def test_low_rank_changes_of_two_heads() -> None:
    rng = np.random.default_rng(4)
    W = np.array(HEADS.W)
    for h in (0, 2):
        change = np.outer(*rng.standard_normal((2, D)))
        W[h] += 1e-2 * np.linalg.norm(W[h]) / np.linalg.norm(change) * change
    result = compared(us.models.MultiHead(W, HEADS.v), HEADS)
    assert (result.verdict, result.heads, result.rank) == ("low rank", (0, 2), 1)
    assert np.linalg.norm(result.delta - (W - HEADS.W)) <= 1e-8 * np.linalg.norm(W - HEADS.W)


@pytest.mark.parametrize(("rank", "size"), [(1, 0.03), (2, 0.08)])
def test_large_low_rank_changes_of_all_heads(rank: int, size: float) -> None:
    """Far from first order, and each head hides a part of the others' at first."""
    rng = np.random.default_rng(5)
    change = rng.standard_normal((3, D, rank)) @ rng.standard_normal((3, rank, D))
    change *= size * np.linalg.norm(HEADS.W) / np.linalg.norm(change)
    result = compared(us.models.MultiHead(HEADS.W + change, HEADS.v), HEADS)
    assert (result.verdict, result.heads, result.rank) == ("low rank", (0, 1, 2), rank)
    assert np.linalg.norm(result.delta - change) <= 1e-8 * np.linalg.norm(change)


@pytest.mark.parametrize("matrix", list("QKVO"))
def test_lora_on_a_matrix_of_a_layer(matrix: str) -> None:
    rng = np.random.default_rng(5)
    stored = np.array(getattr(LAYER, matrix))
    rows = stored.transpose(1, 0, 2).reshape(D, -1) if matrix == "O" else stored.reshape(-1, D)
    change = rng.standard_normal((len(rows), 2)) @ rng.standard_normal((2, rows.shape[1]))
    change *= 1e-2 * np.linalg.norm(rows) / np.linalg.norm(change)
    change = change.reshape(D, 3, -1).transpose(1, 0, 2) if matrix == "O" else change.reshape(stored.shape)
    result = compared(replace(LAYER, **{matrix: stored + change}), LAYER)
    assert (result.verdict, result.rank, result.evidence["matrix"]) == ("low rank", 2, matrix)
    assert np.linalg.norm(result.changes[matrix] - change) <= 1e-7 * np.linalg.norm(change)


@pytest.mark.parametrize("heads", [1, 3])
def test_other_heads_are_not_called_changed_values(heads: int) -> None:
    shipped = us.models.MultiHead.random(12, heads, norm=2.0, seed=0)
    other = us.compare(us.oracle(us.models.MultiHead.random(12, heads, norm=2.0, seed=1)), shipped)
    assert other.verdict == "different"
    assert not other.changes
    v = np.array(shipped.v)
    v[0, 3] += 0.3
    both = us.compare(us.oracle(us.models.MultiHead(1.001 * shipped.W, v)), shipped)
    assert both.verdict in ("dense", "different")
    assert not both.changes


def test_changed_values_are_told_from_changed_scores() -> None:
    rng = np.random.default_rng(6)
    v = np.array(HEADS.v)
    v[1, 4] *= 1.01
    one = compared(us.models.MultiHead(HEADS.W, v), HEADS)
    assert (one.verdict, one.heads) == ("values", (1,))
    assert np.abs(one.changes["v"] - (v - HEADS.v)).max() <= 1e-10
    v = HEADS.v + 1e-3 * rng.standard_normal(HEADS.v.shape)
    every = compared(us.models.MultiHead(HEADS.W, v), HEADS)
    assert every.verdict == "values"
    assert np.abs(every.changes["v"] - (v - HEADS.v)).max() <= 1e-8
    both = compared(us.models.MultiHead(HEADS.W + 1e-4 * rng.standard_normal(HEADS.W.shape), v), HEADS)
    assert both.verdict == "dense"


@pytest.mark.parametrize("reference", [SINGLE, HEADS], ids=["one head", "heads"])
def test_dense_changes_with_an_interval(reference: Any) -> None:
    rng = np.random.default_rng(7)
    change = rng.standard_normal(reference.W.shape)
    change *= 1e-3 * np.linalg.norm(reference.W) / np.linalg.norm(change)
    result = compared(type(reference)(reference.W + change, reference.v), reference)
    assert result.verdict == "dense"
    assert all(size["low"] <= 1e-3 <= size["high"] for size in result.evidence["scores"].values())


def test_dense_changes_of_a_layer_are_sized_by_matrix() -> None:
    rng = np.random.default_rng(8)
    moved = {n: getattr(LAYER, n) * (1 + 1e-2 * rng.standard_normal(getattr(LAYER, n).shape)) for n in "KQVO"}
    target = replace(LAYER, **moved)
    result = compared(target, LAYER)
    assert result.verdict == "dense"
    for h, size in result.evidence["scores"].items():
        true = np.linalg.norm(target.W[int(h)] - LAYER.W[int(h)]) / np.linalg.norm(LAYER.W[int(h)])
        assert size["low"] <= true <= size["high"]
    M, M0 = target.P.sum(axis=0), LAYER.P.sum(axis=0)
    values = result.evidence["values"]
    assert values["low"] <= np.linalg.norm(M - M0) / np.linalg.norm(M0) <= values["high"]


@pytest.mark.parametrize("reference", [SINGLE, HEADS, LAYER], ids=["one head", "heads", "layer"])
def test_another_model(reference: Any) -> None:
    other = {
        us.models.SingleHead: lambda: us.models.SingleHead.random(D, norm=2.0, seed=99),
        us.models.MultiHead: lambda: us.models.MultiHead.random(D, 3, norm=2.0, seed=99),
        us.models.AttentionLayer: lambda: us.models.AttentionLayer.random(D, 3, scale=2.0, seed=99),
    }[type(reference)]()
    assert compared(other, reference).verdict == "different"


def test_the_budget_may_end_while_explaining() -> None:
    W = np.array(SINGLE.W)
    W[5, 7] += 1e-3
    result = compared(us.models.SingleHead(W, SINGLE.v), SINGLE, budget=100)
    assert (result.verdict, result.differs) == ("unexplained", True)
    assert "budget" in result.sentence


def test_formats_and_scales_of_other_structures() -> None:
    model = us.models.Transformer.random(8, 12, seed=1)
    weights = model.parameters()
    scaled = compared(lambda X: 1.01 * model(X), model)
    assert scaled.verdict == "scale"
    rounded = {k: FORMATS["bfloat16"](a) if a.dtype.kind == "f" and a.ndim else a for k, a in weights.items()}
    assert compared(us.models.Transformer.from_parameters(rounded), model).format == "bfloat16"


def test_references_out_of_reach_say_so() -> None:
    model = us.models.Transformer.random(8, 12, seed=1)
    weights = model.parameters()
    target = us.models.Transformer.from_parameters(weights | {"W": weights["W"] + 1e-3})
    result = us.compare(us.oracle(target), lambda X: model(X))
    assert result.verdict == "unexplained"
    assert "out of reach" in result.sentence


@pytest.mark.parametrize("heads", [1, 2])
def test_a_recovered_copy_is_told_as_one(heads: int) -> None:
    shipped = us.models.MultiHead.random(12, heads, norm=2.0, seed=2)
    copy = us.recover(us.oracle(shipped), us.learners.MultiHead(heads=heads)).model
    result = us.compare(us.oracle(copy), shipped)
    if result.verdict == "same":
        return
    assert any("copy recovered from answers" in note for note in result.notes)
    for name in ("scores", "scores of all heads"):
        assert name not in result.evidence or "low" in str(result.evidence[name])
    if heads > 1 and result.verdict == "dense":
        order = min(([0, 1], [1, 0]), key=lambda o: float(np.linalg.norm(copy.W[o] - shipped.W)))
        sizes = np.linalg.norm(copy.W[order] - shipped.W, axis=(1, 2)) / np.linalg.norm(shipped.W, axis=(1, 2))
        whole = result.evidence["scores of all heads"]
        assert whole["low"] <= sizes.max()
        assert whole["high"] >= sizes.min()


def test_a_recovery_as_reference_is_held_to_the_error_it_states(tmp_path: Any) -> None:
    shipped = us.models.MultiHead.random(8, 2, norm=2.0, seed=2)
    recovery = us.recover(us.oracle(shipped), us.learners.MultiHead(heads=2))
    path = tmp_path / "copy.safetensors"
    recovery.save(path)
    for reference in (recovery, path):
        result = us.compare(us.oracle(shipped), reference)
        assert result.verdict == "same"
        assert "recovery states" in result.sentence
        assert result.detectable >= recovery.certificate.stated_error
    changed = us.models.MultiHead(shipped.W * (1 + 10 * result.detectable), shipped.v)
    assert us.compare(us.oracle(changed), path).differs
