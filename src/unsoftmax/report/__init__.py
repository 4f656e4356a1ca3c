"""HTML, JSON, SARIF and CycloneDX pages from saved results; nothing here asks a target or imports a learner. In reading
order.

page          pages of audits and recoveries, section by section
answer        the first lines of an audit: what leaks, what it costs, what closes it
matrix        access by defence
audit_charts  charts of an audit
charts        charts as plain data
fits          sections about a model from recorded traffic
comparison    the page, the SARIF log and the schema of a comparison
document      the file around the sections; escaping
sarif         SARIF of an audit
cyclonedx     CycloneDX attestations
schema        the published JSON Schemas
"""

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
