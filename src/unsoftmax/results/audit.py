"""Audit: the cells of the ladder, what they cost an attacker, and what follows, as plain data."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from unsoftmax.errors import FileFormatError, InvalidArgument
from unsoftmax.results.access import EXPLANATIONS, ONE_TOKEN, QUERY_BUDGET
from unsoftmax.results.evidence import Evidence, evidence_from

AUDIT_FORMAT = "unsoftmax-audit/1"

Leak = Literal["exact", "close", "rough", "none", "unknown"]
"""How good a copy is; "none" if the attack failed, "unknown" if no attack here speaks of the target at all."""

EXACT = 1e-6
"""Relative error up to which a copy counts as exact, and which attacks through labels aim at: six digits of its weights
are the target's."""

CLOSE = 1e-2
"""Relative error up to which a copy counts as close: two digits of its weights are the target's."""

ROUGH = 0.5
"""Relative error up to which a copy counts as rough: half, and a copy of weights 0 would be off by 1."""

OWN_LIMIT = "beyond the budget set"
"""Status of a cell that the user's own limit ended: it says nothing about the defence."""


@dataclass(frozen=True)
class Cell:
    """One way in: an access level behind a defence, and how far the best learner got.

    `parameter_error` needs the owner's truth, or is what the recovery states where the copy is of a part that does not
    answer by itself (the reason says so); `functional_error` compares answers of the copy with the undefended
    target on fresh sequences, relative to their size. `hours` is queries over the rate, `price` what they cost. `part`
    is what the copy is of, where it is not of the target as a whole: "the attention inside it".
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
    part: str = ""

    @property
    def name(self) -> str:
        return f"{self.access}, {self.defence}"

    @property
    def offered(self) -> bool:
        """Whether the target as it was audited can be asked this way."""
        return self.access not in EXPLANATIONS

    @property
    def title(self) -> str:
        """The name for people."""
        return f"{self.access}, {'no defence' if self.defence == 'none' else self.defence}"

    @property
    def verdict(self) -> str:
        """What the attacker has in the end, in two words."""
        if self.leak == "unknown":
            return "out of scope"
        if self.leak != "none":
            return self.copied
        return "no copy" if self.queries else "refused"

    @property
    def copied(self) -> str:
        """How good the copy is, and of what."""
        return f"{self.leak} copy of {self.part}" if self.part else f"{self.leak} copy"


@dataclass(frozen=True)
class Limit:
    """What keeps a copy by one access level above the price that the owner named.

    `queries` are measured, `fewest` answers hold as many numbers as there are unknowns; `query_price` is what a query
    would have to cost; `monthly` queries per principal and month do it for the measured attack, `monthly_any` for any:
    None where no limit is needed, 0 where none suffices.
    """

    access: str
    queries: int
    fewest: int
    price: float
    query_price: float
    monthly: int | None
    monthly_any: int | None


@dataclass(frozen=True)
class Audit:
    """What leaks, at what price, and what a defence buys; `evidence` is of the first cell's recovery."""

    target: str
    dim: int
    unknowns: int
    truth_given: bool
    rate: float
    currency: str
    cells: tuple[Cell, ...]
    recommendations: tuple[str, ...]
    provenance: dict[str, Any]
    evidence: Evidence | None = None
    limits: tuple[Limit, ...] = ()

    @property
    def in_scope(self) -> bool:
        """Whether any learner of this version speaks of the target; if not, nothing is known about its leaks."""
        return not self.cells or self.cells[0].leak != "unknown"

    @property
    def cheapest(self) -> float | None:
        """Lowest price of a close or exact copy by a way in that is offered; None if no cell gave one."""
        prices = [cell.price for cell in self.cells if cell.offered and cell.leak in ("exact", "close")]
        return min(prices, default=None)

    @property
    def frontier(self) -> tuple[Cell, ...]:
        """Cells that no other beats in both queries and error, cheapest first."""
        best: list[Cell] = []
        for cell in sorted(
            (c for c in self.cells if c.offered and c.leak not in ("none", "unknown")),
            key=lambda c: (c.queries, error_of(c)),
        ):
            if not best or error_of(cell) < error_of(best[-1]):
                best.append(cell)
        return tuple(best)

    def __repr__(self) -> str:
        lines = [f"Audit of {self.target} (d = {self.dim}, {self.unknowns} unknowns)"]
        lines += [f"  {c.title}: {c.verdict}, {c.queries:,} queries. {c.reason}".rstrip() for c in self.cells]
        return "\n".join(lines + [f"  - {text}" for text in self.recommendations])

    def to_json(self) -> str:
        """The audit as JSON; the schema is published in the documentation."""
        data = _finite({"format": AUDIT_FORMAT, **asdict(self)})
        # The matrices of the evidence stand on one line: a page of digits helps nobody.
        evidence = json.dumps(data.pop("evidence"), default=str, allow_nan=False)
        rest = json.dumps(data, indent=1, default=str, allow_nan=False).removesuffix("\n}")
        return f'{rest},\n "evidence": {evidence}\n}}\n'

    def save(self, path: str | Path) -> None:
        """Write the JSON; `load_audit` reads it back, and `unsoftmax report` makes the page of it."""
        try:
            Path(path).write_text(self.to_json(), encoding="utf-8")
        except OSError as error:
            raise InvalidArgument(f"{path} cannot be written ({error.strerror or error}); check the folder.") from error


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


