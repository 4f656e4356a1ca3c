"""Degenerate and unequal multi-head targets; and targets no sum of heads explains."""

from __future__ import annotations

import numpy as np
import pytest

import unsoftmax as us
from tests.learners.rates import few_above
from tests.learners.test_multi_head import errors
from unsoftmax.models import MultiHead
from unsoftmax.probes import Probes


def heads(W: list[np.ndarray], v: list[np.ndarray]) -> MultiHead:
    return MultiHead(np.array(W), np.array(v))


def degenerate(d: int, seed: int) -> dict[str, MultiHead]:
    rng = np.random.default_rng(seed)
    A, B = rng.standard_normal((2, d, d)) / np.sqrt(d) * 2
    v = rng.standard_normal((4, d))
    zero = np.zeros((d, d))
    return {
        "equal W": heads([A, A, B], [*v[:3]]),
        "v = 0": heads([A, B], [v[0], 0 * v[1]]),
        "cancelling pair": heads([A, A, B], [v[0], -v[0], v[1]]),
        "nothing left": heads([A, A], [v[0], -v[0]]),
        "W = 0": heads([A, zero, B], [*v[:3]]),
        "W = 0 alone": heads([zero], [v[0]]),
        "twice": heads([A, 2 * A, B], [*v[:3]]),
        "1.3 times": heads([A, 1.3 * A], [*v[:2]]),
        "opposite": heads([A, -A, B], [*v[:3]]),
        "three proportional": heads([A, 2 * A, -A], [*v[:3]]),
        "dependent values": heads([A, B], [v[0], -v[0]]),
    }


@pytest.mark.parametrize("name", degenerate(5, 0))
def test_degenerate_targets_come_out_in_canonical_form(name: str) -> None:
    target = degenerate(5, 1)[name]
    recovery = us.recover(us.oracle(target), us.learners.MultiHead(), seed=2)
    wanted = target.canonical()
    assert recovery.model.heads == wanted.heads
    assert us.models.distance(recovery.model, wanted) <= 1e-9
    X = np.random.default_rng(3).standard_normal((50, 7, 5))
    assert np.abs(recovery.model(X) - target(X)).max() <= 1e-6
    assert us.models.equivalent(recovery.model, target, 1e-6)


def unequal(W_sizes: list[float], v_sizes: list[float], seed: int, d: int = 16) -> MultiHead:
    rng = np.random.default_rng(seed)
    W = rng.standard_normal((3, d, d)) * np.array(W_sizes)[:, None, None]
    return MultiHead(W, rng.standard_normal((3, d)) * np.array(v_sizes)[:, None])


def test_scores_of_very_different_strength() -> None:
    target = unequal([1e3, 1.0, 1e-3], [1.0, 1.0, 1.0], 5)
    recovery = us.recover(us.oracle(target), us.learners.MultiHead(), seed=5)
    assert errors(recovery.model, target)[0] <= 1e-10
    assert recovery.usage.billed <= 1.5 * us.theory.multi_head_unknowns(16, 3)


def test_values_of_very_different_strength() -> None:
    """A value of a millionth is verified beside last digits of the others, which are no error of its W."""
    target = unequal([1.0, 1.0, 1.0], [1e3, 1.0, 1e-3], 5)
    found = [us.recover(us.oracle(target), us.learners.MultiHead(), seed=seed).model for seed in (5, 6, 7)]
    assert max(errors(model, target)[0] for model in found) <= 1e-7


def test_a_broken_promise_about_heads_is_a_mismatch() -> None:
    with pytest.raises(us.errors.ModelMismatch, match="heads=1"):
        us.recover(us.oracle(MultiHead.random(6, 2, norm=2.0, seed=1)), us.learners.MultiHead(heads=1))


def test_near_ties_of_every_head_reveal_a_weak_head_that_is_wrong() -> None:
    """W of the weakest head off by 1e-5: random sequences agree to 1e-10, the ties of that head do not."""
    target = unequal([1e3, 1.0, 1e-3], [1.0, 1.0, 1.0], 6)
    W = target.W.copy()
    W[2] *= 1 + 1e-5 * np.sign(np.random.default_rng(0).standard_normal((16, 16)))

    with pytest.raises(us.errors.ModelMismatch, match="head 3") as error:
        us.recover(us.oracle(target), Fixed(MultiHead(W, target.v)))
    claims = {claim.name: claim for claim in error.value.recovery.certificate.claims}
    assert claims["random sequences"].holds
    assert claims["head 1"].holds


