"""Every learner registers here once; the contract suite then holds it to the rules all learners share.

A case names a learner, a small target inside its class, how to make an oracle of the target, and a bar on
`models.distance`. `outside` lists targets that the learner must refuse (ModelMismatch or NotIdentifiable).
"""

from __future__ import annotations

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

CASES = [
    Case(
        "SingleHead",
        us.learners.SingleHead(),
        lambda: us.models.SingleHead.random(6, norm=2.0, seed=1),
        1e-13,
        outside=NOT_SINGLE_HEAD,
    ),
    Case(
        "SingleHead-coordinate",
        us.learners.SingleHead(probes="coordinate"),
        lambda: us.models.SingleHead.random(6, norm=2.0, seed=1),
        1e-12,
        outside=NOT_SINGLE_HEAD,
    ),
]
