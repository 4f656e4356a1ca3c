"""What the answers are like: constant, labels, repeatable, in which number format, how noisy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from unsoftmax.diagnosis.constants import DIAGNOSIS
from unsoftmax.diagnosis.findings import Finding
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.probes.base import Array, Probes
from unsoftmax.probes.scales import held
from unsoftmax.probes.sphere import sphere as directions
from unsoftmax.spec import OracleSpec

PHASE = "diagnosis"
QUERIES = 2 * DIAGNOSIS.repeated + DIAGNOSIS.line_points
"""Queries of one look at the answers, at most: the sequences asked twice, and the line."""


def telling(spec: OracleSpec, few: int, many: int) -> int:
    """How many random sequences a question is asked at: `few` where every answer is many numbers."""
    return few if spec.outputs is not None and spec.outputs >= DIAGNOSIS.many_numbers else many


@dataclass(frozen=True)
class Answers:
    """`size` root mean square of the answers, `noise` absolute error of one answer, `seen` some answers."""

    size: float
    noise: float
    deterministic: bool
    constant: bool
    labels: bool
    format: str
    seen: Array

    def tolerance(self, size: float) -> float:
        """Largest gap, relative to answers of this size, that counts as none."""
        return (
            max(CORE.loud * float(np.finfo(float).eps), DIAGNOSIS.equal_deviations * self.noise / size) if size else 1.0
        )

    @property
    def relative_noise(self) -> float:
        return self.noise / self.size if self.size else 0.0

    def findings(self, spec: OracleSpec) -> Iterator[Finding]:
        width = "one number" if spec.outputs is None else f"{spec.outputs} numbers"
        yield Finding("outputs", spec.outputs, f"Each answer is {width}.")
        kind = "labels" if self.labels or spec.kind == "membership" else "values"
        yield Finding("answers", kind, f"The answers are {kind}.")
        word = "gets" if self.deterministic else "does not get"
        yield Finding(
            "deterministic", self.deterministic, f"The same sequence {word} the same answer.",
            evidence={"sequences asked twice": telling(spec, DIAGNOSIS.few, DIAGNOSIS.repeated)},
        )  # fmt: skip
        yield Finding(
            "precision", self.format, f"The answers look like {self.format}.",
            evidence={"noise": self.noise, "size": self.size},
        )  # fmt: skip


def answers(spec: OracleSpec, norm: float, rng: np.random.Generator) -> Asking[Answers]:
    """Ask a few sequences twice and a short line of sequences once."""
    length, repeated = int(min(4, spec.domain.length_limit)), telling(spec, DIAGNOSIS.few, DIAGNOSIS.repeated)
    X = sphere(rng, (repeated, length, spec.dim)) * norm
    twice = yield Probes(np.concatenate([X, X]), phase=PHASE)
    first, second = twice[:repeated], twice[repeated:]
    # Along a short line a smooth answer is a polynomial of low degree: what its fourth differences leave is noise.
    direction = sphere(rng, (length, spec.dim)) * norm
    steps = DIAGNOSIS.line_step * np.arange(DIAGNOSIS.line_points)[:, None, None]
    line = yield Probes(X[:1] * 0.9 + steps * direction, phase=PHASE)
    seen = np.concatenate([first.ravel(), line.ravel()])
    size = float(np.sqrt(np.mean(seen**2)))
    spread = float(np.sqrt(np.mean((first - second) ** 2) / 2))
    fourth = np.diff(line, n=4, axis=0)
    smooth = float(np.sqrt(np.mean(fourth**2) / 70))
    name, unit = number_format(seen)
    # A target may round differently in another batch: that is its arithmetic, not chance.
    repeatable = bool(spread <= 8 * max(unit, np.finfo(float).eps * size))
    return Answers(
        size=size,
        noise=max(spread, smooth, unit, np.finfo(float).eps * size),
        deterministic=repeatable,
        constant=bool((seen == seen[0]).all()) if spec.outputs is None else bool((first == first[0]).all()),
        labels=len(np.unique(seen)) == 2 and bool(np.isin(seen, (-1.0, 0.0, 1.0)).all()),
        format=name if repeatable else "random",
        seen=seen,
    )


def number_format(y: Array) -> tuple[str, float]:
    """The narrowest format that holds every answer exactly, and the error it leaves in an answer."""
    size = float(np.abs(y).max(initial=0.0))
    for decimals in range(13):
        scaled = y * 10.0**decimals
        if np.abs(scaled).max(initial=0.0) < 2**40 and np.allclose(scaled, np.round(scaled), rtol=0, atol=1e-6):
            return f"{decimals} decimals", 0.5 * 10.0**-decimals
    for name in ("float16", "float32"):
        with np.errstate(over="ignore"):
            if (y.astype(name).astype(np.float64) == y).all():
                return name, float(np.finfo(name).eps) * size
    return "float64", 0.0


def rms(parts: Array) -> Array:
    """Root mean square of every row (n,) of (n, ...): answers near the end of float64 do not overflow on the way."""
    rows = parts.reshape(len(parts), -1)
    largest = np.abs(rows).max(axis=1, initial=0.0)
    unit = np.where(largest > 0, largest, 1.0)
    return np.asarray(unit * np.sqrt(np.mean((rows / unit[:, None]) ** 2, axis=1)))


def sphere(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Random unit vectors, exact in float32."""
    return held(directions(rng, shape))
