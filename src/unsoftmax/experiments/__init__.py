"""Every result as an experiment. A module of this package that defines EXPERIMENT is one; they are in the
order of docs/theory/index.md. Beside them:

base    what an experiment is
runner  running them, and what is kept of them
"""

from __future__ import annotations

import importlib
import pkgutil

from unsoftmax.experiments.base import Experiment, Figure, Verdict
from unsoftmax.experiments.runner import Report, run

__all__ = ["Experiment", "Figure", "Report", "Verdict", "available", "run"]


def available() -> dict[str, Experiment]:
    """All experiments by name."""
    modules = (importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__))
    found = (getattr(module, "EXPERIMENT", None) for module in modules)
    return {experiment.name: experiment for experiment in found if experiment is not None}
