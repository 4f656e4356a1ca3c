"""Open Inference Protocol v2 (KServe, Triton, MLServer) as an oracle: `us.adapters.http`."""

from __future__ import annotations

import json
import os
from typing import Any
from urllib.parse import SplitResult, urlsplit

from unsoftmax.adapters.callable import about, oracle
from unsoftmax.adapters.positions import Position, one_name
from unsoftmax.adapters.remote import FORMATS, Pace, RemoteModel, Unanswered, model_path
from unsoftmax.arguments import real, require_extra, text, whole
from unsoftmax.errors import InvalidArgument, OracleError
from unsoftmax.oracles.base import Oracle
from unsoftmax.spec import Kind, Link

_ATTEMPTS = 3
"""How often the description of a model is asked for: a server that is down should be said to be so at once."""
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def http(
    url: str,
    model: str,
    *,
    version: str = "",
    dim: int | None = None,
    kind: Kind = "value",
    tolerance: float = 0.0,
    dtype: str | None = None,
    outputs: int | None = None,
    max_norm: float | None = None,
    max_length: int | None = None,
    max_batch: int | None = None,
    link: Link | None = None,
    name: str | None = None,
    input: str | None = None,
    output: str | None = None,
    binary: bool | None = None,
    rate: float = 1000.0,
    concurrency: int = 4,
    timeout: float = 30.0,
    retries: int = 8,
    backoff: float = 0.1,
    token_variable: str = "UNSOFTMAX_TOKEN",
    verify_tls: bool = True,
    part: str | None = None,
    position: Position | None = None,
) -> Oracle:
    """A model behind the Open Inference Protocol v2: url is the server ("https://host:8443"), model its name there.

    Names of tensors, number format, dimension and batch limit are read from the server where it tells them.
    part            the output tensor that answers; another name for `output`.
    position        where the query token is put and whose answer is taken of (batch, N, outputs); None: the server
                    answers for the last token by itself.
    rate            queries per second at most (1000 unless told; math.inf for none).
    concurrency     requests out at once; max_batch sequences go into one (the server's limit, else 256).
    retries         further attempts on 408, 425, 429, 5xx, timeouts, broken or foreign answers, with growing, jittered
                    pauses from `backoff` seconds; Retry-After is honoured. Each is billed and kept within the budget.
    binary          tensors as bytes; None: if the server announces them, else JSON with every digit.
    token_variable  environment variable with a bearer token; it is read at each request and written nowhere.
    """
    require_extra("http", "adapters.http", "httpx", "stamina", "tritonclient")
    output = one_name(output, part)
    for label, word in (("url", url), ("model", model), ("version", version), ("token_variable", token_variable)):
        text(label, word)
    parts = _address(url, token_variable, verify_tls)
    for label, value in (("rate", rate), ("timeout", timeout), ("backoff", backoff)):
        real(label, value)
    whole("concurrency", concurrency)
    whole("retries", retries, 0)
    remote = RemoteModel(
        url=f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}",
        model=model,
        version=version,
        input=input or "",
        output=output or "",
        datatype="FP64",
        binary=bool(binary),
        timeout=timeout,
        retries=retries,
        backoff=backoff,
        concurrency=concurrency,
        token_variable=token_variable,
        verify_tls=verify_tls,
        pace=Pace(rate),
    )
    told = _Metadata(remote)
    given, wanted = told.tensor("inputs", input), told.tensor("outputs", output)
    remote.input, remote.output = given["name"], wanted["name"]
    remote.datatype = given.get("datatype", "FP64")
    if remote.datatype not in FORMATS:
        raise InvalidArgument(f"{model} takes {remote.datatype}; {', '.join(FORMATS)} can be sent.")
    if binary is None:
        remote.binary = told.binary
    if dim is None:
        dim = told.last_dimension(given)
    formats = [FORMATS.get(tensor.get("datatype", ""), "float64") for tensor in (given, wanted)]
    made = oracle(
        remote,
        dim,
        kind=kind,
        tolerance=tolerance,
        dtype=dtype or min(formats, key=lambda name: int(name.removeprefix("float"))),
        outputs=outputs or told.width(wanted),
        max_norm=max_norm,
        max_length=max_length,
        max_batch=max_batch or told.max_batch,
        link=link,
        name=name,
        position=position,
    )
    return about(made, part=None if told.single else f"output {remote.output}")


