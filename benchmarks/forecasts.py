"""Forecasts: what was billed, inside what was stated before the first query, over every learner and many shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import unsoftmax as us
from benchmarks.base import Row

M, L = us.models, us.learners
Run = tuple[str, Any, Any, Callable[[Any], Any]]


def rows(large: bool) -> Iterator[Row]:
    seeds = range(4 if large else 1)
    runs = [run for seed in seeds for run in (*heads(seed, large), *several(seed), *networks(seed), *layers(seed))]
    outside, widths, refused = [], [], []
    for name, target, learner, make in runs:
        stated = us.estimate(make(target), learner)
        try:
            billed = us.recover(make(target), learner).usage.billed
        except us.errors.UnsoftmaxError as error:
            refused.append(f"{name}: {type(error).__name__}")
            continue
        assert stated.upper is not None
        widths.append(stated.upper / billed)
        if not stated.lower <= billed <= stated.upper:
            outside.append(f"{name}: {billed} beside {stated.lower}..{stated.upper}")
    figures = {"runs": len(runs), "outside": outside, "refused": refused}
    yield Row("billed outside the forecast", len(outside), 0.0, "runs", figures)
    yield Row("upper end / billed", sorted(widths)[len(widths) // 2], None, "median", {"largest": max(widths)})


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


def several(seed: int) -> Iterator[Run]:
    for d, count in ((4, 1), (6, 2), (8, 4), (16, 4)):
        target = M.MultiHead.random(d, count, norm=2.0, seed=seed)
        yield f"MultiHead {d} {count}", target, L.MultiHead(), us.oracle
        yield f"MultiHead known {d} {count}", target, L.MultiHead(heads=count), us.oracle
        yield f"MultiHead affine {d} {count}", target, L.MultiHead(affine=True), us.oracle
        yield f"automatic heads {d} {count}", target, None, us.oracle


def networks(seed: int) -> Iterator[Run]:
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


def layers(seed: int) -> Iterator[Run]:
    for d, count in ((8, 2), (12, 3), (16, 4), (32, 4), (64, 8)):
        for norm in (None, "pre", "post"):
            target = M.AttentionLayer.random(d, count, norm=norm, residual=norm is not None, seed=seed)
            for preset in ("lean", "balanced", "robust"):
                yield f"AttentionLayer {d} {count} {norm} {preset}", target, L.AttentionLayer(preset), us.oracle
            yield f"automatic layer {d} {count} {norm}", target, None, us.oracle
