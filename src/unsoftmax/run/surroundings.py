"""What stands around a run: the ledger it is bound to, the workers that ask, the version that ran."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from unsoftmax.oracles.base import Oracle
from unsoftmax.oracles.identity import identity
from unsoftmax.oracles.ledger import Ledger
from unsoftmax.oracles.recording import Store

_LATER = ("shows", "part", "position", "parts")
"""Fields of a spec that ledgers of the first format do not name: they bind only where they are set."""


@contextmanager
def working(executor: Executor | None, concurrency: int) -> Iterator[Executor | None]:
    """The user's executor, or threads of our own if the target takes several calls at once."""
    if executor is not None or concurrency == 1:
        yield executor
        return
    with ThreadPoolExecutor(concurrency, thread_name_prefix="unsoftmax") as own:
        yield own


@contextmanager
def opened(
    ledger: str | Path | Store | None,
    oracle: Oracle,
    configured: dict[str, Any],
    seed: int,
    keep_tokens: bool = False,
) -> Iterator[Store | None]:
    """The store behind `ledger`; a file is bound to this run and held while it lasts."""
    if not isinstance(ledger, (str, Path)):
        yield ledger
        return
    facts = asdict(oracle.spec)
    # How sequences are batched does not change their answers; a ledger from before a field existed stays valid.
    left_out = {"max_batch", "name", *(name for name in _LATER if facts[name] in (None, ()))}
    spec = {name: value for name, value in facts.items() if name not in left_out}
    target = identity(oracle)
    binding = {"target": target, "spec": spec, "configuration": configured, "seed": seed}
    with Ledger(ledger, binding, keep_tokens=keep_tokens) as store:
        yield store


@cache
def installed_version() -> str:
    """Version of the package, for provenance."""
    # Parsing the package's metadata takes as long as a small recovery.
    return version("unsoftmax")
