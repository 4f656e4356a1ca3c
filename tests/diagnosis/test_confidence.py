"""Confidences are earned: on targets kept apart from the other tests, a finding is right as often as it says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

import unsoftmax as us
from tests.diagnosis.held_out import HeldOut, domestic, foreign, held_out, modern, tokens
from unsoftmax.diagnosis import allowance
from unsoftmax.diagnosis.findings import CODES, EARNED, Finding, earned

ONE, MANY = "single head", "several heads"
FAMILY = {ONE: "single head", MANY: "multi-head attention"}


def right(finding: Finding, target: HeldOut) -> bool | None:
    """Whether a finding is true of the target; None if that is not known."""
    name = "heads" if finding.name in FAMILY else finding.name
    name = "served heads" if finding.name == "heads" and "served heads" in target.truth else name
    if name not in target.truth:
        return None
    truth = target.truth[name]
    if finding.name in FAMILY:
        return not truth or target.family != FAMILY[finding.name]
    if finding.name == "heads" and "served heads" in target.truth:
        return bool(finding.value == target.truth["served heads"])
    if finding.name == "heads":
        return bool(truth)
    return finding.value in truth if isinstance(truth, tuple) else bool(finding.value == truth)


def counted(targets: Iterable[HeldOut]) -> tuple[int, list[str], Counter[Any], Counter[Any]]:
    """Targets asked, wrong verdicts, and right and tried findings by name and value."""
    misses, good, tried, asked = [], Counter[Any](), Counter[Any](), 0
    for target in targets:
        oracle = target.make()
        found = us.diagnose(oracle)
        asked += 1
        assert found.usage.billed <= allowance(oracle.spec), target.name
        assert found.code in ("", *CODES)
        assert (found.learner is None) == (found.family == "outside")
        # Slopes fill the space here, so that they are not told from rotary positions with a bias of queries: whether it
        # is outside hangs on how far a diagnosis reads, and a layer it is in either case.
        layer = target.name.startswith("slopes") and found.family == "attention layer"
        if not layer and (found.family != target.family or (target.code and found.code != target.code)):
            misses.append(f"{target.name}: {found.family} {found.code}")
        for finding in found.findings:
            verdict = right(finding, target)
            if verdict is not None:
                key = finding.name, finding.value if isinstance(finding.value, (str, bool)) else None
                key = key if key in EARNED else (finding.name, None)
                tried[key] += 1
                good[key] += verdict
    return asked, misses, good, tried


def test_targets_of_other_kinds_are_named_rightly() -> None:
    pytest.importorskip("torch")
    _, misses, good, tried = counted([*foreign(10, 0), *domestic(10, 0), *tokens(0), *modern(0)])
    assert misses == []
    assert good == tried


def test_a_finding_that_was_never_tried_is_worth_a_half() -> None:
    assert earned("something new", True) == 0.5
    assert Finding("order", False, "").confidence == earned("order", False)
    assert all(right <= tried for right, tried in EARNED.values())
    assert max(earned(*key) for key in EARNED) < 1


@pytest.mark.long
def test_confidences_are_what_held_out_targets_earn() -> None:
    pytest.importorskip("torch")
    asked, misses, good, tried = counted(held_out())
    assert asked >= 200
    assert len(misses) <= 0.02 * asked, misses
    for key, (_, count) in EARNED.items():
        assert tried[key] >= 0.8 * count, key
        assert earned(*key) <= (good[key] + 1) / (tried[key] + 2) + 0.05, key
