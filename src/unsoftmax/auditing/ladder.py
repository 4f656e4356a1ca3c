"""The ladder: access levels and defences, each a wrapper around the owner's oracle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from unsoftmax.oracles.base import Oracle
from unsoftmax.oracles.semantic import Cast, Perturbed, Rounded, Stochastic, Thresholded
from unsoftmax.probes.base import Array, Probes
from unsoftmax.spec import Domain, OracleSpec

LABEL_ACCURACY = 1e-6


@dataclass(frozen=True)
class Scenario:
    """`wrap` turns the undefended oracle into what the attacker meets; `rate` caps queries per second,
    `budget_share` caps queries as a share of the unknowns."""

    access: str
    defence: str
    wrap: Callable[[Oracle], Oracle]
    rate: float | None = None
    budget_share: float | None = None

    @property
    def slug(self) -> str:
        """Name for files."""
        return ladder_slug(self.access, self.defence)


def ladder_slug(access: str, defence: str) -> str:
    """File name of a cell."""
    return "".join(c if c.isalnum() else "-" for c in f"{access}-{defence}".lower())


@dataclass(frozen=True)
class Capped:
    """The same target with a domain: longer tokens or sequences are refused."""

    inner: Oracle
    domain: Domain

    @property
    def spec(self) -> OracleSpec:
        return replace(self.inner.spec, domain=self.domain)

    def __call__(self, probes: Probes) -> Array:
        return self.inner(probes)


def same(oracle: Oracle) -> Oracle:
    return oracle


def capped(max_norm: float | None = None, max_length: int | None = None) -> Callable[[Oracle], Oracle]:
    return lambda oracle: Capped(oracle, Domain(max_norm, max_length))


def rounded(decimals: int) -> Callable[[Oracle], Oracle]:
    return lambda oracle: Rounded(oracle, decimals=decimals)


def perturbed(tolerance: float, seed: int = 0) -> Callable[[Oracle], Oracle]:
    return lambda oracle: Perturbed(oracle, tolerance, seed=seed)


def ladder(spec: OracleSpec) -> list[Scenario]:
    """The scenarios that make sense for this target, undefended first."""
    access = "token ids" if spec.vocabulary is not None else "vector answers" if spec.outputs else "values"
    rungs = [Scenario(access, "none", same)]
    if spec.vocabulary is None:
        rungs += [Scenario(access, f"{name} arithmetic", _cast(name)) for name in ("float32", "float16")]
    rungs += [Scenario(access, f"rounding to {k} decimals", rounded(k)) for k in (6, 3, 2)]
    rungs += [Scenario(access, f"deterministic noise up to {tau:g}", perturbed(tau)) for tau in (1e-6, 1e-3)]
    rungs += [Scenario(access, "random noise of deviation 0.001", lambda oracle: Stochastic(oracle, 1e-3))]
    if spec.vocabulary is None:
        rungs += [
            Scenario(access, "token norm at most 1", capped(max_norm=1.0)),
            Scenario(
                access,
                "token norm at most 1, rounding to 3 decimals",
                lambda oracle: rounded(3)(capped(max_norm=1.0)(oracle)),
            ),
        ]
    rungs += [
        Scenario(access, "sequences of at most 2 tokens", capped(max_length=2)),
        Scenario(access, "sequences of 1 token", capped(max_length=1)),
        Scenario(access, "one query per second", same, rate=1.0),
        Scenario(access, "query budget of half the unknowns", same, budget_share=0.5 / (spec.outputs or 1)),
    ]
    if spec.outputs is None and spec.vocabulary is None:
        rungs += [
            Scenario("labels only", "none", Thresholded),
            Scenario("labels only", "token norm at most 1", lambda oracle: Thresholded(capped(max_norm=1.0)(oracle))),
        ]
    return rungs


def _cast(name: str) -> Callable[[Oracle], Oracle]:
    return lambda oracle: Cast(oracle, name)