def duration(hours: float) -> str:
    """A time for people: 12 seconds, 20 minutes, 3.5 hours, 2.1 days."""
    for size, unit in ((1 / 3600, "second"), (1 / 60, "minute")):
        if hours < 0.99 * (60 * size):
            count = round(hours / size)
            return f"{count or 'under 1'} {unit}{'' if count <= 1 else 's'}"
    return f"{hours:.1f} hours" if hours < 48 else f"{hours / 24:,.1f} days"


_ONE_TOKEN = ("SingleHead", "LowRank", "Approximate", "MultiHead", "Membership")
"""Learners of heads whose answer to one token is that of its value: W does not enter, whatever the method."""


def proof_of(cell: Cell, learner: str) -> str | None:
    """What a defence that no method passes is called, None if only today's learners do not.

    `learner` is that of the undefended target: it says what the class of the target is.
    """
    if cell.leak != "none":
        return None
    if QUERY_BUDGET in cell.defence:
        return "a query budget below the unknowns"
    return "one token a sequence" if cell.defence == ONE_TOKEN and learner in _ONE_TOKEN else None


def rounded_up(price: float) -> str:
    """A price to ask: two decimals, three digits where it is below 1; never less than what was computed."""
    digits = 2 if price >= 1 or price <= 0 else 2 - math.floor(math.log10(price))
    return f"{math.ceil(round(price * 10**digits, 6)) / 10**digits:,.{digits}f}"


def _finite(value: Any) -> Any:
    """JSON has no infinity: such numbers become null."""
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def load_audit(path: str | Path) -> Audit:
    """Read an audit written by `Audit.save`."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
        if data.pop("format") != AUDIT_FORMAT:
            raise FileFormatError(f"{path} is not an {AUDIT_FORMAT} file.")
        cells = tuple(Cell(**cell) for cell in data.pop("cells"))
        evidence = data.pop("evidence", None)
        return Audit(
            cells=cells,
            recommendations=tuple(data.pop("recommendations")),
            evidence=None if evidence is None else evidence_from(evidence),
            limits=tuple(Limit(**limit) for limit in data.pop("limits", ())),
            **data,
        )
    except OSError as error:
        raise FileFormatError(f"{path} cannot be read ({error.strerror or error}); check the path.") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FileFormatError(f"{path} is not an audit ({error}).") from error
