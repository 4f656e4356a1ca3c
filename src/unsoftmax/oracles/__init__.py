"""Oracles: the one-method protocol, wrappers that change the meaning, stages that meter and record."""

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
