"""Rows of logits from answers: all tokens at once, chosen ones a few at a time, or the likeliest only.

Log-probabilities are logits but for a constant per prompt: rows are then centred, which keeps differences alone.

Prompts of random ids: hidden states in general position are all that is needed.

Theory: docs/theory/output-layer.md, "The output layer", statement.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from unsoftmax.inversion import rounding_unit
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.output.constants import OUTPUT
from unsoftmax.probes.base import Array, Probes
from unsoftmax.spec import OracleSpec


@dataclass
class Table:
    """Logits of prompts by tokens, without holes: `rows` (n, m) for `prompts` (n, N) and `tokens` (m,)."""

    spec: OracleSpec
    rng: np.random.Generator
    prompts: Array = field(init=False)
    tokens: Array = field(init=False)
    rows: Array = field(init=False)

    def __post_init__(self) -> None:
        V = self.spec.vocabulary or 0
        self._order = self.rng.permutation(V) if self.chosen else np.arange(V)
        self.tokens = self._order[: self._rounded(OUTPUT.first_tokens)] if self.chosen else self._order
        self.prompts = random_prompts(self.spec, 0, self.rng)
        self.rows = np.zeros((0, len(self.tokens)))

    @property
    def chosen(self) -> bool:
        return self.spec.shows == "chosen"

    @property
    def whole(self) -> bool:
        """Whether every token of the vocabulary has its column."""
        return len(self.tokens) == len(self._order)

    def _rounded(self, m: int) -> int:
        """Columns that fill whole requests: the reference token and a multiple of what else one request shows."""
        new = (self.spec.outputs or 2) - 1
        return min(len(self._order), 1 + -(-(m - 1) // new) * new)

    def more_rows(self, count: int, phase: str = "main") -> Asking[None]:
        """Ask `count` further prompts about all tokens of the table."""
        prompts = random_prompts(self.spec, count, self.rng)
        new = yield from read(self.spec, prompts, self.tokens, phase)
        self.prompts = np.concatenate([self.prompts, prompts])
        self.rows = np.concatenate([self.rows, new])

    def more_columns(self, count: int) -> Asking[None]:
        """Ask the same prompts about further tokens, `count` in all."""
        upto = self._rounded(count)
        new = np.concatenate([self._order[:1], self._order[len(self.tokens) : upto]])
        rows = yield from read(self.spec, self.prompts, new, "main")
        self.rows = np.concatenate([self.rows, rows[:, 1:]], axis=1)
        self.tokens = self._order[:upto]


def read(spec: OracleSpec, prompts: Array, columns: Array, phase: str) -> Asking[Array]:
    """Logits (n, m) of the tokens `columns` (m,) after each prompt; differences to the first if they are chosen."""
    if spec.shows != "chosen":
        answers = yield Probes(prompts, phase=phase)
        return answers if len(columns) == answers.shape[1] else np.ascontiguousarray(answers[:, columns])
    # The first token goes with every request: differences to it fit the requests of a prompt together.
    parts = list(_requests(columns[1:], (spec.outputs or 2) - 1))
    filled = np.stack([np.concatenate([columns[:1], part]) for part in parts])
    ids = np.concatenate([np.tile(filled, (len(prompts), 1)), np.repeat(prompts, len(parts), axis=0)], axis=1)
    answers = yield Probes(ids, phase=phase)
    differences = (answers[:, 1:] - answers[:, :1]).reshape(len(prompts), -1)
    return np.concatenate([np.zeros((len(prompts), 1)), differences[:, : len(columns) - 1]], axis=1)


def _requests(tokens: Array, size: int) -> Iterator[Array]:
    """Tokens in parts of `size`; the last is filled up with tokens asked already."""
    for start in range(0, len(tokens), size):
        part = tokens[start : start + size]
        yield part if len(part) == size else np.concatenate([part, np.resize(tokens, size - len(part))])


def centre(rows: Array) -> Array:
    """Rows without their mean: what a constant per row cannot change."""
    return np.asarray(rows - rows.mean(axis=1, keepdims=True))


def are_log_probabilities(rows: Array) -> bool:
    """Whether the exponentials of every row (n, V) add up to 1, to rounding."""
    top = rows.max(axis=1, keepdims=True)
    total = top[:, 0] + np.log(np.exp(rows - top).sum(axis=1))
    return bool(np.abs(total).max() <= CORE.loud * rounding_unit(rows) * max(1.0, float(np.abs(rows).max())))


def random_prompts(spec: OracleSpec, count: int, rng: np.random.Generator) -> Array:
    """Ids (count, N), N at most `OUTPUT.prompt_length` and what the domain allows beside chosen tokens."""
    chosen = (spec.outputs or 0) if spec.shows == "chosen" else 0
    length = int(min(OUTPUT.prompt_length, spec.domain.length_limit - chosen))
    return np.asarray(rng.choice(spec.allowed, (count, length)))
