"""Number formats x learners: a stated error is never violated, or the run ends in a typed refusal.

`python -m benchmarks.number_formats --seeds 20` runs the whole bar; names select learners. Every target is asked with
its format declared (where a declaration exists) and undeclared.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import unsoftmax as us
from benchmarks.base import Row
from unsoftmax.learners.core.base import NETWORK_RESIDUAL, RELATIVE_ERROR

Answer = Callable[[Any], Any]


def bfloat16(y: Any) -> Any:
    """y rounded to the eight digits of bfloat16, halves to even."""
    bits = np.asarray(y, dtype=np.float32).view(np.uint32)
    kept = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return (kept & np.uint32(0xFFFF0000)).view(np.float32).astype(np.float64)


def significant(y: Any, digits: int) -> Any:
    """y rounded to so many significant decimal digits, as printing it does."""
    flat = [float(f"{number:.{digits - 1}e}") for number in np.ravel(y)]
    return np.array(flat).reshape(np.shape(y))


def cast(dtype: str) -> Answer:
    return lambda y: np.asarray(y).astype(dtype).astype(np.float64)


@dataclass(frozen=True)
class Format:
    """What happens to the answers, what an owner may declare of it (None: nothing), and the arithmetic inside."""

    name: str
    answer: Answer
    declared: dict[str, Any] | None = None
    arithmetic: str | None = None


FORMATS = [
    Format("float64", lambda y: y),
    *(Format(f"answers in {x}", cast(x), {"dtype": x}) for x in ("float32", "float16")),
    Format("answers in bfloat16", bfloat16),
    *(Format(f"computed in {x}", cast(x), {"dtype": x}, x) for x in ("float32", "float16")),
    *(
        Format(f"{k} decimals", lambda y, k=k: np.round(y, k), {"tolerance": 0.5 * 10.0**-k})  # type: ignore[misc]
        for k in range(3, 14)
    ),
    *(
        Format(f"{k} digits", lambda y, k=k: significant(y, k), {"kind": "approximate"})  # type: ignore[misc]
        for k in range(3, 13)
    ),
]


@dataclass(frozen=True)
class Subject:
    """A learner, its targets by seed, and what an oracle of them declares."""

    name: str
    learner: Any
    target: Callable[[int], Any]
    rest: dict[str, Any]

    def oracle(self, form: Format, declared: bool, seed: int) -> Any:
        model = self.target(seed)
        inside = model if form.arithmetic is None else model.astype(form.arithmetic)

        def service(tokens: Any, counts: Any = None) -> Any:
            with np.errstate(over="ignore", invalid="ignore"):
                return form.answer(np.asarray(inside(tokens, counts), dtype=np.float64))

        service.accepts_counts = getattr(model, "accepts_counts", True)  # type: ignore[attr-defined]
        said = (form.declared or {}) if declared else {}
        if self.rest.get("kind") == "membership":
            # Labels have no tolerance; how finely they are computed is what a dtype says.
            said = {name: value for name, value in said.items() if name == "dtype"}
        if getattr(model, "outputs", None) is not None:
            said = {**said, "outputs": model.outputs}
        return us.oracle(service, model.dim, **{**self.rest, **said})


def orthogonal(seed: int) -> us.models.MultiHead:
    rng = np.random.default_rng([seed, 4])
    W, v = np.zeros((2, 5, 5)), np.zeros((2, 5))
    for h, part in enumerate((slice(0, 2), slice(2, 5))):
        k = part.stop - part.start
        W[h, part, part], v[h, part] = rng.standard_normal((k, k)), rng.standard_normal(k)
    return us.models.MultiHead(W, v)


def with_offsets(seed: int) -> us.models.MultiHead:
    rng, heads = np.random.default_rng([seed, 5]), us.models.MultiHead.random(4, 2, norm=2.0, seed=seed)
    return us.models.MultiHead(heads.W, heads.v, rng.standard_normal((2, 4)), 0.5)


def single(seed: int) -> us.models.SingleHead:
    return us.models.SingleHead.random(6, norm=2.0, seed=seed)


def affine(seed: int) -> us.models.SingleHead:
    head = single(seed)
    return us.models.SingleHead(head.W, head.v, c=np.random.default_rng([seed, 6]).standard_normal(6), constant=0.5)


def layer(seed: int, **rest: Any) -> us.models.AttentionLayer:
    return us.models.AttentionLayer.random(8, 2, seed=seed, **rest)


def rotary(seed: int) -> us.models.AttentionLayer:
    rest: dict[str, Any] = {"norm": "rms", "residual": True, "bias": False, "scale": 2.0, "kv_groups": 2}
    return us.models.AttentionLayer.random(16, 4, 4, positions=us.models.Rope.ladder(4), seed=seed, **rest)


L = us.learners
SUBJECTS = [
    Subject("SingleHead", L.SingleHead(), single, {}),
    Subject("SingleHead, limit", L.SingleHead(), single, {"max_norm": 2.0}),
    Subject("SingleHead, W_bound", L.SingleHead(W_bound=8.0), single, {}),
    Subject("SingleHead, coordinate", L.SingleHead(probes="coordinate"), single, {}),
    Subject("SingleHead, affine", L.SingleHead(affine=True), affine, {}),
    Subject("no learner", None, single, {}),
    Subject("LowRank", L.LowRank(), lambda seed: us.models.SingleHead.random(6, rank=2, norm=2.0, seed=seed), {}),
    Subject(
        "LowRank, nuclear",
        L.LowRank(rank=1, method="nuclear"),
        lambda seed: us.models.SingleHead.random(6, rank=1, norm=2.0, seed=seed),
        {},
    ),
    Subject("Approximate", L.Approximate(), single, {}),
    Subject("Approximate, limit", L.Approximate(), single, {"max_norm": 2.0}),
    Subject("MultiHead", L.MultiHead(), lambda seed: us.models.MultiHead.random(6, 2, norm=2.0, seed=seed), {}),
    Subject(
        "MultiHead, limit",
        L.MultiHead(),
        lambda seed: us.models.MultiHead.random(4, 2, norm=2.0, seed=seed),
        {"max_norm": 3.0, "max_length": 8},
    ),
    Subject("MultiHead, affine", L.MultiHead(affine=True), with_offsets, {}),
    Subject("OrthogonalHeads", L.OrthogonalHeads(), orthogonal, {}),
    Subject("OrthogonalHeads, known", L.OrthogonalHeads([np.eye(5)[:, :2], np.eye(5)[:, 2:]]), orthogonal, {}),
    Subject("ReluNetwork", L.ReluNetwork(), lambda seed: us.models.ReluNetwork.random(4, 6, seed=seed), {}),
    Subject(
        "ReluNetwork, bias",
        L.ReluNetwork(bias=True),
        lambda seed: us.models.ReluNetwork.random(4, 6, bias=True, seed=seed),
        {},
    ),
    Subject(
        "Transformer",
        L.Transformer(),
        lambda seed: us.models.Transformer.random(4, 6, norm=2.0, bias=True, seed=seed),
        {},
    ),
    Subject(
        "Transformer, odd",
        L.Transformer("odd"),
        lambda seed: us.models.Transformer.random(4, 6, norm=2.0, seed=seed),
        {},
    ),
    Subject(
        "Transformer, limit",
        L.Transformer(),
        lambda seed: us.models.Transformer.random(4, 6, norm=2.0, seed=seed),
        {"max_norm": 3.0},
    ),
    Subject(
        "AttentionBehind",
        L.AttentionBehind(),
        lambda seed: us.models.Transformer.random(5, 7, norm=2.0, bias=True, seed=seed),
        {},
    ),
    Subject("AttentionLayer", L.AttentionLayer(), layer, {}),
    Subject("AttentionLayer, post", L.AttentionLayer(), lambda seed: layer(seed, norm="post", residual=True), {}),
    Subject("AttentionLayer, pre", L.AttentionLayer(), lambda seed: layer(seed, norm="pre", residual=True), {}),
    Subject("AttentionLayer, rotary", L.AttentionLayer("lean"), rotary, {}),
    Subject("AttentionStack", L.AttentionStack(), lambda seed: us.models.AttentionStack.random(8, 2, 2, seed=seed), {}),
    Subject("Membership", L.Membership(accuracy=1e-4), single, {"kind": "membership"}),
    Subject(
        "AttentionBehind, heads",
        L.AttentionBehind(heads=None),
        lambda seed: us.models.MultiHeadTransformer.random(5, 2, 10, norm=4.0, bias=True, seed=seed),
        {},
    ),
    Subject(
        "Transformer, heads",
        L.Transformer(heads=None),
        lambda seed: us.models.MultiHeadTransformer.random(5, 2, 7, norm=4.0, seed=seed),
        {},
    ),
]


def off(model: Any, truth: Any, claim: str) -> float:
    """The true error that a claim is about."""
    if claim == NETWORK_RESIDUAL:
        x = np.random.default_rng(0).standard_normal((2000, truth.dim))
        f, g = (m(x[:, None]) for m in (truth, model))
        return float(np.abs(f - g).max() / np.sqrt(np.mean(f**2)))
    if claim == "error of v":
        return float(np.linalg.norm(model.v - truth.v))
    if claim == "error of W":
        return float(np.linalg.norm(model.W - truth.W))
    if isinstance(model, us.models.MultiHeadTransformer):
        return us.models.distance(us.models.HeadsBehind(model.W), truth)
    if isinstance(model, us.models.Transformer):
        # What is stated of the network is its residual.
        return float(np.linalg.norm(model.W - truth.W) / np.linalg.norm(truth.W))
    return us.models.distance(model, truth)


def outcome(subject: Subject, form: Format, declared: bool, seed: int) -> tuple[str, float]:
    """ "kept", "violated", "nothing stated", "vacuous" or the name of the refusal; and the worst error / bound."""
    truth = subject.target(seed)
    try:
        recovery = us.recover(subject.oracle(form, declared, seed), subject.learner, seed=seed)
    except us.errors.UnsoftmaxError as refusal:
        return type(refusal).__name__, 0.0
    except Exception as crash:
        return f"crash: {type(crash).__name__}", 0.0
    names = (RELATIVE_ERROR, "error of W", "error of v", NETWORK_RESIDUAL)
    stated = {claim.name: claim.bound for claim in recovery.certificate.claims if claim.name in names}
    if hasattr(truth, "W") and not {RELATIVE_ERROR, "error of W"} & set(stated):
        return "nothing stated", 0.0
    ratio = max(off(recovery.model, truth, name) / max(bound, 1e-300) for name, bound in stated.items())
    if max(stated.values()) > 1 and "error of W" not in stated:
        return "vacuous", ratio
    return ("kept" if ratio <= 1 else "violated"), ratio


WRONG = ("violated", "nothing stated", "vacuous")


def run(subject: Subject, formats: list[Format], seeds: range) -> tuple[Counter[str], list[str], float]:
    """Outcomes of one learner over formats, declared and not; what went wrong; the largest error / bound."""
    seen: Counter[str] = Counter()
    wrong: list[str] = []
    worst = 0.0
    for form in formats:
        for declared in (False, True) if form.declared else (False,):
            for seed in seeds:
                word, ratio = outcome(subject, form, declared, seed)
                seen[word] += 1
                worst = max(worst, ratio)
                if word in WRONG or word.startswith("crash"):
                    wrong.append(f"{form.name}, {'declared' if declared else 'undeclared'}, {seed}: {word} {ratio:.2g}")
    return seen, wrong, worst


def rows(large: bool = False, seeds: range = range(1), names: list[str] | None = None) -> Iterator[Row]:
    seeds = range(20) if large else seeds
    for subject in SUBJECTS:
        if names and subject.name not in names:
            continue
        seen, wrong, worst = run(subject, FORMATS, seeds)
        yield Row(
            f"stated errors, {subject.name}",
            float(len(wrong)),
            0.0,
            f"violations over {len(FORMATS)} formats, declared or not, {len(seeds)} seeds",
            {"outcomes": dict(seen), "wrong": wrong, "largest error / bound": worst},
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="learners (default: all)")
    parser.add_argument("--seeds", type=int, default=20)
    options = parser.parse_args()
    for row in rows(False, range(options.seeds), options.names):
        print(
            f"{row.name}: {row.ratio:g} wrong; {row.figures['outcomes']}, error / bound up to "
            f"{row.figures['largest error / bound']:.2g}",
            flush=True,
        )
        for line in row.figures["wrong"]:
            print(f"    {line}", flush=True)
