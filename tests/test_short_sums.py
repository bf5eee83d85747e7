"""Sums of squares in float32: their error is within the proved bound, and lists made by them have the same bytes."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shapshift import KNNShapley
from shapshift._numba import kernel
from shapshift.engine.rows.distances import TrainingIndex, index_rows, tile_filler
from shapshift.engine.search import exact as search
from shapshift.engine.search import exact_search
from shapshift.kernels.nearest import Collected, collect_by_bounds
from shapshift.kernels.panels import ROWS, for_kernels, pack, short_squared_sums


@kernel
def short_sums(panels: Any, points: Any, out: Any) -> None:
    for k in range(panels.shape[0]):
        short_squared_sums(panels[k], points, out, k * ROWS, panels[k])


def rows_of(kind: str, n: int, d: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, the type they are given in, and some points."""
    rng = np.random.default_rng(seed)
    X, X_val, dtype = rng.normal(size=(n, d)), rng.normal(size=(9, d)), np.float32
    if kind == "far from the origin":
        X, X_val = X + 1e6, X_val + 1e6
    elif kind == "nearly equal":  # distances differ by less than float32 can show
        X = np.float32(rng.normal(size=d)) * (1 + np.arange(n)[:, None] % 7 * 2.0**-23)
    elif kind == "equal rows":
        X[n // 2 :] = X[: n - n // 2]
    elif kind == "one huge feature":
        X[:, 0] *= 1e12
        X_val[:, 0] *= 1e12
    elif kind == "overflow":
        X, X_val = X * 1e25, X_val * 1e25
    elif kind == "underflow":
        X, X_val = X * 1e-25, X_val * 1e-25
    elif kind in ("int8", "uint8"):
        X, X_val, dtype = (X * 9).clip(-128, 127) + 128 * (kind == "uint8"), X_val * 9 + 128 * (kind == "uint8"), kind
        X = X.clip(0, 255) if kind == "uint8" else X
    elif kind == "float16":
        dtype = np.float16
    X = X.astype(dtype)
    # Some points are rows, some are numbers that float32 holds, the others are not.
    X_val[:3], X_val[3:6] = X[:3], X_val[3:6].astype(np.float32)
    return X, np.dtype(dtype), X_val


KINDS = ["plain", "far from the origin", "nearly equal", "equal rows", "one huge feature", "overflow", "underflow",
         "int8", "uint8", "float16"]  # fmt: skip


def lists(X: np.ndarray, X_val: np.ndarray, wanted: int, whole: bool, short: bool) -> tuple[Any, int]:
    """Lists of nearest rows, and how many blocks of points were looked up in float32."""
    index, used = index_rows(X, "euclidean"), []
    make = search.round_points
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "round_points", lambda *a: (used.append(made := make(*a)) or made) if short else None)
        patch.setattr(search, "WORTH_SAMPLING", 0.05)
        finder = exact_search(tile_filler(index, X_val), index.n_rows, wanted, whole_ties=whole)
        return finder.find(0, X_val.shape[0], np.empty((X_val.shape[0], 0), np.int64)), sum(r is not None for r in used)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("d", [1, 3, 40])
@pytest.mark.parametrize("whole", [True, False])
def test_lists_are_those_of_float64(kind: str, d: int, whole: bool) -> None:
    for n, wanted in ((40, 5), (3001, 20), (2500, 700)):
        X, dtype, X_val = rows_of(kind, n, d, seed=n + d)
        assert X.dtype == dtype
        found, used = lists(X, X_val, wanted, whole, short=True)
        want, _ = lists(X, X_val, wanted, whole, short=False)
        assert (used > 0) is (kind != "overflow")
        for a, b in zip(found, want, strict=True):
            assert a.tobytes() == b.tobytes()
        # By the definition: all distances in float64, sorted.
        distances = np.square(X.astype(np.float64)[None] - X_val[:, None]).sum(axis=2)
        for p in range(9):
            nearest = np.sort(distances[p])[:wanted]
            np.testing.assert_allclose(found.distances[found.ends[p] :][:wanted], nearest, rtol=1e-13 * d)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "overflow"])
