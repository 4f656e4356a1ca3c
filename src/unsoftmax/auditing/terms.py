"""Terms of an audit: what an attacker pays, how fast he may ask, and what a copy should cost him."""

from __future__ import annotations

from dataclasses import dataclass, replace

from unsoftmax.auditing.ladder import Scenario
from unsoftmax.errors import InvalidArgument
from unsoftmax.results.audit import Cell


@dataclass(frozen=True)
class Terms:
    """What queries cost the attacker and how fast they can be asked.

    `price_per_principal` is what an account or key costs him a month; `keep_above` what a copy should cost at least:
    limits that the owner can set are computed from both.
    """

    price_per_query: float = 0.0
    price_per_token: float = 0.0
    rate: float = 100.0
    currency: str = "USD"
    price_per_principal: float = 0.0
    keep_above: float | None = None

    def __post_init__(self) -> None:
        for name in ("price_per_query", "price_per_token", "price_per_principal"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise InvalidArgument(f"`{name}` must be finite and not negative (got {getattr(self, name)}).")
        if self.keep_above is not None and not 0 < self.keep_above < float("inf"):
            raise InvalidArgument(f"`keep_above` must be positive: what a copy should cost (got {self.keep_above}).")
        if not 0 < self.rate < float("inf"):
            raise InvalidArgument(f"`rate` must be positive: queries per second an attacker can ask (got {self.rate}).")

    def applied(self, cell: Cell, scenario: Scenario) -> Cell:
        """The cell at this price and rate; a kept one may come from other terms."""
        price = cell.queries * self.price_per_query + cell.tokens * self.price_per_token
        return replace(cell, price=price, hours=cell.queries / (scenario.rate or self.rate) / 3600)
