"""The HTTP adapter against a real server, directly and through a proxy that misbehaves."""

from __future__ import annotations

import logging
import math
import pickle
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from email.utils import formatdate

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import unsoftmax as us
from tests.servers.faults import fault_proxy
from tests.servers.reference import reference_server
from unsoftmax.adapters.remote import transport as remote
from unsoftmax.errors import BudgetExceeded, InvalidArgument, OracleError
from unsoftmax.probes import Probes

LEARNER = us.learners.SingleHead()
HEAD = us.models.SingleHead.random(16, norm=2.0, seed=3)
FAST = {"rate": math.inf, "backoff": 0.01, "retries": 12}


@pytest.fixture(scope="module")
def server():
    with reference_server("--dim", "16", "--seed", "3", "--max-batch", "32") as started:
        yield started


def test_the_server_tells_what_is_needed(server):
    oracle = us.adapters.http(server.url, "model")
    assert oracle.spec.dim == 16
    assert oracle.spec.dtype == "float64"
    assert oracle.spec.max_batch == 32
    assert oracle.spec.outputs is None


@pytest.mark.parametrize("binary", [True, False])
def test_recovers_over_http_and_the_bill_is_what_the_server_counted(server, binary):
    before = server.received
    recovery = us.recover(us.adapters.http(server.url, "model", binary=binary, rate=math.inf), LEARNER)
    assert us.models.distance(recovery.model, HEAD) <= 1e-12
    assert recovery.usage.billed == server.received - before
    assert recovery.usage.phases["values"] + recovery.usage.phases["main"] == 16 + 16**2


def test_a_remote_target_has_a_budget_and_a_rate_unless_told(server):
    oracle = us.adapters.http(server.url, "model")
    assert oracle.fn.pace.rate == 1000
    recovery = us.recover(oracle, LEARNER)
    assert any("no budget was given for a remote target" in note for note in recovery.notes)


def test_repeated_rows_are_written_out(server):
    rng = np.random.default_rng(0)
    tokens, counts = rng.standard_normal((6, 3, 16)), rng.integers(1, 4, (6, 3))
    oracle = us.adapters.http(server.url, "model")
    assert np.allclose(oracle(Probes(tokens, counts)), HEAD(tokens, counts), rtol=1e-12)


def test_part_and_position_of_a_served_model(server):
    oracle = us.adapters.http(server.url, "model", part="answers", position="first", rate=math.inf)
    assert (oracle.spec.part, oracle.spec.position) == (None, 0)  # it has one output, which needs no name
    X = np.random.default_rng(0).standard_normal((4, 3, 16))
    # The reference server answers for its last token: with the query token put first, that is another one.
    assert np.allclose(oracle(Probes(X)), HEAD(np.roll(X, 1, axis=1)), rtol=1e-12)
    with pytest.raises(InvalidArgument, match="same thing"):
        us.adapters.http(server.url, "model", part="answers", output="other")
    with pytest.raises(InvalidArgument, match="known: answers"):
        us.adapters.http(server.url, "model", part="other")


@pytest.mark.parametrize("binary", [True, pytest.param(False, marks=pytest.mark.long)])
def test_faults_end_in_the_exact_result(server, binary, tmp_path):
    clean = us.recover(us.adapters.http(server.url, "model", rate=math.inf, max_batch=8), LEARNER)
    before = server.received
    with fault_proxy(server.url, 0.3, seed=4, slow=0.6) as proxy:
        oracle = us.adapters.http(proxy.url, "model", max_batch=8, timeout=0.3, binary=binary, **FAST)
        recovery = us.recover(oracle, LEARNER, ledger=tmp_path / "l.db")
    assert len(proxy.faults) >= 6
    assert np.array_equal(recovery.model.W, clean.model.W)
    assert recovery.usage.billed == proxy.received
    beside = recovery.usage.phases["retry"] + recovery.usage.phases["recheck"]
    assert recovery.usage.billed - beside == recovery.usage.asked == clean.usage.asked
    doubled = proxy.faults["doubled"] * 8
    assert server.received - before <= recovery.usage.billed + doubled
    with us.oracles.Ledger(tmp_path / "l.db") as ledger:
        assert len(ledger) == recovery.usage.asked
        assert ledger.check() == []


@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 1000), spare=st.integers(0, 120))
def test_retries_never_exceed_the_budget(server, seed, spare):
    kinds = ("500", "drop", "garbage", "foreign")
    least = LEARNER.forecast(us.adapters.http(server.url, "model").spec).minimum + 136
    with fault_proxy(server.url, 0.2, seed=seed, kinds=kinds) as proxy:
        oracle = us.adapters.http(proxy.url, "model", max_batch=16, **FAST)
        try:
            usage = us.recover(oracle, LEARNER, budget=least + spare).usage
        except BudgetExceeded as error:
            assert error.recovery is not None  # noqa: PT017
            usage = error.recovery.usage
        assert proxy.received == usage.billed <= least + spare


