"""What a finding is called elsewhere: MITRE ATLAS, the OWASP Top 10 for LLM applications, OWASP AISVS.

Only names that outlive editions are used: the year stands in the OWASP ids, and of AISVS chapter 11.5 only the
requirement whose number the drafts agree on.
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


EXTRACTION: tuple[Reference, ...] = (
    _atlas("AML.T0024.002", "Extract AI Model"),
    _atlas("AML.T0040", "AI Model Inference API Access"),
    _atlas("AML.T0048.004", "AI Intellectual Property Theft"),
    _atlas("AML.M0002", "Passive AI Output Obfuscation"),
    _atlas("AML.M0004", "Restrict Number of AI Model Queries"),
    Reference(
        _LLM, "LLM10:2025", "Unbounded Consumption", "https://genai.owasp.org/llmrisk/llm102025-unbounded-consumption/"
    ),
    Reference(_AISVS, "11.5.1", "Rate limits against query harvesting", "https://github.com/OWASP/AISVS"),
)
"""What an audit finds: weights computed from answers, and the two mitigations that its defences are instances of."""

DRIFT: tuple[Reference, ...] = (
    _atlas("AML.T0010", "AI Supply Chain Compromise"),
    _atlas("AML.T0018", "Manipulate AI Model"),
    Reference(_LLM, "LLM03:2025", "Supply Chain", "https://genai.owasp.org/llmrisk/llm032025-supply-chain/"),
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
