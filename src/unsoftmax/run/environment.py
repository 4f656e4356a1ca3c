"""Where a result was computed: versions and processor, because last digits depend on both."""

from __future__ import annotations

import os
import platform
from functools import cache
from typing import Any

import numpy as np
import scipy


@cache
def environment() -> dict[str, Any]:
    """Versions, linear algebra library, machine, and the vector instructions NumPy found."""
    built: Any = np.show_config(mode="dicts") or {}
    blas = built.get("Build Dependencies", {}).get("blas", {})
    facts = {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "blas": f"{blas.get('name', 'unknown')} {blas.get('version', '')}".strip(),
        "machine": platform.machine(),
        "vectors": " ".join(built.get("SIMD Extensions", {}).get("found", [])),
        "kernel": os.environ.get("OPENBLAS_CORETYPE", ""),
    }
    return {name: value for name, value in facts.items() if value}
