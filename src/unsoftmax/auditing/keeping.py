"""The folder of an audit: to whom it belongs, its finished cells, and ledgers that a resumed cell is counted from."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unsoftmax.errors import FileFormatError, InvalidArgument
from unsoftmax.oracles.addresses import addresses
from unsoftmax.oracles.base import Oracle
from unsoftmax.oracles.recording import Store
from unsoftmax.probes.base import Array, Probes
from unsoftmax.results.audit import Cell
from unsoftmax.results.recovery import Recovery, load
from unsoftmax.spec import OracleSpec


def bind(home: Path, binding: dict[str, Any]) -> None:
    """A folder belongs to one target, learner and seed; another audit must not inherit its cells."""
    path = home / "audit-of.json"
    try:
        home.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_text(json.dumps(binding, indent=1, sort_keys=True) + "\n")
            return
        held = json.loads(path.read_text())
    except OSError as error:
        raise InvalidArgument(f"`folder` {home} cannot be used ({error.strerror or error}).") from error
    except ValueError as error:
        raise FileFormatError(f"{path} is damaged ({error}); use another folder.") from error
    differing = [name for name in binding if held.get(name) != binding[name]]
    if differing:
        raise InvalidArgument(f"{home} belongs to another audit ({', '.join(differing)} differ); use another folder.")


def read_cell(path: Path) -> Cell:
    """A finished cell; FileFormatError if the file is not one."""
    try:
        return Cell(**json.loads(path.read_text()))
    except (ValueError, TypeError) as error:
        raise FileFormatError(f"{path} is damaged ({error}); delete it to measure this cell again.") from error


def write_cell(path: Path, cell: Cell) -> None:
    """Whole or not at all: an interrupted audit must not find half a cell."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(asdict(cell), indent=1) + "\n")
    part.replace(path)


def kept_recovery(path: Path | None) -> Recovery | None:
    """The recovery of a finished cell, None if there was none."""
    return load(path) if path is not None and path.exists() else None


@dataclass(frozen=True)
class Remembered:
    """The oracle with a ledger inside it: what is known is not sent, but metering outside counts it as asked.

    A cell that was interrupted is run once more against its finished ledger, so that its bill is the whole one.
    """

    inner: Oracle
    store: Store

    @property
    def spec(self) -> OracleSpec:
        return self.inner.spec

    def __call__(self, probes: Probes) -> Array:
        known, held = self.store.get(addresses(probes))
        if known.all():
            return held
        rest = np.asarray(self.inner(probes.take(np.flatnonzero(~known))))
        answers = np.empty((len(probes), *rest.shape[1:]))
        answers[known], answers[~known] = held, rest
        return answers
