"""Every JSON wire against a real server, against the reference computation, and through a proxy that misbehaves."""

from __future__ import annotations

import gzip
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
from unsoftmax.adapters.remote.transport import transport
from unsoftmax.adapters.remote.wire import Wire
from unsoftmax.errors import InvalidArgument, OracleError
from unsoftmax.oracles.base import of_source
from unsoftmax.probes import Probes
from unsoftmax.serving.language_model import LanguageService
from unsoftmax.serving.llama import Llama

V, D = 40, 16
MODEL = Llama.random(D, V, heads=4, kv_heads=2, seed=3)
FAST = {"rate": math.inf, "backoff": 0.01, "retries": 12}
IDS = np.random.default_rng(0).integers(0, V, (12, 5))

# One-layer Llama as it is served: RoPE, keys and values shared by four heads each, RMSNorm, SwiGLU.
SERVED = Llama.random(64, 512, heads=8, kv_heads=2, seed=1)
PROMPTS = np.random.default_rng(2).integers(0, 512, (100, 6))


def words(ids: list[int]) -> str:
    return " ".join(f"t{i}" for i in ids)


def log_probabilities(logits: np.ndarray) -> np.ndarray:
    return logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)


def pooled(ids: np.ndarray, model: Llama = MODEL) -> np.ndarray:
    return model.hidden(model.embeddings[ids]).mean(axis=1)


def over_ids(ids: np.ndarray, model: Llama = MODEL) -> np.ndarray:
    return log_probabilities(model(ids))


def over_vectors(ids: np.ndarray, model: Llama = MODEL) -> np.ndarray:
    """The same prompts: what goes over the wire are their embeddings."""
    return log_probabilities(model.logits(model.embeddings[ids]))


Make = Callable[..., Any]
WIRES: dict[str, tuple[Make, Callable[..., np.ndarray]]] = {
    "openai": (lambda url, V, d, **k: us.adapters.openai(f"{url}/v1", "model", vocabulary=V, **k), over_ids),
    "openai text": (
        lambda url, V, d, **k: us.adapters.openai(f"{url}/v1", "model", vocabulary=V, text=words, **k),
        over_ids,
    ),
    "chat": (
        lambda url, V, d, **k: us.adapters.openai(f"{url}/v1", "model", "chat", vocabulary=V, text=words, **k),
        over_ids,
    ),
    "prompt embeds": (
        lambda url, V, d, **k: us.adapters.openai(f"{url}/v1", "model", vocabulary=V, embeds=True, dim=d, **k),
        over_vectors,
    ),
    "embeddings": (
        lambda url, V, d, **k: us.adapters.openai(
            f"{url}/v1", "model", "embeddings", vocabulary=V, outputs=d, encoding_format="float", **k
        ),
        pooled,
    ),
    "llama.cpp": (lambda url, V, d, **k: us.adapters.llama_cpp(url, **k), over_ids),
    "llama.cpp embedding": (lambda url, V, d, **k: us.adapters.llama_cpp(url, "embedding", **k), pooled),
    "sglang": (lambda url, V, d, **k: us.adapters.sglang(url, vocabulary=V, **k), over_ids),
    "sglang embeds": (
        lambda url, V, d, **k: us.adapters.sglang(url, vocabulary=V, embeds=True, dim=d, **k),
        over_vectors,
    ),
    "tei": (lambda url, V, d, **k: us.adapters.tei(url, vocabulary=V, outputs=d, **k), pooled),
}


def wired(wire: str, url: str, model: Llama = MODEL, **how: Any) -> tuple[Any, Callable[[np.ndarray], np.ndarray]]:
    """The oracle of a wire, and ids as what it sends."""
    make, truth = WIRES[wire]
    sent = (lambda ids: model.embeddings[ids]) if truth is over_vectors else (lambda ids: ids)
    return make(url, model.vocabulary, model.dim, **how), sent


