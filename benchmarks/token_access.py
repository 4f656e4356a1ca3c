"""Token access: queries and error over random and real vocabularies; the whole of MiniLM's in --large."""

from __future__ import annotations

from collections.abc import Iterator

import unsoftmax as us
from benchmarks.base import Row, peak_memory
from tests.weights import minilm_tokens

_MIB = 4096


def rows(large: bool) -> Iterator[Row]:
    yield from random_heads(1.0, error=1e-10, dof=1.1)
    yield from random_heads(8.0, error=1e-6, dof=1.6)
    for head, error, dof in ((0, 1e-9, 1.1), (5, 1e-9, 1.1), (2, 1e-5, 1.7)):
        yield from measured(f"MiniLM head {head}, 3000 tokens", [minilm_tokens(head, 1000, 4000)], 32, error, dof)
    if large:
        yield from whole_vocabulary()


def random_heads(deviation: float, error: float, dof: float) -> Iterator[Row]:
    targets = [us.models.TokenHead.random(1000, 16, deviation, seed=seed) for seed in range(3)]
    yield from measured(f"V = 1000, rank 16, deviation {deviation:g}", targets, 16, error, dof)


def measured(name: str, targets: list[us.models.TokenHead], rank: int, error: float, dof: float) -> Iterator[Row]:
    """Worst billed queries (verification included) per unknown, and worst relative error of the gaps."""
    found = [(target, us.recover(us.token_oracle(target), us.learners.TokenHead())) for target in targets]
    unknowns = us.theory.token_head_unknowns(targets[0].vocabulary, rank)
    billed = max(recovery.usage.billed for _, recovery in found)
    worst = max(us.models.distance(recovery.model, target) for target, recovery in found)
    figures = {"billed": billed, "unknowns": unknowns, "seconds": max(r.usage.seconds for _, r in found)}
    yield Row(f"queries, {name}", billed / unknowns, dof, "billed / unknowns", figures)
    yield Row(f"error, {name}", worst / error, 1.0, f"worst relative error of the gaps / {error:g}", {"error": worst})


def whole_vocabulary() -> Iterator[Row]:
    target = minilm_tokens(0)
    name = f"MiniLM head 0, all {target.vocabulary} tokens"
    peak, results = peak_memory(lambda: list(measured(name, [target], 32, 1e-9, 1.1)))
    yield from results
    yield Row(f"peak memory, {name}", peak / _MIB, 1.0, "peak MiB / 4096 MiB", {"peak_mib": peak})
