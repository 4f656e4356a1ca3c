"""Trained layers and heads without a learner named: how often the verdict is right.

`python -m benchmarks.trained --most 100` takes parts of rxnfp (d = 256), localmapper (256), MiniLM (384) and SmolLM2
(576), in float64 and computed in float32; names select packages. Right is a copy whose parameters lie within what
is stated and whose function at natural norms is off by no more than was granted or than such parameters would make it,
or a refusal of what the class does not hold; everything else is named.
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
from benchmarks.number_formats import error_of_W
from tests.weights import localmapper_layer, minilm_head, minilm_layer, rxnfp_layer, smollm_head, smollm_layer
from unsoftmax.learners.core.base import ERROR_OF_W, RELATIVE_ERROR
from unsoftmax.models.nearby import nearby

_CROSS = "cross_att.att_stack"


@dataclass(frozen=True)
class Part:
    """One trained part; `refusal`: the error that is right for it, None if it is to be recovered.

    `coarse`: the error that is expected where float32 rounds away what the probes read the weakest directions by.
    """

    name: str
    make: Callable[[], Any]
    refusal: type[Exception] | None = None
    coarse: type[Exception] | None = None

    def refused(self, dtype: str) -> type[Exception] | None:
        return self.refusal or (self.coarse if dtype == "float32" else None)


def parts() -> Iterator[Part]:
    """Layers with the norms they are served with, single heads, and attention that training has driven to nothing."""
    for layer in range(12):
        for norm in (None, "pre", "post"):
            yield Part(f"rxnfp layer {layer} norm={norm}", partial(rxnfp_layer, layer, norm))
    hidden = us.errors.NotIdentifiable
    for year in ("202403", "202407"):
        yield Part(f"localmapper {year} single", partial(localmapper_layer, year, "amm_att"))
        for h in range(8):
            name = f"localmapper {year} head {h}"
            # Values of condition 1e5 beside scores of a hundred: float32 leaves a fifth of W unknown by these probes,
            # though answers that differ by a tenth show it (their own rounding is 1e-6): a limit of the learner.
            coarse = hidden if (year, h) == ("202407", 0) else None
            yield Part(name, partial(localmapper_layer, year, f"{_CROSS}.0", head=h), coarse=coarse)
    # Sums of all values of condition 4e7, 4e10 (without the norm) and 6e12: float32 has seven digits.
    for year, coarse in (("202403", None), ("202407", hidden)):
        make = partial(localmapper_layer, year, f"{_CROSS}.0", None)
        yield Part(f"localmapper {year} cross norm=None", make, coarse=coarse)
    make = partial(localmapper_layer, "202403", f"{_CROSS}.0")
    yield Part("localmapper 202403 cross norm=pre", make, coarse=hidden)
    yield Part("localmapper 202407 cross norm=pre", partial(localmapper_layer, "202407", f"{_CROSS}.0"), hidden)
    for layer in (1, 2):
        nothing = us.errors.UnsoftmaxError
        name = f"localmapper 202407 empty cross {layer}"
        yield Part(name, partial(localmapper_layer, "202407", f"{_CROSS}.{layer}"), nothing)
    for layer in range(6):
        yield Part(f"minilm layer {layer}", partial(minilm_layer, layer))
        yield Part(f"minilm head {layer}.0", partial(minilm_head, layer, 0))
    for layer, head in ((0, 0), (7, 4), (14, 8), (22, 2), (29, 6)):
        yield Part(f"smollm2 head {layer}.{head}", partial(smollm_head, layer, head))
    # Heads that fill the space: float64 leaves layer 14 with 3e-9, a factor of 1e7 above rounding, all of float32's.
    for layer in (0, 14):
        yield Part(f"smollm2 layer {layer}", partial(smollm_layer, layer), coarse=hidden)


def verdict(part: Part, dtype: str) -> tuple[bool, str]:
    """Whether the run ended as it should, and in words how."""
    target = part.make()
    served = target if dtype == "float64" else target.astype(dtype)
    start = time.process_time()
    try:
        recovery = us.recover(us.oracle(served, dtype=dtype))
    except us.errors.UnsoftmaxError as refusal:
        expected = part.refused(dtype)
        right = expected is not None and isinstance(refusal, expected)
        words = f"{type(refusal).__name__}: {str(refusal)[:160]}"
    else:
        claims = {claim.name: claim.bound for claim in recovery.certificate}
        # Where offsets are lost in the noise, W has its error as a norm.
        relative = ERROR_OF_W not in claims
        stated = claims.get(RELATIVE_ERROR if relative else ERROR_OF_W, 0.0)
        error = us.models.distance(recovery.model, target) if relative else error_of_W(recovery.model, target)
        gap, allowed = function_error(recovery, target)
        right = part.refused(dtype) is None and bool(error <= stated) and gap <= allowed
        words = f"error {error:.1e}, stated {stated:.1e}, function {gap:.1e}, allowed {allowed:.1e}"
        words += f", {recovery.usage.billed} queries"
    return right, f"{words}, {time.process_time() - start:.0f} s"


def function_error(recovery: us.Recovery, target: Any) -> tuple[float, float]:
    """Largest gap to the target on sequences of natural norms, relative to what attention writes, and what it may be.

    The certificate grants a gap on the sequences that were asked, random ones for layers and long ones for heads. Of
    others the stated error of the parameters speaks: a layer of float32 answers, its W stated to 0.23 and off by 0.05,
    has a gap beyond the 0.05 granted in 2 of 350 draws of such sequences, up to 0.07.
    """
    rng = np.random.default_rng(1)
    sequences = [rng.standard_normal((4, length, target.dim)) for length in (2, 16, 64)]
    stated = {claim.name: claim.bound for claim in recovery.certificate}
    granted = stated.get("long sequences", stated.get("random sequences", np.inf))
    share = recovery.certificate.stated_error or 0.0
    others = [other for _, other in nearby(recovery.model, share, rng)] if 0 < share < np.inf else []
    worst, moved = 0.0, 0.0
    for X in sequences:
        kept = X[:, -1] if getattr(target, "residual", False) and target.norm != "post" else 0.0
        y, shown = target(X), recovery.model(X)
        size = float(np.sqrt(np.mean((y - kept) ** 2)))
        worst = max(worst, float(np.abs(shown - y).max()) / size)
        moved = max([moved, *(float(np.abs(other(X) - shown).max()) / size for other in others)])
    return worst, max(granted, moved)


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