wires = pytest.mark.parametrize("wire", WIRES)


@pytest.fixture(scope="module")
def service():
    return LanguageService(MODEL)


@pytest.fixture(scope="module")
def url(service):
    with language_server(service) as address:
        yield address


@pytest.fixture(scope="module")
def served():
    with language_server(LanguageService(SERVED)) as address:
        yield address


@wires
def test_every_wire_gives_the_numbers_of_the_model(served: str, wire: str) -> None:
    oracle, sent = wired(wire, served, SERVED, rate=math.inf)
    size = oracle.spec.max_batch
    parts = [sent(PROMPTS[i : i + size]) for i in range(0, len(PROMPTS), size)]
    answers = np.concatenate([oracle(Probes(part)) for part in parts])
    assert answers.shape[0] == 100
    assert np.allclose(answers, WIRES[wire][1](PROMPTS, SERVED), rtol=1e-12, atol=1e-12)


def test_prompt_embeds_equal_the_same_prompts_as_ids(served: str) -> None:
    by_ids, _ = wired("openai", served, SERVED, rate=math.inf)
    for wire in ("prompt embeds", "sglang embeds"):
        by_vectors, sent = wired(wire, served, SERVED, rate=math.inf)
        assert np.array_equal(by_vectors(Probes(sent(PROMPTS[:16]))), by_ids(Probes(PROMPTS[:16])))


@wires
def test_a_server_that_repeats_itself_has_no_tolerance(url: str, wire: str) -> None:
    assert wired(wire, url, rate=math.inf)[0].spec.tolerance == 0


class Restless(LanguageService):
    """A server whose answers depend on what else it is doing: none is given twice."""

    noise = 1e-3

    def _logits(self, embedded: np.ndarray) -> np.ndarray:
        return super()._logits(embedded) + self.noise * np.random.default_rng().uniform(-1, 1, self.model.vocabulary)


@pytest.mark.parametrize("ways", [{}, {"shows": "top", "top": 30}, {"shows": "chosen", "top": 20}], ids=str)
def test_the_tolerance_is_measured_and_billed(ways: dict) -> None:
    service = Restless(MODEL)
    with language_server(service) as address:
        oracle = us.adapters.openai(f"{address}/v1", "model", vocabulary=V, rate=math.inf, **ways)
        measured = service.sequences
        assert 0 < measured <= 10
        # Log-probabilities differ by twice the noise at most; four times what was seen of it is allowed.
        assert Restless.noise / 2 <= oracle.spec.tolerance <= 16 * Restless.noise
        assert oracle.spec.kind == "approximate"
        recovery = us.recover(oracle, us.learners.OutputLayer(), budget=5000) if not ways else None
        if recovery is not None:
            assert recovery.model.width == D
            assert recovery.usage.phases["tolerance"] == measured
            assert recovery.usage.billed == service.sequences


def test_a_tolerance_that_is_given_asks_nothing() -> None:
    service = LanguageService(MODEL)
    with language_server(service) as address:
        assert us.adapters.openai(f"{address}/v1", "model", vocabulary=V, tolerance=0.0).spec.kind == "value"
        assert us.adapters.sglang(address, vocabulary=V, tolerance=1e-4).spec.tolerance == 1e-4
    assert service.sequences == 0


def test_embeddings_in_base64_are_float32(url: str) -> None:
    oracle = us.adapters.openai(f"{url}/v1", "model", "embeddings", vocabulary=V, outputs=D)
    assert np.allclose(oracle(Probes(IDS)), pooled(IDS), rtol=1e-6, atol=1e-6)


