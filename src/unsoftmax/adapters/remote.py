"""A model on a server, as a callable: sending, pacing, trying once more.

tritonclient makes and reads the bodies, httpx carries them, stamina decides when to try once more. One call is one
request. Everything sent more than once is billed, and asked of the budget first.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np

from unsoftmax.errors import OracleError
from unsoftmax.oracles.dispatching import before_sending_again
from unsoftmax.probes.base import Array

if TYPE_CHECKING:
    import httpx

log = logging.getLogger("unsoftmax")

FORMATS = {"FP64": "float64", "FP32": "float32", "FP16": "float16"}
_BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})
_LONG_WAIT = 5.0
"""Seconds from which on a wait is said: a run that stands still for longer looks like one that hangs."""

_LONGEST_WAIT = 120.0
_LARGEST_ANSWER = 2**30
_ODD_ANSWERS = 3
"""How often a complete but impossible answer (NaN, wrong shape) is asked again: it may be the target's own."""


class Unanswered(Exception):
    """A request failed in a way that may pass; `after` is how long the server asked to wait.

    `odd`: an answer came, whole and for this request, but it cannot be one. `absent`: nobody listens there.
    """

    def __init__(self, reason: str, after: float | None = None, *, odd: bool = False, absent: bool = False) -> None:
        super().__init__(reason)
        self.after, self.odd, self.absent = after, odd, absent

    def told(self, url: str, attempts: int, advice: str) -> OracleError:
        """The failure as the user should read it."""
        if self.absent:
            return OracleError(
                f"{url} is not reachable ({attempts} attempts: {self}); start the server or check the url."
            )
        return OracleError(f"{url} did not answer in {attempts} attempts ({self}); {advice}.")


@dataclass
class Pace:
    """Spreads queries evenly: at most `rate` per second, over all threads."""

    rate: float
    _next: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def wait(self, queries: int) -> None:
        with self._lock:
            now = time.monotonic()
            start = max(now, self._next)
            self._next = start + queries / self.rate
        if start > now:
            time.sleep(start - now)

    def __reduce__(self) -> Any:
        return Pace, (self.rate,)


