"""The order of the rows is right on raw, unscaled data: values against direct differences in float64."""

from __future__ import annotations

from collections.abc import Callable

import naive
import numpy as np
import pytest
import reference
from scipy import sparse

from shapshift import KNNShapley
from shapshift.engine.rows.distances import index_rows, tile_filler

METRICS = ["euclidean", "sqeuclidean", "manhattan", "cosine"]
Transform = Callable[[np.ndarray], np.ndarray]


def blobs(n_rows: int = 700, n_val: int = 25, width: int = 5, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Training rows, labels, validation points, labels; a few rows are duplicates with labels of their own."""
    rng = np.random.default_rng(seed)
    y, y_val = rng.integers(0, 3, size=n_rows), rng.integers(0, 3, size=n_val)
    X, X_val = rng.normal(size=(n_rows, width)) + y[:, None], rng.normal(size=(n_val, width)) + y_val[:, None]
    X[-40:] = X[:40]
    X_val[0] = X[7]
    return X, y, X_val, y_val


def expected_matrix(
    distances: np.ndarray, y: np.ndarray, y_val: np.ndarray, n_neighbors: int = 5, utility: str = "soft"
) -> np.ndarray:
    table = reference.shapley_table(len(y), n_neighbors, utility)
    return reference.rank_values(distances, y[None, :] == y_val[:, None], table, len(np.unique(y)), "average")


def assert_values(
    data: tuple[np.ndarray, ...], distances: np.ndarray, *, metric: str = "euclidean", utility: str = "soft"
) -> None:
    X, y, X_val, y_val = data
    found = KNNShapley(metric=metric, utility=utility).fit(X, y).value(X_val, y_val, matrix=True)
    expected = expected_matrix(distances, y, y_val, utility=utility)
    np.testing.assert_allclose(found.matrix, expected, rtol=0, atol=1e-13)
    np.testing.assert_allclose(found.values, expected.mean(axis=1), rtol=0, atol=1e-13)


# --- every metric at a size where blocks and long runs occur --------------------------------------------------------


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("utility", ["soft", "hard"])
def test_five_thousand_rows(metric: str, utility: str) -> None:
    X, y, X_val, y_val = blobs(5_000, 20, 7)
    distances = reference.distance_matrix(X_val, X, metric)
    if metric == "cosine":
        # Equal rows are equal directions; the matrix product of the oracle may round the copies differently.
        distances[:, -40:] = distances[:, :40]
    assert_values((X, y, X_val, y_val), distances, metric=metric, utility=utility)


def test_forty_thousand_rows() -> None:
    data = blobs(40_000, 3, 3)
    assert_values(data, reference.distance_matrix(data[2], data[0], "euclidean"))


def test_precomputed_distances_are_taken_as_they_are() -> None:
    X, y, X_val, y_val = blobs(900, 30)
    distances = reference.distance_matrix(X_val, X, "euclidean")
    by_rows = KNNShapley().fit(X, y).value(X_val, y_val)
    by_distance = KNNShapley(metric="precomputed").fit(None, y).value(distances, y_val)
    assert np.array_equal(by_distance.values, by_rows.values)
    assert np.array_equal(by_distance.entropy, by_rows.entropy)


def test_negative_zero_is_no_distance_of_its_own() -> None:
    # Its bit pattern is that of a huge negative number, far from the other zero's.
    rng = np.random.default_rng(7)
    distances = rng.integers(0, 4, size=(10, 200)).astype(float)
    y, y_val = rng.integers(0, 2, size=200), np.arange(10) % 2
    signed = np.where((distances == 0) & (rng.random(distances.shape) < 0.5), -0.0, distances)
    model = KNNShapley(metric="precomputed").fit(None, y)
    found = model.value(signed, y_val, matrix=True)
    assert np.array_equal(found.matrix, model.value(distances, y_val, matrix=True).matrix)
    np.testing.assert_allclose(found.matrix, expected_matrix(distances, y, y_val), rtol=0, atol=1e-14)


# --- offsets and scales ---------------------------------------------------------------------------------------------


def shifted(by: float) -> Transform:
    return lambda X: X + by


def stretched(*factors: float) -> Transform:
    return lambda X: X * np.resize(factors, X.shape[1])


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean", "manhattan"])
@pytest.mark.parametrize(
    "transform",
    [
        pytest.param(shifted(1e4), id="offset 1e4"),
        pytest.param(shifted(1e6), id="offset 1e6"),
        pytest.param(shifted(-1e9), id="offset -1e9"),
        pytest.param(stretched(1e-6, 1e6), id="columns of 1e-6 and 1e6"),
        pytest.param(stretched(1e-6, 1.0, 1e-3), id="columns of 1e-6 to 1"),
        pytest.param(lambda X: stretched(1e-6, 1e6)(X) + 1e6, id="both"),
    ],
)
def test_raw_features(metric: str, transform: Transform) -> None:
    X, y, X_val, y_val = blobs()
    data = (transform(X), y, transform(X_val), y_val)
    assert_values(data, reference.distance_matrix(data[2], data[0], metric), metric=metric)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("exponent", [-1000, -565, -500, -150, 150, 465, 1000])
def test_powers_of_two_change_no_bit(metric: str, exponent: int) -> None:
    # From 1e-301 to 1e301: squares of such features leave the range of float64, their order does not.
    X, y, X_val, y_val = blobs(300, 20)
    plain = KNNShapley(metric=metric).fit(X, y).value(X_val, y_val, matrix=True)
    scaled = (
        KNNShapley(metric=metric).fit(np.ldexp(X, exponent), y).value(np.ldexp(X_val, exponent), y_val, matrix=True)
    )
    assert np.array_equal(scaled.matrix, plain.matrix)


def test_a_huge_constant_column_hides_no_other() -> None:
    X, y, X_val, y_val = blobs(300, 20)
    tall = np.full((300, 1), 1e100), np.full((20, 1), 1e100)
    plain = KNNShapley().fit(X, y).value(X_val, y_val)
    beside = (
        KNNShapley().fit(np.hstack([tall[0], X * 2.0**-332]), y).value(np.hstack([tall[1], X_val * 2.0**-332]), y_val)
    )
    assert np.array_equal(beside.values, plain.values)


def test_a_far_outlier_blurs_nobody() -> None:
    X, y, X_val, y_val = blobs()
    X[13] = 1e12
    X[14] = -1e150
    assert_values((X, y, X_val, y_val), reference.distance_matrix(X_val, X, "euclidean"))


def test_outliers_in_validation_are_valued() -> None:
    X, y, X_val, y_val = blobs()
    X_val[3], X_val[4] = 1e12, -1e100
    assert_values((X, y, X_val, y_val), reference.distance_matrix(X_val, X, "euclidean"))


def test_neighboring_floats_are_told_apart() -> None:
    # Distances that differ in the last bit only; labels alternate, so one swap moves values by far more than rounding.
    n_rows = 400
    distances = np.empty(n_rows)
    distances[0] = 1.0
    for i in range(1, n_rows):
        distances[i] = np.nextafter(distances[i - 1], 2.0)
    order = np.random.default_rng(3).permutation(n_rows)
    y = (np.arange(n_rows) % 2)[order]
    found = KNNShapley(metric="precomputed").fit(None, y).value(distances[order][None, :], [1], matrix=True)
    expected = expected_matrix(distances[order][None, :], y, np.array([1]))
    np.testing.assert_allclose(found.matrix, expected, rtol=0, atol=1e-15)


@pytest.mark.parametrize("spread", ["subnormal", "all magnitudes", "two clusters"])
def test_distances_of_awkward_spread(spread: str) -> None:
    rng = np.random.default_rng(9)
    n_rows = 2_000
    distances = {
        "subnormal": rng.integers(0, 500, size=n_rows) * 5e-324,
        "all magnitudes": 10.0 ** rng.uniform(-300, 300, size=n_rows),
        "two clusters": np.where(rng.random(n_rows) < 0.5, 1.0, 1e9) * (1 + 1e-13 * rng.integers(0, 99, size=n_rows)),
    }[spread][None, :]
    y = rng.integers(0, 2, size=n_rows)
    found = KNNShapley(metric="precomputed").fit(None, y).value(distances, [1], matrix=True)
    np.testing.assert_allclose(found.matrix, expected_matrix(distances, y, np.array([1])), rtol=0, atol=1e-14)


# --- ties -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", ["euclidean", "manhattan"])
@pytest.mark.parametrize("n_values", [1, 2, 4])
def test_heavy_ties_on_a_grid(metric: str, n_values: int) -> None:
    rng = np.random.default_rng(4)
    X, X_val = rng.integers(0, n_values, size=(3_000, 3)).astype(float), rng.integers(0, 4, size=(15, 3)).astype(float)
    y, y_val = rng.integers(0, 3, size=3_000), rng.integers(0, 3, size=15)
    assert_values((X, y, X_val, y_val), reference.distance_matrix(X_val, X, metric), metric=metric)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("width", [1, 3, 4, 7, 8, 33])
def test_duplicates_are_exact_ties_wherever_they_stand(metric: str, width: int) -> None:
    rng = np.random.default_rng(width)
    X = rng.normal(size=(401, width)) * 10.0 ** rng.uniform(-3, 3, size=width)
    copies = np.concatenate([X, X[::-1], X])
    y = np.concatenate([rng.integers(0, 2, size=401)] * 3)
    y[401:802] = y[:401][::-1]
    found = KNNShapley(metric=metric).fit(copies, y).value(rng.normal(size=(10, width)), rng.integers(0, 2, size=10))
    assert np.array_equal(found.values[:401], found.values[802:])
    assert np.array_equal(found.values[:401], found.values[401:802][::-1])


# --- sparse ---------------------------------------------------------------------------------------------------------


def sparse_case() -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(6)
    X, X_val = rng.normal(size=(300, 40)), rng.normal(size=(30, 40))
    X[rng.random(X.shape) < 0.85] = 0
    X_val[rng.random(X_val.shape) < 0.85] = 0
    X[[5, 50]] = 0
    X_val[2] = 0
    return X, rng.integers(0, 3, size=300), X_val, rng.integers(0, 3, size=30)


def untidy(X: np.ndarray) -> sparse.csr_matrix:
    """The same matrix with unsorted indices, explicit zeros and entries split in two."""
    rng = np.random.default_rng(8)
    data, indices, indptr = [], [], [0]
    for row in X:
        entries = [(column, part) for column in np.flatnonzero(row) for part in (row[column] / 2, row[column] / 2)]
        entries += [(column, 0.0) for column in rng.choice(X.shape[1], size=3, replace=False)]
        for place in rng.permutation(len(entries)):
            indices.append(entries[place][0])
            data.append(entries[place][1])
        indptr.append(len(data))
    return sparse.csr_matrix((np.array(data), np.array(indices), np.array(indptr)), shape=X.shape)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize(
    "container",
    [sparse.csr_matrix, sparse.csr_array, sparse.csc_matrix, sparse.coo_array, untidy],
    ids=["csr_matrix", "csr_array", "csc_matrix", "coo_array", "untidy"],
)
def test_sparse_is_dense_to_the_last_bit(metric: str, container: Callable[[np.ndarray], object]) -> None:
    X, y, X_val, y_val = sparse_case()
    dense = KNNShapley(metric=metric).fit(X, y).value(X_val, y_val, matrix=True)
    given = container(X)
    found = KNNShapley(metric=metric).fit(given, y).value(container(X_val), y_val, matrix=True)
    assert np.array_equal(found.matrix, dense.matrix)
    assert np.array_equal(found.values, dense.values)
    assert np.array_equal(given.toarray(), X), "the caller's matrix was changed"


def test_zero_rows_are_at_cosine_distance_one() -> None:
    pairwise = pytest.importorskip("sklearn.metrics.pairwise")
    X, y, X_val, y_val = blobs(300, 20)
    X[[5, 50, 265]] = 0  # 265 is the copy of 5
    X_val[2] = 0
    distances = pairwise.cosine_distances(X_val, X)
    distances[:, -40:] = distances[:, :40]
    distances[2] = 1
    assert (distances[:, [5, 50]] == 1).all()
    assert_values((X, y, X_val, y_val), distances, metric="cosine")


def test_orthogonal_rows_are_exact_cosine_ties() -> None:
    # Most pairs of sparse rows share no column: distance 1, and no rounding may rank them.
    X, y, X_val, y_val = sparse_case()
    assert ((X_val @ X.T) == 0).mean() > 0.3
    assert_values((X, y, X_val, y_val), reference.distance_matrix(X_val, X, "cosine"), metric="cosine")


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
def test_a_single_feature_points_one_way_or_the_other(container: Callable[[np.ndarray], object]) -> None:
    rng = np.random.default_rng(10)
    X, X_val = rng.normal(size=(300, 1)), rng.normal(size=(20, 1))
    y, y_val = rng.integers(0, 3, size=300), rng.integers(0, 3, size=20)
    distances = 1 - np.sign(X_val) @ np.sign(X).T
    assert_values((container(X), y, container(X_val), y_val), distances, metric="cosine")


# --- cosine distances: equal angles are ties, whatever the lengths --------------------------------------------------


def test_equal_angles_are_a_tie() -> None:
    # Both cosines are the root of 2/3.
    model = KNNShapley(1, metric="cosine").fit([[-1, 1, 0], [0, 1, 1]], [0, 1])
    assert model.value([[-1, 1, 1]], [0]).values.tolist() == [0.5, -0.5]


@pytest.mark.parametrize("seed", range(60))
def test_small_whole_numbers_have_the_enumerated_values(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n_rows, width, most = rng.integers(2, 8), rng.integers(1, 5), rng.integers(1, 6)
    X, X_val = (rng.integers(-most, most + 1, size=(n, width)) for n in (n_rows, 4))
    y, y_val = rng.integers(0, 2, n_rows), rng.integers(0, 2, 4)
    y[:2] = 0, 1
    utility = str(rng.choice(["soft", "hard"]))
    found = KNNShapley(2, metric="cosine", utility=utility).fit(X, y).value(X_val, y_val, matrix=True)
    for p, distances in enumerate(naive.distance_matrix(X_val, X, "cosine")):
        matches = (y == y_val[p]).tolist()
        right = naive.knn_values(
            distances, matches, n_neighbors=2, utility=utility, semivalue="shapley", n_classes=2, ties="average"
        )
        np.testing.assert_allclose(found.matrix[:, p], right, rtol=0, atol=1e-12)


@pytest.mark.parametrize("width", [2, 3, 6])
@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
def test_ties_of_whole_numbers(width: int, container: Callable[[np.ndarray], object]) -> None:
    rng = np.random.default_rng(width)
    X, X_val = rng.integers(-3, 4, size=(300, width)), rng.integers(-3, 4, size=(12, width))
    y, y_val = rng.integers(0, 3, 300), rng.integers(0, 3, 12)
    distances = naive.distance_matrix(X_val, X, "cosine")
    assert np.mean([np.unique(row).size for row in distances]) < 280
    assert_values((container(X), y, container(X_val), y_val), distances, metric="cosine")


@pytest.mark.parametrize("method", ["exact", "truncated", "certified"])
def test_the_length_of_a_row_means_nothing_to_its_cosine(method: str) -> None:
    rng = np.random.default_rng(0)
    X, X_val = rng.integers(-9, 10, size=(400, 4)).astype(float), rng.integers(-9, 10, size=(20, 4)).astype(float)
    y, y_val = rng.integers(0, 2, 400), rng.integers(0, 2, 20)
    lengths, point_lengths = rng.choice([1, 2, 3, 7, 1e6, 3 * 2.0**-300], 400), rng.choice([1, 3, 11, 5 * 2.0**600], 20)
    longer, points = X * lengths[:, None], X_val * point_lengths[:, None]
    model = KNNShapley(metric="cosine", method=method, tol={"certified": 0.5, "truncated": 0.1}.get(method))
    expected = model.fit(X, y).value(X_val, y_val)
    found = model.fit(longer, y).value(points, y_val)
    np.testing.assert_allclose(found.values, expected.values, rtol=0, atol=1e-14)
    three = np.vstack([X, 3 * X, X / 8])
    same = KNNShapley(metric="cosine").fit(three, np.tile(y, 3)).value(X_val, y_val).values.reshape(3, -1)
    np.testing.assert_array_equal(same[1:], same[[0, 0]])


def hard_angles() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(1)
    cases = {}
    for width in (1, 2, 5, 9):
        direction = rng.normal(size=width)
        cases[f"any, {width}"] = rng.normal(size=(12, width)), rng.normal(size=(4, width))
        for angle in (1e-3, 1e-5, 1e-8, 1e-12, 1e-16):
            spread = direction + angle * rng.normal(size=(16, width))
            cases[f"within {angle}, {width}"] = spread[:12], spread[12:]
        whole = rng.integers(-50, 51, size=(3, width)).astype(float)
        cases[f"multiples, {width}"] = np.vstack([whole * k for k in (1, 2, 3, 1_000_003, -3)]), whole
        wild = rng.normal(size=(16, width)) * 10.0 ** rng.integers(-12, 12, size=(16, width))
        cases[f"features of any size, {width}"] = wild[:12], wild[12:]
    cases["tiny angles"] = np.array([[1, 2.0**-k] for k in (10, 50, 60, 70)]), np.array([[1, 2.0**-65], [3, 0]])
    cases["nothing"] = np.array([[0.0, 0], [1, 2]]), np.array([[0.0, 0], [2, 1]])
    return cases


@pytest.mark.parametrize("name", hard_angles())
def test_cosine_distances_are_rounded_once(name: str) -> None:
    X, X_val = hard_angles()[name]
    index = index_rows(X, "cosine")
    found, thin, single = np.empty((3, len(X_val), len(X)))
    everything = slice(0, len(X_val)), slice(0, len(X))
    tile_filler(index, X_val)(*everything, found)
    np.testing.assert_array_equal(found, naive.distance_matrix(X_val, X, "cosine"))
    tile_filler(index_rows(sparse.csr_array(X), "cosine"), sparse.csr_array(X_val))(*everything, thin)
    measure = index.measure(X_val, index.table())
    for p in range(len(X_val)):
        measure(p, np.arange(len(X)), single[p])
    assert found.tobytes() == thin.tobytes() == single.tobytes()


# --- dtypes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, np.int8, np.uint8, np.bool_])
def test_narrow_dtypes_are_widened_before_they_are_subtracted(dtype: type) -> None:
    X, y, X_val, y_val = blobs(300, 15)
    narrow, narrow_val = (X * 20).astype(dtype), (X_val * 20).astype(dtype)
    wide, wide_val = narrow.astype(float), narrow_val.astype(float)
    found = KNNShapley().fit(narrow, y).value(narrow_val, y_val)
    assert np.array_equal(found.values, KNNShapley().fit(wide, y).value(wide_val, y_val).values)
    assert_values((wide, y, wide_val, y_val), reference.distance_matrix(wide_val, wide, "euclidean"))


def test_memory_layout_changes_no_bit() -> None:
    X, y, X_val, y_val = blobs(300, 15)
    expected = KNNShapley().fit(X, y).value(X_val, y_val).values
    for layout in (np.asfortranarray, lambda A: np.hstack([A, A])[:, : A.shape[1]], lambda A: A[::-1][::-1]):
        assert np.array_equal(KNNShapley().fit(layout(X), y).value(layout(X_val), y_val).values, expected)


@pytest.mark.parametrize("scale", [1e-300, 1e-170, 1e-160, 1.0, 1e160, 1e300])
def test_the_spread_of_features_has_no_scale(scale: float) -> None:
    X = np.random.default_rng(0).normal(size=(50, 3))
    found = KNNShapley().fit(X * scale, np.arange(50) % 2).feature_std_
    np.testing.assert_allclose(found / scale, X.std(axis=0), rtol=1e-12)
