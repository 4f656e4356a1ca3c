"""What an owner can set: limits that keep a copy above a price."""

from __future__ import annotations

import math

from unsoftmax.arguments import checked


@checked
def query_price(queries: int, floor: float) -> float:
    """Price per query at which so many queries cost `floor`."""
    return floor / queries


@checked
def principal_limit(queries: int, floor: float, price: float, principal: float) -> float:
    """Most queries per principal and month at which a copy of so many queries costs `floor` at least.

    Each query costs `price`, each principal (an account, a key) `principal` a month; an attacker needs
    ceil(queries / limit) principal-months. inf: the queries alone cost as much; 0: no limit reaches it.
    """
    missing = floor - queries * price
    if missing <= 0:
        return math.inf
    if principal <= 0:
        return 0.0
    needed = math.ceil(missing / principal)
    return math.inf if needed <= 1 else float(math.ceil(queries / (needed - 1)) - 1)
