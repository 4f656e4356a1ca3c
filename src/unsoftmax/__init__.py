"""unsoftmax: recover softmax-attention models from black-box queries, and price the leak.

For models you own or are permitted to test. The house, in reading order; every room's `__init__` is its own map.

errors       what everyone raises, with a code for programs
spec         what an oracle shows, of what, and inside which limits
precision    what float64 holds
arguments    checks of what a user passes
links        output links: what stands between f and the answer
inversion    from answers to logits, with radii
models       what is recovered: frozen callables
probes       DESIGN: which sequences to ask
solvers      SOLVE: arrays in, arrays out
theory       closed forms: how many queries, how much noise
learners     programs that yield probes and return a model
verify       fresh queries against the model that was found
oracles      targets, wrappers around them, and the stages between a target and a program
adapters     modules, files and servers as oracles
run          programs meet oracles
results      what a run leaves behind
diagnosis    what kind of model answers, and which learner that is for
comparing    is it the model that was shipped, and what changed
fitting      models from recorded traffic
auditing     what leaks, at what price
exposure     which doors of a server are open
experiments  every result of the theory, tried
report       pages from saved results
serving      servers to practise on
cli          the command line; `__main__` calls it
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
