"""One scheme for tables of entries: the rank is found, and only a cross of columns and rows is read."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from unsoftmax.learners.core.cross import grown, read_cross
from unsoftmax.probes.base import Probes


class Table:
    """A matrix that is read entry by entry; `asked` counts."""

    def __init__(self, M):
        self.M, self.F, self.asked = M, np.full(M.shape, np.nan), 0

    def logits(self):
        return self.F

    def read(self, rows, columns):
        assert np.isnan(self.F[rows, columns]).all()
        self.asked += len(rows)
        yield Probes(np.zeros((len(rows), 1, 1)))
        self.F[rows, columns] = self.M[rows, columns]


def finished(program):
    try:
        next(program)
        while True:
            program.send(np.zeros(0))
    except StopIteration as stop:
        return stop.value


@settings(max_examples=40, deadline=None)
@given(p=st.integers(1, 12), more=st.integers(0, 4), seed=st.integers(0, 999), known=st.booleans(), data=st.data())
def test_a_table_of_low_rank_is_completed_from_a_cross(p, more, seed, known, data):
    rank = data.draw(st.integers(1, p))
    rng = np.random.default_rng(seed)
    M = rng.standard_normal((p, rank)) @ rng.standard_normal((rank, p + more))
    table = Table(M)
    cross = finished(read_cross(table, 1e-16, rank if known else None))
    whole = cross.completed(table.F[:, cross.columns], table.F[cross.rows])
    assert np.allclose(whole, M, atol=1e-6 * np.abs(M).max())
    # r + 1 columns and rows, and two checks.
    assert table.asked <= min(M.size, (rank + 1) * (p + p + more) + 2)


class Numbers:
    """Columns are numbers; those up to `true` leave the span."""

    tests = (1, 2)

    def __init__(self, true):
        self.true, self.looked = true, []

    def rank(self, span):
        return span

    def look(self, span, count, before):
        self.looked.append((span, count, before))
        yield Probes(np.zeros((count, 1, 1)))
        return [span < self.true] * count

    def leaves(self, span, left):
        return any(left)

    def column(self, span, left):
        yield Probes(np.zeros((1, 1, 1)))
        return span + 1


def test_columns_are_added_until_every_test_is_explained():
    scheme = Numbers(2)
    assert finished(grown(scheme, 0, 5, None)) == (2, [False] * 3)
    assert scheme.looked == [(0, 1, 0), (1, 1, 0), (2, 1, 0), (2, 2, 1)]


def test_a_given_rank_is_tested_once_and_the_full_one_never():
    scheme = Numbers(4)
    assert finished(grown(scheme, 0, 5, 3)) == (3, [True])
    assert finished(grown(Numbers(5), 0, 5, None)) == (5, [])
    assert finished(grown(scheme, 0, 5, 5)) == (5, [])
    assert scheme.looked == [(3, 1, 0)]