def test_no_row_within_a_limit_is_missed(kind: str) -> None:
    # A limit that is the distance of a row itself leaves no room for an error that is not counted.
    for d in (1, 8, 60):
        X, _, X_val = rows_of(kind, 300, d, seed=d)
        fill = tile_filler(index_rows(X, "euclidean"), X_val)
        rounded, distances = search.round_points(fill, 0, 9), np.empty((9, 300))
        assert rounded is not None
        fill(slice(0, 9), slice(0, 300), distances)
        for wanted in range(1, 300, 23):
            limits = np.sort(distances, axis=1)[:, wanted - 1].copy()
            found = Collected(np.empty((9, 300), np.int64), np.empty((9, 300)), np.zeros(9, np.int64), limits)
            collect_by_bounds(rounded, wanted, found)
            for p in range(9):
                within = np.flatnonzero(distances[p] <= limits[p])
                np.testing.assert_array_equal(found.rows[p, : found.counts[p]], within)
                np.testing.assert_array_equal(found.keys[p, : found.counts[p]], distances[p, within])


@given(
    n=st.integers(1, 90), d=st.integers(1, 12), wanted=st.integers(1, 12), kind=st.sampled_from(KINDS),
    step=st.sampled_from([0.0, 0.5, 1e-7]), whole=st.booleans(), seed=st.integers(0, 10**6),
)  # fmt: skip
@settings(max_examples=120, deadline=None)
def test_no_data_changes_a_list(n: int, d: int, wanted: int, kind: str, step: float, whole: bool, seed: int) -> None:
    X, dtype, X_val = rows_of(kind, max(n, 4), d, seed)
    if step and dtype == np.float32:
        X = (np.round(X / step) * step).astype(np.float32)
    wanted = min(wanted, X.shape[0])
    found, want = (lists(X, X_val, wanted, whole, short)[0] for short in (True, False))
    for a, b in zip(found, want, strict=True):
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "overflow"])
def test_the_error_of_a_sum_is_within_its_bound(kind: str) -> None:
    worst = 0.0
    for d in (1, 2, 7, 64):
        X, _, X_val = rows_of(kind, 70, d, seed=d)
        points = X_val.astype(np.float32)
        out = np.empty((9, -(-70 // ROWS) * ROWS), np.float32)
        short_sums(for_kernels(pack(X)), points, out)
        share, least = Fraction(1, 1) / (1 - Fraction(d + 2, 2**24)), Fraction(d, 2**150)
        for p in range(9):
            for i in range(0, 70, 3):
                pairs = zip(X[i].astype(np.float64).tolist(), points[p].astype(np.float64).tolist(), strict=True)
                true = sum((Fraction(x) - Fraction(t)) ** 2 for x, t in pairs)
                found = Fraction(float(out[p, i]))
                assert true / share - least <= found <= true * share + least
                worst = max(worst, float(abs(found - true) / true) if true else 0.0)
    if kind == "plain":
        assert worst > 2.0**-27  # or the sums would not be those of float32


def test_padding_and_the_number_of_points_change_no_sum() -> None:
    X = np.random.default_rng(0).normal(size=(37, 11)).astype(np.float32)
    points = np.random.default_rng(1).normal(size=(17, 11)).astype(np.float32)
    whole = np.empty((17, 64), np.float32)
    short_sums(pack(X), points, whole)
    for size in range(1, 17):
        some = np.empty((size, 64), np.float32)
        short_sums(pack(X), points[:size], some)
        assert some.tobytes() == whole[:size].tobytes()


@pytest.mark.parametrize("tol", [0.02, 0.3])
def test_truncated_values_of_short_rows_keep_their_bytes_and_their_bound(tol: float) -> None:
    rng = np.random.default_rng(5)
    X, y = (rng.normal(size=(2400, 24)) + 1e3).astype(np.float32), rng.integers(0, 3, 2400)
    X[1200:] = X[:1200]  # every row twice, with labels of its own
    X_val, y_val = (rng.normal(size=(70, 24)) + 1e3).astype(np.float32), rng.integers(0, 3, 70)
    exact = KNNShapley().fit(X, y).value(X_val, y_val).values

    def value(order: Any, **options: Any) -> Any:
        model = KNNShapley(method="truncated", tol=tol, **options).fit(X[order], y[order])
        model._index = index_rows(X[order], "euclidean")
        assert type(model._index) is TrainingIndex
        assert model._index.holds_short_rows
        return model.value(X_val, y_val)

    found = value(slice(None))
    assert (np.abs(found.values - exact) <= found.error_bound + 1e-12).all()
    assert found.error_bound.max() <= tol
    np.testing.assert_array_equal(value(slice(None), n_jobs=2).values, found.values)
    shuffle = rng.permutation(2400)
    np.testing.assert_array_equal(value(shuffle).values, found.values[shuffle])
