"""Every JSON wire against a real server, against the reference computation, and through a proxy that misbehaves."""

from __future__ import annotations

import gzip
import json
import math
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest

import unsoftmax as us
from tests.servers.faults import ALIKE, fault_proxy
from tests.servers.language_model import language_server
from unsoftmax.errors import InvalidArgument, OracleError
from unsoftmax.probes import Probes
from unsoftmax.serving.language_model import LanguageService
from unsoftmax.serving.llama import Llama

V, D = 40, 16
MODEL = Llama.random(D, V, heads=4, kv_heads=2, seed=3)
FAST = {"rate": math.inf, "backoff": 0.01, "retries": 12}
IDS = np.random.default_rng(0).integers(0, V, (12, 5))


def words(ids: list[int]) -> str:
    return " ".join(f"t{i}" for i in ids)


def log_probabilities(logits: np.ndarray) -> np.ndarray:
    return logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)


def pooled(ids: np.ndarray) -> np.ndarray:
    return MODEL.hidden(MODEL.embeddings[ids]).mean(axis=1)


def over_ids(ids: np.ndarray) -> np.ndarray:
    return log_probabilities(MODEL(ids))


WIRES: dict[str, tuple[Callable[..., Any], Callable[[np.ndarray], np.ndarray], np.ndarray]] = {
    "openai": (lambda url, **k: us.adapters.openai(f"{url}/v1", "model", vocabulary=V, **k), over_ids, IDS),
    "openai text": (
        lambda url, **k: us.adapters.openai(f"{url}/v1", "model", vocabulary=V, text=words, **k),
        over_ids,
        IDS,
    ),
    "chat": (
        lambda url, **k: us.adapters.openai(f"{url}/v1", "model", "chat", vocabulary=V, text=words, **k),
        over_ids,
        IDS,
    ),
    "prompt embeds": (
        lambda url, **k: us.adapters.openai(f"{url}/v1", "model", vocabulary=V, embeds=True, dim=D, **k),
        lambda X: log_probabilities(MODEL.logits(X)),
        MODEL.embeddings[IDS],
    ),
    "embeddings": (
        lambda url, **k: us.adapters.openai(
            f"{url}/v1", "model", "embeddings", vocabulary=V, outputs=D, encoding_format="float", **k
        ),
        pooled,
        IDS,
    ),
    "llama.cpp": (lambda url, **k: us.adapters.llama_cpp(url, **k), over_ids, IDS),
    "llama.cpp embedding": (lambda url, **k: us.adapters.llama_cpp(url, "embedding", **k), pooled, IDS),
    "sglang": (lambda url, **k: us.adapters.sglang(url, vocabulary=V, **k), over_ids, IDS),
    "sglang embeds": (
        lambda url, **k: us.adapters.sglang(url, vocabulary=V, embeds=True, dim=D, **k),
        lambda X: log_probabilities(MODEL.logits(X)),
        MODEL.embeddings[IDS],
    ),
    "tei": (lambda url, **k: us.adapters.tei(url, vocabulary=V, outputs=D, **k), pooled, IDS),
}
wires = pytest.mark.parametrize("wire", WIRES)


@pytest.fixture(scope="module")
def service():
    return LanguageService(MODEL)


@pytest.fixture(scope="module")
def url(service):
    with language_server(service) as address:
        yield address


@wires
def test_every_wire_gives_the_numbers_of_the_model(url: str, wire: str) -> None:
    make, truth, rows = WIRES[wire]
    oracle = make(url, rate=math.inf)
    answers = np.concatenate([oracle(Probes(rows[i : i + 1])) for i in range(len(rows))])
    assert np.allclose(answers, truth(rows), rtol=1e-12, atol=1e-12)


def test_embeddings_in_base64_are_float32(url: str) -> None:
    oracle = us.adapters.openai(f"{url}/v1", "model", "embeddings", vocabulary=V, outputs=D)
    assert np.allclose(oracle(Probes(IDS)), pooled(IDS), rtol=1e-6, atol=1e-6)


@wires
def test_faults_end_in_exact_answers_and_everything_sent_is_billed(url: str, service, wire: str) -> None:
    make, truth, rows = WIRES[wire]
    rows = np.concatenate([rows, rows[:, ::-1]])
    # A request that is cut off for its slowness costs a timeout: one wire shows it for all.
    kinds = ALIKE if wire == "openai" else tuple(kind for kind in ALIKE if kind != "slow")
    with fault_proxy(url, 0.3, seed=4, kinds=kinds, slow=2.0) as proxy:
        oracle = make(proxy.url, timeout=1.0, **FAST)
        meter = us.oracles.Stack(oracle)
        answers = np.concatenate(list(meter.ask([Probes(rows[i : i + 1]) for i in range(len(rows))])))
    assert np.allclose(answers, truth(rows), rtol=1e-12, atol=1e-12)
    assert meter.meter.billed == proxy.received
    assert proxy.faults


