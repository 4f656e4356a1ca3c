"""The reference: what the target should be. Free to ask, so everything that can be known of it is computed from it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from unsoftmax import models
from unsoftmax.arguments import real
from unsoftmax.comparing.constants import COMPARING
from unsoftmax.comparing.heads import Heads, heads_of
from unsoftmax.comparing.row_space import check_reference
from unsoftmax.errors import InvalidArgument
from unsoftmax.inversion import rounding_unit
from unsoftmax.models.base import Array, Model
from unsoftmax.models.files import RECOVERY_FORMAT, read_safetensors
from unsoftmax.models.output_layer import OutputLayer
from unsoftmax.oracles.base import Oracle
from unsoftmax.precision import SHORT_FORMAT
from unsoftmax.probes.base import Probes
from unsoftmax.probes.sphere import sphere
from unsoftmax.results.recovery import Recovery
from unsoftmax.results.recovery import load as load_recovery
from unsoftmax.spec import OracleSpec

Answers = Callable[[Array], Array]


@dataclass(frozen=True, eq=False)
class Reference:
    """A known function of tokens. `model` or `heads` are None where its structure, or its weights, are out of reach.

    `plain` answers in the reference's own number format; `rebuilt` gives the function with other weights, in float64.
    """

    name: str
    plain: Answers
    model: Model | None = None
    weights: dict[str, Array] = field(default_factory=dict)
    rebuilt: Callable[[dict[str, Array]], Answers] | None = None
    error: float = 0.0
    """How far the weights may be off, relative to their size, as the recovery they come from states; 0: as stored."""

    cast: Callable[[str], Answers] | None = None
    """The function computed in another number format, where neither `model` nor a closed form is known."""

    in_pairs: bool = True
    """Whether the target takes two tokens; where it does not, scores have no effect and heads are of no use."""

    @cached_property
    def heads(self) -> Heads | None:
        return None if self.model is None or not self.in_pairs else heads_of(self.model)

    def beside(self, target_error: float) -> Reference:
        """Held against a target whose own weights may be off by target_error, relative to their size."""
        real("target_error", target_error, closed=True)
        return replace(self, error=math.hypot(self.error, target_error))

    @property
    def known(self) -> bool:
        """Whether the weights can be reached."""
        return self.rebuilt is not None

    @cached_property
    def double(self) -> Answers:
        """The function in float64 (in its own format where the weights are out of reach)."""
        return self.plain if self.rebuilt is None else self.rebuilt(self.weights)

    @cached_property
    def moved(self) -> list[Answers]:
        """The function with every weight changed by independent relative amounts, small but seen, several times."""
        if self.rebuilt is None:
            return [self.double] * COMPARING.random_moves
        rng = np.random.default_rng(0x40E)
        return [
            self.rebuilt(
                {k: a * (1 + COMPARING.relative_move * rng.standard_normal(a.shape)) for k, a in self.weights.items()}
            )
            for _ in range(
                COMPARING.random_moves
                if sum(a.size for a in self.weights.values()) < COMPARING.large_reference
                else COMPARING.few_moves
            )
        ]

    def coarser(self, arithmetic: str, spec: OracleSpec) -> str:
        """The number format by whose rounding answers are judged: that of the target, or of the reference where that
        answers in a shorter one and cannot be computed in a longer."""
        if self.known or arithmetic != "float64":
            return arithmetic
        return "float32" if self._short(spec) else arithmetic

    def _short(self, spec: OracleSpec) -> bool:
        """Whether all answers to some sequences are float32 numbers."""
        rng = np.random.default_rng(0x5407)
        if spec.vocabulary is not None:
            X = rng.choice(spec.allowed, (COMPARING.format_sequences, 2 if spec.domain.length_limit >= 2 else 1))
        else:
            X = sphere(rng, (COMPARING.format_sequences, 1, spec.dim)) * min(1.0, spec.domain.with_room)
        return rounding_unit(np.asarray(self.plain(X))) > SHORT_FORMAT

    def truth(self, X: Array, arithmetic: str) -> tuple[Array, bool]:
        """Answers more precise than the target's, and whether they are: else both round alike."""
        if self.model is None:
            return self.double(X), self.known and arithmetic != "float64"
        size = sum(a.size for a in self.weights.values()) * X.shape[0] * X.shape[1]
        wide = np.finfo(np.longdouble).eps < np.finfo(np.float64).eps
        if arithmetic == "float64" and wide and size <= COMPARING.long_double_products:
            return self.model.astype("longdouble")(X), True
        return self.double(X), arithmetic != "float64"

    def computed(self, X: Array, arithmetic: str) -> list[Array]:
        """The reference's own evaluations in the target's arithmetic: all sequences at once, and one at a time."""
        if self.model is not None and arithmetic in ("float64", "float32"):
            same = self.model.astype(arithmetic)
        elif self.cast is not None and arithmetic in ("float64", "float32"):
            same = self.cast(arithmetic)  # type: ignore[assignment]
        elif self.model is None and self.known:
            same = self.plain  # type: ignore[assignment]
        else:
            return []
        return [np.asarray(same(X), dtype=np.float64), np.concatenate([same(x[None]) for x in X]).astype(np.float64)]


