"""Several heads from labels: how many, all of W and v up to one scale, bills, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import unsoftmax as us

MultiHead, Membership = us.models.MultiHead, us.learners.Membership


def unit(model):
    """The common scale of the v_h is not observable: 1."""
    return MultiHead(model.W, model.v / np.linalg.norm(model.v))


def labels_of(target, **options):
    return us.oracle(target, target.dim, kind="membership", **options)


def stated(recovery) -> dict[str, float]:
    return {claim.name: claim.observed for claim in recovery.certificate}


def held(recovery, truth) -> bool:
    """Whether W and v are as near as the certificate says, heads in the best order."""
    model, claims = recovery.model, stated(recovery)
    order = [int(np.argmin([np.linalg.norm(W - found) for found in model.W])) for W in truth.W]
    return (
        np.linalg.norm(model.W[order] - truth.W) <= claims["error of W"]
        and np.linalg.norm(model.v[order] - truth.v) <= claims["error of v"]
    )


@pytest.mark.parametrize(("dim", "count"), [(2, 2), (5, 2), (6, 3), (8, 4)])
@pytest.mark.parametrize("seed", range(2))
def test_the_number_of_heads_and_all_of_them_are_found(dim: int, count: int, seed: int) -> None:
    norm = 10 ** np.random.default_rng(seed).uniform(-1, 1)
    target = MultiHead.random(dim, count, norm=norm, seed=seed)
    recovery = us.recover(labels_of(target), Membership(accuracy=1e-9, heads=None if dim > 2 else 2), seed=seed)
    assert recovery.model.heads == count
    assert us.models.distance(recovery.model, unit(target)) <= 1e-9
    assert held(recovery, unit(target))
    flips, bits = us.theory.membership_flips(dim, count), us.theory.membership_flip_bits(1e-9)
    assert 0.95 * flips * bits <= recovery.usage.phases["main"] <= flips * bits


@pytest.mark.long
@pytest.mark.parametrize(("dim", "count"), [(8, 2), (8, 3), (8, 4), (16, 2), (16, 4)])
def test_twenty_draws(dim: int, count: int) -> None:
    for seed in range(200, 220):
        norm = 10 ** np.random.default_rng(seed).uniform(-1, 1)
        target = MultiHead.random(dim, count, norm=norm, seed=seed)
        recovery = us.recover(labels_of(target), Membership(accuracy=1e-9, heads=None), seed=seed)
        assert recovery.model.heads == count
        assert us.models.distance(recovery.model, unit(target)) <= 1e-9
        assert held(recovery, unit(target))


def test_a_known_number_of_heads_is_forecast() -> None:
    target = MultiHead.random(6, 2, norm=2.0, seed=0)
    learner = Membership(accuracy=1e-7, heads=2)
    forecast = learner.forecast(labels_of(target).spec)
    recovery = us.recover(labels_of(target), learner)
    assert forecast.phases["main"] == us.theory.membership_flips(6, 2) * us.theory.membership_flip_bits(1e-7)
    assert forecast.minimum <= recovery.usage.billed - recovery.usage.phases["verify"] <= forecast.maximum


def base(seed: int = 0) -> MultiHead:
    return MultiHead.random(6, 2, norm=2.0, seed=seed)


SPECIAL = {
    "scores 30 to 1": lambda: MultiHead(base().W * np.array([30.0, 1.0])[:, None, None], base().v),
    "values 10 to 1": lambda: MultiHead(base().W, base().v * np.array([[10.0], [1.0]])),
    "values that nearly cancel": lambda: MultiHead(base().W, np.array([base().v[0], -0.9 * base().v[0]])),
    "W and -W": lambda: MultiHead(np.array([base().W[0], -base().W[0]]), base().v),
    "a tenth apart": lambda: MultiHead(np.array([base().W[0], base().W[0] + 0.1 * base().W[1]]), base().v),
    "one without scores": lambda: MultiHead(base().W * np.array([1.0, 0.0])[:, None, None], base().v),
    "rank one": lambda: MultiHead.random(6, 2, rank=1, norm=2.0, seed=3),
    "sparse": lambda: MultiHead.random(6, 2, sparsity=0.5, norm=2.0, seed=3),
}


@pytest.mark.parametrize("name", SPECIAL)
def test_special_heads(name: str) -> None:
    target = unit(SPECIAL[name]())
    recovery = us.recover(labels_of(target), Membership(accuracy=1e-7, heads=None))
    assert recovery.model.heads == 2
    assert held(recovery, target)
    assert stated(recovery)["error of W"] <= 1e-7 * np.linalg.norm(target.W)


def test_one_head_is_one_head() -> None:
    target = us.models.SingleHead.random(6, norm=2.0, seed=1)
    for head in (target, MultiHead(np.array([target.W, target.W]), np.array([target.v, 2 * target.v]))):
        model = us.recover(labels_of(head), Membership(accuracy=1e-7, heads=None)).model
        assert us.models.distance(model, target) <= 1e-7
    still = us.models.SingleHead(np.zeros((6, 6)), target.v)
    assert not us.recover(labels_of(still), Membership(accuracy=1e-7, heads=None)).model.W.any()
    with pytest.raises(us.errors.ModelMismatch):
        us.recover(labels_of(still), Membership(accuracy=1e-7, heads=2))


def test_a_positive_factor_shows_in_no_label() -> None:
    """What labels cannot show: f times anything positive has the same labels as f."""
    one, other = (us.models.SingleHead.random(5, norm=2.0, seed=seed) for seed in (1, 2))

    def scaled(X, counts=None):
        return one(X, counts) * (1 + 0.5 * np.tanh(other(X, counts)))

    scaled.accepts_counts = True
    model = us.recover(us.oracle(scaled, 5, kind="membership"), Membership(accuracy=1e-7, heads=None)).model
    assert us.models.distance(model, one) <= 1e-7


def softmax(s):
    e = np.exp(s - s.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


class Attending:
    """Two heads of `base`, scores of one of them changed by `law`; copies are counted."""

    accepts_counts = True

    def __init__(self, law):
        self.law, self.model = law, base()

    def __call__(self, X, counts=None):
        shift = 0.0 if counts is None else np.log(counts)
        total = 0.0
        for W, v, law in zip(self.model.W, self.model.v, (self.law, lambda s, X: s), strict=True):
            weights = softmax(law(np.einsum("bnd,de,be->bn", X, W, X[:, -1]), X) + shift)
            total = total + (weights * (X @ v)).sum(axis=1)
        return total


OTHERS = {
    "softcap": Attending(lambda s, X: 3 * np.tanh(s / 3)),
    "normed scores": Attending(lambda s, X: s / (1 + np.linalg.norm(X, axis=2))),
    "softplus": Attending(lambda s, X: np.log(np.logaddexp(0, s))),
    "key offset": MultiHead(base().W, base().v, np.random.default_rng(0).standard_normal((2, 6))),
    "constant": MultiHead(base().W, base().v, constant=0.3),
    "network": us.models.Transformer.random(6, 9, norm=2.0, seed=5),
    "values that cancel": MultiHead(base().W, np.array([base().v[0], -base().v[0]])),
}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("heads", [None, 2])
def test_other_targets_are_refused(name: str, heads: int | None) -> None:
    with np.errstate(all="ignore"), pytest.raises((us.errors.ModelMismatch, us.errors.NotIdentifiable)):
        us.recover(us.oracle(OTHERS[name], 6, kind="membership"), Membership(accuracy=1e-6, heads=heads))


def test_another_number_of_heads_is_refused() -> None:
    for count, declared in ((3, 2), (2, 3)):
        target = MultiHead.random(6, count, norm=2.0, seed=1)
        with pytest.raises(us.errors.ModelMismatch):
            us.recover(labels_of(target), Membership(accuracy=1e-6, heads=declared))


def test_domains() -> None:
    target = base()
    longest = [0.0, 0]

    def watched(X, counts=None):
        longest[0] = max(longest[0], float(np.linalg.norm(X, axis=2).max()))
        longest[1] = max(longest[1], X.shape[1] if counts is None else int(counts.sum(axis=1).max()))
        return target(X, counts)

    watched.accepts_counts = True
    oracle = us.oracle(watched, 6, kind="membership", max_norm=100.0, max_length=300)
    recovery = us.recover(oracle, Membership(accuracy=1e-6, heads=None))
    assert us.models.distance(recovery.model, unit(target)) <= 1e-6
    assert longest[0] <= 100.0
    assert longest[1] <= 300
    for limits, words in (({"max_norm": 1.0}, "max_norm"), ({"max_length": 40}, "max_length")):
        with pytest.raises(us.errors.DomainError, match=words):
            us.recover(labels_of(target, **limits), Membership(accuracy=1e-6, heads=None))


def test_a_plain_function_is_asked_without_counts() -> None:
    target = MultiHead.random(3, 2, norm=2.0, seed=0)
    oracle = us.oracle(lambda X: target(X) > 0, 3, kind="membership", max_length=260)
    assert us.models.distance(us.recover(oracle, Membership(1e-6, heads=2)).model, unit(target)) <= 1e-6


def test_float32() -> None:
    target = base().astype("float32")
    recovery = us.recover(labels_of(target, dtype="float32"), Membership(accuracy=1e-3, heads=None))
    assert us.models.distance(recovery.model, unit(target.astype("float64"))) <= 1e-3


@pytest.mark.parametrize("given", [{"rank": 2}, {"flip_probability": 0.1}, {"method": "paper"}], ids=str)
def test_what_is_for_one_head_only_is_refused_by_name(given) -> None:
    with pytest.raises(us.errors.InvalidArgument, match=next(iter(given))):
        us.recover(labels_of(base()), Membership(accuracy=1e-6, heads=2, **given))


def test_an_accuracy_that_rounding_hides() -> None:
    target = MultiHead.random(4, 2, norm=2.0, seed=0)
    with pytest.raises((us.errors.NotIdentifiable, us.errors.InvalidArgument)):
        us.recover(labels_of(MultiHead(target.W, target.v * np.array([[1.0], [0.05]]))), Membership(3e-14, heads=2))


def test_without_a_learner_several_heads_are_found_where_one_is_contradicted() -> None:
    recovery = us.recover(labels_of(base()))
    assert us.models.distance(recovery.model, unit(base())) <= 1e-8
    assert recovery.model.heads == 2
