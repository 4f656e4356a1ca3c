"""Begin a recovery with a ledger, interrupt it, and finish it elsewhere: run as a child process per kind of processor.

python -m tests.contracts.resuming begin|finish FOLDER SEEDS CASE...   prints, when finishing, one JSON line per run.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import unsoftmax as us
from tests.contracts.registry import Case, collect

SHARE = 0.6
BATCH = 16
"""Sequences per call: an interruption loses nothing but the call in flight."""


class Interrupted:
    """A target that is gone after `limit` sequences."""

    accepts_counts = True

    def __init__(self, target: Any, limit: int | None = None) -> None:
        self.target, self.limit, self.received = target, limit, 0
        self.dim, self.outputs = target.dim, getattr(target, "outputs", None)

    def __call__(self, tokens: Any, counts: Any = None) -> Any:
        if self.limit is not None and self.received + len(tokens) > self.limit:
            raise KeyboardInterrupt
        self.received += len(tokens)
        return self.target(tokens, counts)


def oracle_of(case: Case, target: Any) -> Any:
    """The case's oracle of a target, in small calls."""
    oracle = source = case.oracle(target)
    while hasattr(source, "inner"):
        source = source.inner
    object.__setattr__(source, "spec", replace(source.spec, max_batch=BATCH, name="resumed"))
    return oracle


def begin(case: Case, seed: int, place: Path) -> None:
    """Half a run; the target is kept too, because its own last digits would be another target's elsewhere."""
    case.target().save(place.with_suffix(".model"))
    target = us.models.load(place.with_suffix(".model"))
    whole = us.recover(oracle_of(case, Interrupted(target)), case.learner, seed=seed).usage.billed
    gone = Interrupted(target, int(SHARE * whole))
    try:
        us.recover(oracle_of(case, gone), case.learner, seed=seed, ledger=place.with_suffix(".db"))
    except KeyboardInterrupt:
        place.with_suffix(".json").write_text(json.dumps({"whole": whole, "first": gone.received}))


def finish(case: Case, seed: int, place: Path) -> dict[str, Any]:
    """The other half; `again` counts what was paid beyond a run in one piece."""
    before = json.loads(place.with_suffix(".json").read_text())
    target = us.models.load(place.with_suffix(".model"))
    counting = Interrupted(target)
    recovery = us.recover(oracle_of(case, counting), case.learner, seed=seed, ledger=place.with_suffix(".db"))
    return {
        "case": case.name,
        "seed": seed,
        "whole": before["whole"],
        "first": before["first"],
        "again": before["first"] + counting.received - before["whole"],
        "status": recovery.status.name,
        "error": us.models.distance(recovery.model, target),
        "bar": case.error,
        "notes": [note for note in recovery.notes if "recorded answers" in note],
    }


def main(what: str, folder: str, seeds: str, names: list[str]) -> None:
    for case in collect():
        for seed in map(int, seeds.split(",")):
            place = Path(folder) / f"{case.name}-{seed}"
            if names and case.name not in names:
                continue
            if what == "begin":
                begin(case, seed, place)
            elif place.with_suffix(".json").exists():
                sys.stdout.write(json.dumps(finish(case, seed, place)) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])
