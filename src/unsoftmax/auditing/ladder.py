"""The ladder: access levels and defences, each a wrapper around the owner's oracle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from unsoftmax.adapters.callable import oracle as make
from unsoftmax.auditing.constants import AUDITING
from unsoftmax.models.base import Model
from unsoftmax.models.multi_head import MultiHead
from unsoftmax.models.single_head import LowRankHead, SingleHead
from unsoftmax.oracles.base import Oracle
from unsoftmax.oracles.semantic import Cast, Perturbed, Probabilities, Rounded, Stochastic, Thresholded, Unexplained
from unsoftmax.oracles.shown import Shown
from unsoftmax.probes.base import Array, Probes
from unsoftmax.results.access import EMBEDS, EXPLAINED, LABELS, ONE_TOKEN, PROBABILITIES, QUERY_BUDGET, RECORDED, top
from unsoftmax.spec import EXPLAINED as EXPLAINED_KINDS
from unsoftmax.spec import Domain, Kind, OracleSpec


@dataclass(frozen=True)
class Scenario:
    """`wrap` turns the undefended oracle into what the attacker meets; `rate` caps queries per second,
    `budget_share` caps queries as a share of the unknowns; `stochastic`: the same sequence gets different answers."""

    access: str
    defence: str
    wrap: Callable[[Oracle], Oracle]
    rate: float | None = None
    budget_share: float | None = None
    stochastic: bool = False

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
    """No defence."""
    return oracle


def capped(oracle: Oracle, max_norm: float | None = None, max_length: int | None = None) -> Oracle:
    """The oracle behind these limits and its own."""
    own = oracle.spec.domain
    norms = [limit for limit in (own.max_norm, max_norm) if limit is not None]
    lengths = [limit for limit in (own.max_length, max_length) if limit is not None]
    return Capped(oracle, Domain(min(norms, default=None), min(lengths, default=None), own.forbidden))


def capped_and_rounded(oracle: Oracle, max_norm: float, decimals: int) -> Oracle:
    """Short tokens only, and few decimals."""
    return Rounded(capped(oracle, max_norm), decimals=decimals)


def capped_and_noisy(oracle: Oracle, max_norm: float, deviation: float) -> Oracle:
    """Short tokens only, and fresh noise: without the cap, long tokens drown the noise."""
    return Stochastic(capped(oracle, max_norm), deviation=deviation)


def explained(oracle: Oracle, model: Model, kind: Kind) -> Oracle:
    """What the true model would show if it explained its answers, inside the target's own limits."""
    own = oracle.spec.domain
    return make(model, kind=kind, max_norm=own.max_norm, max_length=own.max_length, name=oracle.spec.name)


def capped_labels(oracle: Oracle, max_norm: float) -> Oracle:
    """Short tokens only, and labels instead of values."""
    return Thresholded(capped(oracle, max_norm))


def ladder(spec: OracleSpec, truth: Model | None = None, *, embeds: bool = False) -> list[Scenario]:
    """The scenarios that make sense for this target, undefended first; explanations need the true model.

    `embeds`: vectors are sent in place of tokens to a language model, which answers about the next token.
    """
    if spec.shows is not None:
        return _language_model(spec)
    access = EMBEDS if embeds and spec.vocabulary is None else access_of(spec)
    labels, ids, told = spec.kind == "membership", spec.vocabulary is not None, spec.kind in EXPLAINED_KINDS
    rungs = [Scenario(access, "none", same)]
    if not labels:
        rungs += _blurred(spec, access)
    if not ids:
        rungs.append(Scenario(access, "token norm at most 1", partial(capped, max_norm=1.0)))
    if not ids and not labels and not told and spec.link is None:
        rungs += _short_and_blurred(spec, access)
    rungs += [
        Scenario(access, "sequences of at most 2 tokens", partial(capped, max_length=2)),
        Scenario(access, ONE_TOKEN, partial(capped, max_length=1)),
        Scenario(access, "one query per second", same, rate=1.0),
    ]
    if not told:
        # An explained answer holds as many numbers as its sequence has: no share of the unknowns is out of reach.
        share = 0.5 / (spec.outputs or 1)
        rungs.append(Scenario(access, f"{QUERY_BUDGET} of half the unknowns", same, budget_share=share))
    return rungs if ids or labels or spec.outputs is not None else [*rungs, *_less(spec, truth)]


def access_of(spec: OracleSpec) -> str:
    """What an attacker sees of the target as it is."""
    if spec.vocabulary is not None:
        return "token ids"
    if spec.kind == "membership":
        return LABELS
    if spec.kind in EXPLAINED_KINDS:
        return EXPLAINED + ("input gradients" if spec.kind == "gradient" else "attention maps")
    if spec.link is not None:
        return PROBABILITIES if spec.link == "sigmoid" else f"values behind {spec.link}"
    return "vector answers" if spec.outputs else "values"


