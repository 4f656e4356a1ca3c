"""Results for the report tests: a real recovery and an audit with a hostile name."""

from __future__ import annotations

import unsoftmax as us
from unsoftmax.results.audit import Audit, Cell

HOSTILE = "<script>window.hacked=1</script><img src=x onerror=window.hacked=1>"


def recovered():
    head = us.models.SingleHead.random(32, norm=2.0, seed=1)
    return us.recover(us.oracle(head, name=HOSTILE), us.learners.SingleHead()), head


def an_audit() -> Audit:
    cells = (
        Cell("values", "none", "SingleHead", "recovered", "exact", 1214, 3000, 0.003, 1.21, 2e-15, 1e-15, ""),
        Cell("values", "rounding", "Approximate", "recovered", "close", 1300, 3000, 0.004, 1.3, 1e-3, 2e-3, HOSTILE),
        Cell("labels only", "none", "Membership", "recovered", "exact", 23000, 9000, 0.06, 23.0, 1e-7, 1e-7, ""),
        Cell("values", "one token", "none", "refused", "none", 0, 0, 0.0, 0.0, None, None, "needs two tokens"),
    )
    return Audit(HOSTILE, 32, 1056, True, 100.0, "USD", cells, (f"Beware of {HOSTILE}.",), {"seed": 0, "x": HOSTILE})
