"""A small language model behind the wires that servers of 2026 speak: an ASGI application, for practice and tests.

Completions with log-probabilities, logit_bias and prompt embeds, chat, embeddings (OpenAI, vLLM); /completion and
/embedding (llama.cpp); /generate (SGLang); /embed (Text Embeddings Inference). Words are "t7" for the token 7.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from unsoftmax.errors import InvalidArgument, UnsoftmaxError
from unsoftmax.models.base import Array
from unsoftmax.serving.llama import Llama
from unsoftmax.serving.open_inference import LARGEST_BODY

if TYPE_CHECKING:
    from starlette.applications import Starlette

_LONGEST = 4096
"""Tokens of a prompt at most."""


@dataclass
class LanguageService:
    """One model with its counters. `doors` names what is open: "logprobs", "bias", "embeds", "embeddings".

    `key`: a bearer token that requests under /v1 must carry, as servers ask for it; None for none.
    """

    model: Llama
    name: str = "model"
    raw_logits: bool = False
    doors: frozenset[str] = frozenset({"logprobs", "bias", "embeds", "embeddings"})
    key: str | None = None
    requests: int = 0
    sequences: int = 0
    _routes: dict[str, Callable[[dict[str, Any]], Any]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self._routes = {
            "/v1/completions": self.completions,
            "/v1/chat/completions": self.chat,
            "/v1/embeddings": self.embeddings,
            "/completion": self.completion,
            "/embedding": self.embedding,
            "/generate": self.generate,
            "/embed": self.embed,
        }

    @property
    def paths(self) -> list[str]:
        return list(self._routes)

    def answer(self, path: str, body: bytes) -> Any:
        """What the server says to a request."""
        request = json.loads(body)
        if not isinstance(request, dict):
            raise InvalidArgument("the request must be a JSON object.")
        if path.startswith("/v1") and request.get("model") != self.name:
            raise InvalidArgument(f"the model {request.get('model')!r} does not exist; this server has {self.name!r}.")
        said = self._routes[path](request)
        self.requests += 1
        return said

    # The model.

    def _require(self, door: str, what: str) -> None:
        if door not in self.doors:
            raise InvalidArgument(f"{what} is not enabled on this server.")

    def _ids(self, prompt: Any) -> Array:
        words = prompt.split() if isinstance(prompt, str) else prompt
        ids = [int(word.removeprefix("t")) if isinstance(word, str) else word for word in words]
        if not ids or len(ids) > _LONGEST or not all(type(i) is int and 0 <= i < self.model.vocabulary for i in ids):
            raise InvalidArgument(f"a prompt is 1 to {_LONGEST} ids in 0..{self.model.vocabulary - 1}.")
        return np.array([ids])

    def _vectors(self, value: Any) -> Array:
        self._require("embeds", "prompt embeds")
        if isinstance(value, str):
            value = _tensor(value)
        x = np.asarray(value, dtype=np.float64)
        if x.ndim != 2 or x.shape[1] != self.model.dim or not np.isfinite(x).all() or not 0 < len(x) <= _LONGEST:
            raise InvalidArgument(f"vectors must be finite, of shape (N, {self.model.dim}).")
        return x[None]

    def _logits(self, embedded: Array) -> Array:
        self.sequences += 1
        return np.asarray(self.model.logits(embedded)[0])

    def _shown(self, logits: Array, bias: dict[int, float] | None = None) -> Array:
        """Log-probabilities after the bias, or raw logits."""
        if bias:
            self._require("bias", "logit_bias")
            logits = logits.copy()
            logits[list(bias)] += list(bias.values())
        return logits if self.raw_logits else np.asarray(logits - np.logaddexp.reduce(logits))

    def _top(self, shown: Array, k: Any) -> list[tuple[int, float]]:
        self._require("logprobs", "logprobs")
        if type(k) is not int or not 0 <= k <= len(shown):
            raise InvalidArgument(f"the number of tokens shown must be between 0 and {len(shown)} (got {k!r}).")
        order = np.argsort(-shown, kind="stable")[:k]
        return [(int(i), float(shown[i])) for i in order]

    def _pooled(self, ids: Array) -> list[float]:
        self._require("embeddings", "embeddings")
        self.sequences += 1
        vector: list[float] = self.model.hidden(self.model.embeddings[ids])[0].mean(axis=0).tolist()
        return vector

    # OpenAI and vLLM.

    def completions(self, request: dict[str, Any]) -> Any:
        sent = request.get("prompt_embeds")
        if sent is not None:
            inputs = [self._vectors(one) for one in (sent if isinstance(sent, list) else [sent])]
        else:
            inputs = [self.model.embeddings[ids] for ids in self._prompts(request.get("prompt"))]
        bias = _bias(request.get("logit_bias"))
        choices = []
        for index, embedded in enumerate(inputs):
            shown = self._shown(self._logits(embedded), bias)
            choice: dict[str, Any] = {"index": index, "text": f"t{int(shown.argmax())}", "finish_reason": "length"}
            if request.get("logprobs") is not None:
                top = self._top(shown, request["logprobs"])
                by_id = bool(request.get("return_tokens_as_token_ids"))
                choice["logprobs"] = {"top_logprobs": [{_word(i, by_id): value for i, value in top}]}
            choices.append(choice)
        return {"object": "text_completion", "model": self.name, "choices": choices}

    def _prompts(self, prompt: Any) -> list[Array]:
        several = isinstance(prompt, list) and bool(prompt) and isinstance(prompt[0], (list, str))
        return [self._ids(one) for one in (prompt if several else [prompt])]

    def chat(self, request: dict[str, Any]) -> Any:
        ids = self._ids(request["messages"][-1]["content"])
        shown = self._shown(self._logits(self.model.embeddings[ids]), _bias(request.get("logit_bias")))
        choice: dict[str, Any] = {"index": 0, "message": {"role": "assistant", "content": f"t{int(shown.argmax())}"}}
        if request.get("logprobs"):
            by_id = bool(request.get("return_tokens_as_token_ids"))
            top = self._top(shown, request.get("top_logprobs", 0))
            listed = [{"token": _word(i, by_id), "logprob": value} for i, value in top]
            choice["logprobs"] = {"content": [{"token": "", "logprob": 0.0, "top_logprobs": listed}]}
        return {"object": "chat.completion", "model": self.name, "choices": [choice]}

    def embeddings(self, request: dict[str, Any]) -> Any:
        vectors = [self._pooled(ids) for ids in self._prompts(request.get("input"))]
        if request.get("encoding_format") == "base64":
            data: list[Any] = [base64.b64encode(np.asarray(v, dtype="<f4").tobytes()).decode() for v in vectors]
        else:
            data = vectors
        listed = [{"object": "embedding", "index": i, "embedding": vector} for i, vector in enumerate(data)]
        return {"object": "list", "model": self.name, "data": listed}

    # llama.cpp.

    def completion(self, request: dict[str, Any]) -> Any:
        logits = self._logits(self.model.embeddings[self._ids(request.get("prompt"))])
        bias = {int(i): float(value) for i, value in request.get("logit_bias") or []}
        after = bool(request.get("post_sampling_probs"))
        top = self._top(self._shown(logits, bias if after else None), request.get("n_probs", 0))
        if after:
            shown: dict[str, Any] = {"top_probs": [{"id": i, "prob": float(np.exp(value))} for i, value in top]}
        else:
            shown = {"top_logprobs": [{"id": i, "token": f"t{i}", "logprob": value} for i, value in top]}
        return {"content": "", "completion_probabilities": [shown]}

    def embedding(self, request: dict[str, Any]) -> Any:
        return [{"index": 0, "embedding": [self._pooled(self._ids(request.get("content")))]}]

    # SGLang and Text Embeddings Inference.

    def generate(self, request: dict[str, Any]) -> Any:
        if "input_embeds" in request:
            inputs = [self._vectors(one) for one in request["input_embeds"]]
        else:
            inputs = [self.model.embeddings[self._ids(one)] for one in request["input_ids"]]
        chosen = request.get("token_ids_logprob")
        said = []
        for row, embedded in enumerate(inputs):
            shown = self._shown(self._logits(embedded))
            if chosen is None:
                listed = [[value, i, None] for i, value in self._top(shown, request.get("top_logprobs_num", 0))]
                said.append({"text": "", "meta_info": {"output_top_logprobs": [listed]}})
            else:
                picked = [[float(shown[i]), i, None] for i in chosen[row]]
                said.append({"text": "", "meta_info": {"output_token_ids_logprobs": [picked]}})
        return said

    def embed(self, request: dict[str, Any]) -> Any:
        vectors = [self._pooled(ids) for ids in self._prompts(request.get("inputs"))]
        if request.get("normalize", True):
            vectors = [(np.asarray(v) / np.linalg.norm(v)).tolist() for v in vectors]
        return vectors


def _tensor(text: str) -> Array:
    """A tensor as torch saved it, in base64; nothing but a tensor is read."""
    import pickle

    try:
        import torch
    except ImportError as error:
        raise InvalidArgument("prompt embeds are not enabled on this server: it has no torch.") from error
    try:
        return np.asarray(torch.load(io.BytesIO(base64.b64decode(text, validate=True)), weights_only=True).numpy())
    except (pickle.UnpicklingError, RuntimeError, EOFError, AttributeError) as error:
        raise InvalidArgument("prompt_embeds must be a tensor as torch.save writes it, in base64.") from error


def _word(token: int, by_id: bool) -> str:
    return f"token_id:{token}" if by_id else f"t{token}"


def _bias(value: Any) -> dict[int, float] | None:
    return None if value is None else {int(i): float(v) for i, v in value.items()}


def application(service: LanguageService) -> Starlette:
    """The ASGI application of one service."""
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

    def error(message: str, status: int) -> Response:
        return JSONResponse({"error": {"message": message}}, status_code=status)

    def stranger(request: Request) -> bool:
        guarded = service.key is not None and request.url.path.startswith("/v1")
        return guarded and request.headers.get("Authorization") != f"Bearer {service.key}"

    async def listed(request: Request) -> Response:
        if stranger(request):
            return error("a key is required", 401)
        meta = {"n_vocab": service.model.vocabulary, "n_embd": service.model.dim}
        return JSONResponse({"object": "list", "data": [{"id": service.name, "object": "model", "meta": meta}]})

    async def version(_: Request) -> Response:
        return JSONResponse({"version": "practice"})

    async def counted(_: Request) -> Response:
        return JSONResponse({"requests": service.requests, "sequences": service.sequences})

    async def asked(request: Request) -> Response:
        if stranger(request):
            return error("a key is required", 401)
        body = b""
        async for piece in request.stream():
            body += piece
            if len(body) > LARGEST_BODY:
                return error(f"a request may have {LARGEST_BODY} bytes at most", 413)
        try:
            return JSONResponse(service.answer(request.url.path, body))
        except (UnsoftmaxError, ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as problem:
            return error(str(problem), 400)

    routes = [Route(path, asked, methods=["POST"]) for path in service.paths]
    told = [Route("/v1/models", listed), Route("/version", version), Route("/stats", counted)]
    return Starlette(routes=[*told, *routes])
