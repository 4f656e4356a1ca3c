"""The chart of a width."""

from __future__ import annotations

import numpy as np

import unsoftmax as us
from unsoftmax.report.charts import MOST, spectrum_chart
from unsoftmax.report.page import recovery_page


def test_the_page_of_an_output_layer_shows_its_singular_values() -> None:
    model = us.models.TokenLayer.random(12, 100, 1, 9)
    recovery = us.recover(us.logit_oracle(model, 100, max_length=9), us.learners.OutputLayer())
    page = recovery_page(recovery)
    assert "Hidden width" in page
    assert "12 of signal" in page


def test_wide_spectra_are_thinned_but_not_at_the_width() -> None:
    values = np.concatenate([np.linspace(5, 1, 3000), np.full(100, 1e-14)])
    points = spectrum_chart(values, 3000)["data"]["values"]
    assert len(points) <= MOST + 32
    assert {2999, 3000, 3001} <= {point["number"] for point in points}
    assert {point["part"] for point in points if point["number"] > 3000} == {"noise"}
