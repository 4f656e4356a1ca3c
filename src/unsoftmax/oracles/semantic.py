"""Wrappers that change what the answers mean, and say so in the spec: noise, rounding, threshold, link."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.special import expit

from unsoftmax.errors import InvalidArgument
from unsoftmax.links import inverse
from unsoftmax.oracles.base import Oracle, is_real
from unsoftmax.probes.base import Array, Probes
from unsoftmax.spec import EXPLAINED, Kind, OracleSpec


def digests(probes: Probes) -> list[bytes]:
    """128-bit content address of every sequence: its token bytes and counts (-0.0 equals 0.0)."""
    tokens = np.ascontiguousarray(probes.tokens + 0.0 if probes.tokens.dtype.kind == "f" else probes.tokens)
    shape = repr((tokens.shape[1:], tokens.dtype.str)).encode()
    head = hashlib.blake2b(shape, digest_size=16)
    counts = None if probes.counts is None else np.ascontiguousarray(probes.counts, dtype=np.int64)
    keys = []
    for i in range(len(tokens)):
        state = head.copy()
        state.update(tokens[i])
        if counts is not None and (counts[i] != 1).any():
            state.update(counts[i])
        keys.append(state.digest())
    return keys


def noisy(spec: OracleSpec) -> Kind:
    """The kind of a spec once its answers carry noise: what an answer holds stays the same."""
    return spec.kind if spec.kind in EXPLAINED else "approximate"


def _require_no_link(oracle: Oracle, wrapper: str) -> None:
    """Noise sits on the answer, before the link is undone: it belongs into the callable behind `us.oracle(link=)`."""
    if oracle.spec.link is not None:
        raise InvalidArgument(
            f"{wrapper} cannot wrap an oracle with link={oracle.spec.link!r}: its answers are already f. Put the noise "
            "into the callable, and declare it with tolerance= in units of the answer."
        )


@dataclass(frozen=True)
class Perturbed:
    """Adds noise in [-tolerance, tolerance], a function of the query's content and the seed.

    The same sequence always gets the same answer (Section 6 requires it), whatever the batching.
    `adversarial=True` uses only the two ends of the interval.
    """

    inner: Oracle
    tolerance: float
    seed: int = 0
    adversarial: bool = False

    def __post_init__(self) -> None:
        _require_no_link(self.inner, "Perturbed")

    @property
    def spec(self) -> OracleSpec:
        inner = self.inner.spec
        return replace(inner, kind=noisy(inner), tolerance=inner.tolerance + self.tolerance)

    def __call__(self, probes: Probes) -> Array:
        keys = digests(probes)  # before the target, which may work in place
        y = self.inner(probes)
        width = y.shape[1] if y.ndim == 2 else 1
        noise = np.array([_uniform(key, self.seed, width) for key in keys]).reshape(y.shape)
        return y + self.tolerance * (np.sign(noise) if self.adversarial else noise)


def _uniform(key: bytes, seed: int, width: int) -> Array:
    words = np.frombuffer(key, dtype=np.uint32)
    return np.random.default_rng([seed, *words]).uniform(-1.0, 1.0, width)


@dataclass(frozen=True)
class Stochastic:
    """Adds Gaussian noise of the given deviation, fresh each time: the n-th asking of a sequence has its n-th noise.

    No bound is declared (there is none); the order of other questions does not matter.
    """

    inner: Oracle
    deviation: float
    seed: int = 0
    askings: dict[bytes, int] = field(default_factory=dict, compare=False, repr=False)

    @property
    def spec(self) -> OracleSpec:
        return replace(self.inner.spec, kind=noisy(self.inner.spec))

    def __call__(self, probes: Probes) -> Array:
        return self.repeated(probes, 1)[0]

    def repeated(self, probes: Probes, times: int) -> list[Array]:
        """Answers of so many askings; a target that answers two of them alike to the last bit is not asked on."""
        keys = digests(probes)  # before the target, which may work in place
        answers = [self._fresh(probes) for _ in range(min(times, 2))]
        steady = np.array_equal(answers[0], answers[-1])
        answers += [answers[0] if steady else self._fresh(probes) for _ in range(times - len(answers))]
        return [self._blurred(y, keys) for y in answers]

    def _fresh(self, probes: Probes) -> Array:
        """One asking, with copies: a target may work in place, or answer in one buffer."""
        return np.array(self.inner(replace(probes, tokens=probes.tokens.copy())))

    def _blurred(self, y: Array, keys: list[bytes]) -> Array:
        width = y.shape[1] if y.ndim == 2 else 1
        return y + self.deviation * np.array([self._next(key, width) for key in keys]).reshape(y.shape)

    def _next(self, key: bytes, width: int) -> Array:
        time = self.askings.get(key, 0)
        self.askings[key] = time + 1
        words = np.frombuffer(key, dtype=np.uint32)
        return np.random.default_rng([self.seed, time, *words]).standard_normal(width)


@dataclass(frozen=True)
class Rounded:
    """Keeps `decimals` digits after the point, or `significant` digits (exactly one of the two)."""

    inner: Oracle
    decimals: int | None = None
    significant: int | None = None

    def __post_init__(self) -> None:
        if (self.decimals is None) == (self.significant is None):
            raise InvalidArgument("pass exactly one of `decimals` and `significant`.")
        _require_no_link(self.inner, "Rounded")

    @property
    def spec(self) -> OracleSpec:
        inner = self.inner.spec
        # Rounding to significant digits has no absolute bound: the learner has to measure it.
        extra = 0.0 if self.decimals is None else 0.5 * 10.0**-self.decimals
        return replace(inner, kind=noisy(inner), tolerance=inner.tolerance + extra)

    def __call__(self, probes: Probes) -> Array:
        y = self.inner(probes)
        if self.decimals is not None:
            return np.round(y, self.decimals)
        assert self.significant is not None
        with np.errstate(divide="ignore"):
            exponent = np.where(y == 0, 0.0, np.floor(np.log10(np.abs(y))))
        unit = 10.0 ** (exponent - self.significant + 1)
        return np.asarray(np.round(y / unit) * unit)


@dataclass(frozen=True)
class Cast:
    """The target computes in another number format: vectors in, and answers out, are rounded to `dtype`."""

    inner: Oracle
    dtype: str

    @property
    def spec(self) -> OracleSpec:
        return replace(self.inner.spec, dtype=self.dtype)

    def __call__(self, probes: Probes) -> Array:
        tokens = probes.tokens
        if tokens.dtype.kind == "f":
            tokens = tokens.astype(self.dtype).astype(np.float64)
        y = self.inner(Probes(tokens, probes.counts, probes.phase, probes.offset))
        return y.astype(self.dtype).astype(np.float64)


@dataclass(frozen=True)
class Probabilities:
    """Shows sigmoid(f), the probability of a class, to so many `decimals`; whoever asks undoes the link as he can.

    Where the target itself answers with probabilities, these are its own.
    """

    inner: Oracle
    decimals: int | None = None

    def __post_init__(self) -> None:
        if self.inner.spec.link != "sigmoid":
            _require_no_link(self.inner, "Probabilities")

    @property
    def spec(self) -> OracleSpec:
        inner = self.inner.spec
        if self.decimals is None:
            return replace(inner, link="sigmoid")
        return replace(inner, link="sigmoid", kind=noisy(inner), tolerance=0.5 * 10.0**-self.decimals)

    def __call__(self, probes: Probes) -> Array:
        p = expit(self.inner(probes))
        return inverse("sigmoid", p if self.decimals is None else np.round(p, self.decimals))


@dataclass(frozen=True)
class Unexplained:
    """Shows the value alone of answers that come with a gradient or attention maps."""

    inner: Oracle

    @property
    def spec(self) -> OracleSpec:
        return replace(self.inner.spec, kind="approximate" if self.inner.spec.tolerance else "value")

    def __call__(self, probes: Probes) -> Array:
        return np.asarray(self.inner(probes))[:, 0]


@dataclass(frozen=True)
class Thresholded:
    """Shows only whether f(X) > 0, as 1.0 or 0.0 (a tie answers 0)."""

    inner: Oracle

    @property
    def spec(self) -> OracleSpec:
        return replace(self.inner.spec, kind="membership", tolerance=0.0)

    def __call__(self, probes: Probes) -> Array:
        y = np.asarray(self.inner(probes))
        # What is not a real number has no sign: it passes, and the stack refuses it by name.
        if not is_real(y):
            return y
        return np.where(np.isfinite(y), y > 0, y).astype(np.float64)
