"""Data sets: what is generated or bundled, both protocols, sizes and scaling."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn.datasets
from hypothesis import given
from hypothesis import strategies as st
from parquet_files import write_table
from sklearn.preprocessing import StandardScaler

from shapshift import KNNShapley
from shapshift.data import dataset, load_dataset
from shapshift.data.sources import SOURCES

BUNDLED = ["iris", "wine", "breast_cancer", "digits"]

pytestmark = pytest.mark.usefixtures("no_data_folders")


# --- generated and bundled ---------------------------------------------------------------------------------------


def test_gaussian_is_balanced_reproducible_and_of_the_size_asked_for() -> None:
    one, again, other = (load_dataset("gaussian", random_state=seed) for seed in (0, 0, 1))
    assert one.X_train.shape == (2000, 2)
    assert one.X_val.shape == (1000, 2)
    assert np.bincount(np.r_[one.y_train, one.y_val]).tolist() == [1500, 1500]
    assert one.X_train.tobytes() == again.X_train.tobytes()
    assert one.sha256 == again.sha256 != other.sha256
    assert load_dataset("gaussian", n_train=7000, n_val=10, random_state=2**40).X_train.shape == (7000, 2)


def test_gaussian_is_a_disc_in_a_ring() -> None:
    made = load_dataset("gaussian", standardize=False)
    radius = np.linalg.norm(made.X_train, axis=1)
    assert radius[made.y_train == 0].max() < radius[made.y_train == 1].min()


@pytest.mark.parametrize("name", BUNDLED)
def test_bundled_sets_are_scikit_learns(name: str) -> None:
    X, y = getattr(sklearn.datasets, f"load_{name}")(return_X_y=True)
    made = load_dataset(name, standardize=False)
    assert len(made.y_val) == len(y) // 3
    assert len(made.y_train) + len(made.y_val) == len(y)
    for rows, features, labels in (
        (made.rows_train, made.X_train, made.y_train),
        (made.rows_val, made.X_val, made.y_val),
    ):
        np.testing.assert_array_equal(features, X[rows])
        np.testing.assert_array_equal(labels, y[rows])
        assert features.dtype == np.float64
        assert labels.dtype == np.int64
    assert sorted(np.r_[made.rows_train, made.rows_val]) == list(range(len(y)))
    assert len(made.feature_names) == X.shape[1]
    known = SOURCES[name]
    assert known.counts == tuple(np.bincount(y))
    assert known.n_features == X.shape[1]


def test_a_dataset_can_be_valued_and_described() -> None:
    made = load_dataset("iris")
    valuation = KNNShapley().fit(made.X_train, made.y_train).value(made.X_val, made.y_val)
    assert valuation.n_train == 100
    assert json.loads(json.dumps(made.parameters))["n_val"] == 50
    assert "100 training and 50 validation rows" in repr(made)
    with pytest.raises(AttributeError):
        made.name = "other"  # type: ignore[misc]


# --- scaling, sizes, protocols -----------------------------------------------------------------------------------


def test_features_are_scaled_by_the_training_rows() -> None:
    raw, made = load_dataset("wine", standardize=False), load_dataset("wine")
    scaler = StandardScaler().fit(raw.X_train)
    np.testing.assert_allclose(made.X_train, scaler.transform(raw.X_train), atol=1e-12)
    np.testing.assert_allclose(made.X_val, scaler.transform(raw.X_val), atol=1e-12)
    assert made.scaler_mean is not None
    assert made.scaler_scale is not None
    np.testing.assert_allclose(made.X_val * made.scaler_scale + made.scaler_mean, raw.X_val, atol=1e-9)
    assert raw.scaler_mean is None


def test_a_column_constant_in_training_becomes_zero(tmp_path: Path) -> None:
    write_table(tmp_path, "cpu")
    with pytest.warns(UserWarning, match="not the published file"):
        made = load_dataset("cpu", data_dir=tmp_path)
    assert not made.X_train[:, 1].any()
    assert not made.X_val[:, 1].any()
    assert made.scaler_scale is not None
    assert made.scaler_scale[1] == 0
    assert np.isfinite(made.X_train).all()
    # Also where the validation rows do vary.
    X = np.array([[1.0], [1.0], [5.0]])
    mean, scale = dataset._scaler(X[:2])
    assert dataset._scaled(X, mean, scale).ravel().tolist() == [0.0, 0.0, 0.0]


def test_rows_are_shuffled_before_the_split(tmp_path: Path) -> None:
    write_table(tmp_path, "cpu")  # sorted by label
    with pytest.warns(UserWarning, match="published"):
        made = load_dataset("cpu", data_dir=tmp_path, n_train=30, n_val=20)
    assert set(made.y_train) == set(made.y_val) == {0, 1}
    with pytest.warns(UserWarning, match="published"):
        other = load_dataset("cpu", data_dir=tmp_path, n_train=30, n_val=20, random_state=1)
    assert made.rows_train.tolist() != other.rows_train.tolist()


def test_natural_rows_occur_once() -> None:
    made = load_dataset("breast_cancer")
    rows = np.r_[made.rows_train, made.rows_val]
    assert len(set(rows.tolist())) == len(rows)


@given(counts=st.lists(st.integers(1, 30), min_size=1, max_size=4), seed=st.integers(0, 1000))
def test_oversampling_keeps_every_row_and_evens_the_classes(counts: list[int], seed: int) -> None:
    y = np.repeat(np.arange(len(counts)), counts)
    rows = dataset._oversample(y, np.random.default_rng(seed))
    assert rows[: y.size].tolist() == list(range(y.size))
    assert np.bincount(y[rows]).tolist() == [max(counts)] * len(counts)


def test_balanced_copies_rows_of_the_smaller_class_only_and_into_both_sets() -> None:
    made = load_dataset("breast_cancer", protocol="balanced")
    rows, y = np.r_[made.rows_train, made.rows_val], np.r_[made.y_train, made.y_val]
    assert np.bincount(y).tolist() == [357, 357]
    seen, times = np.unique(rows, return_counts=True)
    assert len(seen) == 569
    assert times[y[np.unique(rows, return_index=True)[1]] == 1].max() == 1
    assert set(made.rows_train.tolist()) & set(made.rows_val.tolist())
    assert load_dataset("breast_cancer", protocol="balanced").X_val.tobytes() == made.X_val.tobytes()


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [({}, (100, 50)), ({"n_train": 120}, (120, 30)), ({"n_val": 10}, (140, 10)), ({"n_train": 5, "n_val": 6}, (5, 6))],
)
def test_sizes(sizes: dict[str, int], expected: tuple[int, int]) -> None:
    made = load_dataset("iris", **sizes)  # type: ignore[arg-type]
    assert (len(made.y_train), len(made.y_val)) == expected


@pytest.mark.parametrize("sizes", [{"n_train": 150}, {"n_val": 150}, {"n_train": 100, "n_val": 51}])
def test_sizes_that_do_not_fit(sizes: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="'iris' has 150 rows under this protocol"):
        load_dataset("iris", **sizes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "phonem"}, "Did you mean 'phoneme'"),
        ({"name": "Iris"}, "Did you mean 'iris'"),
        ({"name": "zzzzzz"}, "must be one of 'gaussian'"),
        ({"name": "iris", "protocol": "even"}, "'protocol' parameter of load_dataset must be one of 'natural'"),
        ({"name": "iris", "standardize": "yes"}, "must be 'auto', True or False"),
        ({"name": "iris", "n_train": 0}, "'n_train' parameter of load_dataset must be at least 1"),
        ({"name": "iris", "random_state": -1}, "'random_state' parameter of load_dataset must be at least 0"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_dataset(**arguments)
