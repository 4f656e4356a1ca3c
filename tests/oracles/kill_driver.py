"""Kill a recovery by SIGKILL at random points, resume it, and hold it to the promise of the ledger.

Run as a program (python -m tests.oracles.kill_driver KILLS SEED FOLDER): it forks, which a test process with threads
should not. A child tells through a pipe what it is about to do (c: call the target, p: put into the ledger, s: solve);
the parent waits for the k-th such moment, then a random fraction of a millisecond, then kills.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np

import unsoftmax as us
from unsoftmax.oracles import Ledger
from unsoftmax.oracles.addresses import addresses
from unsoftmax.probes.base import Probes

DIM, BATCH = 16, 24
LEARNER = us.learners.SingleHead()
HEAD = us.models.SingleHead.random(DIM, norm=2.0, seed=11)
SPAN = {"c": 6e-4, "p": 4e-4, "s": 1.5e-3}
LIKELY = {"c": 16, "p": 16, "s": 1}


def child(folder: Path, run: int, pipe: int) -> None:
    bill = os.open(folder / f"bill-{run}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def target(tokens):
        os.write(pipe, b"c")
        # The bill is written in one call, like a target that has received the request whole.
        os.write(bill, addresses(Probes(tokens)).tobytes() + b"\xff" * 16)
        time.sleep(3e-4)
        return HEAD(tokens)

    put, solve = Ledger.put, np.linalg.solve

    def telling_put(self, *arguments):
        os.write(pipe, b"p")
        put(self, *arguments)

    def telling_solve(*arguments):
        os.write(pipe, b"s")
        time.sleep(5e-4)
        return solve(*arguments)

    Ledger.put, np.linalg.solve = telling_put, telling_solve
    oracle = us.oracle(target, DIM, max_batch=BATCH, name="killed")
    recovery = us.recover(oracle, LEARNER, ledger=folder / "ledger.db")
    (folder / "model").write_bytes(recovery.model.W.tobytes() + recovery.model.v.tobytes())
    assert recovery.usage.billed == len(calls(folder, run, flat=True))


def run(folder: Path, number: int, plan: tuple[str, int, float] | None) -> bool:
    """One run, killed as planned; False if it ended by itself."""
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        status = 1
        try:
            os.close(reading)
            child(folder, number, writing)
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    seen: Counter[str] = Counter()
    while plan is not None and seen[plan[0]] < plan[1]:
        select.select([reading], [], [])
        told = os.read(reading, 1).decode()
        if not told:
            break
        seen[told] += 1
    else:
        if plan is not None:
            time.sleep(plan[2])
            os.kill(process, signal.SIGKILL)
    if plan is None:
        while os.read(reading, 4096):
            pass
    os.close(reading)
    _, status = os.waitpid(process, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return True
    # A child whose pipe is closed early may also end by SIGPIPE: no run is left half-counted.
    if plan is None:
        assert status == 0, f"the resumed run failed with {status}"
    return False


def calls(folder: Path, number: int, flat: bool = False) -> list:
    """Calls of one run as lists of addresses."""
    path = folder / f"bill-{number}"
    data = path.read_bytes() if path.exists() else b""
    found: list[list[bytes]] = [[]]
    for i in range(0, len(data), 16):
        if data[i : i + 16] == b"\xff" * 16:
            found.append([])
        else:
            found[-1].append(data[i : i + 16])
    found.pop()
    return [key for call in found for key in call] if flat else found


def scenario(folder: Path, rng: random.Random, expected: bytes) -> Counter[str]:
    """Kill once to three times, resume to the end, check; how often it was killed, by stage."""
    killed: Counter[str] = Counter()
    number, in_flight = 0, set()
    for _ in range(rng.choice((1, 1, 2, 3))):
        stage = rng.choice("cps")
        plan = (stage, rng.randint(1, LIKELY[stage]), rng.uniform(0, SPAN[stage]))
        if run(folder, number, plan):
            killed[stage] += 1
            in_flight |= set(calls(folder, number)[-1] if calls(folder, number) else [])
        number += 1
        with Ledger(folder / "ledger.db") as ledger:
            assert ledger.check() == []
    run(folder, number, None)
    assert (folder / "model").read_bytes() == expected, "the resumed model differs"
    paid = Counter(key for i in range(number + 1) for key in calls(folder, i, flat=True))
    twice = {key for key, times in paid.items() if times > 1}
    assert twice <= in_flight, f"{len(twice - in_flight)} queries were paid twice that were not in flight"
    with Ledger(folder / "ledger.db") as ledger:
        assert ledger.check() == []
        assert len(ledger) == len(paid)
    return killed


def main(kills: int, seed: int, folder: Path) -> None:
    rng = random.Random(seed)
    oracle = us.oracle(HEAD, max_batch=BATCH)
    model = us.recover(oracle, LEARNER).model
    expected = model.W.tobytes() + model.v.tobytes()
    killed: Counter[str] = Counter()
    scenarios = 0
    while killed.total() < kills:
        place = folder / str(scenarios)
        place.mkdir()
        killed += scenario(place, rng, expected)
        scenarios += 1
    sys.stdout.write(json.dumps({"killed": dict(killed), "scenarios": scenarios}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
