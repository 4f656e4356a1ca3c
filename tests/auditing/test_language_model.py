"""Audits of language models: what each way of showing the next token gives away."""

from __future__ import annotations

import unsoftmax as us
from unsoftmax.auditing.unknowns import unknowns_of


def test_the_ladder_of_a_language_model() -> None:
    model = us.models.TokenLayer.random(12, 100, 1, 9)
    audit = us.audit(us.logit_oracle(model, 100, max_length=9))
    cells = {(cell.access, cell.defence): cell for cell in audit.cells}
    assert cells["all logits", "none"].leak == "exact"
    assert cells["all log-probabilities", "none"].leak == "exact"
    assert cells["all log-probabilities", "rounding to 4 decimals"].leak == "close"
    assert cells["top 20 with a bias", "none"].leak == "exact"
    form = us.theory.output_layer_chosen_requests(100, 12, 20)
    assert form <= cells["top 20 with a bias", "none"].queries <= 1.5 * form
    assert cells["top 5 alone", "none"].leak not in ("exact", "close", "rough")
    said = " ".join(audit.recommendations)
    assert "row space of the output layer" in said
    assert "top 5 with a bias" in said


def test_unknowns_are_degrees_of_freedom() -> None:
    layer = us.models.TokenLayer.random(16, 60, 2, 9)
    assert unknowns_of(layer) == us.theory.token_layer_unknowns(60, 16, 2, 8, 9)
    output = us.models.OutputLayer(layer.basis)
    assert unknowns_of(output) == us.theory.output_layer_unknowns(60, 16)
