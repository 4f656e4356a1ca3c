"""Audit: what leaks, at what price, and what a defence buys."""

from unsoftmax.auditing.ladder import Scenario, ladder, ladder_slug
from unsoftmax.auditing.run import audit
from unsoftmax.auditing.terms import Terms
from unsoftmax.results.audit import Audit, Cell, load_audit

__all__ = ["Audit", "Cell", "Scenario", "Terms", "audit", "ladder", "ladder_slug", "load_audit"]