def test_a_head_that_the_model_lacks_is_heard_however_weak() -> None:
    target = unequal([1.0, 1.0, 1.0], [1e4, 1.0, 1e-5], 7)

    with pytest.raises(us.errors.ModelMismatch, match="no other head") as error:
        us.recover(us.oracle(target), Fixed(MultiHead(target.W[:2], target.v[:2])))
    claims = {claim.name: claim for claim in error.value.recovery.certificate.claims}
    assert claims["random sequences"].holds


class Fixed:
    """A learner that has made up its mind."""

    def __init__(self, model: MultiHead) -> None:
        self.model = model

    def forecast(self, spec):
        return us.learners.Forecast(verification=0)

    def program(self, spec, seed):
        yield Probes(np.zeros((1, 1, self.model.dim)))
        return us.learners.Outcome(self.model)


def beside_a_strong_head(ratio: float, seed: int) -> MultiHead:
    target = MultiHead.random(8, 2, seed=seed)
    return MultiHead(target.W * np.array([1.0, ratio])[:, None, None], target.v)


@pytest.mark.parametrize("ratio", [1e-9, 1e-10, 1e-11, 1e8, 1e10])
def test_weak_scores_beside_strong_ones_are_not_called_zero(ratio: float) -> None:
    target = beside_a_strong_head(ratio, 500)
    recovery = us.recover(us.oracle(target), us.learners.MultiHead(), seed=500)
    assert us.models.distance(recovery.model, target) <= 1e-10


def test_a_head_said_to_score_nothing_is_asked_far_out() -> None:
    target = beside_a_strong_head(1e-10, 501)
    silent = MultiHead(target.W * np.array([1.0, 0.0])[:, None, None], target.v)
    with pytest.raises(us.errors.ModelMismatch, match="head 2"):
        us.recover(us.oracle(target), Fixed(silent))
    certificate = us.recover(us.oracle(silent), us.learners.MultiHead()).certificate
    assert any("whose W is 0" in claim.statement for claim in certificate.claims)


@pytest.mark.parametrize("size", [1e-15, 1e-12, 1e8, 1e16])
def test_scores_of_any_size(size: float) -> None:
    """A strong W needs short query tokens, not short differences that drown in them."""
    target = MultiHead.random(8, 3, norm=size, seed=301)
    recovery = us.recover(us.oracle(target), us.learners.MultiHead(), seed=301)
    assert us.models.distance(recovery.model, target) <= 1e-11


@pytest.mark.parametrize("seed", [9000, 9002, 9006])
def test_values_that_cancel_are_found_wherever_the_search_begins(seed: int) -> None:
    """With v and -v nothing answers where both heads are on or both off."""
    target = degenerate(5, seed)["dependent values"]
    recovery = us.recover(us.oracle(target), us.learners.MultiHead(), seed=seed)
    assert us.models.distance(recovery.model, target.canonical()) <= 1e-9


@pytest.mark.parametrize("seed", [7004, 9033, 9040])
def test_a_jump_between_two_readings_does_not_cost_a_plane(seed: int) -> None:
    """A point in a jump's tail, off both lines by little, is a bound for the jump: not asked for ever, and no arc."""
    target = unequal([1e3, 1.0, 1e-3], [1.0, 1.0, 1.0], seed)
    recovery = us.recover(us.oracle(target), us.learners.MultiHead(), seed=seed)
    assert errors(recovery.model, target)[0] <= 1e-10
    assert recovery.usage.billed <= 1.4 * us.theory.multi_head_unknowns(16, 3)


@pytest.mark.parametrize("seed", [9001, 9016, 9018])
def test_columns_that_are_asked_again_cost_little(seed: int) -> None:
    """Whether a column is asked again hangs on its last digits; what it costs at most and what comes out do not."""
    target = unequal([1e3, 1.0, 1e-3], [1.0, 1.0, 1.0], seed)
    recovery = us.recover(us.oracle(target), us.learners.MultiHead(), seed=seed)
    assert errors(recovery.model, target)[0] <= 1e-11
    assert recovery.usage.phases.get("repair", 0) <= 4 * 3


def test_tokens_shortened_too_far_are_lengthened_again() -> None:
    """A first solution that was none made one token 64 times shorter than it may be."""
    target = unequal([1.0, 1.0, 1.0], [1e3, 1.0, 1e-3], 9001)
    found = [us.recover(us.oracle(target), us.learners.MultiHead(), seed=seed).model for seed in (9001, 9002, 9003)]
    few_above([errors(model, target)[0] for model in found], 6e-8, 1 / 3)


def nearly_equal(apart: float, seed: int, d: int = 6) -> MultiHead:
    rng = np.random.default_rng(seed)
    W, other, v = rng.standard_normal((d, d)), rng.standard_normal((d, d)), rng.standard_normal((2, d))
    return MultiHead(np.stack([W, W + apart * other]), v)


