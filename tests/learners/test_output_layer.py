"""The output layer of a language model: width, row space, and what each way of answering costs."""

from __future__ import annotations

import numpy as np
import pytest

import unsoftmax as us
from tests.language_models import Practice
from unsoftmax.models import OutputLayer


def truth(model: Practice, *, centred: bool = False) -> OutputLayer:
    return OutputLayer.of_unembedding(model.U * model.gamma if model.norm else model.U, centred=centred)


def angle(recovery: us.Recovery) -> float:
    return next(claim.bound for claim in recovery.certificate if claim.name == "angle of the row space")


@pytest.mark.parametrize(("width", "vocabulary"), [(1, 40), (15, 100), (16, 100), (17, 100), (64, 2000)])
@pytest.mark.parametrize("seed", range(3))
def test_width_and_row_space_from_all_logits(width: int, vocabulary: int, seed: int) -> None:
    model = Practice(width, vocabulary, seed)
    recovery = us.recover(us.logit_oracle(model, vocabulary), us.learners.OutputLayer(), seed=seed)
    assert recovery.model.width == width
    assert us.models.distance(recovery.model, truth(model)) <= min(1e-10, angle(recovery))
    assert recovery.usage.phases["main"] == us.theory.output_layer_requests(width) <= width + 31
    assert recovery.usage.billed == model.received


@pytest.mark.parametrize("shows", ["logits", "log-probabilities"])
def test_log_probabilities_are_told_from_logits(shows: str) -> None:
    model = Practice(24, 300)
    recovery = us.recover(us.logit_oracle(model.log_probabilities, 300, shows=shows), us.learners.OutputLayer())
    assert recovery.model.centred
    assert us.models.distance(recovery.model, truth(model, centred=True)) <= min(1e-10, angle(recovery))


@pytest.mark.parametrize("decimals", [3, 4, 6])
@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_rounded_log_probabilities_keep_the_stated_angle(decimals: int, declared: bool, seed: int) -> None:
    model = Practice(32, 400, seed)
    oracle = us.logit_oracle(
        lambda ids: np.round(model.log_probabilities(ids), decimals),
        400,
        shows="log-probabilities",
        tolerance=0.5 * 10**-decimals if declared else 0.0,
    )
    recovery = us.recover(oracle, us.learners.OutputLayer())
    assert recovery.model.width == 32
    assert us.models.distance(recovery.model, truth(model, centred=True)) <= angle(recovery) <= 0.1


@pytest.mark.parametrize("format", ["float32", "float16"])
def test_short_number_formats_keep_the_stated_angle(format: str) -> None:
    model = Practice(32, 400)
    oracle = us.logit_oracle(lambda ids: model(ids).astype(format).astype(float), 400)
    recovery = us.recover(oracle, us.learners.OutputLayer())
    assert recovery.model.width == 32
    assert us.models.distance(recovery.model, truth(model)) <= angle(recovery)


def test_a_slow_decay_of_trained_weights_is_not_taken_for_an_end() -> None:
    model = Practice(48, 500, decay=9.0)
    recovery = us.recover(us.logit_oracle(model, 500), us.learners.OutputLayer())
    assert recovery.model.width == 48
    assert us.models.distance(recovery.model, truth(model)) <= angle(recovery)


@pytest.mark.parametrize("cap", [5.0, 30.0])
def test_a_softcap_is_found(cap: float) -> None:
    model = Practice(24, 500, cap=cap)
    recovery = us.recover(us.logit_oracle(model, 500), us.learners.OutputLayer())
    assert recovery.model.width == 24
    assert recovery.model.softcap == pytest.approx(cap, rel=1e-5)
    assert us.models.distance(recovery.model, truth(model)) <= angle(recovery) <= 1e-4


@pytest.mark.parametrize("top", [5, 20])
def test_chosen_tokens_cost_the_closed_form(top: int) -> None:
    model = Practice(20, 150)
    oracle = us.logit_oracle(model.chosen, 150, shows="chosen", top=top)
    recovery = us.recover(oracle, us.learners.OutputLayer())
    assert recovery.usage.phases["main"] == us.theory.output_layer_chosen_requests(150, 20, top)
    assert us.models.distance(recovery.model, truth(model, centred=True)) <= min(1e-10, angle(recovery))


def test_the_likeliest_tokens_alone() -> None:
    model = Practice(3, 60)
    oracle = us.logit_oracle(lambda ids: model.top(ids, 50), 60, shows="top", top=50)
    recovery = us.recover(oracle, us.learners.OutputLayer())
    assert recovery.model.width == 3
    assert us.models.distance(recovery.model, truth(model, centred=True)) <= angle(recovery)


