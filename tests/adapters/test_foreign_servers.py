"""End to end against MLServer and Triton: servers that are not ours."""

from __future__ import annotations

import math

import numpy as np
import pytest

import unsoftmax as us
from tests.servers import foreign
from tests.servers.faults import fault_proxy
from unsoftmax.probes import Probes

pytestmark = pytest.mark.long

LEARNER = us.learners.SingleHead()
DIM = 32
HEAD = us.models.SingleHead.random(DIM, norm=2.0, seed=6)


@pytest.fixture(scope="module", params=["mlserver", "triton"])
def server(request, tmp_path_factory):
    start = getattr(foreign, request.param)
    with start(tmp_path_factory.mktemp(request.param), HEAD.W, HEAD.v) as started:
        started.binary = request.param == "triton"
        yield started


def test_recovers_a_head_at_the_closed_form(server):
    before = server.received
    oracle = us.adapters.http(server.url, "head")
    assert oracle.fn.binary is server.binary, "bytes where the server announces them, JSON with every digit otherwise"
    recovery = us.recover(oracle, LEARNER)
    assert us.models.distance(recovery.model, HEAD) <= 1e-10
    phases = recovery.usage.phases
    assert phases["values"] + phases["main"] == DIM + DIM**2
    assert recovery.usage.billed == sum(phases.values()) == server.received - before


def test_ten_thousand_queries_under_faults(server, tmp_path):
    with fault_proxy(server.url, 0.2, seed=8, slow=2.5) as proxy:
        oracle = us.adapters.http(
            proxy.url, "head", max_batch=32, timeout=2.0, rate=math.inf, backoff=0.01, retries=12, name="head"
        )
        asked = billed = 0
        for seed in range(9):
            recovery = us.recover(oracle, LEARNER, seed=seed, ledger=tmp_path / f"{seed}.db")
            assert us.models.distance(recovery.model, HEAD) <= 1e-10
            asked, billed = asked + recovery.usage.asked, billed + recovery.usage.billed
        assert asked >= 10_000
        assert billed == proxy.received


def test_budget_holds_on_the_servers_side(server):
    least = LEARNER.forecast(us.adapters.http(server.url, "head").spec).minimum + 136
    before = server.received
    with pytest.raises(us.errors.BudgetExceeded):
        us.recover(us.adapters.http(server.url, "head", rate=math.inf), LEARNER, budget=least)
    assert server.received - before <= least


def test_vectors_of_one_column_are_numbers(server):
    answers = us.adapters.http(server.url, "head")(Probes(np.eye(DIM)[:, None, :]))
    assert answers.shape in ((DIM,), (DIM, 1))
    assert np.array_equal(answers.ravel(), HEAD.v)
