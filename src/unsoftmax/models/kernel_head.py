"""A head whose weights are any kernel of the scores: softmax attention is the case of the exponential."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from unsoftmax.errors import InvalidArgument
from unsoftmax.models.base import Array, Model, floating, random_matrix, random_vector, seeded, tokens_of
from unsoftmax.models.kernels import Kernel, as_kernel, power_of


@dataclass(frozen=True, eq=False)
class KernelHead(Model):
    """f(X) = sum_i w_i (x_i.v), w_i = kappa(x_i'W x_N), divided by their sum if `normalised`.

    W (d, d), v (d,); `kernel` a name ("softplus", "softcap 30", ...) or a `Kernel`. The scale of W is the kernel's own:
    exp(2 s) is not in the catalogue, so a head with it has the kernel "exp" and twice its W. Kernels that are powers of
    the score hide the scale of W: `canonical()` keeps its Frobenius norm at 1.
    """

    W: Array
    v: Array
    kernel: Any = "exp"
    normalised: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "W", floating(self.W, "W", 2))
        object.__setattr__(self, "v", floating(self.v, "v", 1))
        object.__setattr__(self, "kernel", as_kernel(self.kernel))
        object.__setattr__(self, "normalised", bool(self.normalised))
        if self.W.shape != (self.dim, self.dim):
            raise InvalidArgument(f"`W` must have shape ({self.dim}, {self.dim}) to go with v (got {self.W.shape}).")

    @property
    def dim(self) -> int:
        return len(self.v)

    def key_directions(self, q: Array) -> Array:
        return (q @ self.W.T)[None]

    def __call__(self, tokens: Array, counts: Array | None = None) -> Array:
        """(batch, N, d) -> (batch,)."""
        X = tokens_of(tokens, self.dim, self.v.dtype)
        scores = np.einsum("bnd,bd->bn", X, X[:, -1] @ self.W.T)
        if self.normalised and not self.kernel.zero_at_zero:
            logs = self.kernel.log(scores)
            weights = np.exp(logs - logs.max(axis=1, keepdims=True))
        else:
            weights = self.kernel(scores)
        if counts is not None:
            weights = weights * counts
        total = (weights * (X @ self.v)).sum(axis=1)
        return np.asarray(total / weights.sum(axis=1) if self.normalised else total)

    def canonical(self) -> Self:
        """The same answers with |W| = 1 where the kernel is a power of the score; other kernels fix the scale of W.

        c W with v / c^p answers alike (with v itself where weights are normalised), and c < 0 too unless the kernel
        is a ReLU: the largest entry of W is positive then.
        """
        power = power_of(self.kernel.name)
        if power is None:
            return self
        degree, side = power
        c = float(np.linalg.norm(self.W))
        if c == 0:
            return self
        if side != 0 and self.W.flat[np.abs(self.W).argmax()] < 0:
            c = -c
        v = self.v if self.normalised else self.v * (c**degree if side < 0 else abs(c) ** degree)
        return type(self)(self.W / c, v, self.kernel, self.normalised)

    @classmethod
    def random(
        cls, dim: int, kernel: Any = "softplus", *, normalised: bool = True, norm: float = 1.0, seed: int = 0
    ) -> Self:
        """Gaussian W of spectral norm `norm`, unit v."""
        rng = seeded(seed, dim=dim)
        return cls(random_matrix(dim, None, norm, rng), random_vector(dim, 0.0, 0.0, rng), kernel, normalised)

    def parameters(self) -> dict[str, Array]:
        found = {"W": np.asarray(self.W), "v": np.asarray(self.v), "normalised": np.asarray(self.normalised)}
        found["kernel_name"] = np.frombuffer(self.kernel.name.encode(), dtype=np.uint8).copy()
        if self.kernel.parameter is not None:
            found["kernel_parameter"] = np.asarray(float(self.kernel.parameter))
        if self.kernel.table is not None:
            found["kernel_table"] = np.asarray(self.kernel.table)
        return found

    @classmethod
    def from_parameters(cls, parameters: dict[str, Array]) -> Self:
        name = bytes(np.asarray(parameters["kernel_name"], dtype=np.uint8)).decode()
        parameter = parameters.get("kernel_parameter")
        kernel = Kernel(name, None if parameter is None else float(parameter), parameters.get("kernel_table"))
        return cls(parameters["W"], parameters["v"], kernel, bool(parameters["normalised"]))

    def astype(self, dtype: str) -> Self:
        return type(self)(self.W.astype(dtype), self.v.astype(dtype), self.kernel, self.normalised)
