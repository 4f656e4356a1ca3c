"""Output layers: width and row space over sizes, requests beside published counts; circuits of one layer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

import numpy as np

import unsoftmax as us
from benchmarks.base import Row
from tests.language_models import Practice
from tests.one_layer import Weights
from tests.weights import minilm

_SIZES = ((64, 2_000, 12), (64, 50_000, 6), (256, 5_000, 10), (256, 50_000, 4), (576, 5_000, 6), (576, 50_000, 2))
"""Width, vocabulary and number of random output layers; with `_TRAINED` they are 50."""

_TRAINED = ((64, 5), (256, 5))
"""Widths and number of output layers cut from the word embeddings of MiniLM, 30,522 tokens."""


DROP = 1e14
"""By how much singular values fall at index 64 in arXiv 2606.06854, whose model of h = 64 is recovered up to a
rotation; how many prompts that took is not in its text as far as we read it."""


def rows(large: bool) -> Iterator[Row]:
    sizes = _SIZES if large else ((64, 2_000, 2), (256, 5_000, 1))
    # Made one at a time: a table of 50,000 x 576 is 230 MB.
    random = (Practice(d, V, seed) for d, V, count in sizes for seed in range(count))
    tables = (trained(d, seed) for d, count in _TRAINED for seed in range(count if large else 1))
    yield from swept(chain(random, tables))
    yield from chosen()
    yield from published()
    yield from circuits(5 if large else 1)


def trained(width: int, seed: int) -> Practice:
    """A language model to practise on, behind whose last norm stand columns of a trained table."""
    words = minilm()["embeddings.word_embeddings.weight"]
    model = Practice(width, len(words), seed)
    columns = np.random.default_rng(seed).choice(words.shape[1], width, replace=False)
    model.U = words[:, columns]
    return model


def swept(models: Iterable[Practice]) -> Iterator[Row]:
    """Wrong widths, worst row space, most requests beyond the width."""
    wrong, worst, most, cases = 0, 0.0, 0, 0
    for model in models:
        cases += 1
        recovery = us.recover(us.logit_oracle(model, model.vocabulary), us.learners.OutputLayer())
        truth = us.models.OutputLayer.of_unembedding(model.U * model.gamma)
        wrong += recovery.model.width != model.width
        worst = max(worst, us.models.distance(recovery.model, truth))
        most = max(most, recovery.usage.phases["main"] - model.width)
    figures = {"cases": cases, "wrong": wrong, "row space": worst, "beyond the width": most}
    yield Row("widths that are wrong", wrong, 0.0, f"of {cases} output layers, random and trained", figures)
    yield Row("row space", worst / 1e-10, 1.0, "sine of the largest angle / 1e-10, worst", figures)
    yield Row("requests beyond the width", most / 32, 1.0, "most requests - d / 32, all logits", figures)


def chosen() -> Iterator[Row]:
    """The 20 likeliest tokens with a bias: requests over the closed form."""
    V, d, k = 1_000, 64, 20
    model = Practice(d, V)
    recovery = us.recover(us.logit_oracle(model.chosen, V, shows="chosen", top=k), us.learners.OutputLayer())
    form = us.theory.output_layer_chosen_requests(V, d, k)
    figures = {"requests": recovery.usage.phases["main"], "closed form": form, "tokens": recovery.usage.tokens}
    met = recovery.model.width == d
    ratio = recovery.usage.phases["main"] / form if met else np.inf
    yield Row(f"top {k} with bias, d = {d}, V = {V}", ratio, 1.0, "requests / closed form", figures)


def published() -> Iterator[Row]:
    """Ours beside arXiv 2606.06854 (h = 64), and over the counts of arXiv 2403.06634: d + 1 prompts at least, each
    V / (k - 1) requests behind a top k.

    Theirs is the least that a rank shows; ours includes what makes it certain, one block of 16 prompts.
    """
    d = 64
    recovery = us.recover(us.logit_oracle(Practice(d, 2_000), 2_000), us.learners.OutputLayer())
    s = recovery.model.singular_values
    figures = {"ours": float(s[d - 1] / s[d]), "arXiv 2606.06854": DROP}
    yield Row(
        f"drop of the spectrum, d = {d}", float(DROP * s[d] / s[d - 1]), None, "1e14 (2606.06854) / ours", figures
    )
    least = d * (d + 1) // 2
    ours = us.theory.output_layer_rotation_requests(d)
    figures = {"ours": ours, "unknowns of the quadric (2606.06854)": least}
    yield Row(f"requests up to a rotation, d = {d}", ours / least, 1.2, "ours / d(d + 1)/2 unknowns", figures)
    for d, V, k in ((64, 2_000, None), (576, 49_152, None), (1_024, 50_257, 5), (2_048, 50_257, 5)):
        ours = us.theory.output_layer_requests(d) if k is None else us.theory.output_layer_chosen_requests(V, d, k)
        theirs = (d + 1) * (1 if k is None else -(-V // (k - 1)))
        name = f"d = {d}, V = {V}, " + ("all logits" if k is None else f"top {k} with bias")
        figures = {"ours": ours, "arXiv 2403.06634": theirs}
        yield Row(f"requests, {name}", ours / theirs, None, "ours / d + 1 prompts (2403.06634, by formula)", figures)


def circuits(seeds: int) -> Iterator[Row]:
    """One-layer language models: prompts over unknowns beside the output layer's, over d; worst circuit."""
    V, d, H, k, T = 200, 32, 4, 8, 16
    least = (us.theory.token_layer_unknowns(V, d, H, k, T) - us.theory.output_layer_unknowns(V, d)) / d
    worst, most = 0.0, 0
    for seed in range(seeds):
        weights = Weights.random(V, d, H, k, T, seed=seed)
        recovery = us.recover(us.logit_oracle(weights, V, max_length=T), us.learners.TokenLayer(), seed=seed)
        truth = us.models.TokenLayer.of_weights(*weights.parts)
        worst = max(worst, us.models.distance(recovery.model, truth))
        most = max(most, recovery.usage.billed - recovery.usage.phases["verify"])
    name = f"one layer, V = {V}, d = {d}, {H} heads, {T} places"
    figures = {"prompts": most, "least": least, "error": worst, "seeds": seeds}
    yield Row(f"prompts, {name}", most / least, 1.5, "prompts / (unknowns beside the output layer / d)", figures)
    yield Row(f"circuits, {name}", worst / 1e-8, 1.0, "worst relative error of a circuit / 1e-8", figures)