@dataclass(eq=False)
class RemoteModel:
    """A model on a server, as a callable (batch, N, d) -> (batch,) or (batch, outputs)."""

    url: str
    model: str
    version: str
    input: str
    output: str
    datatype: str
    binary: bool
    timeout: float
    retries: int
    backoff: float
    concurrency: int
    token_variable: str
    verify_tls: bool
    pace: Pace
    remote = True

    @property
    def __name__(self) -> str:
        return f"{self.url} {self.model}"

    def identity(self) -> dict[str, Any]:
        """What the ledger binds to: where the model is, never how access to it was paid for."""
        return {"url": self.url, "model": self.model, "version": self.version, "output": self.output}

    def __call__(self, tokens: Array) -> Array:
        import stamina

        odd = 0

        def once_more(error: Exception) -> bool | float:
            nonlocal odd
            if not isinstance(error, Unanswered):
                return False
            odd += error.odd
            if odd > _ODD_ANSWERS:
                return False
            if error.after is not None and error.after >= _LONG_WAIT:
                log.warning("%s asks to be left alone for %.0f s (Retry-After); waiting.", self.url, error.after)
            return True if error.after is None else error.after

        attempts = stamina.retry_context(
            on=once_more,
            attempts=self.retries + 1,
            timeout=None,
            wait_initial=self.backoff,
            wait_max=max(self.backoff, 30.0),
            wait_jitter=self.backoff,
        )
        try:
            for attempt in attempts:
                with attempt:
                    if attempt.num > 1:
                        before_sending_again(len(tokens), tokens.shape[0] * tokens.shape[1])
                    self.pace.wait(len(tokens))
                    return self._ask(tokens)
        except Unanswered as error:
            told = Unanswered(self._without_token(str(error)), absent=error.absent)
            advice = "mend the server, or raise `retries`, `timeout` or `backoff`"
            raise told.told(self.url, attempt.num, advice) from None
        raise AssertionError("stamina ends with an answer or an exception")

    def _ask(self, tokens: Array) -> Array:
        from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput

        name = uuid.uuid4().hex
        given = InferInput(self.input, list(tokens.shape), self.datatype)
        given.set_data_from_numpy(tokens.astype(FORMATS[self.datatype]), binary_data=self.binary)
        wanted = InferRequestedOutput(self.output, binary_data=self.binary)
        body, size = InferenceServerClient.generate_request_body([given], outputs=[wanted], request_id=name)
        headers = {"Content-Type": "application/octet-stream" if self.binary else "application/json"}
        if size is not None:
            headers["Inference-Header-Content-Length"] = str(size)
        response = self.send("POST", f"{model_path(self.model, self.version)}/infer", body, headers)
        length = response.headers.get("Inference-Header-Content-Length")
        try:
            result = InferenceServerClient.parse_response_body(
                response.content, header_length=None if length is None else int(length)
            )
            answered = result.get_response().get("id")
            answer = result.as_numpy(self.output)
        except Exception as error:
            # The client parses what it is given; anything it raises means that the body is not an answer.
            raise Unanswered(f"the answer could not be read: {error}") from error
        if answered != name:
            raise Unanswered(f"an answer with the id {answered!r} came for the request {name!r}")
        if answer is None:
            raise OracleError(f"{self.url} answered without the output {self.output!r}; pass output= with its name.")
        if answer.shape[:1] != (len(tokens),):
            raise Unanswered(f"the answer has the shape {answer.shape} for {len(tokens)} sequences", odd=True)
        if answer.dtype.kind == "f" and not np.isfinite(answer).all():
            raise Unanswered("the answer has numbers that are not finite", odd=True)
        return answer

    def send(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> httpx.Response:
        """A response with status 200, or Unanswered if it is worth another attempt, or OracleError."""
        import httpx

        token = os.environ.get(self.token_variable)
        if token:
            headers = {**headers, "Authorization": f"Bearer {token}"}
        try:
            response = self._client.request(method, f"{self.url}/{path}", content=body, headers=headers)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise Unanswered(str(error) or type(error).__name__, absent=True) from error
        except httpx.TransportError as error:
            raise Unanswered(f"{type(error).__name__}: {error}") from error
        except httpx.HTTPError as error:
            raise Unanswered(str(error)) from error
        if response.status_code == 200 and len(response.content) <= _LARGEST_ANSWER:
            return response
        said = f"{response.status_code} {self._without_token(response.text[:300])!r}"
        if response.status_code in _BUSY:
            raise Unanswered(said, _seconds(response.headers.get("Retry-After")))
        raise OracleError(f"{self.url}/{path} refused the request: {said}; check the model, its inputs and the token.")

    @property
    def _client(self) -> httpx.Client:
        import httpx

        # Connections live in this process only; a copy sent to another one makes its own.
        client: httpx.Client | None = self.__dict__.get("_connections")
        if client is None:
            limits = httpx.Limits(max_connections=self.concurrency)
            client = httpx.Client(verify=self.verify_tls, timeout=self.timeout, limits=limits, trust_env=True)
            self.__dict__["_connections"] = client
        return client

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_connections"}

    def _without_token(self, text: str) -> str:
        token = os.environ.get(self.token_variable)
        return text.replace(token, "[token]") if token else text


def model_path(model: str, version: str) -> str:
    return f"v2/models/{quote(model, safe='')}" + (f"/versions/{quote(version, safe='')}" if version else "")


def _seconds(retry_after: str | None) -> float | None:
    """Retry-After in seconds, if it is a number of them; bounded, so that a server cannot stop the run for good."""
    try:
        seconds = float(retry_after or "nan")
    except ValueError:
        return None
    return min(seconds, _LONGEST_WAIT) if seconds >= 0 else None
