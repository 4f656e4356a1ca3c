"""Chunks evaluated elsewhere: the same bytes, also when a worker dies."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ProcessPoolExecutor

import pytest

import unsoftmax as us
from unsoftmax.errors import OracleError

distributed = pytest.importorskip("distributed")

LEARNER = us.learners.SingleHead()
HEAD = us.models.SingleHead.random(24, norm=2.0, seed=4)
ORACLE = us.oracle(HEAD, max_batch=32)


@pytest.fixture(scope="module")
def client():
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as connected:
        yield connected


@pytest.fixture(scope="module")
def serial():
    return us.recover(ORACLE, LEARNER)


def same(a, b):
    return all(a.parameters()[name].tobytes() == b.parameters()[name].tobytes() for name in a.parameters())


def test_dask_gives_the_same_bytes_and_the_same_bill(client, serial, tmp_path):
    recovery = us.recover(ORACLE, LEARNER, executor=client.get_executor(), ledger=tmp_path / "l.db")
    assert same(recovery.model, serial.model)
    assert recovery.usage.billed == serial.usage.billed
    assert us.recover(ORACLE, LEARNER, ledger=tmp_path / "l.db").usage.billed == 0


def test_a_killed_worker_does_not_change_the_result(client, serial):
    killed = []

    def kill_one(state):
        if state.phase == "main" and not killed:
            workers = client.run(os.getpid)
            killed.append(next(iter(workers.values())))
            os.kill(killed[0], signal.SIGKILL)

    recovery = us.recover(ORACLE, LEARNER, executor=client.get_executor(), progress=kill_one)
    assert killed
    assert killed[0] not in client.run(os.getpid).values()
    assert same(recovery.model, serial.model)


class Dying:
    """A head whose process dies once, as often as there is a file to say so."""

    def __init__(self, flag):
        self.flag, self.dim = str(flag), HEAD.dim

    def __call__(self, tokens):
        if tokens.shape[1] == 2 and os.path.exists(self.flag):
            os.unlink(self.flag)
            os.kill(os.getpid(), signal.SIGKILL)
        return HEAD(tokens)


def test_a_broken_pool_is_a_typed_error_and_the_ledger_goes_on(serial, tmp_path):
    (tmp_path / "flag").touch()
    oracle = us.oracle(Dying(tmp_path / "flag"), max_batch=32, name="dying")
    with ProcessPoolExecutor(2) as pool, pytest.raises(OracleError, match="executor"):
        us.recover(oracle, LEARNER, executor=pool, ledger=tmp_path / "l.db")
    with ProcessPoolExecutor(2) as pool:
        recovery = us.recover(oracle, LEARNER, executor=pool, ledger=tmp_path / "l.db")
    assert same(recovery.model, serial.model)
    assert recovery.usage.billed < serial.usage.billed


def test_a_closed_executor_is_a_typed_error():
    pool = ProcessPoolExecutor(1)
    pool.shutdown()
    with pytest.raises(OracleError, match="does not accept work"):
        us.recover(ORACLE, LEARNER, executor=pool)
