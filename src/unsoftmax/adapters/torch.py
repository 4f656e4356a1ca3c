"""PyTorch modules as targets: `us.adapters.torch_module`. Nothing is unpickled; the module is the caller's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from unsoftmax.adapters.callable import about, oracle
from unsoftmax.adapters.embeds import answering, call_of, takes_embeds
from unsoftmax.adapters.positions import Position, arranged, index_of, selected
from unsoftmax.adapters.torch_explained import explanation
from unsoftmax.errors import InvalidArgument, OracleError
from unsoftmax.oracles.base import Oracle
from unsoftmax.probes.base import Array
from unsoftmax.spec import EXPLAINED, Kind

Answer = Callable[[Any, int], Any]
"""(tokens (batch, N, d) tensor, position) -> answers (batch, outputs) tensor."""

_SCORES = 2**23
"""Largest number of token pairs sent at once to a module that computes every position."""

_PARTS = ("attention", "block")
"""Parts of an nn.TransformerEncoderLayer that are no modules of their own, or have a shorter name here."""


def torch_module(
    module: Any,
    dim: int | None = None,
    *,
    outputs: int | None = None,
    position: Position = -1,
    part: str | None = None,
    select: int | str | None = None,
    dtype: str | None = None,
    max_norm: float | None = None,
    max_length: int | None = None,
    max_batch: int | None = None,
    name: str | None = None,
    kind: Kind = "value",
    readout: Array | None = None,
) -> Oracle:
    """An oracle of a PyTorch module, asked in eval mode and without gradients, in the module's own number format.

    The module itself answers unless `part` names a module inside it ("encoder.layers.0.self_attn"). Of an
    nn.TransformerEncoderLayer, part="attention" is its self-attention and part="block" that with its residual and
    LayerNorm, without the network behind. nn.MultiheadAttention (batch_first or not) is used as self-attention with
    only the answering position as query. Modules whose forward takes inputs_embeds or hidden_states are called by that
    name, and the last hidden state, the logits or the first part of their result answers. Any other module is called
    with tokens (batch, N, d) and returns (batch, N, outputs), (batch, outputs) or (batch,), where one output is a
    number and no vector; `select` picks from a tuple or dict of results, `outputs` and where possible `dim` are found
    with calls on zeros. `position`: the answering position, last by default; the query token of a probe is put there.
    `kind="gradient"` shows df/dX by autograd and `kind="attention"` the weights of
    an nn.MultiheadAttention, both beside one value: `readout` (outputs,) makes it of a vector.
    """
    torch = _torch()
    if not isinstance(module, torch.nn.Module):
        raise InvalidArgument(f"`module` must be a torch.nn.Module (got {type(module).__name__}); see us.oracle.")
    _refuse_training(module, torch)
    if any(p.is_meta for p in (*module.parameters(), *module.buffers())):
        raise InvalidArgument("the module is on the meta device, where parameters have no values; load them first.")
    index = index_of(position)
    whole = module
    module, answer, own, every_position = _part(module, part, select, torch)
    found = _dtype(module, dtype, torch)
    if own is None:
        own = _told(module, answer, found, torch) if dim is None else dim
    width = _width(answer, own, found, module, torch) if every_position else own
    scalar = every_position and width == 1 and outputs is None
    if dim is not None and dim != own:
        raise InvalidArgument(f"`dim` is {dim} but the module's embed_dim is {own}; pass dim={own} or omit it.")
    if outputs is not None and outputs != width:
        raise InvalidArgument(f"`outputs` is {outputs} but the module answers {width} numbers; omit it.")

    limits: dict[str, Any] = {"max_norm": max_norm, "max_length": max_length, "max_batch": max_batch}
    if kind in EXPLAINED:
        if index != -1:
            raise InvalidArgument(f'`position` must be the last one with kind="{kind}" (got {position!r}).')
        explain = explanation(module, answer, kind, readout, width, found, torch)
        made = oracle(explain, own, kind=kind, dtype=found, name=name or type(whole).__name__, **limits)
        return about(made, part=part, position=index, parts=())
    if kind != "value" or readout is not None:
        raise InvalidArgument(
            '`kind` must be "value", "gradient" or "attention", and `readout` goes with the last two '
            f"(got kind={kind!r}); for labels or noisy answers wrap a function with us.oracle."
        )

    def ask(tokens: Array) -> Array:
        X, place = arranged(np.asarray(tokens), index)
        size = max(1, _SCORES // X.shape[1] ** 2) if every_position else len(X)
        parts = [_call(module, answer, X[i : i + size], place, found, torch) for i in range(0, len(X), size)]
        answers = np.concatenate(parts)
        return answers.reshape(len(X)) if scalar else answers

    made = oracle(
        ask,
        own,
        dtype=found,
        outputs=None if scalar else width,
        **limits,
        name=name or type(whole).__name__,
    )
    offered = _PARTS if part is None and isinstance(module, torch.nn.TransformerEncoderLayer) else ()
    return about(made, part=part, position=index, parts=offered)


def _part(module: Any, part: str | None, select: int | str | None, torch: Any) -> tuple[Any, Answer, int | None, bool]:
    """The module that answers, how it is asked, its dimension where it says one, and whether it computes every
    position."""
    layer = torch.nn.TransformerEncoderLayer
    if isinstance(module, layer) and part in _PARTS:
        own = _self_attention_dim(module.self_attn)
        return module, _attention(module.self_attn) if part == "attention" else _block(module), own, False
    if part is not None:
        try:
            module = module.get_submodule(part) if part else None
        except AttributeError:
            module = None
        if module is None:
            raise InvalidArgument(
                f"`part` is {part!r}, which is no module inside the target; omit it for the module itself, name one of "
                f"named_modules(), or 'attention' or 'block' of an nn.TransformerEncoderLayer."
            )
    if isinstance(module, torch.nn.MultiheadAttention):
        return module, _attention(module), _self_attention_dim(module), False
    if isinstance(module, layer):
        return module, _any(module, select, module.self_attn.batch_first), int(module.self_attn.embed_dim), True
    return module, _any(module, select), None, True


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise InvalidArgument("this adapter needs PyTorch; install unsoftmax[torch].") from error
    return torch


def _refuse_training(module: Any, torch: Any) -> None:
    """In training mode a module with dropout answers at random, and one with batch statistics answers by the batch."""
    if not module.training:
        return
    for inner_name, inner in module.named_modules():
        rate = getattr(inner, "p", 0.0) if "Dropout" in type(inner).__name__ else getattr(inner, "dropout", 0.0)
        random = isinstance(rate, float) and rate > 0
        if random or isinstance(inner, torch.nn.modules.batchnorm._BatchNorm):
            raise InvalidArgument(
                f"the module is in training mode and its {type(inner).__name__} {inner_name!r} does not answer the "
                "same way twice there; call module.eval() first."
            )


def _dtype(module: Any, wanted: str | None, torch: Any) -> str:
    kinds = {p.dtype for p in (*module.parameters(), *module.buffers()) if p.is_floating_point()}
    names = {torch.float32: "float32", torch.float64: "float64"}
    unknown = [str(kind) for kind in kinds if kind not in names]
    if unknown or len(kinds) > 1:
        raise InvalidArgument(
            f"the module's parameters must all be float32 or all float64 (got {', '.join(sorted(map(str, kinds)))}); "
            "convert a copy with module.float() or module.double()."
        )
    found = names[kinds.pop()] if kinds else (wanted or "float32")
    if wanted is not None and wanted != found:
        raise InvalidArgument(
            f"`dtype` is {wanted!r} but the module's parameters are {found}; omit it, or convert the module."
        )
    return found


def _self_attention_dim(module: Any) -> int:
    d = int(module.embed_dim)
    if (module.kdim, module.vdim) != (d, d):
        raise InvalidArgument(
            f"the module takes keys of {module.kdim} and values of {module.vdim} numbers where queries have {d}: it "
            "cannot attend to its own tokens. Recover it as cross-attention through us.oracle with tokens you split."
        )
    if module.bias_k is not None or module.add_zero_attn:
        raise InvalidArgument(
            "add_bias_kv and add_zero_attn put a hidden token into every sequence, which no layer of this class has."
        )
    return d


def _attention(module: Any) -> Answer:
    def answer(tokens: Any, place: int) -> Any:
        query = tokens[:, place : place + 1]
        if module.batch_first:
            return module(query, tokens, tokens, need_weights=False)[0][:, 0]
        tokens, query = tokens.transpose(0, 1), query.transpose(0, 1)
        return module(query, tokens, tokens, need_weights=False)[0][0]

    return answer


def _block(layer: Any) -> Answer:
    attention = _attention(layer.self_attn)

    def answer(tokens: Any, place: int) -> Any:
        if layer.norm_first:
            return tokens[:, place] + attention(layer.norm1(tokens), place)
        return layer.norm1(tokens[:, place] + attention(tokens, place))

    return answer


def _any(module: Any, select: int | str | None, batch_first: bool = True) -> Answer:
    call = call_of(module)
    named = select is None and takes_embeds(module)

    def answer(tokens: Any, place: int) -> Any:
        result = call(tokens) if batch_first else call(tokens.transpose(0, 1)).transpose(0, 1)
        if select is not None:
            result = selected(result, select)
        elif named:
            result = answering(result)
        if not hasattr(result, "dim"):
            raise InvalidArgument(
                f"the module returns a {type(result).__name__}; say which part is the answer with select=, by its "
                "index or name."
            )
        return result[:, place] if result.dim() == 3 else result[:, None] if result.dim() == 1 else result

    return answer


_SAY = ("embed_dim", "d_model", "hidden_size", "in_features", "normalized_shape")
"""Attributes of modules in which the dimension of tokens stands."""


def _told(module: Any, answer: Answer, dtype: str, torch: Any) -> int:
    """The token dimension that the parts of a module say, where it takes tokens of one of them only."""
    said = [getattr(inner, name) for inner in module.modules() for name in _SAY if hasattr(inner, name)]
    sizes = dict.fromkeys(int(s[-1] if isinstance(s, tuple) else s) for s in said if isinstance(s, int | tuple) and s)
    fitting = []
    for size in sizes:
        try:
            _call(module, answer, np.zeros((1, 2, size)), 1, dtype, torch)
        except (OracleError, InvalidArgument):
            continue
        fitting.append(size)
    if len(fitting) == 1:
        return fitting[0]
    which = f" (it takes {' or '.join(map(str, fitting))})" if fitting else ""
    raise InvalidArgument(
        f"`dim` is required: a module of this kind does not say its token dimension{which}; pass dim= (--dim on the "
        "command line)."
    )


def _width(answer: Answer, dim: int, dtype: str, module: Any, torch: Any) -> int:
    """Width of the answers, from one call on two tokens of zeros."""
    try:
        shape = _call(module, answer, np.zeros((1, 2, dim)), 1, dtype, torch).shape
    except OracleError as error:
        raise InvalidArgument(
            f"the module does not take tokens of shape (batch, N, {dim}): {error} Check `dim`."
        ) from error
    if len(shape) != 2 or shape[0] != 1:
        raise InvalidArgument(
            f"the module must return (batch, N, outputs), (batch, outputs) or (batch,) (got {shape} for one)."
        )
    return int(shape[1])


def _call(module: Any, answer: Answer, tokens: Array, place: int, dtype: str, torch: Any) -> Array:
    device = next((p.device for p in module.parameters()), torch.device("cpu"))
    was_training = module.training
    try:
        module.eval()
        with torch.inference_mode():
            X = torch.as_tensor(np.ascontiguousarray(tokens), dtype=getattr(torch, dtype), device=device)
            y = answer(X, place)
            if y.is_complex():
                raise InvalidArgument("the module answers complex numbers; give it an output of real ones.")
            return np.asarray(y.cpu().numpy(), dtype=np.float64)
    except InvalidArgument:
        raise
    except (RuntimeError, TypeError, ValueError, IndexError, KeyError) as error:
        raise OracleError(f"the module failed on tokens of shape {tokens.shape}: {error}") from error
    finally:
        module.train(was_training)
