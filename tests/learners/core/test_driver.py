from dataclasses import replace

import numpy as np
import pytest

from unsoftmax.learners.core.driver import driven, together
from unsoftmax.learners.core.reductions import odd_part, reduced
from unsoftmax.probes.base import LazyProbes, Probes

FLAGGED = Probes(np.ones((2, 1, 3)), phase="pilot", saturable=True, again=2, ahead=7)


def asking(*requests, closed=None):
    try:
        answers = []
        for request in requests:
            answers.append((yield request))
        return answers
    finally:
        if closed is not None:
            closed.append(True)


def test_requests_are_answered_by_asking_or_by_knowing():
    def answering(request):
        if request.phase == "known":
            return np.zeros(1)
        return (yield replace(request, phase="asked"))

    program = driven(asking(Probes(np.ones((1, 1, 1)), phase="known"), Probes(np.ones((1, 1, 1)))), answering)
    assert next(program).phase == "asked"
    with pytest.raises(StopIteration) as ended:
        program.send(np.array([5.0]))
    assert [float(y[0]) for y in ended.value.value] == [0.0, 5.0]


def test_the_inner_program_is_closed_when_the_outer_one_ends_early():
    closed: list[bool] = []
    program = driven(asking(FLAGGED, FLAGGED, closed=closed), lambda request: (yield request))
    next(program)
    program.close()
    assert closed == [True]


def test_a_program_that_waits_is_taken_up():
    inner = asking(FLAGGED)
    waiting = next(inner)
    assert next(driven(inner, lambda request: (yield request), waiting)) is waiting


def test_reductions_keep_every_flag():
    sent = next(odd_part(asking(FLAGGED)))
    assert (sent.phase, sent.saturable, sent.again, sent.ahead, len(sent)) == ("pilot", True, 2, 14, 4)
    lazy = LazyProbes(2, 24, lambda a, b: FLAGGED[a:b], "pilot", saturable=True, ahead=7)
    sent = next(reduced(asking(lazy), lambda probes: probes))
    assert (sent.phase, sent.saturable, sent.ahead, sent[:1].saturable, sent[:1].again) == ("pilot", True, 7, True, 2)


def test_slices_and_selections_keep_every_flag():
    for part in (FLAGGED[1:], FLAGGED.take(np.array([1]))):
        assert (part.phase, part.saturable, part.again) == ("pilot", True, 2)


def test_programs_in_lockstep_keep_what_they_say_of_saturation():
    plain = replace(FLAGGED, saturable=False)
    program = together([asking(FLAGGED), asking(plain), asking(FLAGGED)])
    first = next(program)
    assert (len(first), first.saturable, first.ahead) == (4, True, 14)
    second = program.send(np.zeros(4))
    assert (len(second), second.saturable) == (2, False)
