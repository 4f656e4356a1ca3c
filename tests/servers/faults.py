"""A proxy that misbehaves on purpose: drops, errors, delays, damaged and foreign answers."""

from __future__ import annotations

import http.client
import json
import random
import re
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

Response = tuple[int, dict[str, str], bytes]
HEADER = "Inference-Header-Content-Length"
KINDS = ("drop", "drop late", "500", "429", "503", "slow", "truncated", "garbage", "nan", "shape", "foreign", "doubled")
NUMBER = re.compile(rb"-?\d+\.\d+(e-?\d+)?")


class FaultProxy:
    """Counts what clients send (`received`), what reaches the server (`forwarded`), and the faults by kind."""

    def __init__(self, upstream: str, rate: float, seed: int, kinds: tuple[str, ...], slow: float) -> None:
        self.upstream, self.rate, self.kinds, self.slow = urlsplit(upstream), rate, kinds, slow
        self.random, self.lock = random.Random(seed), threading.Lock()
        self.received = self.forwarded = 0
        self.faults: Counter[str] = Counter()
        self.arrivals: list[float] = []
        self.authorizations: set[str | None] = set()
        self.last: Response | None = None
        self.url = ""

    def choose(self) -> str | None:
        with self.lock:
            return self.random.choice(self.kinds) if self.random.random() < self.rate else None

    def forward(
        self, method: str, path: str, body: bytes, headers: dict[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(self.upstream.hostname or "", self.upstream.port)
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        kept = {
            name: value for name, value in response.getheaders() if name.lower() in (HEADER.lower(), "content-type")
        }
        answer = response.status, kept, response.read()
        connection.close()
        return answer


def sequences(body: bytes, header: str | None) -> int:
    """Sequences in a request of any wire."""
    request = json.loads(body[: int(header)] if header else body)
    for key in ("inputs", "prompt_embeds", "prompt", "input", "input_ids", "input_embeds"):
        sent = request.get(key)
        if isinstance(sent, list) and sent:
            if isinstance(sent[0], dict):
                return sent[0]["shape"][0]
            return 1 if isinstance(sent[0], int) else len(sent)
    return 1


ALIKE = ("drop", "drop late", "500", "429", "503", "slow", "truncated", "garbage", "nan", "text", "shape", "doubled")
"""Faults that a wire can show whose answers carry no name of the request."""


def damaged_json(kind: str, body: bytes) -> bytes:
    """A JSON answer with a NaN, with NaN as text, or with an answer too few."""
    if kind in ("nan", "text"):
        return NUMBER.sub(b"NaN" if kind == "nan" else b'"NaN"', body, count=1)
    said = json.loads(body)
    if isinstance(said, list):
        return json.dumps(said[:-1]).encode()
    for key in ("choices", "data", "completion_probabilities"):
        if key in said:
            said[key] = said[key][:-1]
    return json.dumps(said).encode()


def damaged(kind: str, headers: dict[str, str], body: bytes) -> tuple[dict[str, str], bytes]:
    """A well-formed answer with impossible content."""
    if b'"outputs"' not in body:
        return headers, damaged_json(kind, body)
    length = next((int(value) for name, value in headers.items() if name.lower() == HEADER.lower()), None)
    text = json.loads(body if length is None else body[:length])
    output, tail = text["outputs"][0], b"" if length is None else body[length:]
    if kind == "nan":
        if length is None:
            output["data"][0] = float("nan")
        else:
            tail = struct.pack("<d", float("nan")) + tail[8:]
    else:
        output["shape"][0] -= 1
        if length is None:
            output["data"] = output["data"][1:]
        else:
            tail = tail[8:]
            output["parameters"]["binary_data_size"] = len(tail)
    new = json.dumps(text).encode()
    kept = {name: value for name, value in headers.items() if name.lower() != HEADER.lower()}
    return ({**kept, HEADER: str(len(new))} if length is not None else kept), new + tail


def _handler(proxy: FaultProxy) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            self.answer(*proxy.forward("GET", self.path, b"", {}))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            kind = proxy.choose()
            with proxy.lock:
                proxy.received += sequences(body, self.headers.get(HEADER))
                proxy.arrivals.append(time.monotonic())
                proxy.authorizations.add(self.headers.get("Authorization"))
                if kind:
                    proxy.faults[kind] += 1
            match kind:
                case "drop":
                    return self.drop()
                case "500" | "503":
                    return self.answer(int(kind), {}, b"<html>out of order</html>")
                case "429":
                    return self.answer(429, {"Retry-After": "0.1"}, b'{"error": "slow down"}')
                case "slow":
                    time.sleep(proxy.slow)
            forwarded = {name: self.headers[name] for name in (HEADER, "Content-Type") if name in self.headers}
            for _ in range(2 if kind == "doubled" else 1):
                status, headers, answer = proxy.forward("POST", self.path, body, forwarded)
                with proxy.lock:
                    proxy.forwarded += sequences(body, self.headers.get(HEADER))
            with proxy.lock:
                previous, proxy.last = proxy.last, (status, headers, answer)
            if kind == "drop late":
                return self.drop()
            if kind == "foreign" and previous is not None:
                status, headers, answer = previous
            elif kind in ("nan", "text", "shape"):
                headers, answer = damaged(kind, headers, answer)
            elif kind == "garbage":
                answer = bytes(255 - byte for byte in answer)
            self.answer(status, headers, answer, cut=kind == "truncated")

        def answer(self, status: int, headers: dict[str, str], body: bytes, cut: bool = False) -> None:
            try:
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body[: len(body) // 2] if cut else body)
                self.wfile.flush()
            except OSError:
                self.close_connection = True  # the client has stopped waiting
            if cut:
                self.drop()

        def drop(self) -> None:
            self.close_connection = True

    return Handler


@contextmanager
def fault_proxy(
    upstream: str, rate: float = 0.2, seed: int = 0, kinds: tuple[str, ...] = KINDS, slow: float = 1.0
) -> Iterator[FaultProxy]:
    proxy = FaultProxy(upstream, rate, seed, kinds, slow)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(proxy))
    server.daemon_threads = True
    proxy.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
