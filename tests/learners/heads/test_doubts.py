"""Columns in doubt: longer tokens part a second solution from errors of the values."""

from __future__ import annotations

import numpy as np
import pytest

from unsoftmax.learners.heads.isolation import isolate
from unsoftmax.learners.heads.reading import Doubts
from unsoftmax.learners.heads.three_tokens import Shares

COLUMNS, DOUBTFUL = 6, 4


def read(d: int = 5) -> tuple[list[Shares], list[np.ndarray]]:
    """Two heads with answers to six columns, and the solutions found."""
    rng = np.random.default_rng(0)
    v = rng.standard_normal((2, d))
    shares = []
    for h in range(2):
        head = isolate(v[h], np.delete(v, h, axis=0))
        m = len(head.bound)
        tokens, y = rng.standard_normal((m, COLUMNS, 3, d)), rng.standard_normal((m, COLUMNS))
        shares.append(Shares(head, tokens, y, np.ones((m, COLUMNS)), rng.standard_normal((COLUMNS, d))))
    return shares, [rng.standard_normal((COLUMNS, d)) for _ in range(2)]


def gaps(of_doubtful: float) -> np.ndarray:
    """Small gaps everywhere, one column apart."""
    found = np.full(COLUMNS, 1e-14)
    found[DOUBTFUL] = of_doubtful
    return found


def asked_longer(shares: list[Shares], columns: list[np.ndarray]) -> None:
    """What asking the doubtful column with longer tokens overwrites."""
    for share, U in zip(shares, columns, strict=True):
        for array in (share.tokens, share.y, share.size):
            array[:, DOUBTFUL] *= 4.0
        share.second[DOUBTFUL] *= -4.0
        U[DOUBTFUL] += 1.0


def state(shares: list[Shares], columns: list[np.ndarray]) -> list[np.ndarray]:
    return [a.copy() for s in shares for a in (s.tokens, s.y, s.size, s.second)] + [U.copy() for U in columns]


@pytest.mark.parametrize("after", [4e-10, 3e-10, 1e-9])
def test_longer_tokens_that_show_errors_of_the_values_are_taken_back(after: float) -> None:
    """A gap that stands out of the others and does not shrink by half is not a second solution."""
    shares, columns = read()
    doubts, before = Doubts(1e-8), state(shares, columns)
    assert doubts.wrong(gaps(3e-10), shares, columns) == ([DOUBTFUL], False)
    asked_longer(shares, columns)
    assert doubts.wrong(gaps(after), shares, columns) == ([], True)
    for kept, now in zip(before, state(shares, columns), strict=True):
        np.testing.assert_array_equal(kept, now)
    # Once accepted, it is not asked for a third time.
    assert doubts.wrong(gaps(after), shares, columns) == ([], False)


def test_a_second_solution_that_longer_tokens_shake_is_asked_until_it_is_gone() -> None:
    shares, columns = read()
    doubts = Doubts(1e-8)
    for gap in (1e-2, 1e-4, 1e-7):
        assert doubts.wrong(gaps(gap), shares, columns) == ([DOUBTFUL], False)
        asked_longer(shares, columns)
    assert doubts.wrong(gaps(1e-14), shares, columns) == ([], False)


def test_a_wrong_column_is_never_taken_back_to() -> None:
    """Above what values can explain the first answers are wrong, however little longer tokens help."""
    shares, columns = read()
    doubts = Doubts(1e-8)
    assert doubts.wrong(gaps(1e-3), shares, columns) == ([DOUBTFUL], False)
    asked_longer(shares, columns)
    assert doubts.wrong(gaps(2e-3), shares, columns) == ([DOUBTFUL], False)
