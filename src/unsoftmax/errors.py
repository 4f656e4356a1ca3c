"""Everything unsoftmax raises on purpose.

    UnsoftmaxError
    ├── InvalidArgument     a parameter is of the wrong kind or out of range (also a ValueError)
    ├── DomainError         the oracle's domain forbids the probes a learner would need
    ├── BudgetExceeded      the budget cannot pay for the next call, or for the whole run
    ├── OracleError         the target failed, or answered something that is not an answer
    ├── NotIdentifiable     the parameters cannot be known from any number of queries; says why
    ├── ModelMismatch       the target is not in the class the learner learns; carries the evidence
    ├── LedgerError         a ledger belongs to another run, is locked, or is damaged
    └── FileFormatError     a saved model, recovery or ledger cannot be read

Each message says what was required, what came, and what to do. Programs read `code` and fields, never messages.
`recovery` holds what was already paid for when the error left `recover` (a `Recovery` whose model may be None), so
nothing bought is lost.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unsoftmax.models.base import Model
    from unsoftmax.results.recovery import Recovery


class Code(StrEnum):
    """What an error is about. Every class of errors has one of its own; those below the blank line say more."""

    FAILED = "failed"
    ARGUMENT = "argument"
    DOMAIN = "domain"
    BUDGET = "budget"
    TARGET = "target"
    NOT_IDENTIFIABLE = "not identifiable"
    MISMATCH = "mismatch"
    LEDGER = "ledger"
    FILE = "file"

    UNREPEATABLE = "not deterministic"
    ENTANGLED = "entangled heads"
    OVERLAPPING = "overlapping heads"
    TOO_DEAR = "too dear"
    CONTRADICTED = "fresh queries contradict"
    UNDETERMINED = "fresh queries leave the weights open"
    # Why a diagnosis chose no learner: the trait that no class has, or that could not be seen.
    NOISE = "noise"
    ZERO = "zero"
    CONSTANT = "constant"
    LABELS = "labels"
    ORDER = "order"
    FIRST_POSITION = "first position"
    POOLED = "pooled"
    NO_ATTENTION = "no attention"
    ROW = "row"
    NETWORK = "network"
    LAW = "law"
    BOUNDED_SCORES = "bounded scores"
    HEADS = "heads"
    TOKENS = "tokens"
    OUTPUTS = "outputs"
    NORM_BEHIND = "norm behind"


class UnsoftmaxError(Exception):
    """Root of the tree: `reason` is what is the matter, `advice` what the caller may do; the message is both."""

    code: Code = Code.FAILED
    recovery: Recovery | None = None
    model: Model | None = None
    """What a learner had found when it stopped; it becomes the model of `recovery`."""

    def __init__(self, reason: str = "", *, advice: str = "", code: Code | None = None) -> None:
        super().__init__(f"{reason.removesuffix('.')}; {advice}" if advice else reason)
        self.reason, self.advice = reason, advice
        if code is not None:
            self.code = code


class InvalidArgument(UnsoftmaxError, ValueError):
    """A parameter is of the wrong kind or out of range."""

    code = Code.ARGUMENT


class DomainError(UnsoftmaxError):
    """The oracle's domain (token norm, sequence length) forbids the probes."""

    code = Code.DOMAIN


class BudgetExceeded(UnsoftmaxError):
    """The budget cannot pay for what comes next; nothing beyond it was sent."""

    code = Code.BUDGET

    def __init__(self, reason: str, *, advice: str = "", needed: int | None = None, limit: float | None = None) -> None:
        super().__init__(reason, advice=advice)
        self.needed = needed
        self.limit = limit


class OracleError(UnsoftmaxError):
    """The target raised, or its answer has the wrong shape or is not a finite real number.

    `http_status` is what a server answered in place of an answer, None where there is no such thing.
    """

    code = Code.TARGET
    http_status: int | None = None


class NotIdentifiable(UnsoftmaxError):
    """No number of queries of this kind determines the parameters."""

    code = Code.NOT_IDENTIFIABLE


class ModelMismatch(UnsoftmaxError):
    """The answers contradict the learner's model class."""

    code = Code.MISMATCH


class LedgerError(UnsoftmaxError):
    """The ledger belongs to another run, is locked by another writer, or is damaged."""

    code = Code.LEDGER


class FileFormatError(UnsoftmaxError):
    """A file is not what its format promises."""

    code = Code.FILE
