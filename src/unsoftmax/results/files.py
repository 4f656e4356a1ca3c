"""`us.load`: a saved result of any kind, told apart by the format its file names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unsoftmax.models.files import read_safetensors
from unsoftmax.results.comparison import COMPARISON_FORMAT, load_comparison
from unsoftmax.results.recovery import load as load_recovery


def load(path: str | Path) -> Any:
    """The Recovery or Comparison in a file written by its `save`."""
    _, metadata = read_safetensors(path)
    return load_comparison(path) if metadata.get("format") == COMPARISON_FORMAT else load_recovery(path)
