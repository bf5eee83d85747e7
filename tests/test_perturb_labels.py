"""Flipped labels: how many, into what, and in which container."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sample_points import MODEL, X, Y

from shapshift.perturb import FlipLabels


def test_uniform_flips_have_the_rate_and_spread_evenly() -> None:
    y = np.repeat([0, 1, 2], 4000)
    rows = np.zeros((len(y), 1))
    made = FlipLabels(0.3, random_state=0)(rows, y)[1]
    table = np.array([[(made[y == old] == new).mean() for new in range(3)] for old in range(3)])
    np.testing.assert_allclose(table, np.full((3, 3), 0.15) + 0.55 * np.eye(3), atol=0.03)
    assert (FlipLabels(1.0, random_state=0)(rows, y)[1] != y).all()
    np.testing.assert_array_equal(FlipLabels(0.0, random_state=0)(rows, y)[1], y)


@pytest.mark.parametrize("labels", [[0, 1, 0, 1], [True, False, True, False]])
def test_flips_in_a_list_are_plain_values(labels: list[Any]) -> None:
    made = FlipLabels(0.9, random_state=3)([[0.0], [1.0], [2.0], [3.0]], labels)[1]
    assert {type(label) for label in made} == {type(labels[0])}


def test_flips_by_class_and_target() -> None:
    y = np.repeat(["cat", "dog", "mouse"], 4000)
    rows = np.zeros((len(y), 1))
    step = FlipLabels(rates={"cat": 0.5, "dog": 0.1}, targets={"cat": {"dog": 1, "mouse": 3}, "dog": "mouse"})
    made = step.with_seed(0)(rows, y)[1]
    table = {(old, new): (made[y == old] == new).mean() for old in set(y) for new in set(y)}
    expected = {("cat", "cat"): 0.5, ("cat", "dog"): 0.125, ("cat", "mouse"): 0.375, ("dog", "mouse"): 0.1}
    for pair, share in expected.items():
        assert abs(table[pair] - share) < 0.03, pair
    assert table["dog", "cat"] == 0
    assert table["mouse", "mouse"] == 1


def test_a_class_keeps_its_flips_whatever_the_others_do() -> None:
    first = FlipLabels(rates={1: 0.5}, random_state=0)(X, Y)[1]
    second = FlipLabels(rates={1: 0.5, 2: 1.0}, random_state=0)(X, Y)[1]
    np.testing.assert_array_equal(first[Y == 1], second[Y == 1])


def test_longer_labels_are_not_cut_and_odd_labels_work() -> None:
    made = FlipLabels(1.0, targets={"a": "a long name"})(np.zeros((2, 1)), np.array(["a", "a"]))[1]
    assert made.tolist() == ["a long name"] * 2
    labels = np.empty(2, dtype=object)
    labels[0], labels[1] = ("x", 1), ("y", 2)
    assert FlipLabels(1.0)(np.zeros((2, 1)), labels)[1].tolist() == [("y", 2), ("x", 1)]
    category = pd.Series(["u", "v", "u"], dtype="category")
    made = FlipLabels(1.0)(np.zeros((3, 1)), category)[1]
    assert made.tolist() == ["v", "u", "v"]
    assert made.dtype == category.dtype
    with pytest.raises(ValueError, match="cannot hold the new labels"):
        FlipLabels(1.0, targets={"u": "w"})(np.zeros((3, 1)), category)
    for label in (300, 1.5):
        with pytest.raises(ValueError, match="'y_val' of type int8 cannot hold the new labels"):
            FlipLabels(1.0, targets={0: label})(np.zeros((2, 1)), np.zeros(2, dtype=np.int8))


def test_a_single_label_needs_the_models_classes() -> None:
    ones = np.ones(5, dtype=int)
    with pytest.raises(ValueError, match="cannot change 1"):
        FlipLabels(1.0)(np.zeros((5, 3)), ones)
    made = FlipLabels(1.0, random_state=0).bind(MODEL)(np.zeros((5, 3)), ones)[1]
    assert set(made.tolist()) <= {0, 2}
    with pytest.raises(ValueError, match="names the label 9, which does not occur"):
        FlipLabels(rates={9: 0.5})(X, Y)


def test_the_callers_mapping_is_copied() -> None:
    rates = {0: 0.0}
    step = FlipLabels(rates=rates)
    rates[0] = 1.0
    np.testing.assert_array_equal(step(X, Y)[1], Y)