def reference_of(given: Any, spec: OracleSpec) -> Reference:
    """A model, a recovery, an oracle, a PyTorch module, the path of a .safetensors or .onnx file, or a callable."""
    if isinstance(given, (str, Path)):
        given = _file(Path(given))
    if isinstance(given, Recovery):
        found = _recovered(given)
    elif isinstance(given, Model):
        found = _model(given)
    elif isinstance(given, Oracle):
        found = Reference(given.spec.name or "reference", lambda X: np.asarray(given(Probes(X)), dtype=np.float64))
        _agree("dim", given.spec.dim, spec.dim)
    elif hasattr(given, "state_dict") and hasattr(given, "named_parameters"):
        found = _module(given, spec)
    elif callable(given):
        found = Reference(getattr(given, "__name__", "reference"), lambda X: np.asarray(given(X), dtype=np.float64))
    else:
        raise InvalidArgument(
            f"`reference` must be a model, an oracle, a PyTorch module, a .safetensors or .onnx file or a callable "
            f"(got {type(given).__name__})."
        )
    if isinstance(found.model, OutputLayer):
        check_reference(found.model, spec)
    else:
        _check_answers(found, spec)
    return found if spec.domain.length_limit >= 2 else replace(found, in_pairs=False)


def _file(path: Path) -> Any:
    match path.suffix:
        case ".safetensors":
            _, metadata = read_safetensors(path)
            return load_recovery(path) if metadata.get("format") == RECOVERY_FORMAT else models.load(path)
        case ".onnx":
            from unsoftmax import adapters

            return adapters.onnx_session(path)
        case other:
            raise InvalidArgument(f"`reference` {path} has the file type {other!r}; use .safetensors or .onnx.")


def _recovered(recovery: Recovery) -> Reference:
    """The model of a recovery, known to the error that its certificate states."""
    if recovery.model is None:
        raise InvalidArgument("`reference` is a recovery that ended without a model; there is nothing to compare with.")
    return replace(_model(recovery.model), error=_stated(recovery))


def _stated(recovery: Recovery) -> float:
    stated = recovery.certificate.stated_error
    return stated if stated is not None and math.isfinite(stated) else 0.0


def stated_error(path: Path) -> float:
    """How far the weights in a .safetensors file may be off, relative to their size, where they were recovered."""
    given = _file(path)
    return _stated(given) if isinstance(given, Recovery) else 0.0


def _model(model: Model) -> Reference:
    every = model.parameters()
    inner = {name: a for name, a in every.items() if a.dtype.kind == "f" and a.ndim}
    if any(not np.isfinite(a).all() for a in inner.values()):
        raise InvalidArgument("`reference` holds numbers that are not finite; it cannot be computed.")

    def rebuilt(weights: dict[str, Array]) -> Answers:
        named = every | {name: np.asarray(a, dtype=np.float64) for name, a in weights.items()}
        return model.from_parameters(named)

    return Reference(type(model).__name__, model, model, inner, rebuilt)


def _module(module: Any, spec: OracleSpec) -> Reference:
    """A PyTorch module: its own answers, and those of a float64 copy whose weights can be set."""
    import copy

    from unsoftmax import adapters

    outer = lambda m: adapters.torch_module(m, None if _says_dim(m) else spec.dim)  # noqa: E731
    own = outer(module)
    named = {name: p.detach().cpu().double().numpy() for name, p in module.named_parameters() if p.is_floating_point()}

    twin = copy.deepcopy(module).double()
    asked = outer(twin)
    places = dict(twin.named_parameters())

    def rebuilt(weights: dict[str, Array]) -> Answers:
        import torch

        tensors = {name: torch.from_numpy(np.array(a, dtype=np.float64)) for name, a in weights.items()}

        def answer(X: Array) -> Array:
            # One copy serves every set of weights: they are put in place when it is asked.
            with torch.no_grad():
                for name, tensor in tensors.items():
                    places[name].copy_(tensor)
            return np.asarray(asked(Probes(X)), dtype=np.float64)

        return answer

    def cast(arithmetic: str) -> Answers:
        import torch

        other = outer(copy.deepcopy(module).to(getattr(torch, arithmetic)))
        return lambda X: np.asarray(other(Probes(X)), dtype=np.float64)

    return Reference(type(module).__name__, lambda X: np.asarray(own(Probes(X))), None, named, rebuilt, cast=cast)


def _says_dim(module: Any) -> bool:
    return type(module).__name__ in ("MultiheadAttention", "TransformerEncoderLayer")


def _agree(name: str, mine: Any, other: Any) -> None:
    if mine != other:
        raise InvalidArgument(f"the target has {name} {other} and the reference {mine}; they cannot be the same model.")


def _check_answers(reference: Reference, spec: OracleSpec) -> None:
    """Refuse a reference that does not take the target's tokens or does not answer in its shape."""
    if spec.vocabulary is not None:
        X = np.full((2, 1), int(spec.allowed[0]))
        if reference.model is not None:
            _agree("vocabulary", getattr(reference.model, "vocabulary", None), spec.vocabulary)
    else:
        X = np.zeros((2, 1, spec.dim))
        if reference.model is not None:
            _agree("dim", reference.model.dim, spec.dim)
    shape = np.shape(reference.double(X))
    wanted = (2,) if spec.outputs is None else (2, spec.outputs)
    if shape != wanted:
        raise InvalidArgument(
            f"`reference` answers two sequences with shape {shape} where the target gives {wanted}; "
            "compare models with the same outputs."
        )
