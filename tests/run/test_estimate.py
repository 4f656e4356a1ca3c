"""Costs are stated before anything is asked, as intervals that hold, and budgets below them are refused."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest

import unsoftmax as us
from unsoftmax.probes import Probes

PAGE = Path(__file__).parents[2] / "docs" / "queries-cost-money.md"


class Counting:
    """A target that counts what it receives."""

    def __init__(self, model):
        self.model, self.dim, self.outputs = model, model.dim, getattr(model, "outputs", None)
        self.received = 0

    def __call__(self, tokens):
        self.received += len(tokens)
        return self.model(tokens)


class Remote(Counting):
    """The same, believed to be on a server."""

    remote = True


def test_nothing_is_asked():
    target = Counting(us.models.SingleHead.random(8, seed=0))
    for learner in (None, us.learners.SingleHead(), us.learners.MultiHead()):
        assert us.estimate(us.oracle(target), learner).upper is not None
    assert target.received == 0


def test_a_wide_interval_says_which_learners_make_it_wide():
    stated = us.estimate(us.oracle(us.models.SingleHead.random(16, seed=0)))
    costs = {choice.name: (choice.lower, choice.upper) for choice in stated.choices}
    chosen = next(step for step in stated.steps if step.name == "chosen learner")
    assert (chosen.lower, chosen.upper) == (min(low for low, _ in costs.values()), max(h for _, h in costs.values()))
    low, high = costs["SingleHead"]
    assert high < 1.5 * low
    assert "SingleHead" in str(stated)
    assert stated.to_json()["choices"][0]["step"] == "SingleHead"
    assert us.estimate(us.oracle(us.models.SingleHead.random(16, seed=0)), us.learners.SingleHead()).choices == ()


@pytest.mark.parametrize(
    ("target", "learner"),
    [
        (us.models.SingleHead.random(16, norm=2.0, seed=1), None),
        (us.models.SingleHead.random(16, norm=2.0, seed=1), us.learners.SingleHead()),
        (us.models.MultiHead.random(8, 2, norm=2.0, seed=1), us.learners.MultiHead()),
        (us.models.AttentionLayer.random(32, 4, seed=1), us.learners.AttentionLayer()),
        (us.models.AttentionLayer.random(32, 4, seed=1), None),
    ],
)
def test_billed_lies_inside_and_a_budget_below_is_refused_before_the_first_query(target, learner):
    watched = Counting(target)
    stated = us.estimate(us.oracle(watched), learner)
    with pytest.raises(us.errors.BudgetExceeded):
        us.recover(us.oracle(watched), learner, budget=stated.lower - 1)
    assert watched.received == 0
    assert stated.lower <= us.recover(us.oracle(watched), learner).usage.billed <= stated.upper


@pytest.mark.parametrize(
    ("dim", "width", "form", "seeds"),
    [
        (3, 16, {"significant": 3}, range(3)),
        (8, 32, {"significant": 7}, range(3)),
        (8, 32, {"decimals": 4}, range(3)),
        (16, 64, {"significant": 7}, range(2)),
    ],
)
@pytest.mark.parametrize("declared", [True, False])
def test_networks_behind_rounded_answers_take_no_more_than_stated(dim, width, form, seeds, declared):
    """Steps that rounding blurs had been repeated, and circles begun anew, beyond the upper end."""
    for seed in seeds:
        network = us.models.ReluNetwork.random(dim, width, seed=seed)
        said = us.oracles.Rounded(us.oracle(network), **form)
        oracle = said if declared else us.oracle(lambda tokens, said=said: said(Probes(tokens)), dim)
        stated = us.estimate(oracle, us.learners.ReluNetwork())
        try:
            billed = us.recover(oracle, us.learners.ReluNetwork()).usage.billed
        except (us.errors.ModelMismatch, us.errors.NotIdentifiable) as refusal:
            billed = refusal.recovery.usage.billed
        assert billed <= stated.upper


def test_a_network_wider_than_supposed_is_still_learned():
    """Its circle shows that it is wider, and what it may cost grows with its kinks."""
    target = us.models.ReluNetwork.random(8, 128, seed=0)
    recovery = us.recover(us.oracle(target), us.learners.ReluNetwork())
    assert recovery.model.width == 128
    assert recovery.usage.billed > us.estimate(us.oracle(target), us.learners.ReluNetwork()).upper


def test_a_layer_says_what_it_needs_once_its_heads_are_known():
    target = us.models.AttentionLayer.random(64, 4, seed=1)
    whole = us.recover(us.oracle(target), us.learners.AttentionLayer(norm=None)).usage.billed
    watched = Counting(target)
    with pytest.raises(us.errors.BudgetExceeded, match="queries more"):
        us.recover(us.oracle(watched), us.learners.AttentionLayer(norm=None), budget=int(0.7 * whole))
    assert watched.received < 0.45 * whole


def test_a_diagnosis_says_so_before_its_sketches():
    watched = Counting(us.models.SingleHead.random(256, norm=2.0, seed=0))
    with pytest.raises(us.errors.BudgetExceeded, match="diagnosis"):
        us.recover(us.oracle(watched), budget=850)
    assert watched.received < 110


@pytest.mark.parametrize(
    ("target", "learner"),
    [
        (us.models.MultiHead.random(6, 2, norm=2.0, seed=1), us.learners.MultiHead()),
        (us.models.MultiHead.random(6, 2, norm=2.0, seed=1), us.learners.MultiHead(affine=True)),
        (us.models.MultiHead.random(6, 2, norm=2.0, seed=1), None),
        (us.models.MultiHeadTransformer.random(6, 2, 8, norm=4.0, seed=2), us.learners.Transformer(heads=None)),
        (us.models.MultiHeadTransformer.random(6, 2, 8, norm=4.0, seed=2), us.learners.AttentionBehind(heads=None)),
        (us.models.SingleHead.random(6, norm=2.0, seed=1), us.learners.SingleHead()),
    ],
)
def test_a_remote_target_without_a_budget_gets_one_that_suffices(target, learner):
    recovery = us.recover(us.oracle(Remote(target)), learner)
    allowed = re.search(r"(\d+) queries were allowed", " ".join(recovery.notes))
    assert recovery.usage.billed <= int(allowed[1])


def test_labels_and_subspaces_of_a_remote_target():
    head = us.models.SingleHead.random(4, rank=1, norm=2.0, seed=1)
    us.recover(us.oracle(Remote(head), kind="membership"), us.learners.Membership(1e-3, rank=None))
    W = np.array([np.diag([1.0, 0, 0]), [[0, 0, 0], [0, 1, 2], [0, -1, 1]]])
    v = np.array([[1.0, 0, 0], [0, 1, 1]])
    us.recover(us.oracle(Remote(us.models.MultiHead(W, v))), us.learners.OrthogonalHeads())


def documented():
    """Cells of the table: learner, dim, what is said."""
    text = PAGE.read_text()
    table = text[text.index("| target | learner |") :].split("\n\n")[0].splitlines()
    dims = [int(cell) for cell in re.findall(r"d = (\d+)", table[0])]
    for line in table[2:]:
        _, learner, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        yield from ((learner.strip("`"), d, cell) for d, cell in zip(dims, cells, strict=True))


@pytest.mark.parametrize(("words", "d", "cell"), list(documented()))
def test_the_table_of_the_docs_is_what_is_stated(words, d, cell):
    learner = eval(words, dict(vars(us.learners)))
    oracle = us.oracle(lambda tokens: tokens, d, outputs=d if "Layer" in words else None)
    stated = us.estimate(oracle, learner)
    assert cell == f"{_short(stated.lower)} to {_short(stated.upper)}"


def _short(queries):
    """Three digits."""
    unit = 10 ** max(0, math.floor(math.log10(queries)) - 2)
    return f"{round(queries / unit) * unit:,}"


@pytest.mark.parametrize("kind", ["gradient", "attention"])
@pytest.mark.parametrize("learner", [us.learners.LowRank(), us.learners.LowRank(rank=2), us.learners.MultiHead()])
def test_explained_answers_have_both_ends(kind, learner):
    target = us.models.SingleHead.random(8, rank=2, norm=2.0, seed=1)
    if isinstance(learner, us.learners.MultiHead):
        target = us.models.MultiHead.random(8, 2, norm=2.0, seed=1)
    oracle = us.oracle(target, kind=kind)
    stated = us.estimate(oracle, learner)
    assert stated.lower <= us.recover(oracle, learner).usage.billed <= stated.upper


@pytest.mark.parametrize("rest", [{}, {"network": 12}, {"norm": "rms", "causal": True}], ids=str)
def test_stacks_have_both_ends(rest):
    oracle = us.oracle(us.models.AttentionStack.random(8, 2, 2, 2, seed=1, **rest))
    stated = us.estimate(oracle, us.learners.AttentionStack())
    assert stated.lower <= us.recover(oracle, us.learners.AttentionStack()).usage.billed <= stated.upper
    assert us.estimate(oracle, us.learners.AttentionStack(layers=2, heads=2)).upper <= stated.upper