@wires
def test_faults_end_in_exact_answers_and_everything_sent_is_billed(url: str, service, wire: str) -> None:
    rows = np.concatenate([IDS, IDS[:, ::-1]])
    # A request that is cut off for its slowness costs a timeout: one wire shows it for all.
    kinds = ALIKE if wire == "openai" else tuple(kind for kind in ALIKE if kind != "slow")
    with fault_proxy(url, 0.3, seed=4, kinds=kinds, slow=2.0) as proxy:
        oracle, sent = wired(wire, proxy.url, timeout=1.0, **FAST)
        meter = us.oracles.Stack(oracle)
        answers = np.concatenate(list(meter.ask([Probes(sent(rows[i : i + 1])) for i in range(len(rows))])))
    assert np.allclose(answers, WIRES[wire][1](rows), rtol=1e-12, atol=1e-12)
    assert meter.meter.billed == proxy.received
    assert proxy.faults


@pytest.mark.long
@wires
def test_ten_thousand_queries_at_twenty_percent_faults(url: str, wire: str) -> None:
    """Nothing is lost, nothing is paid twice: what is billed is what was sent, and beyond it only repeated failures."""
    rows = np.random.default_rng(1).integers(0, V, (10_000, 3))
    kinds = ALIKE if wire == "openai" else tuple(kind for kind in ALIKE if kind != "slow")
    with fault_proxy(url, 0.2, seed=5, kinds=kinds, slow=3.0) as proxy:
        oracle, sent = wired(wire, proxy.url, timeout=2.0, **FAST)
        size = oracle.spec.max_batch
        meter = us.oracles.Stack(oracle)
        answers = np.concatenate(list(meter.ask([Probes(sent(rows[i : i + size])) for i in range(0, 10_000, size)])))
    assert np.allclose(answers, WIRES[wire][1](rows), rtol=1e-12, atol=1e-12)
    phases = meter.meter.phases
    assert meter.meter.billed == proxy.received == 10_000 + phases["retry"] + phases["tolerance"]


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
    [("bomb", "bytes"), ("trickle", "not complete"), ("stranger", "401"), ("redirect", "307"), ("deep", "read")],
)
@wires
def test_bad_answers_are_refused_by_name(odd: str, way: str, words_: str, wire: str) -> None:
    told = {"vocabulary": V} if wire.startswith("llama") else {}
    told |= {"outputs": D} if wire == "llama.cpp embedding" else {}
    how = {"timeout": 0.15, "retries": 1, "backoff": 0.01, "tolerance": 0.0, "rate": math.inf} | told
    oracle, sent = wired(wire, f"{odd}/{way}", **how)
    of_source(oracle, "wire", None).transport.largest = 2**20
    with pytest.raises(OracleError, match=words_):
        oracle(Probes(sent(IDS[:1])))


def test_a_key_travels_in_the_header_and_nowhere_else(monkeypatch, tmp_path) -> None:
    guarded = LanguageService(MODEL, key="sesame-7")
    with language_server(guarded) as url:
        with pytest.raises(OracleError, match="401"):
            us.adapters.openai(f"{url}/v1", "model", vocabulary=V, rate=math.inf)
        oracle = us.adapters.openai(f"{url}/v1", "model", vocabulary=V, rate=math.inf, tolerance=0.0)
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


def test_chosen_tokens_that_are_sent_again_are_billed_again(monkeypatch) -> None:
    carrier = transport("http://127.0.0.1:9")
    billed: list[tuple[int, int]] = []
    monkeypatch.setattr(
        type(carrier), "insist", lambda self, exchange, queries, tokens: billed.append((queries, tokens))
    )
    wire = Wire(carrier, "model", "completions", lambda ids, chosen: {}, lambda said, rows: [])
    wire.items(np.zeros((1, 8), dtype=int), np.zeros((1, 5), dtype=int))
    assert billed == [(1, 8 + 5)]


def test_tokens_named_by_text_need_names(url: str) -> None:
    names = {f"t{i}": i for i in range(V)}
    from unsoftmax.adapters.remote.wire import token_of

    assert token_of("t7", names) == 7
    assert token_of("token_id:9", None) == 9
    with pytest.raises(OracleError, match="names="):
        token_of("t7", None)
