"""unsoftmax: recover softmax-attention models from black-box queries, and price the leak.

For models you own or are permitted to test.
"""

from importlib import import_module
from types import ModuleType

from unsoftmax import adapters, errors, learners, models, oracles, theory
from unsoftmax.adapters.callable import oracle
from unsoftmax.adapters.logits import logit_oracle
from unsoftmax.adapters.tokens import token_oracle
from unsoftmax.auditing import audit
from unsoftmax.comparing import Monitor, Step, compare
from unsoftmax.diagnosis import Diagnosis, diagnose
from unsoftmax.exposure import Exposure, exposure
from unsoftmax.fitting import Log, fit
from unsoftmax.oracles.metering import Budget
from unsoftmax.oracles.rechecking import Recheck
from unsoftmax.results.audit import Audit
from unsoftmax.results.comparison import Comparison
from unsoftmax.results.files import load
from unsoftmax.results.recovery import Certificate, Claim, Recovery, Status, Usage
from unsoftmax.run.estimate import Estimate, estimate
from unsoftmax.run.recovery import recover

__version__ = "0.1.0"

_ROOMS = ("experiments", "report")
"""Imported when first named: they are not needed to recover anything."""


def __getattr__(name: str) -> ModuleType:
    if name in _ROOMS:
        return import_module(f"unsoftmax.{name}")
    raise AttributeError(f"module 'unsoftmax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_ROOMS})


__all__ = [
    "Audit",
    "audit",
    "Exposure",
    "exposure",
    "Diagnosis",
    "diagnose",
    "Log",
    "fit",
    "Budget",
    "Certificate",
    "Claim",
    "Comparison",
    "Estimate",
    "Monitor",
    "Recheck",
    "Recovery",
    "Status",
    "Step",
    "Usage",
    "adapters",
    "compare",
    "errors",
    "estimate",
    "learners",
    "load",
    "logit_oracle",
    "models",
    "oracle",
    "oracles",
    "recover",
    "theory",
    "token_oracle",
]
