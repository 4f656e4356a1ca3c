"""Number formats x learners: a stated error is never violated, or the run ends in a typed refusal.

`python -m benchmarks.number_formats --seeds 20` runs the whole bar, a line per learner and seed; names select
learners, `--first` the seeds. Every target is asked with its format declared (where a declaration exists) and
undeclared. What is learned from what stands in benchmarks/subjects.py.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

import unsoftmax as us
from benchmarks.base import Row
from benchmarks.subjects import SUBJECTS, Subject
from unsoftmax.learners.core.base import ERROR_OF_W, NETWORK_RESIDUAL, RELATIVE_ERROR
from unsoftmax.learners.labels.asking import VALUE_ERROR
from unsoftmax.learners.output.width import ROW_SPACE

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


def asked(subject: Subject, form: Format, declared: bool, seed: int) -> Any:
    """The oracle of a subject's target whose answers come in a format."""
    model = subject.target(seed)
    inside = model if form.arithmetic is None else model.astype(form.arithmetic)
    said = (form.declared or {}) if declared else {}

    def written(y: Any) -> Any:
        with np.errstate(over="ignore", invalid="ignore"):
            return form.answer(np.asarray(y, dtype=np.float64))

    return subject.oracle(inside, written, {name: value for name, value in said.items() if name in subject.declares})


def off(model: Any, truth: Any, claim: str) -> float:
    """The true error that a claim is about."""
    if claim == NETWORK_RESIDUAL:
        x = np.random.default_rng(0).standard_normal((2000, truth.dim))
        f, g = (m(x[:, None]) for m in (truth, model))
        return float(np.abs(f - g).max() / np.sqrt(np.mean(f**2)))
    if claim == VALUE_ERROR:
        return float(np.linalg.norm(_ordered(model, truth).v - truth.v))
    if claim == ERROR_OF_W:
        return error_of_W(model, truth)
    if isinstance(model, us.models.MultiHeadTransformer):
        return us.models.distance(us.models.HeadsBehind(model.W), truth)
    if isinstance(model, us.models.Transformer):
        # What is stated of the network is its residual.
        return float(np.linalg.norm(model.W - truth.W) / np.linalg.norm(truth.W))
    return us.models.distance(model, truth)


def error_of_W(model: Any, truth: Any) -> float:
    """||W^ - W||_F of all heads together, of a layer behind a norm in the form in which gamma is part of W."""
    if isinstance(truth, us.models.AttentionLayer):
        W, true = model.canonical().W, truth.canonical().W
        if len(W) != len(true):
            return np.inf
        cost = np.linalg.norm(W[:, None] - true[None], axis=(2, 3))
        return float(np.linalg.norm(cost[linear_sum_assignment(cost)]))
    return float(np.linalg.norm(_ordered(model, truth).W - truth.W))


def _ordered(model: Any, truth: Any) -> Any:
    """Heads of the model in the order of those they are nearest to."""
    if np.ndim(truth.W) == 2 or np.shape(model.W) != np.shape(truth.W):
        return model
    order = [int(np.argmin([np.linalg.norm(W - other) for W in model.W])) for other in truth.W]
    return us.models.MultiHead(model.W[order], model.v[order])


def errors_and_bounds(recovery: us.Recovery, truth: Any) -> dict[str, tuple[float, float]]:
    """True error and bound of everything that is stated about parameters."""
    claims = {claim.name: claim.bound for claim in recovery.certificate.claims}
    if isinstance(truth, us.models.TokenHead) and recovery.model.errors is not None:
        i, j = np.meshgrid(recovery.model.known, recovery.model.known)
        gaps = np.abs(recovery.model.gaps(i, j) - truth.gaps(i, j))
        bounds = recovery.model.bounds(i, j) + 1e-12
        worst = np.unravel_index(np.argmax(gaps / bounds), gaps.shape)
        return {"stated errors": (float(gaps[worst]), float(bounds[worst]))}
    names = (RELATIVE_ERROR, ERROR_OF_W, VALUE_ERROR, NETWORK_RESIDUAL, ROW_SPACE)
    return {name: (off(recovery.model, truth, name), claims[name]) for name in names if name in claims}


def worst_of_stated(recovery: us.Recovery, truth: Any) -> float:
    """Largest true error beside its bound, over everything that is stated about parameters."""
    stated = errors_and_bounds(recovery, truth).values()
    return max((error / max(bound, 1e-300) for error, bound in stated), default=0.0)


def outcome(subject: Subject, form: Format, declared: bool, seed: int) -> tuple[str, float]:
    """ "kept", "violated", "nothing stated", "vacuous" or the name of the refusal; and the worst error / bound."""
    truth = subject.truth(subject.target(seed))
    try:
        recovery = us.recover(asked(subject, form, declared, seed), subject.learner, seed=seed)
    except us.errors.UnsoftmaxError as refusal:
        return type(refusal).__name__, 0.0
    except Exception as crash:
        return f"crash: {type(crash).__name__}", 0.0
    stated = errors_and_bounds(recovery, truth)
    if not stated.keys() - {VALUE_ERROR, NETWORK_RESIDUAL} and hasattr(truth, "W"):
        return "nothing stated", 0.0
    ratio = worst_of_stated(recovery, truth)
    if any(bound > 1 for name, (_, bound) in stated.items() if name not in (ERROR_OF_W, "stated errors")):
        return "vacuous", ratio
    return ("kept" if ratio <= 1 else "violated"), ratio


WRONG = ("violated", "nothing stated", "vacuous")


def run(subject: Subject, formats: list[Format], seeds: range) -> tuple[Counter[str], list[str], float]:
    """Outcomes of one learner over formats, declared and not; what went wrong; the largest error / bound."""
    seen: Counter[str] = Counter()
    wrong: list[str] = []
    worst = 0.0
    for form in formats:
        for declared in (False, True) if subject.declares & set(form.declared or ()) else (False,):
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
        start = time.process_time()
        seen, wrong, worst = run(subject, FORMATS, seeds)
        yield Row(
            f"stated errors, {subject.name}",
            float(len(wrong)),
            0.0,
            f"violations over {len(FORMATS)} formats, declared or not, {len(seeds)} seeds",
            {
                "outcomes": dict(seen),
                "wrong": wrong,
                "largest error / bound": worst,
                "seconds": time.process_time() - start,
            },
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="learners (default: all)")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    for first in range(options.first, options.first + options.seeds):
        for row in rows(False, range(first, first + 1), options.names):
            print(
                f"{first} {row.name}: {row.ratio:g} wrong; {row.figures['outcomes']}, error / bound up to "
                f"{row.figures['largest error / bound']:.2g}, {row.figures['seconds']:.1f} s",
                flush=True,
            )
            for line in row.figures["wrong"]:
                print(f"    {line}", flush=True)
