"""HTML, JSON, SARIF and CycloneDX pages from saved results; nothing here asks a target or imports a learner."""

from unsoftmax.report.comparison import comparison_page, comparison_sarif
from unsoftmax.report.cyclonedx import audit_attestation, comparison_attestation
from unsoftmax.report.page import audit_page, recovery_page, write
from unsoftmax.report.sarif import sarif
from unsoftmax.report.schema import AUDIT_SCHEMA, COMPARISON_SCHEMA

__all__ = [
    "AUDIT_SCHEMA",
    "COMPARISON_SCHEMA",
    "audit_attestation",
    "comparison_attestation",
    "comparison_page",
    "comparison_sarif",
    "audit_page",
    "recovery_page",
    "sarif",
    "write",
]
