"""What a learner registers: one file under `cases/` with a list CASES; the contract suite holds it to shared rules.

A case names a learner, a small target inside its class, how to make an oracle of the target, and a bar on
`models.distance`. `outside` lists targets that the learner must refuse (ModelMismatch or NotIdentifiable).
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import unsoftmax as us


@dataclass(frozen=True)
class Case:
    name: str
    learner: Any
    target: Callable[[], Any]
    error: float
    oracle: Callable[[Any], Any] = us.oracle
    outside: dict[str, Callable[[], Any]] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name


def two_heads(dim: int = 6) -> Any:
    return us.models.MultiHead.random(dim, 2, norm=2.0, seed=5)


def network_behind(dim: int = 6) -> Any:
    return us.models.Transformer.random(dim, 8, norm=2.0, seed=5)


def affine_scores(dim: int = 6) -> Any:
    head = us.models.SingleHead.random(dim, norm=2.0, seed=5)
    return us.models.SingleHead(head.W, head.v, c=np.linspace(-1, 1, dim))


def constant_term(dim: int = 6) -> Any:
    head = us.models.SingleHead.random(dim, norm=2.0, seed=5)
    return us.models.SingleHead(head.W, head.v, constant=0.5)


def zero_value(dim: int = 6) -> Any:
    head = us.models.SingleHead.random(dim, norm=2.0, seed=5)
    return us.models.SingleHead(head.W, np.zeros(dim))


NOT_SINGLE_HEAD = {
    "two heads": two_heads,
    "network behind": network_behind,
    "affine scores": affine_scores,
    "constant term": constant_term,
    "v = 0": zero_value,
}


def collect() -> list[Case]:
    """The cases of every file under `cases/`."""
    from tests.contracts import cases

    modules = [
        importlib.import_module(f"{cases.__name__}.{found.name}") for found in pkgutil.iter_modules(cases.__path__)
    ]
    return [case for module in modules for case in module.CASES]
