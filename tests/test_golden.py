"""Values are those that earlier commits computed."""

from __future__ import annotations

import json

import numpy as np
import pytest
from golden import FILE, cases, origin, summary

GOLDEN = json.loads(FILE.read_text())
CASES = dict(cases())


@pytest.mark.parametrize("name", CASES)
def test_values_have_not_changed(name: str) -> None:
    found, expected = summary(CASES[name]()), GOLDEN["results"][name]
    if origin() == GOLDEN["origin"]:
        assert found["sha256"] == expected["sha256"]
    # Relative to the largest: sums of entries of the rank table may cancel.
    np.testing.assert_allclose(
        found["values"], expected["values"], rtol=0, atol=1e-12 * np.abs(expected["values"]).max()
    )


def test_there_is_a_golden_result_for_every_case() -> None:
    assert GOLDEN["results"].keys() == CASES.keys()
