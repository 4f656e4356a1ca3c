"""What a sketch says of a refusal."""

from __future__ import annotations

import pytest

from unsoftmax.diagnosis.sketch import Refusal, TooDearError, said
from unsoftmax.errors import ModelMismatch, NotIdentifiable


@pytest.mark.parametrize("kind", [TooDearError, ModelMismatch, NotIdentifiable])
def test_a_refusal_is_told_without_the_name_of_its_class(kind: type[Refusal]) -> None:
    words = said(kind("the heads turn together"))
    assert "the heads turn together" in words
    assert kind.__name__ not in words
