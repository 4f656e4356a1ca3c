import math

import numpy as np
import pytest

from unsoftmax.learners.core.readable import INVISIBLE, SATURATED, Repair, Steps, find_scale, until_readable
from unsoftmax.probes.base import Probes


def finished(program, answer=lambda request: np.zeros(len(request))):
    asked = []
    try:
        request = next(program)
        while True:
            asked.append(request)
            request = program.send(answer(request))
    except StopIteration as stop:
        return stop.value, asked


def look_at(size_of):
    """A look that asks one probe and sees `size_of(scale)`."""

    def look(scale):
        yield Probes(np.full((1, 1, 1), scale), phase="pilot")
        return size_of(scale)

    return look


def sigmoid_like(strength):
    """Scores proportional to the scale, saturated beyond 10 and invisible below 1e-3."""

    def size_of(scale):
        size = strength * scale
        return SATURATED if size > 10 else INVISIBLE if size < 1e-3 else size

    return size_of


@pytest.mark.parametrize("strength", [1e-25, 1e-6, 1.0, 1e6, 1e25])
def test_scores_of_any_strength_are_brought_to_the_size_wished_for(strength):
    found, asked = finished(find_scale(look_at(sigmoid_like(strength)), 1.0, Steps(0.25, 2.0)))
    assert 0.25 <= found.size <= 2.0
    assert found.wished == pytest.approx(1 / strength)
    assert len(asked) <= 4 + abs(math.log2(strength)) / 12 + math.log2(12)


def test_what_shows_at_the_limit_is_the_end():
    found, _ = finished(find_scale(look_at(sigmoid_like(1e-2)), 1.0, Steps(0.25, 2.0, limit=4.0)))
    assert (found.scale, found.size) == (4.0, 0.04)
    found, _ = finished(find_scale(look_at(lambda scale: INVISIBLE), 1.0, Steps(limit=2.0**100)))
    assert (found.scale, found.size) == (2.0**100, INVISIBLE)


def test_saturated_down_to_the_floor_is_told():
    found, asked = finished(find_scale(look_at(lambda scale: SATURATED), 1.0, Steps(floor=2.0**-40)))
    assert found.size == SATURATED
    assert len(asked) == 4


def test_a_window_that_is_too_narrow_ends_the_search():
    def size_of(scale):
        return SATURATED if scale > 1.5 else INVISIBLE

    found, asked = finished(find_scale(look_at(size_of), 1.0, Steps(narrow=4.0)))
    assert found.size == INVISIBLE
    assert 1.0 <= found.scale <= 1.5 < found.high <= 4 * found.scale
    assert len(asked) < 10


def test_what_shows_too_much_is_not_looked_at_twice():
    # A few saturated entries hold the size up until, shorter, the others are lost in noise.
    def size_of(window):
        return lambda scale: 4.0 if scale > window else INVISIBLE if scale < 0.3 else 1.0

    steps = Steps(0.25, 2.0, limit=1.0, narrow=4.0)
    for window in (0.9, 0.6):
        found, asked = finished(find_scale(look_at(size_of(window)), 1.0, steps))
        assert found.size == 1.0
        assert len(asked) <= 4
    found, asked = finished(find_scale(look_at(size_of(0.3)), 1.0, steps))
    assert len(asked) <= 5
    assert 0.15 < found.scale < 0.6


def test_saturated_entries_are_asked_again_at_smaller_scales():
    full = np.array([1.0, 20.0, 500.0, -3.0])

    def ask(index, scale, phase):
        yield Probes(np.ones((len(index), 1, 1)), phase=phase)
        t = full[index] * scale
        return np.where(np.abs(t) < 30, t, np.nan)

    scale = np.ones(4)
    (t, left), asked = finished(until_readable(ask, scale, Repair(readable=7.0, telling=30.0)))
    assert len(left) == 0
    assert np.allclose(t / scale, full)
    assert scale.tolist() == [1.0, 2.0**-2, 2.0**-8, 1.0]
    assert [(request.phase, len(request)) for request in asked] == [("main", 4), ("repair", 2), ("repair", 1)]


def test_entries_that_stay_unreadable_are_returned():
    def ask(index, scale, phase):
        yield Probes(np.ones((len(index), 1, 1)), phase=phase)
        return np.where(index == 1, np.nan, 0.5)[:, None] * np.ones(3)

    (_, left), asked = finished(until_readable(ask, np.ones(3), Repair(7.0, tries=5)))
    assert left.tolist() == [1]
    assert len(asked) == 5
    (_, left), asked = finished(until_readable(ask, np.ones(3), Repair(7.0), most=2))
    assert left.tolist() == [1]
    assert len(asked) == 3
