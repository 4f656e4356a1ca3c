"""The contract of every oracle wrapper, and what each changes."""

from __future__ import annotations

import numpy as np
import pytest

import unsoftmax as us
from unsoftmax.oracles import Cast, Perturbed, Rounded, Stack, Thresholded
from unsoftmax.probes import Probes

HEAD = us.models.SingleHead.random(4, norm=2.0, seed=1)
SOURCE = us.oracle(HEAD)
WRAPPERS = {
    "source": SOURCE,
    "perturbed": Perturbed(SOURCE, 1e-3),
    "adversarial": Perturbed(SOURCE, 1e-3, adversarial=True),
    "rounded": Rounded(SOURCE, decimals=3),
    "significant": Rounded(SOURCE, significant=4),
    "float32": Cast(SOURCE, "float32"),
    "thresholded": Thresholded(SOURCE),
}
every = pytest.mark.parametrize("oracle", WRAPPERS.values(), ids=WRAPPERS.keys())


def some(batch: int = 40, length: int = 3) -> Probes:
    return Probes(np.random.default_rng(0).standard_normal((batch, length, 4)))


@every
def test_answers_do_not_depend_on_batching_or_order(oracle) -> None:
    probes = some()
    whole = oracle(probes)
    assert np.array_equal(whole, np.concatenate([oracle(probes[i : i + 7]) for i in range(0, 40, 7)]))
    order = np.random.default_rng(1).permutation(40)
    assert np.array_equal(whole[order], oracle(probes.take(order)))


@every
def test_answers_are_finite_floats_within_the_declared_tolerance(oracle) -> None:
    probes = some()
    y = oracle(probes)
    assert y.dtype == np.float64
    assert y.shape == (40,)
    if oracle.spec.kind == "approximate" and oracle.spec.tolerance:
        gap = np.abs(y - HEAD(probes.tokens))
        assert 0 < gap.max() <= oracle.spec.tolerance * (1 + 1e-12)


def test_specs_say_what_the_wrapper_does() -> None:
    assert WRAPPERS["perturbed"].spec.kind == "approximate"
    assert WRAPPERS["perturbed"].spec.tolerance == 1e-3
    assert WRAPPERS["rounded"].spec.tolerance == 5e-4
    assert WRAPPERS["float32"].spec.dtype == "float32"
    assert WRAPPERS["thresholded"].spec.kind == "membership"
    assert Rounded(WRAPPERS["perturbed"], decimals=3).spec.tolerance == pytest.approx(1.5e-3)


def test_adversarial_noise_sits_at_the_ends() -> None:
    gap = WRAPPERS["adversarial"](some()) - HEAD(some().tokens)
    assert np.allclose(np.abs(gap), 1e-3)
    assert 0 < (gap > 0).sum() < 40


def test_noise_depends_on_the_seed() -> None:
    assert not np.array_equal(Perturbed(SOURCE, 1e-3, seed=1)(some()), Perturbed(SOURCE, 1e-3, seed=2)(some()))


def test_significant_digits() -> None:
    fixed = us.oracle(lambda X: X[:, 0, 0], 1)
    x = np.array([123456.0, 0.00123456, 0.0, -9.8765]).reshape(4, 1, 1)
    assert np.allclose(Rounded(fixed, significant=3)(Probes(x)), [123000, 0.00123, 0, -9.88], rtol=1e-12)


def test_a_tie_answers_zero() -> None:
    zero = Thresholded(us.oracle(lambda X: X[:, 0, 0], 1))
    assert zero(Probes(np.array([0.0, 1e-300, -1e-300]).reshape(3, 1, 1))).tolist() == [0, 1, 0]


def test_membership_takes_values_or_booleans() -> None:
    probes = some()
    values = us.oracle(HEAD, kind="membership")(probes)
    booleans = us.oracle(lambda X: HEAD(X) > 0, 4, kind="membership")(probes)
    assert np.array_equal(values, booleans)
    assert set(values) == {0.0, 1.0}


