"""Trained layers and heads without a learner named: how often the verdict is right.

`python -m benchmarks.trained --most 100` takes every part of rxnfp (d = 256), localmapper (256) and MiniLM (384), in
float64 and computed in float32; names select packages. Right is a copy whose function and parameters lie within what
is stated, or a refusal of what the class does not hold; everything else is named.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import unsoftmax as us
from tests.weights import localmapper_layer, minilm_head, minilm_layer, rxnfp_layer
from unsoftmax.learners.core.base import RELATIVE_ERROR

_CROSS = "cross_att.att_stack"


@dataclass(frozen=True)
class Part:
    """One trained part; `refusal`: the error that is right for it, None if it is to be recovered."""

    name: str
    make: Callable[[], Any]
    refusal: type[Exception] | None = None


def parts() -> Iterator[Part]:
    """Layers with the norms they are served with, single heads, and attention that training has driven to nothing."""
    for layer in range(12):
        for norm in (None, "pre", "post"):
            yield Part(f"rxnfp layer {layer} norm={norm}", partial(rxnfp_layer, layer, norm))
    for year in ("202403", "202407"):
        yield Part(f"localmapper {year} single", partial(localmapper_layer, year, "amm_att"))
        for h in range(8):
            name = f"localmapper {year} head {h}"
            yield Part(name, partial(localmapper_layer, year, f"{_CROSS}.0", head=h))
        yield Part(f"localmapper {year} cross norm=None", partial(localmapper_layer, year, f"{_CROSS}.0", None))
    yield Part("localmapper 202403 cross norm=pre", partial(localmapper_layer, "202403", f"{_CROSS}.0"))
    hidden = us.errors.NotIdentifiable
    yield Part("localmapper 202407 cross norm=pre", partial(localmapper_layer, "202407", f"{_CROSS}.0"), hidden)
    for layer in (1, 2):
        nothing = us.errors.UnsoftmaxError
        name = f"localmapper 202407 empty cross {layer}"
        yield Part(name, partial(localmapper_layer, "202407", f"{_CROSS}.{layer}"), nothing)
    for layer in range(6):
        yield Part(f"minilm layer {layer}", partial(minilm_layer, layer))
        yield Part(f"minilm head {layer}.0", partial(minilm_head, layer, 0))


def verdict(part: Part, dtype: str) -> tuple[bool, str]:
    """Whether the run ended as it should, and in words how."""
    target = part.make()
    served = target if dtype == "float64" else target.astype(dtype)
    start = time.process_time()
    try:
        recovery = us.recover(us.oracle(served, dtype=dtype))
    except us.errors.UnsoftmaxError as refusal:
        right = part.refusal is not None and isinstance(refusal, part.refusal)
        words = f"{type(refusal).__name__}: {str(refusal)[:160]}"
    else:
        stated = next((claim.bound for claim in recovery.certificate if claim.name == RELATIVE_ERROR), np.inf)
        error = us.models.distance(recovery.model, target)
        right = part.refusal is None and bool(error <= stated)
        words = f"error {error:.1e}, stated {stated:.1e}, {recovery.usage.billed} queries"
    return right, f"{words}, {time.process_time() - start:.0f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="packages; all if none is given")
    parser.add_argument("--most", type=int, default=100, help="runs at most, drawn at random")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    wanted = [part for part in parts() if not chosen.names or part.name.split()[0] in chosen.names]
    cases = [(part, dtype) for part in wanted for dtype in ("float64", "float32")]
    order = np.random.default_rng(chosen.seed).permutation(len(cases))[: chosen.most]
    right = 0
    for k, i in enumerate(order, start=1):
        part, dtype = cases[i]
        good, words = verdict(part, dtype)
        right += good
        print(f"{'right' if good else 'WRONG'} {right}/{k} {part.name} {dtype}: {words}", flush=True)


if __name__ == "__main__":
    main()