@pytest.mark.long
def test_ten_thousand_queries_at_twenty_percent_faults(url: str) -> None:
    rows = np.random.default_rng(1).integers(0, V, (10_000, 3))
    with fault_proxy(url, 0.2, seed=5, kinds=ALIKE, slow=1.0) as proxy:
        oracle = us.adapters.openai(f"{proxy.url}/v1", "model", vocabulary=V, timeout=0.6, max_batch=25, **FAST)
        meter = us.oracles.Stack(oracle)
        answers = np.concatenate(list(meter.ask([Probes(rows[i : i + 25]) for i in range(0, len(rows), 25)])))
    assert np.allclose(answers, over_ids(rows), rtol=1e-12, atol=1e-12)
    assert meter.meter.billed == proxy.received


BOMB = gzip.compress(b" " * (64 * 2**20), 1)
"""64 MiB in 300 kB."""


class _Odd(BaseHTTPRequestHandler):
    """A server that answers every POST in one bad way, chosen by the path of the base address."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        way = self.path.split("/")[1]
        try:
            getattr(self, way)()
        except OSError:
            self.close_connection = True

    def _say(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def bomb(self) -> None:
        self._say(200, BOMB, Content_Encoding="gzip")

    def trickle(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1000000")
        self.end_headers()
        for _ in range(200):
            self.wfile.write(b" ")
            self.wfile.flush()
            time.sleep(0.05)

    def stranger(self) -> None:
        self._say(401, b'{"error": "who are you?"}')

    def redirect(self) -> None:
        self._say(307, b"", Location="http://127.0.0.1:9/elsewhere")

    def text(self) -> None:
        shown = {"content": [{"top_logprobs": [{"token": "token_id:0", "logprob": "-0.5"}]}]}
        self._say(200, json.dumps({"choices": [{"index": 0, "logprobs": shown}]}).encode())

    def deep(self) -> None:
        self._say(200, b"[" * 100_000)


@pytest.fixture(scope="module")
def odd():
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Odd)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@pytest.mark.parametrize(
    ("way", "words_"),
    [
        ("bomb", "bytes"),
        ("trickle", "not complete"),
        ("stranger", "401"),
        ("redirect", "307"),
        ("text", "text"),
        ("deep", "read"),
    ],
)
def test_bad_answers_are_refused_by_name(odd: str, way: str, words_: str) -> None:
    oracle = us.adapters.openai(f"{odd}/{way}", "model", vocabulary=V, timeout=0.5, retries=1, backoff=0.01)
    source = oracle.fn.fn if hasattr(oracle.fn, "fn") else oracle.fn
    source.wire.transport.largest = 2**20
    with pytest.raises((OracleError, InvalidArgument), match=words_):
        oracle(Probes(IDS[:1] * 0))


def test_a_key_travels_in_the_header_and_nowhere_else(monkeypatch, tmp_path) -> None:
    guarded = LanguageService(MODEL, key="sesame-7")
    with language_server(guarded) as url:
        oracle = us.adapters.openai(f"{url}/v1", "model", vocabulary=V, rate=math.inf)
        with pytest.raises(OracleError, match="401"):
            oracle(Probes(IDS[:1]))
        monkeypatch.setenv("OPENAI_API_KEY", "sesame-7")
        recovery = us.recover(oracle, us.learners.OutputLayer(), ledger=tmp_path / "run.ledger", budget=200)
        recovery.save(tmp_path / "layer.safetensors")
    for path in tmp_path.iterdir():
        assert b"sesame" not in path.read_bytes()
    assert "sesame" not in repr(recovery)


def test_the_width_of_a_served_model_through_every_way_of_showing_it(url: str) -> None:
    true = us.models.OutputLayer.of_unembedding(MODEL.unembedding * MODEL.final_norm, centred=True)
    ways = {
        "all": us.adapters.openai(f"{url}/v1", "model", vocabulary=V, rate=math.inf),
        "chosen": us.adapters.openai(f"{url}/v1", "model", vocabulary=V, shows="chosen", top=14, rate=math.inf),
        "by id": us.adapters.sglang(url, vocabulary=V, shows="chosen", top=14, rate=math.inf),
        "llama.cpp": us.adapters.llama_cpp(url, rate=math.inf),
    }
    for name, oracle in ways.items():
        recovery = us.recover(oracle, us.learners.OutputLayer(), budget=5000)
        assert recovery.model.width == D, name
        assert us.models.distance(recovery.model, true) <= 1e-5, name


@pytest.mark.parametrize(
    ("arguments", "words_"),
    [
        ({}, "vocabulary"),
        ({"api": "sing"}, "api"),
        ({"api": "chat", "vocabulary": V}, "text"),
        ({"api": "embeddings", "vocabulary": V}, "outputs"),
        ({"vocabulary": V, "embeds": True}, "dim"),
        ({"vocabulary": V, "rate": "fast"}, "rate"),
        ({"vocabulary": V, "shows": "top"}, "top"),
    ],
    ids=str,
)
def test_arguments_are_checked_before_anything_is_sent(arguments: dict, words_: str) -> None:
    with pytest.raises(InvalidArgument, match=words_):
        us.adapters.openai("http://127.0.0.1:9/v1", "model", **arguments)


def test_tokens_named_by_text_need_names(url: str) -> None:
    names = {f"t{i}": i for i in range(V)}
    from unsoftmax.adapters.remote.wire import token_of

    assert token_of("t7", names) == 7
    assert token_of("token_id:9", None) == 9
    with pytest.raises(OracleError, match="names="):
        token_of("t7", None)
