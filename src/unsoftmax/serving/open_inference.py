"""A reference model behind the Open Inference Protocol v2: an ASGI application, for practice and tests.

Binary tensors, model configuration and statistics follow Triton's extensions of the protocol, so that clients find
the batch limit and can compare their bill with what the server received.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from unsoftmax import __version__
from unsoftmax.errors import InvalidArgument, UnsoftmaxError
from unsoftmax.models.base import Array, Model

if TYPE_CHECKING:
    from starlette.applications import Starlette

_DATATYPES = {"float64": "FP64", "float32": "FP32", "float16": "FP16"}
_FORMATS = {datatype: name for name, datatype in _DATATYPES.items()}
LARGEST_BODY = 64 * 2**20
"""A request of 256 long sequences is far below; larger ones are refused before they are read."""

_HEADER = "Inference-Header-Content-Length"


@dataclass
class Service:
    """One model with its counters: requests answered and sequences received."""

    model: Model
    name: str = "model"
    max_batch: int = 256
    requests: int = 0
    sequences: int = 0

    @property
    def datatype(self) -> str:
        """Number format of the model's parameters, as the protocol names it."""
        kinds = {np.asarray(value).dtype.name for value in self.model.parameters().values() if np.ndim(value)}
        return _DATATYPES.get(max(kinds, default="float64"), "FP64")

    def about(self) -> dict[str, Any]:
        width = [] if self.model.outputs is None else [self.model.outputs]
        return {
            "name": self.name,
            "versions": ["1"],
            "platform": "unsoftmax",
            "inputs": [{"name": "tokens", "datatype": self.datatype, "shape": [-1, -1, self.model.dim]}],
            "outputs": [{"name": "answers", "datatype": self.datatype, "shape": [-1, *width]}],
        }

    def infer(self, body: bytes, header: str | None) -> tuple[bytes, int | None]:
        """Body of the answer, and the length of its JSON part if tensors follow as bytes."""
        request, tail = _split(body, header)
        tokens = self._tokens(request, tail)
        self.sequences += len(tokens)
        answers = np.ascontiguousarray(self.model(tokens), dtype=_FORMATS[self.datatype])
        self.requests += 1
        said: dict[str, Any] = {"name": "answers", "datatype": self.datatype, "shape": list(answers.shape)}
        answer = {"model_name": self.name, "model_version": "1", "outputs": [said]}
        if isinstance(request.get("id"), str):
            answer["id"] = request["id"]
        if not _wants_bytes(request):
            said["data"] = answers.astype(np.float64).ravel().tolist()
            return json.dumps(answer).encode(), None
        raw = answers.tobytes()
        said["parameters"] = {"binary_data_size": len(raw)}
        text = json.dumps(answer).encode()
        return text + raw, len(text)

    def _tokens(self, request: dict[str, Any], tail: bytes) -> Array:
        inputs = request.get("inputs")
        if not (isinstance(inputs, list) and len(inputs) == 1 and isinstance(inputs[0], dict)):
            raise InvalidArgument("exactly one input, 'tokens', is required.")
        given = inputs[0]
        if given.get("name") != "tokens" or given.get("datatype") not in _FORMATS:
            raise InvalidArgument(f"the input must be 'tokens' with datatype {self.datatype}.")
        shape = given.get("shape")
        dim = self.model.dim
        if not (isinstance(shape, list) and len(shape) == 3 and all(type(n) is int and n >= 1 for n in shape)):
            raise InvalidArgument(f"`shape` must be [batch, N, {dim}] (got {shape!r}).")
        if shape[0] > self.max_batch:
            raise InvalidArgument(f"at most {self.max_batch} sequences go into one request (got {shape[0]}).")
        parameters = given.get("parameters")
        size = parameters.get("binary_data_size") if isinstance(parameters, dict) else None
        dtype = np.dtype(_FORMATS[given["datatype"]]).newbyteorder("<")
        if size is None:
            flat = np.asarray(given.get("data"), dtype=dtype).ravel()
        elif size != len(tail):
            raise InvalidArgument(f"{size!r} bytes of tensor were announced and {len(tail)} came.")
        else:
            flat = np.frombuffer(tail, dtype=dtype)
        if flat.size != shape[0] * shape[1] * shape[2]:
            raise InvalidArgument(f"{flat.size} numbers do not fill the shape {shape}.")
        return flat.reshape(shape)


def _split(body: bytes, header: str | None) -> tuple[dict[str, Any], bytes]:
    """The JSON part of a request and the bytes behind it."""
    length = len(body) if header is None else int(header)
    if not 0 <= length <= len(body):
        raise InvalidArgument(f"{_HEADER} is {length} for a body of {len(body)} bytes.")
    request = json.loads(body[:length])
    if not isinstance(request, dict):
        raise InvalidArgument("the request must be a JSON object.")
    return request, body[length:]


def _wants_bytes(request: dict[str, Any]) -> bool:
    outputs = request.get("outputs")
    asked = outputs[0].get("parameters") if isinstance(outputs, list) and outputs and outputs[0] else None
    general = request.get("parameters")
    return bool(
        (isinstance(asked, dict) and asked.get("binary_data"))
        or (isinstance(general, dict) and general.get("binary_data_output"))
    )


def _described(service: Service, what: str) -> dict[str, Any]:
    match what:
        case "config":
            return {"name": service.name, "max_batch_size": service.max_batch}
        case "stats":
            counts = {"inference_count": service.sequences, "execution_count": service.requests}
            return {"model_stats": [{"name": service.name, "version": "1", **counts}]}
    return service.about()


def application(service: Service) -> Starlette:
    """The ASGI application of one service."""
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

    def error(message: str, status: int) -> Response:
        return JSONResponse({"error": message}, status_code=status)

    def known(request: Request) -> bool:
        return bool(request.path_params["model"] == service.name)

    async def server(_: Request) -> Response:
        extensions = ["binary_tensor_data", "model_configuration", "statistics"]
        return JSONResponse({"name": "unsoftmax", "version": __version__, "extensions": extensions})

    async def alive(_: Request) -> Response:
        return Response(status_code=200)

    async def describe(request: Request) -> Response:
        if not known(request):
            return error(f"there is no model {request.path_params['model']!r} here", 404)
        what = request.url.path.rsplit("/", 1)[-1]
        return Response(status_code=200) if what == "ready" else JSONResponse(_described(service, what))

    async def infer(request: Request) -> Response:
        if not known(request):
            return error(f"there is no model {request.path_params['model']!r} here", 404)
        body = b""
        async for piece in request.stream():
            body += piece
            if len(body) > LARGEST_BODY:
                return error(f"a request may have {LARGEST_BODY} bytes at most", 413)
        try:
            answer, length = service.infer(body, request.headers.get(_HEADER))
        except (UnsoftmaxError, ValueError, TypeError, AttributeError, OverflowError, RecursionError) as problem:
            return error(str(problem), 400)
        if length is None:
            return Response(answer, media_type="application/json")
        return Response(answer, media_type="application/octet-stream", headers={_HEADER: str(length)})

    about = ("", "/ready", "/config", "/stats")
    return Starlette(
        routes=[
            Route("/v2", server),
            Route("/v2/health/live", alive),
            Route("/v2/health/ready", alive),
            Route("/v2/models/{model}/infer", infer, methods=["POST"]),
            Route("/v2/models/{model}/versions/1/infer", infer, methods=["POST"]),
            *(Route(f"/v2/models/{{model}}{what}", describe) for what in about),
            *(Route(f"/v2/models/{{model}}/versions/1{what}", describe) for what in about),
        ]
    )
