"""An attention layer of a block or a one-layer language model, behind or beside a network that is unknown."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from unsoftmax.errors import InvalidArgument
from unsoftmax.models.attention_layer import AttentionLayer
from unsoftmax.models.base import Array, Model, floating
from unsoftmax.models.distance import distance
from unsoftmax.models.equivalence import equivalent
from unsoftmax.models.positions import Positions


@dataclass(frozen=True, eq=False)
class LayerBehind(Model):
    """The attention of answers readout(norm(h + network(h))), h = x_N + layer(X), or with network(x_N) beside it.

    The network, a function of the last token alone where it stands beside, is not part of the model: calling the model
    gives what attention adds, not the target's answers.

    layer: what attention adds to the stream, without residual and without its constant, which joins the network.
    readout (outputs, d): the stream's way to the answers (identity, or an unembedding with the final norm's gamma);
    final_norm: whether an RMSNorm stands before it.
    """

    layer: AttentionLayer
    readout: Array
    final_norm: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "readout", floating(self.readout, "readout", 2))
        d = self.layer.dim
        if self.layer.residual or self.layer.outputs != d or self.readout.shape[1] != d:
            raise InvalidArgument(
                f"`layer` must go from {d} to {d} dimensions without a residual, and `readout` have {d} columns (got "
                f"{self.layer.outputs} outputs and {self.readout.shape})."
            )

    @property
    def dim(self) -> int:
        return self.layer.dim

    @property
    def outputs(self) -> int:
        """Width of what attention adds to the stream."""
        return self.dim

    @property
    def accepts_counts(self) -> bool:  # type: ignore[override]
        """As the layer."""
        return self.layer.accepts_counts

    @property
    def heads(self) -> int:
        """Number of heads H."""
        return self.layer.heads

    @property
    def kv_groups(self) -> int:
        """Number of different pairs of keys and values."""
        return self.layer.kv_groups

    @property
    def positions(self) -> Positions | None:
        """How the distance enters the scores."""
        return self.layer.positions

    @property
    def W(self) -> Array:
        """Score matrices (H, d, d) at distance 0."""
        return self.layer.W

    def W_at(self, distance: int) -> Array:
        """Score matrices (H, d, d) between tokens `distance` apart."""
        return self.layer.W_at(distance)

    @property
    def P(self) -> Array:
        """Value maps (H, d, d)."""
        return self.layer.P

    def key_directions(self, q: Array) -> Array:
        return self.layer.key_directions(q)

    def __call__(self, tokens: Array, counts: Array | None = None) -> Array:
        """(batch, N, d) -> (batch, d): what attention adds to the last token, up to a constant, before the readout and
        without the network: not the target's answers."""
        return self.layer(tokens, counts)

    def parameters(self) -> dict[str, Array]:
        """The layer's as "layer.K" and so on."""
        rest = {"readout": self.readout, "final_norm": np.asarray(self.final_norm)}
        return rest | {f"layer.{name}": value for name, value in self.layer.parameters().items()}

    @classmethod
    def from_parameters(cls, parameters: dict[str, Array]) -> Self:
        """Inverse of `parameters`."""
        layer = {name.removeprefix("layer."): a for name, a in parameters.items() if name.startswith("layer.")}
        return cls(AttentionLayer.from_parameters(layer), parameters["readout"], bool(parameters["final_norm"]))

    def astype(self, dtype: str) -> Self:
        """The same with parameters stored in another number format."""
        return type(self)(self.layer.astype(dtype), self.readout.astype(dtype), self.final_norm)

    def to_torch(self) -> Any:
        """The layer as a module; see `AttentionLayer.to_torch`."""
        return self.layer.to_torch()


def _layer(model: Model) -> AttentionLayer:
    if isinstance(model, LayerBehind):
        return model.layer
    if isinstance(model, AttentionLayer):
        return model
    raise InvalidArgument(f"a LayerBehind cannot be compared with a {type(model).__name__}.")


def _without_rest(layer: AttentionLayer) -> AttentionLayer:
    return replace(layer, residual=False, constant=np.zeros_like(layer.constant))


@distance.register
def _(model: LayerBehind, other: Model) -> float:
    """Heads, positions and eps of the layers; a constant and the residual belong to what is behind."""
    return distance(_without_rest(_layer(model)), _without_rest(_layer(other)))


@equivalent.register
def _(a: LayerBehind, b: Model, tolerance: float = 1e-9) -> bool:
    """Whether attention adds the same, constants aside."""
    return equivalent(_without_rest(_layer(a)), _without_rest(_layer(b)), tolerance)
