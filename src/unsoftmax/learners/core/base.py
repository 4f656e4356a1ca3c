"""What a learner is: hyper-parameters, a closed-form forecast, and a program.

A program is a generator. It yields probes, receives answers, returns an `Outcome`. It never sees an oracle, so it
cannot do I/O and cannot look at the target; one engine counts, resumes, batches and distributes it.

Theory: docs/concepts.md, "Programs and oracles".
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from unsoftmax.inversion import Noise
from unsoftmax.models.base import Model
from unsoftmax.probes.base import Array, Request
from unsoftmax.results.recovery import RELATIVE_ERROR as RELATIVE_ERROR
from unsoftmax.results.recovery import Basis, Claim
from unsoftmax.spec import OracleSpec

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Settled:
    """Numbers (n,) that later designs follow from; a program yields them and goes on with what it gets back.

    That is `value` itself, unless the run is resumed: then it is what the ledger holds under this `name` at this place.
    """

    name: str
    value: Array


Asking = Generator[Request | Settled, Array, T]
"""A piece of a program: asks rounds of probes, returns a T. Compose with `yield from`."""


ERROR_OF_W = "error of W"
"""Name of a claim: the same as a norm, ||W^ - W||_F."""

NETWORK_RESIDUAL = "network residual"
"""Name of `Allowance.network`: the largest error of a learned network, relative to its root mean square. Its
conditioning limits it, so verification holds the network's answers against this bound and not against rounding."""


@dataclass(frozen=True)
class Precision:
    """How far a head's parameters may be off: ||W^ - W||_F <= W, ||v^ - v||_2 <= v, if answers are as `noise`.

    `supposing` is said in the claims: what else the errors must be.
    """

    W: float
    v: float
    noise: Noise
    basis: Basis = "proved"
    theorem: str | None = None
    supposing: str = ""

    def claims(self) -> tuple[Claim, ...]:
        """The two bounds as claims of the certificate."""
        given = f"given |answer - f| <= {self.noise.absolute:.3g} and rounding"
        if self.basis == "measured":
            given = f"at the measured noise of {self.noise.absolute:.3g} + {self.noise.relative:.2g} x size"
        given += self.supposing
        return (
            Claim(ERROR_OF_W, self.W, None, self.basis, self.theorem, f"||W^ - W||_F {given}"),
            Claim("error of v", self.v, None, self.basis, self.theorem, f"||v^ - v||_2 {given}"),
        )


@dataclass(frozen=True)
class Allowance:
    """What a learner states of its model and verification may allow for: a claim each, None where nothing is stated.

    `parameters`: relative error of every parameter (RELATIVE_ERROR), what the noise of the answers leaves in the model
    for the number format that is declared; verification allows gaps up to it, and puts what fresh answers show in its
    place where that is more. `network`: error of a learned network
    (NETWORK_RESIDUAL). `row_space`: angle to the true row space of an output layer. `values`: ||v^ - v|| of
    heads whose v is solved for, by labels or maps. `scores` and `flips` are of heads behind labels: ||W^ - W||_F, and
    how often a label is wrong. `precision` is what the noise of
    an oracle leaves; it is no claim itself (`Precision.claims`). `noise` is the largest error of an answer, as its
    decimals show it where nobody declared a tolerance.
    """

    parameters: Claim | None = None
    network: Claim | None = None
    row_space: Claim | None = None
    values: Claim | None = None
    scores: Claim | None = None
    flips: Claim | None = None
    precision: Precision | None = None
    noise: float = 0.0

    @property
    def claims(self) -> tuple[Claim, ...]:
        """What is stated, as claims of the certificate."""
        stated = (self.parameters, self.network, self.row_space, self.values, self.scores, self.flips)
        return tuple(claim for claim in stated if claim is not None)

    @property
    def relative_error(self) -> float:
        """Bound of `parameters`, 0 where nothing is stated."""
        return 0.0 if self.parameters is None else self.parameters.bound

    @property
    def value_error(self) -> float:
        """Bound of `values`, 0 where nothing is stated."""
        return 0.0 if self.values is None else self.values.bound

    @property
    def network_error(self) -> float:
        """Bound of `network`, 0 where nothing is stated."""
        return 0.0 if self.network is None else self.network.bound


@dataclass(frozen=True)
class Outcome:
    """What a program returns: the model, what it found on the way, and what it can promise.

    `allows` is stated and widens what verification accepts; `claims` are stated beside it and widen nothing.
    `chosen` is the configuration of the learner that a program without one decided for.
    """

    model: Model
    notes: tuple[str, ...] = ()
    claims: tuple[Claim, ...] = ()
    allows: Allowance = field(default_factory=Allowance)
    chosen: dict[str, Any] | None = None

    @property
    def stated(self) -> tuple[Claim, ...]:
        """All claims of the learner."""
        return (*self.allows.claims, *self.claims)


Program = Asking[Outcome]


@dataclass(frozen=True)
class Forecast:
    """Queries by phase as the theory states them, and what adaptive phases may add.

    `phases` are exact (closed forms); `extra` bounds pilot and repairs together, None if it depends on the target.
    `least_extra` is what pilot and repairs take at least.
    `ranges` are steps whose cost depends on the target, as (fewest, most) queries; `supposing` says of which targets.
    `model` is the class of the model, by which verification is planned and counted (`verify.interval`), None for what
    the oracle's answers suggest; `heads` are the fewest and the most heads it may have.
    `verification` is the number of fresh queries where the forecast counts them itself, None where the plan does.
    """

    phases: dict[str, int] = field(default_factory=dict)
    extra: int | None = None
    verification: int | None = None
    least_extra: int = 0
    ranges: dict[str, tuple[int, int]] = field(default_factory=dict)
    supposing: str = ""
    model: type[Model] | None = None
    heads: tuple[int, int] = (1, 1)

    @property
    def minimum(self) -> int:
        """Fewest queries with which the learner can finish."""
        return sum(self.phases.values()) + self.least_extra + sum(low for low, _ in self.ranges.values())

    @property
    def maximum(self) -> int | None:
        """Most queries that targets as supposed take, None if nothing is said."""
        if self.extra is None and not self.ranges:
            return None
        return sum(self.phases.values()) + (self.extra or 0) + sum(high for _, high in self.ranges.values())


class Learner(Protocol):
    """Frozen dataclass of hyper-parameters with these two methods."""

    def forecast(self, spec: OracleSpec) -> Forecast:
        """Closed-form query counts for an oracle of this spec; raises if the spec cannot be served."""

    def program(self, spec: OracleSpec, seed: int) -> Program:
        """The learner as a generator; deterministic in (hyper-parameters, seed, answers)."""


def configuration(learner: Any) -> dict[str, Any]:
    """Name and hyper-parameters of a learner, as plain data for provenance and ledgers."""
    values = {name: getattr(learner, name) for name in getattr(learner, "__dataclass_fields__", {})}
    return {"learner": type(learner).__name__, **values}
