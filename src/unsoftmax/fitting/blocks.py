"""Records in blocks: sequences of similar length side by side, looked up when they are needed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from unsoftmax.fitting.constants import FITTING
from unsoftmax.fitting.log import Log
from unsoftmax.probes.base import Array


@dataclass(frozen=True, eq=False)
class Block:
    """Records `rows` of the sorted order: tokens (b, N, d), padded at the front where `beyond` (b, N) is True."""

    rows: slice
    tokens: Array
    beyond: Array | None


@dataclass(frozen=True, eq=False)
class Blocks:
    """The chosen records of a log, shortest first. y (n, m), q (n, d); `order` (n,) are their numbers in the log."""

    log: Log
    records: Array
    order: Array = field(init=False)
    y: Array = field(init=False)
    q: Array = field(init=False)
    _cuts: list[slice] = field(init=False)
    _held: list[Block] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        order = np.asarray(self.records)[np.argsort(self.log.lengths[self.records], kind="stable")]
        object.__setattr__(self, "order", order)
        object.__setattr__(self, "y", self.log.answers[order].reshape(len(order), -1))
        object.__setattr__(self, "q", self.log.vectors(self.log.starts[order] + self.log.lengths[order] - 1))
        object.__setattr__(self, "_cuts", _cuts(self.log.lengths[order], self.log.dim))

    def __len__(self) -> int:
        return len(self.order)

    @property
    def lengths(self) -> Array:
        """Tokens of each record (n,)."""
        return np.asarray(self.log.lengths[self.order])

    def __iter__(self) -> Iterator[Block]:
        if self._held:
            yield from self._held
            return
        lengths = self.lengths
        size = sum((cut.stop - cut.start) * int(lengths[cut.stop - 1]) for cut in self._cuts) * self.log.dim
        for cut in self._cuts:
            block = self._block(cut, lengths[cut])
            if size <= FITTING.held_numbers:
                self._held.append(block)
            yield block

    def _block(self, cut: slice, lengths: Array) -> Block:
        longest = int(lengths[-1])
        ends = (self.log.starts[self.order[cut]] + lengths)[:, None]
        places = ends - longest + np.arange(longest)
        if lengths[0] == longest:
            return Block(cut, self.log.vectors(places), None)
        beyond = np.arange(longest) < longest - lengths[:, None]
        # Padding repeats the query token: finite numbers of the right size, whose weight is then 0.
        return Block(cut, self.log.vectors(np.where(beyond, ends - 1, places)), beyond)


def _cuts(lengths: Array, dim: int) -> list[slice]:
    """Slices of records sorted by length: bounded size, and little padding where there are records enough."""
    cuts, start = [], 0
    for i in range(1, len(lengths)):
        large = (i + 1 - start) * int(lengths[i]) * dim > FITTING.block_numbers
        ragged = lengths[i] > 1.5 * lengths[start] and i - start >= FITTING.few_records
        if large or ragged:
            cuts.append(slice(start, i))
            start = i
    return [*cuts, slice(start, len(lengths))]


def attend(block: Block, u: Array) -> tuple[Array, Array]:
    """Attention of scores x_i . u for u (b, d): logarithms of the weights (b, N), and the weights."""
    scores = np.matmul(block.tokens, u[:, :, None])[:, :, 0]
    if block.beyond is not None:
        scores = np.where(block.beyond, -np.inf, scores)
    scores = scores - scores.max(axis=1, keepdims=True)
    weights = np.exp(scores)
    total = weights.sum(axis=1, keepdims=True)
    return scores - np.log(total), weights / total
