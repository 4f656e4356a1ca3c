"""Recovery: the model, what it cost, what is certain about it, and how to get it again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from math import isfinite
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from unsoftmax.errors import FileFormatError
from unsoftmax.models.base import Array, Model, write_safetensors
from unsoftmax.models.files import BESIDE, RECOVERY_FORMAT, model_from, read_safetensors
from unsoftmax.results.scope import Scope, scope_from

Basis = Literal["proved", "measured", "assumed"]

RELATIVE_ERROR = "relative parameter error"
"""Name of the claim that states how far the parameters may be off, relative to their size; `Certificate.stated_error`
reads it."""

ERROR_OF_OTHERS = "error of other parameters"
"""Name of the same claim of all parameters but those it names, which are known worse or lost in the noise."""

_ERROR = BESIDE + "error of "
"""Names of the standard errors in a file."""


class Status(StrEnum):
    """How a run ended; `remedy` says what to do next."""

    RECOVERED = "recovered"
    CONSISTENT = "consistent"
    SURROGATE = "surrogate"
    UNVERIFIED = "unverified"
    MISMATCH = "mismatch"
    BUDGET_EXHAUSTED = "budget exhausted"
    INTERRUPTED = "interrupted"
    TARGET_FAILED = "target failed"
    NOT_IDENTIFIABLE = "not identifiable"
    FAILED = "failed"

    @property
    def remedy(self) -> str:
        return _REMEDIES[self]


_REMEDIES = {
    Status.RECOVERED: "Fresh queries agree with the model; nothing to do.",
    Status.CONSISTENT: "The model explains the records within their noise; the stated errors are all that is known.",
    Status.SURROGATE: "No recovery: a function that predicts records like those held out; the notes say why.",
    Status.UNVERIFIED: "The model was not checked; run again with verify=True before trusting it.",
    Status.MISMATCH: "Fresh queries contradict the model; choose a learner for a wider class, or diagnose the target.",
    Status.BUDGET_EXHAUSTED: "Run again with a larger budget; with the same ledger, if any, nothing is paid twice.",
    Status.INTERRUPTED: "Run again with the same ledger to continue where it stopped.",
    Status.TARGET_FAILED: "Mend the target, then run again with the same ledger to continue.",
    Status.NOT_IDENTIFIABLE: "No further query of this kind can help; the message says what cannot be known.",
    Status.FAILED: "The learner gave up; the message says which step and why.",
}


@dataclass(frozen=True)
class Claim:
    """One statement about the result: `observed` should not exceed `bound`; a bound of infinity is none and fails.

    `basis`: proved (a theorem, given its assumptions), measured (on fresh queries), assumed (declared by the user).
    """

    name: str
    bound: float
    observed: float | None = None
    basis: Basis = "measured"
    theorem: str | None = None
    statement: str = ""

    @property
    def holds(self) -> bool:
        return isfinite(self.bound) and (self.observed is None or self.observed <= self.bound)


@dataclass(frozen=True)
class Certificate:
    """The claims about a model, empty if nothing was checked, and what they are about."""

    claims: tuple[Claim, ...] = ()
    scope: Scope | None = None

    @property
    def holds(self) -> bool:
        """True if fresh queries were asked and no claim fails; a bound that is only stated is no check."""
        return any(claim.observed is not None for claim in self.claims) and all(c.holds for c in self.claims)

    @property
    def stated_error(self) -> float | None:
        """How far the parameters may be off, relative to their size, those said to be lost in the noise aside; None
        where that is not stated."""
        bounds = {claim.name: claim.bound for claim in self.claims}
        return bounds.get(RELATIVE_ERROR, bounds.get(ERROR_OF_OTHERS))

    def __iter__(self) -> Iterator[Claim]:
        return iter(self.claims)

    def __len__(self) -> int:
        return len(self.claims)

    def __str__(self) -> str:
        if not self.claims:
            return "nothing was checked"
        about = [] if self.scope is None else [f"asked: {self.scope}"]
        return "\n".join([*about, *(_sentence(claim) for claim in self.claims)])


def _sentence(claim: Claim) -> str:
    mark = "FAILS" if not claim.holds else "stated" if claim.observed is None else "holds"
    seen = "" if claim.observed is None else f"observed {claim.observed:.2g}, "
    where = f" ({claim.theorem})" if claim.theorem else ""
    return f"{claim.name}: {mark}: {seen}bound {claim.bound:.2g} [{claim.basis}]{where} {claim.statement}".rstrip()


@dataclass(frozen=True)
class Usage:
    """What was spent. `billed`: sequences the target received; `asked`: sequences the program wanted answered."""

    asked: int = 0
    billed: int = 0
    tokens: int = 0
    numbers: int = 0
    rounds: int = 0
    seconds: float = 0.0
    target_seconds: float = 0.0
    phases: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Recovery:
    """Result of `recover`: `model` is None only if the run ended before there was one."""

    model: Any
    status: Status
    usage: Usage
    certificate: Certificate = field(default_factory=Certificate)
    provenance: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    undetermined: Array | None = None
    """Basis (k, unknowns) of parameter changes that a fitted log does not show; None if there is none."""
    errors: dict[str, Array] = field(default_factory=dict)
    """Standard errors of the parameters, by name, where they were fitted to a log."""

    @property
    def fitted(self) -> bool:
        """Whether the model was fitted to a log, without a query."""
        return "fit" in self.provenance

    @property
    def _asked(self) -> str | None:
        """The note that the certificate says too."""
        return None if self.certificate.scope is None or not self.certificate.claims else asked(self.certificate.scope)

    def __repr__(self) -> str:
        model = "no model" if self.model is None else f"{type(self.model).__name__}, dim {self.model.dim}"
        phases = ", ".join(f"{name} {n}" for name, n in self.usage.phases.items())
        spent = (
            f"queries: {self.usage.billed} billed ({phases or 'none'}), {self.usage.asked} asked, "
            f"{self.usage.rounds} rounds, {self.usage.seconds:.2f} s"
        )
        if self.fitted:
            spent = f"records: {phases}; no query; {self.usage.seconds:.2f} s"
        lines = [
            f"Recovery: {model}: {self.status.value}",
            f"  {spent}",
            *(f"  note: {note}" for note in self.notes if note != self._asked),
            *(f"  {line}" for line in str(self.certificate).splitlines()),
        ]
        if self.status is not Status.RECOVERED:
            lines.append(f"  next: {self.status.remedy}")
        return "\n".join(lines)

    def save(self, path: str | Path) -> None:
        """Write a safetensors file with a JSON header; `us.load` and `us.models.load` read it."""
        header = {
            "model": None if self.model is None else type(self.model).__name__,
            "status": self.status.value,
            "usage": asdict(self.usage),
            "claims": [asdict(claim) for claim in self.certificate.claims],
            "scope": None if self.certificate.scope is None else asdict(self.certificate.scope),
            "provenance": self.provenance,
            "notes": list(self.notes),
        }
        tensors = {"_": np.zeros(0)} if self.model is None else self.model.parameters()
        beside = {"undetermined": self.undetermined} | {f"error of {name}": e for name, e in self.errors.items()}
        tensors = tensors | {BESIDE + name: value for name, value in beside.items() if value is not None}
        text = json.dumps(header, default=as_json)
        write_safetensors(path, tensors, {"format": RECOVERY_FORMAT, "recovery": text})


def asked(scope: Scope) -> str:
    """The scope as a note."""
    return f"asked: {scope}."


def plain(value: Any) -> Any:
    """The value as a file gives it back: what was saved and loaded equals what `recover` returned."""
    return json.loads(json.dumps(value, default=as_json))


def as_json(value: Any) -> Any:
    """What `json` cannot say of itself: shapes of arrays, numbers of NumPy, and the rest as text."""
    if isinstance(value, np.ndarray):
        return {"array": list(value.shape)}
    if isinstance(value, np.generic):
        return value.item()
    return repr(value)


def load(path: str | Path) -> Recovery:
    """Read a Recovery written by `Recovery.save`."""
    tensors, metadata = read_safetensors(path)
    if metadata.get("format") != RECOVERY_FORMAT:
        raise FileFormatError(
            f"{path} has the format {metadata.get('format')!r}, not {RECOVERY_FORMAT!r}; "
            "models saved on their own are read by us.models.load."
        )
    try:
        header = json.loads(metadata["recovery"])
        model: Model | None = None
        if header["model"] is not None:
            model = model_from(header["model"], tensors, path)
        return Recovery(
            model=model,
            status=Status(header["status"]),
            usage=usage_from(header["usage"]),
            certificate=Certificate(
                tuple(_claim(claim) for claim in header["claims"]), scope_from(header.get("scope"))
            ),
            provenance=dict(header["provenance"]),
            notes=tuple(_of(str, note) for note in header["notes"]),
            undetermined=tensors.get(BESIDE + "undetermined"),
            errors={name.removeprefix(_ERROR): a for name, a in tensors.items() if name.startswith(_ERROR)},
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FileFormatError(f"{path} has a damaged recovery header ({error}).") from error


def usage_from(values: dict[str, Any]) -> Usage:
    """The usage in a header, its kinds checked."""
    usage = Usage(**values)
    for count in (usage.asked, usage.billed, usage.tokens, usage.numbers, usage.rounds, *usage.phases.values()):
        _of(int, count)
    for seconds in (usage.seconds, usage.target_seconds):
        _of((int, float), seconds)
    return usage


def _claim(values: dict[str, Any]) -> Claim:
    claim = Claim(**values)
    for text in (claim.name, claim.statement, claim.theorem or ""):
        _of(str, text)
    for number in (claim.bound, claim.observed or 0.0):
        _of((int, float), number)
    if claim.basis not in get_args(Basis):
        raise ValueError(f"a claim has the basis {claim.basis!r}")
    return claim


def _of(kind: Any, value: Any) -> Any:
    """The value, if it is of this kind: a header from a stranger may hold anything."""
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TypeError(f"{str(value)[:80]!r} stands where another kind of value belongs")
    return value
