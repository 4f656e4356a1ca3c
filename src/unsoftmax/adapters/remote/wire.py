"""What JSON wires share: prompts of ids or sequences of vectors in, numbers out, every answer checked.

A wire says where a request goes, what it holds, and how the numbers of each sequence stand in the answer. The openai
package is not used: its own retries would not be billed, and the bodies are a dozen lines each.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from unsoftmax.adapters.callable import oracle
from unsoftmax.adapters.logits import logit_oracle
from unsoftmax.adapters.remote.steadiness import steady
from unsoftmax.adapters.remote.transport import Transport, Unanswered
from unsoftmax.adapters.tokens import token_oracle
from unsoftmax.errors import InvalidArgument, OracleError
from unsoftmax.oracles.base import Oracle
from unsoftmax.oracles.metering import Owed
from unsoftmax.probes.base import Array
from unsoftmax.spec import Shows

BIAS = 100.0
"""logit_bias that lifts chosen tokens above all others: the largest value that services take."""

_TOKEN_ID = re.compile(r"token_id:(\d+)")
"""How servers name a token by its id when they are asked to (vLLM: return_tokens_as_token_ids)."""

Body = dict[str, Any]


@dataclass(eq=False)
class Wire:
    """A model on a server as a callable; `ask` and `read` are the wire, the rest is the same for all.

    ask   (path, rows of one chunk, chosen tokens or None) -> the JSON body.
    read  (what the server said, number of rows) -> one item per row, in order; KeyError and the like mean that it is
          no answer.
    """

    transport: Transport
    model: str
    path: str
    ask: Callable[[Array, Array | None], Body]
    read: Callable[[Any, int], list[Any]]
    what: dict[str, Any] = field(default_factory=dict)
    owed: Owed = field(default_factory=Owed)
    remote = True

    @property
    def concurrency(self) -> int:
        return self.transport.concurrency

    @property
    def pace(self) -> Any:
        return self.transport.pace

    @property
    def __name__(self) -> str:
        return f"{self.transport.url} {self.model}".strip()

    def identity(self) -> dict[str, Any]:
        """What the ledger binds to: where the model is and what is asked of it, never how access was paid for."""
        return {"url": self.transport.url, "model": self.model, "path": self.path, **self.what}

    def items(self, rows: Array, chosen: Array | None = None, numbers: Callable[[list[Any]], Any] | None = None) -> Any:
        """What the server says of each row; `numbers` turns it into arrays inside the attempt, so that it may fail."""
        # Chosen tokens are billed as on the first attempt: they were sent.
        tokens = rows.shape[0] * rows.shape[1] + (0 if chosen is None else chosen.size)
        return self.transport.insist(lambda: self._exchange(rows, chosen, numbers), len(rows), int(tokens))

    def _exchange(self, rows: Array, chosen: Array | None, numbers: Callable[[list[Any]], Any] | None) -> Any:
        body = json.dumps(self.ask(rows, chosen)).encode()
        answer = self.transport.send("POST", self.path, body, {"Content-Type": "application/json"})
        try:
            said = json.loads(answer.content)
            found = self.read(said, len(rows))
            if len(found) != len(rows):
                raise Unanswered(f"{len(found)} answers came for {len(rows)} sequences", odd=True)
            return found if numbers is None else numbers(found)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
            raise Unanswered(f"the answer could not be read: {type(error).__name__} {error}", odd=True) from error


def finite(values: Any, shape: tuple[int, ...] | None = None) -> Array:
    """Numbers of an answer as float64; text, NaN and other shapes are no answer."""
    if isinstance(values, (list, tuple)) and any(isinstance(v, (str, bool)) or v is None for v in values):
        raise Unanswered("the answer has text where numbers belong", odd=True)
    array = np.asarray(values, dtype=np.float64)
    if not np.isfinite(array).all():
        raise Unanswered("the answer has numbers that are not finite", odd=True)
    if shape is not None and array.shape != shape:
        raise Unanswered(f"the answer has the shape {array.shape} where {shape} was required", odd=True)
    return array


@lru_cache(maxsize=2**18)
def _id_of(word: str) -> int | None:
    """The number in "token_id:7", None for another word; the same words come back in every answer."""
    found = _TOKEN_ID.fullmatch(word)
    return int(found.group(1)) if found else None


def token_of(item: Any, names: dict[str, int] | None) -> int:
    """The id of a token that an answer names by id, as "token_id:7", or by a word of `names`."""
    if isinstance(item, int) and not isinstance(item, bool):
        return item
    found = _id_of(str(item))
    if found is not None:
        return found
    if names is not None and item in names:
        return names[item]
    raise OracleError(
        f"the server names tokens by their text ({str(item)[:40]!r}) and not by id: pass names={{text: id}}, or switch "
        "on ids (vLLM: --return-tokens-as-token-ids)."
    )


def table(pairs: list[list[tuple[int, float]]], columns: int) -> Array:
    """Log-probabilities (n, V) from (id, log-probability) pairs of every token."""
    rows = np.full((len(pairs), columns), np.nan)
    for row, named in zip(rows, pairs, strict=True):
        ids = np.array([i for i, _ in named], dtype=np.int64)
        if ids.size and not (ids.min() >= 0 and ids.max() < columns):
            raise OracleError(f"the server names the token {int(ids.max())}; vocabulary={columns} is too small.")
        row[ids] = finite([value for _, value in named])
    if np.isnan(rows).any():
        missing = int(np.isnan(rows).any(axis=0).sum())
        raise OracleError(
            f"{missing} of {columns} tokens are missing from an answer: the server shows fewer than were asked for. "
            'Pass top= with as many as it shows (shows="top" or "chosen"), or allow more (vLLM: --max-logprobs).'
        )
    return rows


def tops(pairs: list[list[tuple[int, float]]], k: int) -> tuple[Array, Array]:
    """The k likeliest tokens of each prompt and their log-probabilities, (n, k) each."""
    best = [sorted(named, key=lambda pair: -pair[1])[:k] for named in pairs]
    if any(len(named) < k for named in best):
        raise OracleError(f"the server shows {min(map(len, best))} tokens where top={k} were asked for; pass fewer.")
    ids = np.array([[i for i, _ in named] for named in best])
    return ids, finite([value for named in best for _, value in named]).reshape(len(best), k)


def of_chosen(pairs: list[list[tuple[int, float]]], chosen: Array) -> Array:
    """Log-probabilities (n, k) of the chosen tokens."""
    rows = []
    for named, wanted in zip(pairs, chosen, strict=True):
        found = dict(named)
        missing = [int(i) for i in wanted if int(i) not in found]
        if missing:
            raise OracleError(
                f"the chosen token {missing[0]} is not among the {len(found)} that the server shows: its logit_bias "
                "does not act on what it shows (vLLM: --logprobs-mode processed_logprobs), or it shows fewer than top=."
            )
        rows.append([found[int(i)] for i in wanted])
    return finite([value for row in rows for value in row]).reshape(chosen.shape)


def language_model(
    wire: Wire, vocabulary: int, shows: Shows, top: int | None, *, tolerance: float | None, **rest: Any
) -> Oracle:
    """The oracle of a wire whose items are pairs (id, log-probability) for each prompt."""

    def everything(ids: Array) -> Any:
        return wire.items(ids, None, lambda found: table(found, vocabulary))

    def likeliest(ids: Array) -> Any:
        return wire.items(ids, None, lambda found: tops(found, top or 1))

    def picked(ids: Array, chosen: Array) -> Any:
        # A bias belongs to a request: each prompt goes alone.
        return np.concatenate([one(row[None], few[None]) for row, few in zip(ids, chosen, strict=True)])

    def one(row: Array, few: Array) -> Any:
        return wire.items(row, few, lambda found: of_chosen(found, few))

    asked: Any = {"top": likeliest, "chosen": picked}.get(shows, everything)
    return steady(logit_oracle(_Named(asked, wire), vocabulary, shows=shows, top=top, **rest), tolerance)


def of_vectors(wire: Wire, width: int, vocabulary: int, *, tolerance: float | None, **rest: Any) -> Oracle:
    """The oracle of a wire that takes vectors of `width` numbers and shows every token of the vocabulary."""

    def everything(X: Array) -> Any:
        return wire.items(X, None, lambda found: table(found, vocabulary))

    return steady(oracle(_Named(everything, wire), width, outputs=vocabulary, **rest), tolerance)


def embeddings(
    wire: Wire, vocabulary: int | None, outputs: int | None, *, tolerance: float | None, **rest: Any
) -> Oracle:
    """The oracle of a wire whose items are vectors."""
    V = require("vocabulary", vocabulary, "prompts are sent as token ids")
    width = require("outputs", outputs, "it is the number of entries of an embedding")

    def stacked(found: list[Any]) -> Array:
        return np.stack([finite(vector, (width,)) for vector in found])

    def pooled(ids: Array) -> Any:
        return wire.items(ids, None, stacked)

    return steady(token_oracle(_Named(pooled, wire), V, outputs=width, **rest), tolerance)


@dataclass(eq=False)
class _Named:
    """A function of a wire that is known as the wire is: to ledgers, to budgets and rates."""

    call: Callable[..., Any]
    wire: Wire
    remote = True

    def __call__(self, *rows: Array) -> Any:
        return self.call(*rows)

    @property
    def __name__(self) -> str:
        return self.wire.__name__

    @property
    def concurrency(self) -> int:
        return self.wire.concurrency

    @property
    def owed(self) -> Owed:
        return self.wire.owed

    @property
    def embeds(self) -> bool:
        """Whether vectors are sent in place of tokens."""
        return bool(self.wire.what.get("embeds"))

    def identity(self) -> dict[str, Any]:
        return self.wire.identity()


def require(name: str, value: Any, why: str) -> Any:
    """The value, or a refusal that says why it is needed."""
    if value is None:
        raise InvalidArgument(f"`{name}` is required: {why}.")
    return value