def _short_and_blurred(spec: OracleSpec, access: str) -> list[Scenario]:
    """Two defences at once: long tokens drown digits and noise, so they are forbidden."""
    both = partial(capped_and_rounded, max_norm=1.0, decimals=3)
    rungs = [Scenario(access, "token norm at most 1 and rounding to 3 decimals", both)]
    if spec.outputs is None and spec.dim <= AUDITING.largest:
        noisy = partial(capped_and_noisy, max_norm=1.0, deviation=1e-3)
        words = "token norm at most 1 and random noise of deviation 0.001"
        rungs.append(Scenario(access, words, noisy, stochastic=True))
    return rungs


def _less(spec: OracleSpec, truth: Model | None) -> list[Scenario]:
    """What the target could show in place of its numbers, explanations, and what its logs give away."""
    if spec.kind in EXPLAINED_KINDS:
        return [Scenario("values", "none", Unexplained)]
    rungs = [
        *_probabilities(spec),
        Scenario(LABELS, "none", Thresholded),
        Scenario(LABELS, "token norm at most 1", partial(capped_labels, max_norm=1.0)),
        *_explained(spec, truth),
    ]
    if spec.dim <= AUDITING.largest and spec.link is None and spec.kind == "value":
        rungs.append(Scenario(RECORDED, "none", same))
    return rungs


def _probabilities(spec: OracleSpec) -> list[Scenario]:
    """What a classifier shows of its score: its sigmoid, whole and rounded."""
    if spec.link is not None or spec.kind != "value":
        return []
    rungs = [Scenario(PROBABILITIES, "none", Probabilities)]
    for k in (4, 2):
        rungs.append(Scenario(PROBABILITIES, f"rounding to {k} decimals", partial(Probabilities, decimals=k)))
    return rungs


def _language_model(spec: OracleSpec) -> list[Scenario]:
    """What services show of the next token, from all logits down to the likeliest few."""
    own = f"all {spec.shows}" if spec.shows in ("logits", "log-probabilities") else f"{spec.shows} tokens"
    rungs = [Scenario(own, "none", same), Scenario(own, "one query per second", same, rate=1.0)]
    if spec.shows not in ("logits", "log-probabilities"):
        return rungs
    shown = "all log-probabilities"
    if spec.shows == "logits":
        rungs.append(Scenario(shown, "none", Shown))
    rungs += [Scenario(shown, f"rounding to {k} decimals", partial(Shown, decimals=k)) for k in (6, 4, 2)]
    rungs.append(Scenario(own, "random noise of deviation 0.001", partial(Stochastic, deviation=1e-3), stochastic=True))
    for k in (count for count in AUDITING.tops if count < (spec.vocabulary or 0)):
        rungs += [
            Scenario(top(k, "with a bias"), "none", partial(Shown, shows="chosen", top=k)),
            Scenario(top(k, "with a bias"), "4 decimals", partial(Shown, shows="chosen", top=k, decimals=4)),
            Scenario(top(k, "alone"), "none", partial(Shown, shows="top", top=k)),
        ]
    return rungs


def _explained(spec: OracleSpec, truth: Model | None) -> list[Scenario]:
    """Explanations that the true model can give."""
    plain = spec.kind == "value" and spec.link is None and spec.dtype == "float64" and not spec.domain.forbidden
    if not plain or not isinstance(truth, SingleHead | LowRankHead | MultiHead):
        return []
    kinds: dict[str, Kind] = {"input gradients": "gradient", "attention maps": "attention"}
    return [Scenario(name, "none", partial(explained, model=truth, kind=kind)) for name, kind in kinds.items()]


def _blurred(spec: OracleSpec, access: str) -> list[Scenario]:
    """Answers with fewer digits: number formats, rounding, noise; of a probability its decimals."""
    if spec.link is not None:
        decimals = (4, 2) if spec.link == "sigmoid" else ()
        return [Scenario(access, f"rounding to {k} decimals", partial(Probabilities, decimals=k)) for k in decimals]
    rungs = []
    if spec.vocabulary is None:
        rungs += [Scenario(access, f"{name} arithmetic", partial(Cast, dtype=name)) for name in ("float32", "float16")]
    rungs += [Scenario(access, f"rounding to {k} decimals", partial(Rounded, decimals=k)) for k in (6, 3, 2)]
    rungs += [
        Scenario(access, f"deterministic noise up to {words}", partial(Perturbed, tolerance=tau, seed=0))
        for words, tau in (("0.000001", 1e-6), ("0.001", 1e-3))
    ]
    noise = Scenario(access, "random noise of deviation 0.001", partial(Stochastic, deviation=1e-3), stochastic=True)
    return [*rungs, noise]