@pytest.mark.parametrize("seed", [0, 1])
def test_nearly_equal_heads_are_parted(seed: int) -> None:
    target = nearly_equal(1e-3, seed)
    recovery = us.recover(us.oracle(target), us.learners.MultiHead(), seed=seed)
    assert us.models.distance(recovery.model, target) <= 1e-9


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("seed", [0, 1])
def test_heads_too_alike_are_refused_without_a_long_search(seed: int) -> None:
    target, asked = nearly_equal(1e-6, seed), 0

    def counting(tokens: np.ndarray) -> np.ndarray:
        nonlocal asked
        asked += len(tokens)
        return target(tokens)

    with pytest.raises(us.errors.ModelMismatch):
        us.recover(us.oracle(counting, 6), us.learners.MultiHead(), seed=seed)
    assert asked <= 20 * us.theory.multi_head_unknowns(6, 2)


class Positions:
    """Heads with a bias by distance (`slope`), or a window of the last `window` tokens."""

    def __init__(self, seed: int, slope: float = 0.0, window: int | None = None) -> None:
        self.heads, self.slope, self.window = MultiHead.random(6, 2, norm=3.0, seed=seed), slope, window
        self.dim = 6

    def __call__(self, tokens: np.ndarray) -> np.ndarray:
        X = tokens if self.window is None else tokens[:, -self.window :]
        bias = -self.slope * np.arange(X.shape[1])[::-1]
        total = np.zeros(len(X))
        for W, v in zip(self.heads.W, self.heads.v, strict=True):
            scores = np.einsum("bnd,bd->bn", X, X[:, -1] @ W.T) + bias
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            total += (weights / weights.sum(axis=1, keepdims=True) * (X @ v)).sum(axis=1)
        return total


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("limits", [{}, {"max_norm": 2.0, "max_length": 8}])
def test_a_bias_by_distance_is_told_by_swapping_two_tokens(limits: dict[str, float]) -> None:
    with pytest.raises(us.errors.ModelMismatch, match="swapping two tokens") as error:
        us.recover(us.oracle(Positions(1, slope=0.1), **limits), us.learners.MultiHead())
    assert error.value.recovery.usage.billed <= 6 * us.theory.multi_head_unknowns(6, 2)


@pytest.mark.filterwarnings("error")
def test_a_window_is_refused() -> None:
    with pytest.raises(us.errors.ModelMismatch) as error:
        us.recover(us.oracle(Positions(1, window=2)), us.learners.MultiHead())
    assert error.value.recovery.usage.billed <= 6 * us.theory.multi_head_unknowns(6, 2)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("size", [1e200, 1e-200])
@pytest.mark.parametrize("method", ["saturation", "rational"])
def test_answers_whose_squares_leave_the_number_format_are_refused(size: float, method) -> None:
    target = MultiHead.random(4, 2, seed=1)
    oracle = us.oracle(MultiHead(target.W, target.v * size))
    with pytest.raises(us.errors.OracleError, match="multiplied by a constant") as error:
        us.recover(oracle, us.learners.MultiHead(method=method))
    assert error.value.recovery.usage.billed == 4


@pytest.mark.long
@pytest.mark.parametrize(
    ("d", "H", "seed"), [(64, 8, 7011), (64, 8, 8043), (32, 8, 8007), (32, 8, 8010), (32, 8, 8103)]
)
def test_a_second_solution_of_a_column_is_driven_out(d: int, H: int, seed: int) -> None:
    """Columns whose small square system has several solutions, some of them more than once."""
    target = MultiHead.random(d, H, seed=seed)
    recovery = us.recover(us.oracle(target), us.learners.MultiHead(), seed=seed)
    assert max(errors(recovery.model, target)) <= 1e-11


@pytest.mark.long
def test_proportional_heads_in_more_dimensions_than_random_starts_can_fit() -> None:
    rng = np.random.default_rng(21)
    A, v = rng.standard_normal((20, 20)) / np.sqrt(5), rng.standard_normal((2, 20))
    target = heads([A, 1.3 * A], [*v])
    recovery = us.recover(us.oracle(target), us.learners.MultiHead())
    assert us.models.distance(recovery.model, target.canonical()) <= 1e-9
    assert any("together" in note for note in recovery.notes)


def test_answers_too_coarse_to_tell_are_refused() -> None:
    target = MultiHead.random(8, 2, norm=2.0, seed=400)

    def six_digits(tokens: np.ndarray) -> np.ndarray:
        return np.array([float(f"{y:.6g}") for y in target(tokens)])

    try:
        recovery = us.recover(us.oracle(six_digits, 8), us.learners.MultiHead(), seed=400)
    except us.errors.ModelMismatch:
        return
    stated = [claim.bound for claim in recovery.certificate.claims if claim.name.startswith("head")]
    assert errors(recovery.model, target)[0] <= max(stated) <= 0.1


