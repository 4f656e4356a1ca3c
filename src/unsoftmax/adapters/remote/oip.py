"""Open Inference Protocol v2 (KServe, Triton, MLServer) as an oracle: `us.adapters.http`."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import numpy as np

from unsoftmax.adapters.callable import about, oracle
from unsoftmax.adapters.positions import Position, one_name
from unsoftmax.adapters.remote.transport import Transport, Unanswered, transport
from unsoftmax.arguments import either, require_extra, text
from unsoftmax.errors import InvalidArgument, OracleError
from unsoftmax.oracles.base import Oracle
from unsoftmax.probes.base import Array
from unsoftmax.spec import Kind, Link

FORMATS = {"FP64": "float64", "FP32": "float32", "FP16": "float16"}
"""Number formats as the protocol names them, and as NumPy does."""

_ATTEMPTS = 3
"""How often the description of a model is asked for: a server that is down should be said to be so at once."""


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
    for label, word in (("model", model), ("version", version)):
        text(label, word)
    if binary is not None:
        either("binary", binary)
    carrier = transport(
        url,
        rate=rate,
        concurrency=concurrency,
        timeout=timeout,
        retries=retries,
        backoff=backoff,
        token_variable=token_variable,
        verify_tls=verify_tls,
    )
    remote = RemoteModel(carrier, model, version, input or "", output or "", "FP64", bool(binary))
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


@dataclass(eq=False)
class RemoteModel:
    """A model on a server, as a callable (batch, N, d) -> (batch,) or (batch, outputs); one call is one request.

    tritonclient makes and reads the bodies.
    """

    transport: Transport
    model: str
    version: str
    input: str
    output: str
    datatype: str
    binary: bool
    remote = True

    @property
    def url(self) -> str:
        return self.transport.url

    @property
    def pace(self) -> Any:
        return self.transport.pace

    @property
    def concurrency(self) -> int:
        return self.transport.concurrency

    @property
    def __name__(self) -> str:
        return f"{self.url} {self.model}"

    def identity(self) -> dict[str, Any]:
        """What the ledger binds to: where the model is, never how access to it was paid for."""
        return {"url": self.url, "model": self.model, "version": self.version, "output": self.output}

    def __call__(self, tokens: Array) -> Array:
        return self.transport.insist(lambda: self._ask(tokens), len(tokens), tokens.shape[0] * tokens.shape[1])

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
        response = self.transport.send("POST", f"{model_path(self.model, self.version)}/infer", body, headers)
        length = response.headers.get("inference-header-content-length")
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


def model_path(model: str, version: str) -> str:
    return f"v2/models/{quote(model, safe='')}" + (f"/versions/{quote(version, safe='')}" if version else "")


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
                wait_initial=remote.transport.backoff,
                wait_jitter=remote.transport.backoff,
                timeout=None,
            )
            for attempt in attempts:
                with attempt:
                    said = json.loads(remote.transport.send("GET", path).content)
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
