"""Audit: the cells of the ladder, what they cost an attacker, and what follows, as plain data."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from unsoftmax.errors import FileFormatError

AUDIT_FORMAT = "unsoftmax-audit/1"

Leak = Literal["exact", "close", "rough", "none"]

EXACT, CLOSE, ROUGH = 1e-6, 1e-2, 0.5
"""Relative errors up to which a copy counts as exact, close, rough."""


@dataclass(frozen=True)
class Cell:
    """One way in: an access level behind a defence, and how far the best learner got.

    `parameter_error` needs the owner's truth; `functional_error` compares answers of the copy with the undefended
    target on fresh sequences, relative to their size. `hours` is queries over the rate, `price` what they cost.
    """

    access: str
    defence: str
    learner: str
    status: str
    leak: Leak
    queries: int
    tokens: int
    hours: float
    price: float
    parameter_error: float | None
    functional_error: float | None
    reason: str

    @property
    def name(self) -> str:
        return f"{self.access}, {self.defence}"


@dataclass(frozen=True)
class Audit:
    """What leaks, at what price, and what a defence buys."""

    target: str
    dim: int
    unknowns: int
    truth_given: bool
    rate: float
    currency: str
    cells: tuple[Cell, ...]
    recommendations: tuple[str, ...]
    provenance: dict[str, Any]

    @property
    def cheapest(self) -> float | None:
        """Lowest price of a close or exact copy; None if no cell gave one."""
        prices = [cell.price for cell in self.cells if cell.leak in ("exact", "close")]
        return min(prices, default=None)

    @property
    def frontier(self) -> tuple[Cell, ...]:
        """Cells that no other beats in both queries and error, cheapest first."""
        best: list[Cell] = []
        for cell in sorted((c for c in self.cells if c.leak != "none"), key=lambda c: (c.queries, error_of(c))):
            if not best or error_of(cell) < error_of(best[-1]):
                best.append(cell)
        return tuple(best)

    def __repr__(self) -> str:
        lines = [f"Audit of {self.target} (d = {self.dim}, {self.unknowns} unknowns)"]
        lines += [f"  {c.name}: {c.leak}, {c.queries} queries. {c.reason}" for c in self.cells]
        return "\n".join(lines + [f"  - {text}" for text in self.recommendations])

    def to_json(self) -> str:
        """The audit as JSON; the schema is published in the documentation."""
        return json.dumps({"format": AUDIT_FORMAT, **asdict(self)}, indent=1, default=str) + "\n"

    def save(self, path: str | Path) -> None:
        Path(path).write_text(self.to_json())


def error_of(cell: Cell) -> float:
    """The error a cell is judged by: of the parameters where the truth is known, else of the answers."""
    for error in (cell.parameter_error, cell.functional_error):
        if error is not None:
            return error
    return float("inf")


def leak_of(error: float | None) -> Leak:
    """Name of a relative error."""
    if error is None or not error <= ROUGH:
        return "none"
    return "exact" if error <= EXACT else "close" if error <= CLOSE else "rough"


def load_audit(path: str | Path) -> Audit:
    """Read an audit written by `Audit.save`."""
    try:
        data = json.loads(Path(path).read_text())
        if data.pop("format") != AUDIT_FORMAT:
            raise FileFormatError(f"{path} is not an {AUDIT_FORMAT} file.")
        cells = tuple(Cell(**cell) for cell in data.pop("cells"))
        return Audit(cells=cells, recommendations=tuple(data.pop("recommendations")), **data)
    except OSError as error:
        raise FileFormatError(f"{path} cannot be read ({error.strerror or error}); check the path.") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FileFormatError(f"{path} is not an audit ({error}).") from error