def test_values_known_to_ten_digits_do_not_make_every_repair_worse() -> None:
    """Longer tokens show their errors larger; the first reading is only as good as the values it used."""
    rng = np.random.default_rng(7016)
    target = MultiHead(rng.standard_normal((6, 8, 8)), rng.standard_normal((6, 8)))
    recovery = us.recover(us.oracle(target), us.learners.MultiHead(), seed=7016)
    assert max(errors(recovery.model, target)) <= 1e-10
    assert recovery.usage.billed <= us.theory.rational_queries(8, 6)


@pytest.mark.parametrize(("d", "H"), [(1, 1), (2, 2), (3, 3), (3, 4)])
def test_as_many_heads_as_dimensions_and_more(d: int, H: int) -> None:
    target = MultiHead.random(d, H, norm=2.0, seed=1)
    recovery = us.recover(us.oracle(target), us.learners.MultiHead(), seed=1)
    assert us.models.distance(recovery.model, target.canonical()) <= 1e-9


@pytest.mark.long
def test_polished_to_the_last_digits() -> None:
    """Relative Frobenius error of W; the published figure for this size is 2^-51 = 4.4e-16 in an unstated metric."""
    off = []
    for seed in range(5):
        rng = np.random.default_rng(seed + 100)
        target = MultiHead(rng.standard_normal((6, 8, 8)), rng.standard_normal((6, 8)))
        recovery = us.recover(us.oracle(target), us.learners.MultiHead(polish=True), seed=seed)
        off.append(errors(recovery.model, target)[0])
        assert recovery.usage.billed <= us.theory.rational_queries(8, 6)
    few_above(off, 4e-15, 1 / 5)


@pytest.mark.long
def test_polished_scores_of_very_different_strength() -> None:
    off, cost = [], []
    for seed in range(3):
        target = unequal([1e3, 1.0, 1e-3], [1.0, 1.0, 1.0], seed)
        recovery = us.recover(us.oracle(target), us.learners.MultiHead(polish=True), seed=seed)
        off.append(errors(recovery.model, target)[0])
        cost.append(recovery.usage.billed / us.theory.multi_head_unknowns(16, 3))
    few_above(off, 1e-12, 1 / 3)
    few_above(cost, 1.7, 1 / 3)


@pytest.mark.long
@pytest.mark.parametrize(("d", "H", "bar"), [(32, 8, 1.2), (64, 4, 1.1), (64, 8, 1.1)])
@pytest.mark.parametrize("low", [False, True])
def test_large_targets(d: int, H: int, bar: float, low: bool) -> None:
    """How many planes are searched is chance: the bar is for two runs of three, and none costs half as much again."""
    rank = d // H if low else None
    target = MultiHead.random(d, H, rank=rank, seed=d + H)
    cost = []
    for seed in (1, 2, 3):
        recovery = us.recover(us.oracle(target), us.learners.MultiHead(), seed=seed)
        W, v = errors(recovery.model, target)
        assert W <= 1e-9
        assert v <= 1e-12
        cost.append(recovery.usage.billed / us.theory.multi_head_unknowns(d, H, rank))
    assert np.median(cost) <= (1.5 if low else bar)
    assert max(cost) <= 1.5 * (1.5 if low else bar)


@pytest.mark.parametrize(
    ("dim", "seed", "limit"),
    [(6, 0, 1e-12), (6, 1, 1e-8), (6, 0, 1e-3), pytest.param(24, 2, 1e-3, marks=pytest.mark.long)],
)
def test_scores_too_small_to_tell_heads_apart_are_refused_for_that(dim, seed, limit):
    """Heads with W of 355 and 5 had been stated to 8e-4 in place of two of 2.5 (limit 1e-3), and shorter tokens were
    said to be saturated: to first order answers show the sum of v_h W_h alone."""
    target = us.models.MultiHead.random(dim, 2, norm=2.5, seed=seed)
    with pytest.raises(us.errors.NotIdentifiable, match="do not determine its weights"):
        us.recover(us.oracle(target, max_norm=limit), us.learners.MultiHead(), seed=seed)


@pytest.mark.long
def test_heads_too_faint_to_be_fitted_are_refused_after_one_query_token():
    """Shorter query tokens are for saturated heads: with faint ones the search had gone on for minutes."""
    target = us.models.MultiHead.random(24, 2, norm=2.5, seed=0)
    with pytest.raises(us.errors.NotIdentifiable, match="do not determine its weights") as refusal:
        us.recover(us.oracle(target, max_norm=1e-3), us.learners.MultiHead())
    assert refusal.value.recovery.usage.billed <= 2 * us.theory.multi_head_unknowns(24, 2)
