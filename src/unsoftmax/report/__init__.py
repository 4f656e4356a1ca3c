"""HTML, JSON and SARIF pages from saved results; nothing here asks a target or imports a learner."""

from unsoftmax.report.page import audit_page, recovery_page, write
from unsoftmax.report.sarif import sarif
from unsoftmax.report.schema import AUDIT_SCHEMA

__all__ = ["AUDIT_SCHEMA", "audit_page", "recovery_page", "sarif", "write"]
