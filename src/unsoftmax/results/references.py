"""What a finding is called elsewhere: MITRE ATLAS, the OWASP Top 10 for LLM applications, OWASP AISVS.

Editions: ATLAS 5.6 (2026-05), the OWASP Top 10 for LLM applications 2026 (2026-08), AISVS 1.0 (2026-07). The defence
against extraction, 11.5 in the drafts of AISVS, is 11.3 in the standard; its rate limits are 11.2.2.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Reference:
    """An entry of a catalogue that security teams file findings under."""

    catalogue: str
    id: str
    name: str
    url: str


_ATLAS, _LLM, _AISVS = "MITRE ATLAS", "OWASP Top 10 for LLM Applications", "OWASP AISVS 1.0"


def _atlas(identifier: str, name: str) -> Reference:
    kind = "mitigations" if identifier.startswith("AML.M") else "techniques"
    return Reference(_ATLAS, identifier, name, f"https://atlas.mitre.org/{kind}/{identifier}")


def _aisvs(identifier: str, name: str) -> Reference:
    place = "https://github.com/OWASP/AISVS/blob/main/1.0/en/0x10-C11-Adversarial-Robustness.md"
    return Reference(_AISVS, identifier, name, place)


_TOP_TEN = "https://genai.owasp.org/resource/owasp-genai-llm-top-10-2026/"
"""The page of the 2026 edition, whose entries have none of their own yet."""

EXTRACTION: tuple[Reference, ...] = (
    _atlas("AML.T0024.002", "Extract AI Model"),
    _atlas("AML.T0040", "AI Model Inference API Access"),
    _atlas("AML.T0048.004", "AI Intellectual Property Theft"),
    _atlas("AML.M0002", "Passive AI Output Obfuscation"),
    _atlas("AML.M0004", "Restrict Number of AI Model Queries"),
    Reference(_LLM, "LLM06:2026", "Unbounded Consumption: model extraction and distillation theft", _TOP_TEN),
    _aisvs("11.2.2", "Rate limits per principal sized to the extraction threat (11.5.1 in the last draft)"),
    _aisvs("11.3.1", "Query patterns feed a detector of extraction (11.5.2 in the last draft)"),
    _aisvs("11.3.2", "Raw outputs are not exposed, answers fit the extraction risk (11.5.3 in the last draft)"),
)
"""What an audit finds: weights computed from answers, and the two mitigations that its defences are instances of."""

DRIFT: tuple[Reference, ...] = (
    _atlas("AML.T0010", "AI Supply Chain Compromise"),
    _atlas("AML.T0018", "Manipulate AI Model"),
    _atlas("AML.M0014", "Verify AI Artifacts"),
    Reference(_LLM, "LLM04:2026", "Supply Chain", _TOP_TEN),
)
"""What a comparison finds: a served model that is not the one that was shipped."""


def as_data(references: tuple[Reference, ...]) -> list[dict[str, str]]:
    """Plain data for JSON."""
    return [asdict(reference) for reference in references]


def tags_of(references: tuple[Reference, ...]) -> list[str]:
    """Tags of a SARIF rule, such as `external/mitre-atlas/AML.T0024.002`."""
    short = {_ATLAS: "mitre-atlas", _LLM: "owasp-llm", _AISVS: "owasp-aisvs"}
    return [f"external/{short[reference.catalogue]}/{reference.id}" for reference in references]


def lines_of(references: tuple[Reference, ...]) -> list[str]:
    """One line for each, for people."""
    return [f"{reference.catalogue} {reference.id}: {reference.name}" for reference in references]
