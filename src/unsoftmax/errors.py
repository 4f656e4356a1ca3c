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

Each message says what was required, what came, and what to do. `recovery` holds what was already paid for when
the error left `recover` (a `Recovery` whose model may be None), so nothing bought is lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unsoftmax.models.base import Model
    from unsoftmax.results.recovery import Recovery


class UnsoftmaxError(Exception):
    """Root of the tree."""

    recovery: Recovery | None = None
    model: Model | None = None
    """What a learner had found when it stopped; it becomes the model of `recovery`."""


class InvalidArgument(UnsoftmaxError, ValueError):
    """A parameter is of the wrong kind or out of range."""


class DomainError(UnsoftmaxError):
    """The oracle's domain (token norm, sequence length) forbids the probes."""


class BudgetExceeded(UnsoftmaxError):
    """The budget cannot pay for what comes next; nothing beyond it was sent."""

    def __init__(self, message: str, *, needed: int | None = None, limit: float | None = None) -> None:
        super().__init__(message)
        self.needed = needed
        self.limit = limit


class OracleError(UnsoftmaxError):
    """The target raised, or its answer has the wrong shape or is not a finite real number."""


class NotIdentifiable(UnsoftmaxError):
    """No number of queries of this kind determines the parameters."""


class ModelMismatch(UnsoftmaxError):
    """The answers contradict the learner's model class."""


class LedgerError(UnsoftmaxError):
    """The ledger belongs to another run, is locked by another writer, or is damaged."""


class FileFormatError(UnsoftmaxError):
    """A file is not what its format promises."""