@pytest.mark.parametrize("link", ["sigmoid", "exp", "tanh"])
def test_links_are_undone(link) -> None:
    forward = {"sigmoid": lambda f: 1 / (1 + np.exp(-f)), "exp": np.exp, "tanh": np.tanh}[link]
    linked = us.oracle(lambda X: forward(HEAD(X)), 4, link=link)
    assert np.allclose(linked(some()), HEAD(some().tokens), rtol=1e-9, atol=1e-12)


def test_counts_are_expanded_for_plain_callables() -> None:
    plain = us.oracle(lambda X: HEAD(X), 4)
    counts = np.random.default_rng(2).integers(1, 5, (40, 3))
    probes = Probes(some().tokens, counts)
    assert np.allclose(plain(probes), SOURCE(probes), rtol=1e-12, atol=1e-14)


def test_the_domain_is_enforced_before_anything_is_billed() -> None:
    stack = Stack(us.oracle(HEAD, max_norm=1.0, max_length=3))
    with pytest.raises(us.errors.DomainError, match="max_norm"):
        list(stack.ask([Probes(np.full((1, 2, 4), 0.6))]))
    with pytest.raises(us.errors.DomainError, match="max_length"):
        list(stack.ask([Probes(np.zeros((1, 2, 4)), np.array([[3, 1]]))]))
    assert stack.meter.billed == 0


MALFORMED = [
    (lambda X: np.zeros(len(X) + 1), "shape"),
    (lambda X: np.zeros((len(X), 2)), "shape"),
    (lambda X: np.full(len(X), np.nan), "nan"),
    (lambda X: np.full(len(X), 1j), "complex"),
    (lambda X: np.array(["a"] * len(X)), "dtype"),
    (lambda X: None, "answered with None"),
    (lambda X: [None] * len(X), "dtype object"),
    (lambda X: 1 / 0, "ZeroDivisionError"),
]


@pytest.mark.parametrize("declared", [{}, {"kind": "membership"}, {"link": "tanh"}], ids=["value", "labels", "link"])
@pytest.mark.parametrize(("answer", "words"), MALFORMED, ids=[words for _, words in MALFORMED])
def test_malformed_answers_name_the_probe(answer, words, declared) -> None:
    stack = Stack(us.oracle(answer, 4, **declared))
    with pytest.raises(us.errors.OracleError, match=words) as error:
        list(stack.ask([some(5)]))
    assert "phase 'main'" in str(error.value)


def test_an_infinite_answer_is_refused() -> None:
    """Behind a link it would be a saturated one."""
    with pytest.raises(us.errors.OracleError, match="answered inf"):
        list(Stack(us.oracle(lambda X: np.full(len(X), np.inf), 4)).ask([some(5)]))


def test_vectors_that_are_no_numbers_are_counted_not_printed() -> None:
    def answers(X):
        return np.where(np.arange(64) < 40, np.nan, 1.0) * np.ones((len(X), 1))

    with pytest.raises(us.errors.OracleError, match="answered nan in 40 of 64 numbers") as refusal:
        us.recover(us.oracle(answers, 8, outputs=64))
    assert len(str(refusal.value)) < 500


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: us.oracle(3, 4), "callable"),
        (lambda: us.oracle(HEAD, 5), "token dimension is 4"),
        (lambda: us.oracle(lambda X: X, None), "`dim` is required"),
        (lambda: us.oracle(HEAD, kind="guess"), "kind"),
        (lambda: us.oracle(HEAD, tolerance=-1), "tolerance"),
        (lambda: us.oracle(HEAD, dtype="int8"), "dtype"),
        (lambda: us.oracle(HEAD, max_norm=0), "max_norm"),
        (lambda: us.oracle(HEAD, max_batch=0), "max_batch"),
        (lambda: us.oracle(HEAD, link="cube"), "link"),
        (lambda: us.recover(HEAD), "wrap a callable"),
    ],
)
def test_bad_arguments_say_what_to_do(make, words) -> None:
    with pytest.raises(us.errors.InvalidArgument, match=words):
        make()
