"""Variables of the notebook in a prompt."""

from __future__ import annotations

import numpy as np
import pytest

from ipymcp.llm.prompting import fill


@pytest.mark.parametrize(
    ("value", "kind"),
    [(np.zeros((2, 3)), "ndarray, 2 x 3, float64"), (np.arange(4, dtype="int16"), "ndarray, 4, int16")],
)
def test_an_array_is_described_by_its_shape_and_type(value: object, kind: str) -> None:
    prompt = fill("What is $data?", {"data": value})
    assert [one.what for one in prompt.attached] == [kind]
