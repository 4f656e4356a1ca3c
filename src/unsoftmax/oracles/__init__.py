"""Oracles: the one-method protocol, wrappers that change the meaning, stages that meter and record. In reading order.

base           the protocol
semantic       wrappers that change what answers mean: noise, rounding, threshold, link
shown          a language model that shows less of the next token
stack          the stages between oracle and program, in their order
dispatching    calls of the target, chunk by chunk
metering       counting, budgets, domain
recording      record, cache and resume
ledger         the file that keeps every paid answer
sqlite_errors  what SQLite has to say, as errors of a ledger
addresses      content addresses of sequences
sequences      where in its program a sequence was asked, and with which tokens
nearness       a recorded answer for the same question with other last digits
decisions      what a program settled
rechecking     does the target answer the same twice
identity       whose answers these are
export         ledgers as tables for other tools
"""

from unsoftmax.oracles.base import Oracle
from unsoftmax.oracles.ledger import Ledger
from unsoftmax.oracles.metering import Budget
from unsoftmax.oracles.rechecking import Recheck
from unsoftmax.oracles.recording import MemoryStore, Store
from unsoftmax.oracles.semantic import Cast, Perturbed, Rounded, Stochastic, Thresholded
from unsoftmax.oracles.shown import Shown
from unsoftmax.oracles.stack import Stack
from unsoftmax.spec import Domain, OracleSpec

__all__ = [
    "Budget",
    "Cast",
    "Domain",
    "Ledger",
    "MemoryStore",
    "Oracle",
    "OracleSpec",
    "Perturbed",
    "Recheck",
    "Rounded",
    "Shown",
    "Stack",
    "Stochastic",
    "Store",
    "Thresholded",
]
