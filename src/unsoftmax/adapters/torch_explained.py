"""PyTorch modules that explain their answers: gradients by autograd, attention weights as the module gives them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from unsoftmax.errors import InvalidArgument, OracleError
from unsoftmax.probes.base import Array
from unsoftmax.spec import Kind

Answer = Callable[[Any, int], Any]
"""(tokens (batch, N, d), place) -> answers (batch, outputs) or (batch,), as tensors."""

Explanation = Callable[[Array], tuple[Array, Array]]
"""tokens (batch, N, d) -> values (batch,) and gradients (batch, N, d) or weights (batch, H, N)."""


def explanation(
    module: Any, answer: Answer, kind: Kind, readout: Any, width: int, dtype: str, torch: Any
) -> Explanation:
    """The module asked for a value and its explanation, in eval mode; the value of a vector is its product with
    `readout` (outputs,)."""
    weights = _readout(readout, width)
    attends = isinstance(module, torch.nn.MultiheadAttention)
    if kind == "attention" and not attends:
        raise InvalidArgument(
            f'kind="attention" needs a module that shows its weights, an nn.MultiheadAttention (got '
            f"{type(module).__name__}); name the one inside with part=, or give us.oracle a function."
        )
    device = next((p.device for p in module.parameters()), torch.device("cpu"))
    number = getattr(torch, dtype)
    w = torch.as_tensor(weights, dtype=number, device=device)

    def value(y: Any) -> Any:
        return y @ w if y.dim() == 2 else y

    def ask(tokens: Array) -> tuple[Array, Array]:
        X = torch.tensor(np.ascontiguousarray(tokens), dtype=number, device=device, requires_grad=kind == "gradient")
        if kind == "attention":
            with torch.no_grad():
                y, shown = _attended(module, X)
            return _numbers(value(y)), _numbers(shown)
        y = value(answer(X, tokens.shape[1] - 1))
        # Sequences do not see each other, so the gradient of the sum is every sequence's own.
        (G,) = torch.autograd.grad(y.sum(), X)
        return _numbers(y), _numbers(G)

    def guarded(tokens: Array) -> tuple[Array, Array]:
        training = module.training
        try:
            module.eval()
            return ask(np.asarray(tokens))
        except (RuntimeError, TypeError, ValueError) as error:
            raise OracleError(f"the module failed on tokens of shape {np.shape(tokens)}: {error}") from error
        finally:
            module.train(training)

    return guarded


def _attended(module: Any, X: Any) -> tuple[Any, Any]:
    """Answers (batch, outputs) and weights (batch, H, N) of the last token."""
    q = X[:, -1:]
    asked = (q, X, X) if module.batch_first else (q.transpose(0, 1), X.transpose(0, 1), X.transpose(0, 1))
    y, shown = module(*asked, need_weights=True, average_attn_weights=False)
    return y[:, 0] if module.batch_first else y[0], shown[:, :, 0]


def _numbers(values: Any) -> Array:
    return np.asarray(values.detach().cpu().numpy(), dtype=np.float64)


def _readout(readout: Any, width: int) -> Array:
    if readout is None and width == 1:
        return np.ones(1)
    wanted = f"`readout` must be {width} numbers, which make one value of the module's answer"
    if readout is None:
        raise InvalidArgument(f"{wanted}; an explanation is that of one number.")
    weights = np.asarray(readout, dtype=np.float64)
    if weights.shape != (width,) or not np.isfinite(weights).all():
        raise InvalidArgument(f"{wanted} (got shape {weights.shape}).")
    return weights