def test_a_server_that_stays_broken_is_a_typed_error(server):
    with fault_proxy(server.url, 1.0, kinds=("503",)) as proxy:
        oracle = us.adapters.http(proxy.url, "model", rate=math.inf, retries=2, backoff=0.01, concurrency=1)
        with pytest.raises(OracleError, match="in 3 attempts") as error:
            us.recover(oracle, LEARNER)
        assert error.value.recovery.usage.billed == proxy.received == 48


def test_nan_is_asked_again_only_a_few_times(server):
    with fault_proxy(server.url, 1.0, kinds=("nan",)) as proxy:
        oracle = us.adapters.http(proxy.url, "model", concurrency=1, **FAST)
        with pytest.raises(OracleError, match="not finite"):
            us.recover(oracle, LEARNER)
        assert proxy.faults["nan"] == 6


def test_retry_after_is_honoured(server):
    with fault_proxy(server.url, 1.0, kinds=("429",)) as proxy:
        oracle = us.adapters.http(proxy.url, "model", rate=math.inf, retries=2, backoff=1e-4, concurrency=1)
        with pytest.raises(OracleError, match="429"):
            us.recover(oracle, LEARNER)
        # The server asks for 0.1 s where the client alone would wait less than 1 ms; a sleep is never shorter.
        assert np.diff(proxy.arrivals).min() >= 0.1
    assert remote._seconds("7") == 7
    assert remote._seconds("1e9") == 120
    assert remote._seconds("Wed, 21 Oct 2015 07:28:00 GMT") == 0
    assert [remote._seconds(text) for text in (None, "", "-3", "nan", "next week")] == [None] * 5