@pytest.mark.parametrize("width", [3, 12])
def test_how_many_likeliest_tokens_it_takes(width: int) -> None:
    """Where prompts all show the same ones, no fewer than the theory says, and so many do."""
    least = us.theory.output_layer_least_top(width)
    model = Practice(width, 120)

    def top(ids: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        logits = model(ids) + 60.0 * (np.arange(120) < k)
        shown = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
        order = np.argsort(-shown, axis=1)[:, :k]
        return order, np.take_along_axis(shown, order, 1)

    recovery = us.recover(us.logit_oracle(lambda i: top(i, least), 120, "top", least), us.learners.OutputLayer())
    assert recovery.model.width == width
    assert recovery.usage.phases["main"] == 64
    with pytest.raises(us.errors.NotIdentifiable):
        us.recover(us.logit_oracle(lambda i: top(i, least - 1), 120, "top", least - 1), us.learners.OutputLayer())


def test_five_likeliest_tokens_are_refused_with_what_would_help() -> None:
    model = Practice(16, 200)
    oracle = us.logit_oracle(
        lambda ids: tuple(np.round(part, 4) for part in model.top(ids, 5)), 200, shows="top", top=5
    )
    with pytest.raises(us.errors.NotIdentifiable, match="logit_bias"):
        us.recover(oracle, us.learners.OutputLayer())


def test_behind_a_final_norm_only_a_rotation_is_left() -> None:
    model = Practice(24, 200)
    recovery = us.recover(us.logit_oracle(model, 200), us.learners.OutputLayer(gauge="rotation"))
    phases = recovery.usage.phases
    assert phases["main"] + phases["ellipsoid"] == us.theory.output_layer_rotation_requests(24)
    assert np.abs(recovery.model.gamma(model.U) / model.gamma - 1).max() <= 1e-6
    U, found = model.U * model.gamma, recovery.model.unembedding()
    assert np.abs(found @ found.T - U @ U.T).max() <= 1e-6 * np.abs(U @ U.T).max()


def test_a_layer_norm_leaves_an_ellipsoid_of_one_dimension_less() -> None:
    model = Practice(12, 100, norm="layer")
    recovery = us.recover(us.logit_oracle(model, 100), us.learners.OutputLayer(gauge="rotation"))
    assert any("LayerNorm" in note for note in recovery.notes)


def test_without_a_norm_there_is_no_ellipsoid() -> None:
    model = Practice(12, 100, norm=None)
    with pytest.raises(us.errors.ModelMismatch, match="no norm"):
        us.recover(us.logit_oracle(model, 100), us.learners.OutputLayer(gauge="rotation"))


def test_a_width_that_the_vocabulary_does_not_exceed_is_refused() -> None:
    model = Practice(60, 64)
    with pytest.raises(us.errors.NotIdentifiable, match="vocabulary") as refused:
        us.recover(us.logit_oracle(model, 64), us.learners.OutputLayer())
    # The logits span 60 dimensions, not as many as there are prompts: the refusal must not say so.
    assert "independent" not in str(refused.value)


@pytest.mark.parametrize("shows", ["logits", "log-probabilities"])
@pytest.mark.parametrize("low", [-7.0, -9999.0, float(np.finfo(np.float32).min)])
def test_answers_that_are_cut_off_below_are_refused(low: float, shows: str) -> None:
    """Servers write the logarithm of an underflow as the lowest float32, or as -9999; a rank would count the cuts."""
    model = Practice(24, 200)

    def cut(ids: np.ndarray) -> np.ndarray:
        y = model.log_probabilities(ids)
        return np.where(y < -6.5, low, y)

    with pytest.raises(us.errors.NotIdentifiable, match="not shown"):
        us.recover(us.logit_oracle(cut, 200, shows=shows), us.learners.OutputLayer())


def test_one_underflow_among_many_numbers_is_refused() -> None:
    model, low = Practice(24, 200), float(np.finfo(np.float32).min)

    def cut(ids: np.ndarray) -> np.ndarray:
        y = model.log_probabilities(ids)
        y[-1, 3] = low
        return y

    with pytest.raises(us.errors.NotIdentifiable, match="not shown"):
        us.recover(us.logit_oracle(cut, 200, shows="log-probabilities"), us.learners.OutputLayer())


def test_tokens_whose_logit_is_always_zero_are_no_floor() -> None:
    rng = np.random.default_rng(0)
    E, U = rng.random((90, 8)), rng.random((8, 90))
    U[:, 80:] = 0.0
    recovery = us.recover(us.logit_oracle(lambda ids: E[ids].mean(axis=1) @ U, 90), us.learners.OutputLayer())
    assert recovery.model.width == 8


@pytest.mark.parametrize("shows", ["logits", "log-probabilities"])
@pytest.mark.parametrize("row", [np.zeros(80), np.linspace(-3.0, 0.0, 80)])
def test_answers_that_do_not_depend_on_the_prompt_are_refused(row: np.ndarray, shows: str) -> None:
    def same(ids: np.ndarray) -> np.ndarray:
        return np.tile(row - (np.logaddexp.reduce(row) if shows != "logits" else 0.0), (len(ids), 1))

    with pytest.raises(us.errors.NotIdentifiable, match="do not depend on the prompt"):
        us.recover(us.logit_oracle(same, 80, shows=shows), us.learners.OutputLayer())


def test_no_cap_is_claimed_where_all_tokens_are_alike() -> None:
    model = Practice(4, 60)
    alike = us.logit_oracle(lambda ids: np.repeat(model(ids)[:, :1], 60, axis=1), 60)
    assert us.recover(alike, us.learners.OutputLayer()).model.softcap is None


def test_a_mixture_of_softmaxes_has_no_width() -> None:
    first, second = Practice(6, 60), Practice(6, 60, seed=1)

    def mixed(ids: np.ndarray) -> np.ndarray:
        return np.log(0.5 * np.exp(first.log_probabilities(ids)) + 0.5 * np.exp(second.log_probabilities(ids)))

    with pytest.raises(us.errors.NotIdentifiable):
        us.recover(us.logit_oracle(mixed, 60, shows="log-probabilities"), us.learners.OutputLayer())


def test_no_learner_named_is_the_output_layer_for_logits() -> None:
    model = Practice(8, 80)
    recovery = us.recover(us.logit_oracle(model, 80))
    assert isinstance(recovery.model, OutputLayer)


def test_saved_and_loaded(tmp_path) -> None:
    model = Practice(8, 80)
    recovery = us.recover(us.logit_oracle(model, 80), us.learners.OutputLayer(gauge="rotation"))
    recovery.save(tmp_path / "layer.safetensors")
    again = us.load(tmp_path / "layer.safetensors").model
    assert us.models.distance(again, recovery.model) <= 1e-14
    assert np.array_equal(again.metric, recovery.model.metric)


@pytest.mark.parametrize(
    "arguments",
    [{"shows": "chosen"}, {"top": 5}, {"shows": "top", "top": 1}, {"shows": "top", "top": 999}, {"shows": "nothing"}],
    ids=str,
)
def test_what_does_not_fit_is_refused_by_name(arguments: dict) -> None:
    with pytest.raises(us.errors.InvalidArgument, match=r"`(shows|top)`"):
        us.logit_oracle(Practice(4, 30), 30, **arguments)


@pytest.mark.long
@pytest.mark.parametrize(("width", "vocabulary"), [(64, 5000), (256, 20000), (576, 49152)])
def test_real_sizes(width: int, vocabulary: int) -> None:
    model = Practice(width, vocabulary, seed=7, decay=4.0)
    recovery = us.recover(us.logit_oracle(model, vocabulary), us.learners.OutputLayer())
    assert recovery.model.width == width
    assert us.models.distance(recovery.model, truth(model)) <= min(1e-10, angle(recovery))
    assert recovery.usage.phases["main"] <= width + 32


@pytest.mark.long
@pytest.mark.parametrize("seed", range(5))
def test_gamma_at_width_64(seed: int) -> None:
    model = Practice(64, 500, seed)
    recovery = us.recover(us.logit_oracle(model, 500), us.learners.OutputLayer(gauge="rotation"))
    assert recovery.usage.billed - recovery.usage.phases["verify"] <= 1.2 * 64 * 65 / 2
    assert np.abs(recovery.model.gamma(model.U) / model.gamma - 1).max() <= 1e-6


@pytest.mark.parametrize(
    "bend", [lambda l: 0.05 * np.tanh(l), lambda l: 0.01 * np.sin(3 * l), np.abs], ids=["tanh", "sine", "kink"]
)
def test_something_that_is_not_linear_behind_the_logits_is_refused(bend) -> None:
    model = Practice(16, 300)
    oracle = us.logit_oracle(lambda ids: model(ids) + bend(model(ids)), 300)
    with pytest.raises((us.errors.ModelMismatch, us.errors.NotIdentifiable)):
        us.recover(oracle, us.learners.OutputLayer())


def test_undeclared_noise_is_asked_to_be_declared() -> None:
    model, rng = Practice(16, 300), np.random.default_rng(0)
    seeds = rng.standard_normal((1000, 300))

    def noisy(ids: np.ndarray) -> np.ndarray:
        return model(ids) + 1e-4 * seeds[ids.sum(axis=1) % 1000]

    with pytest.raises(us.errors.ModelMismatch, match="tolerance="):
        us.recover(us.logit_oracle(noisy, 300), us.learners.OutputLayer())
    recovery = us.recover(us.logit_oracle(noisy, 300, tolerance=5e-4), us.learners.OutputLayer())
    assert us.models.distance(recovery.model, truth(model)) <= angle(recovery)


def test_the_cost_is_stated_before_anything_is_asked() -> None:
    model = Practice(20, 150)
    for oracle in (
        us.logit_oracle(model, 150),
        us.logit_oracle(model.chosen, 150, shows="chosen", top=20),
        us.logit_oracle(lambda ids: model.top(ids, 140), 150, shows="top", top=140),
    ):
        stated = us.estimate(oracle, us.learners.OutputLayer())
        billed = us.recover(oracle, us.learners.OutputLayer()).usage.billed
        assert stated.lower <= billed <= stated.upper