class _Metadata:
    """What the server says about the model, asked once."""

    def __init__(self, remote: RemoteModel) -> None:
        self.model = remote.model
        self.about = self._get(remote, model_path(remote.model, remote.version), required=True)
        server = self._get(remote, "v2")
        extensions = server.get("extensions")
        self.binary = isinstance(extensions, list) and "binary_tensor_data" in extensions
        limit = None
        if isinstance(extensions, list) and "model_configuration" in extensions:
            limit = self._get(remote, f"{model_path(remote.model, remote.version)}/config").get("max_batch_size")
        self.max_batch = limit if isinstance(limit, int) and limit > 0 else 256

    @staticmethod
    def _get(remote: RemoteModel, path: str, required: bool = False) -> dict[str, Any]:
        import stamina

        try:
            attempts = stamina.retry_context(
                on=Unanswered,
                attempts=_ATTEMPTS,
                wait_initial=remote.backoff,
                wait_jitter=remote.backoff,
                timeout=None,
            )
            for attempt in attempts:
                with attempt:
                    said = json.loads(remote.send("GET", path, None, {}).content)
            if isinstance(said, dict):
                return said
            raise ValueError("not an object")
        except (Unanswered, OracleError, ValueError, RecursionError) as error:
            if required and isinstance(error, Unanswered):
                raise error.told(remote.url, _ATTEMPTS, "check that it serves the Open Inference Protocol v2") from None
            if required:
                raise OracleError(
                    f"{remote.url}/{path} does not describe a model ({error}); check the url and the model's name."
                ) from error
            return {}

    def tensor(self, side: str, name: str | None) -> dict[str, Any]:
        listed = self.about.get(side)
        tensors = [t for t in listed if isinstance(t, dict) and isinstance(t.get("name"), str)] if listed else []
        chosen = [t for t in tensors if name is None or t["name"] == name]
        if len(chosen) == 1:
            return chosen[0]
        if name is not None and not tensors:
            return {"name": name}
        known = ", ".join(t["name"] for t in tensors) or "none"
        raise InvalidArgument(f"pass {side[:-1]}= with the name of one of the {side} of {self.model} (known: {known}).")

    @property
    def single(self) -> bool:
        """Whether the model has one output, which then needs no name."""
        listed = self.about.get("outputs")
        return not isinstance(listed, list) or len(listed) < 2

    @staticmethod
    def width(tensor: dict[str, Any]) -> int | None:
        """Numbers per sequence, or per position of one; None for one number."""
        shape = tensor.get("shape")
        wide = isinstance(shape, list) and len(shape) in (2, 3) and isinstance(shape[-1], int) and shape[-1] > 1
        return shape[-1] if wide and shape else None

    def last_dimension(self, tensor: dict[str, Any]) -> int:
        shape = tensor.get("shape")
        if isinstance(shape, list) and shape and isinstance(shape[-1], int) and shape[-1] > 0:
            return shape[-1]
        raise InvalidArgument(f"{self.model} does not tell its token dimension; pass dim= (--dim on the command line).")


def _address(url: str, token_variable: str, verify_tls: bool) -> SplitResult:
    """The parts of the server's address, refused if a token would travel in the open."""
    wrong = InvalidArgument(f"`url` must be http://host:port or https://host:port (got {url!r}).")
    try:
        parts = urlsplit(url if "//" in url else f"http://{url}")
        _ = parts.port  # reading it checks it
    except ValueError as error:
        raise wrong from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise wrong
    if parts.username or parts.password:
        raise InvalidArgument("`url` must not hold a password: ledgers and reports name it; use token_variable=.")
    exposed = parts.scheme == "http" or not verify_tls
    if os.environ.get(token_variable) and exposed and parts.hostname not in _LOOPBACK:
        raise InvalidArgument(
            f"the token in {token_variable} is sent only over verified TLS; use https://, or unset the variable."
        )
    return parts
