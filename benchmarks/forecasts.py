"""Forecasts: what was billed, inside what was stated before the first query, over every learner and many shapes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

import unsoftmax as us
from benchmarks.base import Row
from unsoftmax.probes import Probes

M, L = us.models, us.learners
Run = tuple[str, Any, Any, Callable[[Any], Any]]


def rows(large: bool) -> Iterator[Row]:
    seeds = range(4 if large else 1)
    kinds = (heads, several, networks, rounded, layers, served, kernels, languages)
    runs = [run for seed in seeds for kind in kinds for run in kind(seed, large)]
    outside, widths, refused = [], [], []
    for name, target, learner, make in runs:
        stated = us.estimate(make(target), learner)
        if refused_late(make(target), learner, stated.lower - 1):
            outside.append(f"{name}: a budget of {stated.lower - 1} was not refused before the first query")
        assert stated.upper is not None
        least = stated.lower
        try:
            billed = us.recover(make(target), learner).usage.billed
            widths.append(stated.upper / billed)
        except us.errors.UnsoftmaxError as error:
            refused.append(f"{name}: {type(error).__name__}: {error}")
            # A refusal may come early, and costs no more than a result.
            billed, least = error.recovery.usage.billed if error.recovery else 0, 0
        if not least <= billed <= stated.upper:
            outside.append(f"{name}: {billed} beside {stated.lower}..{stated.upper}")
    figures = {"runs": len(runs), "outside": outside, "refused": refused}
    yield Row("billed outside the forecast", len(outside), 0.0, "runs", figures)
    yield Row("upper end / billed", sorted(widths)[len(widths) // 2], None, "median", {"largest": max(widths)})


def refused_late(oracle: Any, learner: Any, budget: int) -> bool:
    """Whether a budget below the lower end is found out only after something was asked, or never."""
    try:
        us.recover(oracle, learner, budget=max(budget, 0))
    except us.errors.BudgetExceeded as refusal:
        return refusal.recovery is not None and refusal.recovery.usage.billed > 0
    except us.errors.UnsoftmaxError:
        return True
    return True


def heads(seed: int, large: bool) -> Iterator[Run]:
    noisy = lambda t: us.oracles.Perturbed(us.oracle(t), 1e-6)  # noqa: E731
    for d in (2, 4, 8, 16, 32, *((64, 128) if large else ())):
        head = M.SingleHead.random(d, norm=2.0, seed=seed)
        low = M.SingleHead.random(d, rank=max(1, d // 4), norm=2.0, seed=seed)
        yield f"SingleHead {d}", head, L.SingleHead(), us.oracle
        yield f"SingleHead bounded {d}", head, L.SingleHead(), lambda t: us.oracle(t, max_norm=1.0)
        yield f"SingleHead affine {d}", head, L.SingleHead(affine=True), us.oracle
        yield f"Approximate {d}", head, L.Approximate(), noisy
        yield f"LowRank full {d}", head, L.LowRank(), us.oracle
        yield f"LowRank {d}", low, L.LowRank(), us.oracle
        yield f"LowRank noisy {d}", low, L.LowRank(), noisy
        yield f"automatic head {d}", head, None, us.oracle
    for d in (2, 4, 8):
        head = M.SingleHead.random(d, norm=2.0, seed=seed)
        labels = lambda t: us.oracle(t, kind="membership")  # noqa: E731
        for learner in (L.Membership(1e-3), L.Membership(1e-9), L.Membership(1e-6, rank=None)):
            yield f"{learner} {d}", head, learner, labels
    for vocabulary, rank in ((16, 2), (50, 3), (100, 8)):
        tokens = M.TokenHead.random(vocabulary, rank, 1.0, seed=seed)
        yield f"TokenHead {vocabulary}", tokens, L.TokenHead(), us.token_oracle
        yield f"TokenHead rank {vocabulary}", tokens, L.TokenHead(rank=rank), us.token_oracle


def several(seed: int, large: bool) -> Iterator[Run]:
    for d, count in ((4, 1), (6, 2), (8, 4), (16, 4)):
        target = M.MultiHead.random(d, count, norm=2.0, seed=seed)
        yield f"MultiHead {d} {count}", target, L.MultiHead(), us.oracle
        yield f"MultiHead known {d} {count}", target, L.MultiHead(heads=count), us.oracle
        yield f"MultiHead affine {d} {count}", target, L.MultiHead(affine=True), us.oracle
        yield f"automatic heads {d} {count}", target, None, us.oracle


def networks(seed: int, large: bool) -> Iterator[Run]:
    for d, m in ((2, 4), (4, 16), (8, 8), (16, 32)):
        for bias in (False, True):
            yield (
                f"ReluNetwork {d} {m}",
                M.ReluNetwork.random(d, m, bias=bias, seed=seed),
                L.ReluNetwork(bias),
                us.oracle,
            )
        target = M.Transformer.random(d, m, norm=2.0, seed=seed)
        yield f"Transformer {d} {m}", target, L.Transformer(), us.oracle
        yield f"Transformer odd {d} {m}", target, L.Transformer(method="odd"), us.oracle
        yield f"Transformer bounded {d} {m}", target, L.Transformer(), lambda t: us.oracle(t, max_norm=4.0)
        yield f"AttentionBehind {d} {m}", target, L.AttentionBehind(), us.oracle
        yield f"automatic network {d} {m}", target, None, us.oracle


def rounded(seed: int, large: bool) -> Iterator[Run]:
    """Networks whose answers are written with few digits, declared and not: many are refused, after many repairs."""
    forms: list[dict[str, int]] = [{"significant": n} for n in range(3, 9)] + [{"decimals": n} for n in range(3, 7)]
    for d, m in ((3, 8), (3, 16), (6, 12), (8, 32), (16, 64)):
        network, target = M.ReluNetwork.random(d, m, seed=seed), M.Transformer.random(d, m, norm=2.0, seed=seed)
        for form in forms:
            said = lambda t, form=form: us.oracles.Rounded(us.oracle(t), **form)  # noqa: E731
            silent = partial(unsaid, said)
            for words, make in (("declared", said), ("undeclared", silent)):
                name = f"{d} {m} {form} {words}"
                yield f"ReluNetwork {name}", network, L.ReluNetwork(), make
                if d < 16 and (large or form in ({"significant": 7}, {"decimals": 4})):
                    yield f"Transformer {name}", target, L.Transformer(), make
                    yield f"Transformer odd {name}", target, L.Transformer(method="odd"), make
                    yield f"AttentionBehind {name}", target, L.AttentionBehind(), make
                    yield f"automatic network {name}", network, None, make


def unsaid(make: Callable[[Any], Any], target: Any) -> Any:
    """The oracle of a target whose answers are as those of `make`, which nobody has declared."""
    said = make(target)
    return us.oracle(lambda tokens: said(Probes(tokens)), target.dim)


def layers(seed: int, large: bool) -> Iterator[Run]:
    for d, count in ((8, 2), (12, 3), (16, 4), (32, 4), (64, 8)):
        for norm in (None, "pre", "post"):
            target = M.AttentionLayer.random(d, count, norm=norm, residual=norm is not None, seed=seed)
            for preset in ("lean", "balanced", "robust"):
                yield f"AttentionLayer {d} {count} {norm} {preset}", target, L.AttentionLayer(preset), us.oracle
            yield f"automatic layer {d} {count} {norm}", target, None, us.oracle


def served(seed: int, large: bool) -> Iterator[Run]:
    """Layers as language models have them, and stacks."""
    around: dict[str, Any] = {"norm": "rms", "residual": True, "bias": False, "scale": 2.0}
    for d, count, width in ((16, 4, 4), (32, 4, 8), *(((64, 8, 8),) if large else ())):
        rope = M.Rope.ladder(width)
        llama = M.AttentionLayer.random(d, count, width, positions=rope, kv_groups=count // 2, seed=seed, **around)
        plain = M.AttentionLayer.random(d, count, width, positions=rope, seed=seed, **around)
        for name, target in (("grouped", llama), ("ungrouped", plain)):
            yield f"rotary {name} {d} {count}", target, L.AttentionLayer(), us.oracle
            yield f"rotary {name} {d} {count} lean", target, L.AttentionLayer("lean"), us.oracle
        yield f"automatic rotary {d} {count}", llama, None, us.oracle
    for rest in ({}, {"norm": "rms"}, {"causal": True}, {"norm": None}):
        shape = (8, 2, 1, 4) if rest.get("norm", "") is None else (8, 2, 2, 2)
        yield (
            f"AttentionStack {rest}",
            M.AttentionStack.random(*shape, seed=seed, **rest),
            L.AttentionStack(),
            us.oracle,
        )


def kernels(seed: int, large: bool) -> Iterator[Run]:
    """Other kernels, heads that explain themselves, heads in orthogonal subspaces, several heads from labels."""
    for d in (4, 8, 16):
        for name, normalised in (("softplus", True), ("sigmoid", False), ("linear", False), ("relu^2", True)):
            target = M.KernelHead.random(d, name, normalised=normalised, norm=2.0, seed=seed)
            yield f"KernelHead {name} {d}", target, L.KernelHead(), us.oracle
            yield f"KernelHead {name} {d} named", target, L.KernelHead(name), us.oracle
        head, low = M.SingleHead.random(d, norm=2.0, seed=seed), M.SingleHead.random(d, rank=2, norm=2.0, seed=seed)
        two = M.MultiHead.random(d, 2, norm=2.0, seed=seed)
        for kind in ("gradient", "attention"):
            shown = partial(us.oracle, kind=kind)
            yield f"SingleHead {kind} {d}", head, L.SingleHead(), shown
            yield f"LowRank {kind} {d}", low, L.LowRank(), shown
            yield f"MultiHead {kind} {d}", two, L.MultiHead(), shown
            yield f"automatic {kind} {d}", head, None, shown
    labels = partial(us.oracle, kind="membership")
    for d, count in ((4, 2), (6, 2), (6, 3)):
        target = M.MultiHead.random(d, count, norm=2.0, seed=seed)
        for learner in (L.Membership(1e-6, heads=None), L.Membership(1e-3, heads=count)):
            yield f"{learner} {d} {count}", target, learner, labels
    part = M.MultiHead.random(3, 2, norm=2.0, seed=seed)
    W, v = np.zeros((2, 6, 6)), np.zeros((2, 6))
    W[0, :3, :3], W[1, 3:, 3:], v[0, :3], v[1, 3:] = part.W[0], part.W[1], part.v[0], part.v[1]
    yield "OrthogonalHeads 6 2", M.MultiHead(W, v), L.OrthogonalHeads(), us.oracle
    deep = M.MultiHeadTransformer.random(6, 2, 8, norm=4.0, seed=seed)
    yield "Transformer heads 6 2", deep, L.Transformer(heads=None), us.oracle
    yield "AttentionBehind heads 6 2", deep, L.AttentionBehind(heads=None), us.oracle


def languages(seed: int, large: bool) -> Iterator[Run]:
    """Ids in, logits out."""
    for width, vocabulary, count, length in ((10, 40, 1, 9), (16, 60, 2, 9), (32, 120, 4, 12)):
        model = M.TokenLayer.random(width, vocabulary, count, length, seed=seed)
        for shows in ("logits", "log-probabilities"):
            make = partial(shown_logits, shows=shows)
            yield f"TokenLayer {width} {count} {shows}", model, L.TokenLayer(), make
            yield f"OutputLayer {width} {shows}", model, L.OutputLayer(), make
        yield f"automatic language model {width}", model, None, shown_logits


def shown_logits(model: Any, shows: Any = "logits") -> Any:
    def answer(ids: Any) -> Any:
        y = model(ids)
        return y if shows == "logits" else y - np.logaddexp.reduce(y, axis=1, keepdims=True)

    return us.logit_oracle(answer, model.vocabulary, shows, max_length=model.length)


if __name__ == "__main__":
    for row in rows("--large" in sys.argv):
        print(row.name, row.ratio, row.meaning, *(f"{k}: {v}" for k, v in row.figures.items()), sep="\n  ")
