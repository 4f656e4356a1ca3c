"""Reading models back from safetensors files, their own or inside a saved Recovery."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from unsoftmax.errors import FileFormatError, UnsoftmaxError
from unsoftmax.models.base import MODEL_FORMAT, Array, Model

RECOVERY_FORMAT = "unsoftmax-recovery/1"
BESIDE = "beside the model: "
"""Tensors of a recovery whose names begin so are not parameters of its model."""

_LARGEST_FILE = 16 * 2**30
"""A header can claim any size; the largest model that can be recovered is far below this."""


def read_safetensors(path: str | Path) -> tuple[dict[str, Array], dict[str, str]]:
    """Tensors and metadata of a file; only typed errors whatever the bytes."""
    try:
        if Path(path).stat().st_size > _LARGEST_FILE:
            raise FileFormatError(f"{path} is larger than {_LARGEST_FILE} bytes; it is not read.")
        with safe_open(str(path), framework="numpy") as file:
            return {name: file.get_tensor(name) for name in list(file.keys())}, file.metadata() or {}
    except OSError as error:
        raise FileFormatError(f"{path} cannot be read ({error.strerror or error}); check the path.") from error
    except (SafetensorError, ValueError, TypeError, KeyError, AttributeError, MemoryError, OverflowError) as error:
        raise FileFormatError(f"{path} is not a safetensors file ({error}).") from error


def model_from(class_name: Any, tensors: dict[str, Array], path: str | Path) -> Model:
    """Build the model named in a header from its tensors."""
    cls = Model.classes.get(class_name) if isinstance(class_name, str) else None
    if cls is None:
        raise FileFormatError(f"{path} names the model class {class_name!r}, which this version does not know.")
    try:
        return cls.from_parameters({name: a for name, a in tensors.items() if not name.startswith(BESIDE)})
    except (UnsoftmaxError, TypeError, ValueError, IndexError) as error:
        raise FileFormatError(f"{path} does not hold a {class_name} ({error}).") from error


def load(path: str | Path) -> Model:
    """The model in a file written by `model.save` or by `recovery.save`."""
    tensors, metadata = read_safetensors(path)
    match metadata.get("format"):
        case format if format == MODEL_FORMAT:
            return model_from(metadata.get("class"), tensors, path)
        case format if format == RECOVERY_FORMAT:
            try:
                name = json.loads(metadata.get("recovery", ""))["model"]
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise FileFormatError(f"{path} has a damaged recovery header.") from error
            if name is None:
                raise FileFormatError(f"{path} is a recovery that ended without a model.")
            return model_from(name, {k: np.asarray(a) for k, a in tensors.items()}, path)
        case other:
            raise FileFormatError(
                f"{path} has the format {other!r}; {MODEL_FORMAT!r} or {RECOVERY_FORMAT!r} was expected "
                "(write one with model.save or recovery.save)."
            )