def test_the_pace_spreads_queries(monkeypatch):
    now, slept = [0.0], []
    monkeypatch.setattr(remote.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(
        remote.time, "sleep", lambda seconds: (slept.append(seconds), now.__setitem__(0, now[0] + seconds))
    )
    pace = remote.Pace(100.0)
    for _ in range(5):
        pace.wait(50)
    assert sum(slept) == pytest.approx(4 * 0.5)
    assert pickle.loads(pickle.dumps(pace)).rate == 100.0


def test_the_token_comes_from_the_environment_and_is_written_nowhere(server, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("MY_TOKEN", "hush-hush-hush")
    caplog.set_level(logging.DEBUG)
    with fault_proxy(server.url, 0.2, seed=1, kinds=("500",)) as proxy:
        oracle = us.adapters.http(proxy.url, "model", token_variable="MY_TOKEN", **FAST)
        recovery = us.recover(oracle, LEARNER, ledger=tmp_path / "l.db")
        assert proxy.authorizations == {"Bearer hush-hush-hush"}
    recovery.save(tmp_path / "r.safetensors")
    written = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"hush" not in written + pickle.dumps(oracle) + repr((oracle, recovery)).encode() + caplog.text.encode()
    with pytest.raises(InvalidArgument, match="only over verified TLS"):
        us.adapters.http("http://example.org", "model", token_variable="MY_TOKEN")
    with pytest.raises(InvalidArgument, match="must not hold a password"):
        us.adapters.http("https://me:hush@example.org", "model")


def test_wrong_addresses_are_typed_errors(server):
    with pytest.raises(OracleError, match="check the url and the model's name"):
        us.adapters.http(server.url, "nothing")
    with pytest.raises(OracleError, match="check the url"):
        us.adapters.http("http://127.0.0.1:9", "model", backoff=0.01)
    with pytest.raises(InvalidArgument, match="known: tokens"):
        us.adapters.http(server.url, "model", input="pixels")
    with pytest.raises(InvalidArgument, match="must be http"):
        us.adapters.http("ftp://host", "model")
    for option in ("rate", "timeout", "backoff", "concurrency"):
        with pytest.raises(InvalidArgument, match=option):
            us.adapters.http(server.url, "model", **{option: 0})


@pytest.mark.long
def test_ten_thousand_queries_under_faults(tmp_path):
    dim = 99
    with reference_server("--dim", str(dim), "--seed", "5", "--max-batch", "64") as server:
        clean = us.recover(us.adapters.http(server.url, "model", rate=math.inf), LEARNER)
        before = server.received
        with fault_proxy(server.url, 0.2, seed=7, slow=1.5) as proxy:
            oracle = us.adapters.http(proxy.url, "model", timeout=1.0, **FAST)
            recovery = us.recover(oracle, LEARNER, ledger=tmp_path / "l.db")
        assert recovery.usage.asked >= 10_000
        assert np.array_equal(recovery.model.W, clean.model.W)
        assert recovery.usage.billed == proxy.received
        beside = recovery.usage.phases["retry"] + recovery.usage.phases["recheck"]
        assert recovery.usage.billed - beside == recovery.usage.asked
        assert server.received - before <= recovery.usage.billed + proxy.faults["doubled"] * 64
        assert us.models.distance(recovery.model, us.models.SingleHead.random(dim, norm=2.0, seed=5)) <= 1e-11


@pytest.mark.parametrize(
    ("url", "wrong"),
    [
        ("http://[::1", {}),
        ("http://host:abc", {}),
        ("http://host:99999", {}),
        ("http://127.0.0.1:9", {"model": "name\udcff"}),
        ("http://127.0.0.1:9", {"version": 2}),
        ("http://127.0.0.1:9", {"rate": "x"}),
        ("http://127.0.0.1:9", {"concurrency": 1.5}),
        ("http://127.0.0.1:9", {"retries": None}),
        ("http://127.0.0.1:9", {"token_variable": 1}),
        ("https://127.0.0.1:9", {"verify_tls": "no"}),
        ("http://127.0.0.1:9", {"binary": "s"}),
    ],
)
def test_wrong_arguments_are_named_before_anything_is_sent(url, wrong):
    with pytest.raises(InvalidArgument):
        us.adapters.http(url, **{"model": "m", **wrong})


def test_a_dimension_that_fits_no_memory_is_refused():
    with pytest.raises(InvalidArgument, match="dim"):
        us.oracle(lambda tokens: tokens[:, 0, 0], 10**9)


def test_a_long_wait_is_said_while_it_lasts(server, monkeypatch, caplog):
    oracle = us.adapters.http(server.url, "model", **FAST)
    model, asked = oracle.fn, []

    def busy(tokens):
        asked.append(len(tokens))
        if len(asked) == 1:
            raise remote.Unanswered("503", after=7.0)
        return np.zeros(len(tokens))

    monkeypatch.setattr(type(model), "_ask", lambda self, tokens: busy(tokens))
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with caplog.at_level(logging.WARNING, logger="unsoftmax"):
        assert model(np.zeros((2, 1, 16))).shape == (2,)
    assert any("7 s (Retry-After)" in record.getMessage() for record in caplog.records)


def test_retry_after_may_be_a_date():
    ahead = formatdate(time.time() + 60.0, usegmt=True)
    assert 50.0 <= remote._seconds(ahead) <= 60.0
    assert remote._seconds(formatdate(time.time() - 60.0, usegmt=True)) == 0.0
    assert remote._seconds("soon") is None


@pytest.mark.parametrize("url", ["http://127.0.0.1:9?key=sesame", "http://127.0.0.1:9/v1#sesame"])
def test_what_follows_the_path_of_an_address_is_refused_and_not_repeated(url):
    with pytest.raises(InvalidArgument, match="must end with its path") as refused:
        remote.transport(url)
    assert "sesame" not in str(refused.value)


@contextmanager
def trickling() -> Iterator[str]:
    """A server whose headers come byte by byte without an end."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        ended = threading.Event()

        def answer(connection):
            with connection, suppress(OSError):
                connection.recv(65536)
                for byte in b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 1000:
                    if ended.wait(0.02):
                        return
                    connection.sendall(bytes([byte]))

        def accept():
            with suppress(OSError):
                while True:
                    threading.Thread(target=answer, args=(listening.accept()[0],), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            ended.set()


def test_headers_that_trickle_in_end_with_the_timeout():
    """Every byte starts the wait for the next anew: such a server had held a run for good."""
    with trickling() as url, pytest.raises(OracleError, match="not complete after"):
        us.adapters.http(url, "model", timeout=0.1, retries=1, backoff=0.01)


def test_a_wait_beyond_the_seconds_of_a_budget_is_not_begun(server, monkeypatch):
    oracle = us.adapters.http(server.url, "model", **FAST)

    def busy(self, tokens):
        raise remote.Unanswered("503", after=100.0)

    monkeypatch.setattr(type(oracle.fn), "_ask", busy)
    monkeypatch.setattr("time.sleep", lambda seconds: pytest.fail("it waited"))
    with pytest.raises(us.errors.BudgetExceeded, match="seconds"):
        us.recover(oracle, us.learners.SingleHead(), budget=us.Budget(queries=2000, seconds=20))
