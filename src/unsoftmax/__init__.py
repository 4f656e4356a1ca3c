"""unsoftmax: recover softmax-attention models from black-box queries, and price the leak.

For models you own or are permitted to test.
"""

from unsoftmax import adapters, errors, learners, models, oracles, theory
from unsoftmax.adapters.callable import oracle
from unsoftmax.adapters.tokens import token_oracle
from unsoftmax.audit_result import Audit
from unsoftmax.auditing import audit
from unsoftmax.diagnosis import Diagnosis, diagnose
from unsoftmax.oracles.metering import Budget
from unsoftmax.oracles.rechecking import Recheck
from unsoftmax.recovery import recover
from unsoftmax.result import Certificate, Claim, Recovery, Status, Usage, load

__version__ = "0.1.0"

__all__ = [
    "Audit",
    "audit",
    "Diagnosis",
    "diagnose",
    "Budget",
    "Certificate",
    "Claim",
    "Recheck",
    "Recovery",
    "Status",
    "Usage",
    "adapters",
    "errors",
    "learners",
    "load",
    "models",
    "oracle",
    "oracles",
    "recover",
    "theory",
    "token_oracle",
]
