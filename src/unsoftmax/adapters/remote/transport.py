"""Requests to a server: sending, pacing, trying once more, and limits on what comes back.

httpx carries them, stamina decides when to try once more. Everything sent more than once is billed, and asked of the
budget first. An answer is read piece by piece, so that neither a bomb nor a trickle holds the run.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, TypeVar

from unsoftmax.adapters.remote.address import LOOPBACK, address
from unsoftmax.arguments import either, real, require_extra, text, whole
from unsoftmax.errors import InvalidArgument, OracleError
from unsoftmax.oracles.dispatching import before_sending_again, before_waiting

if TYPE_CHECKING:
    import httpx

log = logging.getLogger("unsoftmax")

_BUSY = frozenset({408, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529})
"""States of a server, or of the proxy before it (52x), that may pass."""

_LONG_WAIT = 5.0
"""Seconds from which on a wait is said: a run that stands still for longer looks like one that hangs."""

_LONGEST_WAIT = 120.0
"""Seconds that Retry-After is honoured for at most, so that a server cannot stop the run for good."""

LARGEST_ANSWER = 2**28
"""Bytes of an answer, unpacked: 256 log-probabilities of 50,000 tokens are 250 MB as text."""

_ODD_ANSWERS = 5
"""How often a complete but impossible answer (NaN, wrong shape) is asked again: it may be the target's own. Where one
request in twelve comes back so, four in a row ended a run of 10,000; six in a row are one run in 400."""


class Unanswered(Exception):
    """A request failed in a way that may pass; `after` is how long the server asked to wait.

    `odd`: an answer came, whole and for this request, but it cannot be one. `absent`: nobody listens there.
    `http_status` is what a server answered in place of an answer, as in `OracleError`.
    """

    def __init__(
        self,
        reason: str,
        after: float | None = None,
        *,
        odd: bool = False,
        absent: bool = False,
        http_status: int | None = None,
    ) -> None:
        super().__init__(reason)
        self.after, self.odd, self.absent, self.http_status = after, odd, absent, http_status

    def told(self, url: str, attempts: int, advice: str) -> OracleError:
        """The failure as the user should read it."""
        times = "1 attempt" if attempts == 1 else f"{attempts} attempts"
        if self.absent:
            return OracleError(f"{url} is not reachable ({times}: {self}); start the server or check the url.")
        return OracleError(f"{url} did not answer in {times} ({self}); {advice}.")


_IDLE = 2.0
"""Seconds an idle connection is kept: servers close theirs after about 5 (uvicorn's default), and a request on a
connection that is being closed is sent, billed and lost."""


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


T = TypeVar("T")


@dataclass(frozen=True)
class Answer:
    """A response with status 200: its bytes and its headers (names in lower case)."""

    content: bytes
    headers: dict[str, str]


@dataclass(eq=False)
class Transport:
    """A server and how it is asked. `timeout` limits the whole of an answer, and each wait for a piece of it."""

    url: str
    timeout: float = 30.0
    retries: int = 8
    backoff: float = 0.1
    concurrency: int = 4
    token_variable: str = "UNSOFTMAX_TOKEN"
    verify_tls: bool = True
    pace: Pace = field(default_factory=lambda: Pace(1000.0))
    largest: int = LARGEST_ANSWER

    def insist(self, exchange: Callable[[], T], queries: int, tokens: int) -> T:
        """exchange(), again while it raises Unanswered; each further attempt is billed before it is made."""
        import stamina

        odd = 0

        def once_more(error: Exception) -> bool | float:
            nonlocal odd
            if not isinstance(error, Unanswered):
                return False
            odd += error.odd
            if odd > _ODD_ANSWERS:
                return False
            if error.after is not None:
                before_waiting(error.after)
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
                        before_sending_again(queries, tokens)
                    self.pace.wait(queries)
                    return exchange()
        except Unanswered as error:
            told = Unanswered(self.without_token(str(error)), absent=error.absent)
            advice = "mend the server, or raise `retries`, `timeout` or `backoff`"
            raise told.told(self.url, attempt.num, advice) from None
        raise AssertionError("stamina ends with an answer or an exception")

    def send(self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> Answer:
        """An answer with status 200, or Unanswered if it is worth another attempt, or OracleError."""
        import httpx

        headers = dict(headers or {})
        token = os.environ.get(self.token_variable)
        if token:
            headers["Authorization"] = f"Bearer {token}"
        try:
            return self._received(method, path, body, headers)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise Unanswered(str(error) or type(error).__name__, absent=True) from error
        except httpx.TransportError as error:
            raise Unanswered(f"{type(error).__name__}: {error}") from error
        except httpx.HTTPError as error:
            raise Unanswered(str(error)) from error

    def _received(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Answer:
        deadline, late = time.monotonic() + self.timeout, f"the answer was not complete after {self.timeout:g} s"
        place = f"{self.url}/{path}"
        with self._cut(late), self._client.stream(method, place, content=body, headers=headers) as response:
            content = bytearray()
            for piece in response.iter_bytes():
                content += piece
                if len(content) > self.largest:
                    raise OracleError(f"{place} answered with more than {self.largest} bytes; it was not read.")
                if time.monotonic() > deadline:
                    raise Unanswered(late)
        if response.status_code == 200:
            return Answer(bytes(content), {name.lower(): value for name, value in response.headers.items()})
        said = f"{response.status_code} {self.without_token(content[:300].decode(errors='replace'))!r}"
        if response.status_code in _BUSY:
            raise Unanswered(said, _seconds(response.headers.get("Retry-After")), http_status=response.status_code)
        refusal = OracleError(
            f"{place} refused the request: {said}.", advice="check the model, its inputs and the token."
        )
        refusal.http_status = response.status_code
        raise refusal

    @contextmanager
    def _cut(self, late: str) -> Iterator[None]:
        """Close the connections if headers trickle in beyond the timeout: each byte would start httpx's anew."""
        client, cut = self._client, threading.Event()

        def close() -> None:
            cut.set()
            if self.__dict__.get("_connections") is client:
                del self.__dict__["_connections"]
            client.close()

        # A body that is late ends by itself at the timeout, and takes no other answer with it.
        timer = threading.Timer(2 * self.timeout, close)
        timer.daemon = True
        timer.start()
        try:
            yield
        except Exception as error:
            # What else was out on these connections is asked again on new ones.
            if (cut.is_set() or client.is_closed) and not isinstance(error, OracleError):
                raise Unanswered(late) from error
            raise
        finally:
            timer.cancel()

    @property
    def _client(self) -> httpx.Client:
        import httpx

        # Connections live in this process only; a copy sent to another one makes its own.
        client: httpx.Client | None = self.__dict__.get("_connections")
        if client is None:
            limits = httpx.Limits(max_connections=self.concurrency, keepalive_expiry=_IDLE)
            client = httpx.Client(verify=self.verify_tls, timeout=self.timeout, limits=limits, trust_env=True)
            self.__dict__["_connections"] = client
        return client

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_connections"}

    def without_token(self, text: str) -> str:
        """Words of a server, without the token should it repeat it."""
        token = os.environ.get(self.token_variable)
        return text.replace(token, "[token]") if token else text


def transport(
    url: str,
    *,
    rate: float = 1000.0,
    concurrency: int = 4,
    timeout: float = 30.0,
    retries: int = 8,
    backoff: float = 0.1,
    token_variable: str = "UNSOFTMAX_TOKEN",
    verify_tls: bool = True,
) -> Transport:
    """The transport to a server; everything is checked before anything is sent.

    rate            queries per second at most (1000 unless told; math.inf for none).
    concurrency     requests out at once.
    timeout         seconds for a whole answer.
    retries         further attempts on 408, 425, 429, 5xx, timeouts, broken or foreign answers, with growing, jittered
                    pauses from `backoff` seconds; Retry-After is honoured. Each is billed and kept within the budget.
    token_variable  environment variable with a bearer token; it is read at each request and written nowhere.
    """
    require_extra("http", "a server", "httpx", "stamina")
    for label, word in (("url", url), ("token_variable", token_variable)):
        text(label, word)
    either("verify_tls", verify_tls)
    parts = address(url)
    exposed = parts.scheme == "http" or not verify_tls
    if os.environ.get(token_variable) and exposed and parts.hostname not in LOOPBACK:
        raise InvalidArgument(
            f"the token in {token_variable} is sent only over verified TLS; use https://, or unset the variable."
        )
    for label, value in (("rate", rate), ("timeout", timeout), ("backoff", backoff)):
        real(label, value)
    whole("concurrency", concurrency)
    whole("retries", retries, 0)
    root = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
    return Transport(root, timeout, retries, backoff, concurrency, token_variable, verify_tls, Pace(rate))


def _seconds(retry_after: str | None) -> float | None:
    """Seconds that Retry-After (a number or a date) asks for, bounded so that a server cannot stop the run for good."""
    try:
        seconds = float(retry_after or "nan")
    except ValueError:
        try:
            seconds = max(0.0, parsedate_to_datetime(retry_after or "").timestamp() - time.time())
        except (ValueError, TypeError, OverflowError):
            return None
    return min(seconds, _LONGEST_WAIT) if seconds >= 0 else None
