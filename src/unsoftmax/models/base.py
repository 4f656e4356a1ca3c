"""What every reference model shares: the call, the softmax with counts, saving."""

from __future__ import annotations

import os
import tempfile
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from safetensors import numpy as safetensors_numpy

from unsoftmax.arguments import whole
from unsoftmax.errors import InvalidArgument

Array = NDArray[Any]

MODEL_FORMAT = "unsoftmax-model/1"


class Model:
    """A frozen callable f: (batch, N, d) tokens, optional counts (batch, N) -> (batch,) or (batch, outputs).

    Subclasses are frozen dataclasses whose fields are arrays, numbers or None; equality is identity (arrays have no
    useful ==), `distance` compares modulo symmetries.
    """

    classes: ClassVar[dict[str, type[Model]]] = {}
    accepts_counts: ClassVar[bool] = True

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        Model.classes[cls.__name__] = cls

    @property
    def dim(self) -> int:
        """Token dimension d."""
        raise NotImplementedError

    @property
    def outputs(self) -> int | None:
        """Width of vector answers; None for scalar ones."""
        return None

    def __call__(self, tokens: Array, counts: Array | None = None) -> Array:
        raise NotImplementedError

    def key_directions(self, q: Array) -> Array:
        """Score of token x for query token q is x . u_h: the u_h (H, batch, d) for q (batch, d); H may be 0."""
        return np.zeros((0, *q.shape))

    def parameters(self) -> dict[str, Array]:
        """Fields as arrays, None left out."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
        return {name: np.asarray(value) for name, value in values.items() if value is not None}

    @classmethod
    def from_parameters(cls, parameters: dict[str, Array]) -> Self:
        """Inverse of `parameters`."""
        return cls(**{name: value.item() if value.ndim == 0 else value for name, value in parameters.items()})

    def astype(self, dtype: str) -> Self:
        """The same model with parameters stored, and answers computed, in another number format."""
        return self.from_parameters({name: value.astype(dtype) for name, value in self.parameters().items()})

    def save(self, path: str | Path) -> None:
        """Write a safetensors file that `models.load` reads back."""
        write_safetensors(path, self.parameters(), {"format": MODEL_FORMAT, "class": type(self).__name__})


def write_safetensors(path: str | Path, tensors: dict[str, Array], metadata: dict[str, str]) -> None:
    """Write atomically: a reader sees the old file or the whole new one."""
    target = Path(path)
    data = safetensors_numpy.save({k: np.asarray(a, order="C") for k, a in tensors.items()}, metadata)
    try:
        handle, temporary = tempfile.mkstemp(dir=target.parent or ".", prefix=target.name, suffix=".part")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.replace(temporary, target)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise InvalidArgument(
            f"{target} cannot be written ({error.strerror or error}); the folder must exist and be yours to write."
        ) from error


def attention_weights(scores: Array, counts: Array | None) -> Array:
    """Softmax over the last axis; n copies of a row add log n to its score, so copies cost nothing.

    scores (..., N), counts (batch, N) or None -> weights of the N distinct rows (their copies together).
    """
    if counts is not None:
        scores = scores + np.log(counts).astype(scores.dtype)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def tokens_of(tokens: Array, dim: int, dtype: np.dtype[Any]) -> Array:
    """Check the shape (batch, N, dim) and bring tokens to the model's number format."""
    tokens = np.asarray(tokens)
    if tokens.ndim != 3 or tokens.shape[2] != dim or tokens.shape[1] < 1:
        raise InvalidArgument(f"tokens must have shape (batch, N, {dim}) with N >= 1 (got {tokens.shape}).")
    return tokens.astype(dtype, copy=False)


def floating(value: Any, name: str, ndim: int) -> Array:
    """A read-only float array of `ndim` axes without NaN or infinity."""
    array = np.array(value)
    if array.dtype.kind not in "fiu":
        raise InvalidArgument(f"`{name}` must be real numbers (got dtype {array.dtype}).")
    if array.dtype.kind != "f":
        array = array.astype(np.float64)
    if array.ndim != ndim:
        raise InvalidArgument(f"`{name}` must have {ndim} axes (got shape {array.shape}).")
    if not np.isfinite(array).all():
        raise InvalidArgument(f"`{name}` must be finite (got NaN or infinity).")
    array.setflags(write=False)
    return array


def seeded(seed: int, *, dim: int, **counts: int) -> np.random.Generator:
    """The generator of a random model; its dimension (at least 1) and counts (at least 0) are checked by name."""
    whole("dim", dim)
    for name, value in counts.items():
        whole(name, value, 0)
    whole("seed", seed, 0)
    return np.random.default_rng(seed)


def random_matrix(dim: int, rank: int | None, norm: float, rng: np.random.Generator) -> Array:
    """Gaussian (dim, dim) of the given rank, scaled to spectral norm `norm`."""
    rank = dim if rank is None else rank
    if not 0 <= rank <= dim:
        raise InvalidArgument(f"`rank` must be between 0 and dim (got {rank} for dim {dim}).")
    if rank == dim:
        W = rng.standard_normal((dim, dim))
    else:
        W = rng.standard_normal((dim, rank)) @ rng.standard_normal((rank, dim))
    size = np.linalg.norm(W, 2) if rank else 0.0
    return W * (norm / size) if size else W


def random_vector(dim: int, sparsity: float, margin: float, rng: np.random.Generator) -> Array:
    """Unit Gaussian direction (dim,) with a fraction `sparsity` of its entries exactly zero (never all).

    No other entry is smaller than `margin`: squares are v_i^2 = margin^2 + (1 - k margin^2) u_i^2 for a unit u of k
    entries.
    """
    if not 0 <= sparsity < 1:
        raise InvalidArgument(f"`sparsity` must be in [0, 1) (got {sparsity}); it is the fraction of zeros in v.")
    v = rng.standard_normal(dim)
    v[rng.permutation(dim)[: min(round(sparsity * dim), dim - 1)]] = 0.0
    v /= np.linalg.norm(v)
    if margin == 0:
        return v
    kept = np.count_nonzero(v)
    if not 0 <= margin <= kept**-0.5:
        raise InvalidArgument(
            f"`margin` must be between 0 and {kept**-0.5:.3g}, for a unit v with {kept} entries (got {margin})."
        )
    return np.sign(v) * np.sqrt(margin**2 * (v != 0) + (1 - kept * margin**2) * v**2)
