"""Weights of validation points: values are weighted means, exactly, whatever computes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import naive
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from reliability import small_blocks
from sklearn.linear_model import LogisticRegression

from shapshift import (
    Beta,
    BoundaryCorrector,
    KNNProxy,
    KNNRegressionShapley,
    KNNShapley,
    PosteriorCorrector,
    SampledShapley,
    SemiSupervisedKNNShapley,
    ThresholdKNNShapley,
    Valuation,
    WeightedKNNShapley,
    allocate_budget,
    audit_shift,
    cross_value,
    find_suspects,
)
from shapshift.exceptions import InputError
from shapshift.price import random_blocks, write_statements

RNG = np.random.default_rng(3)
N, M = 90, 40
Y, T = RNG.integers(0, 3, N), RNG.choice(3, M, p=[0.7, 0.2, 0.1])
X, V = RNG.normal(size=(N, 3)) + Y[:, None], RNG.normal(size=(M, 3)) + T[:, None]
W = np.where(RNG.random(M) < 0.2, 0.0, RNG.exponential(size=M))
SEMIVALUES = ("shapley", "banzhaf", "loo", "calibrated", Beta(4, 1))


def plain(**settings: Any) -> KNNShapley:
    return KNNShapley(progress=False, **settings)


def weighted_columns(matrix: Any, weights: Any) -> Any:
    return np.asarray(matrix) @ weights / weights.sum()


@pytest.mark.parametrize("semivalue", SEMIVALUES, ids=str)
@pytest.mark.parametrize("utility", ["soft", "hard"])
def test_values_are_those_of_the_weighted_utility(semivalue: Any, utility: str) -> None:
    """By enumeration of all subsets."""
    x, y, points, targets = X[:7], np.array([0, 1, 2, 0, 1, 2, 0]), V[:4], np.array([0, 1, 2, 0])
    weights = np.array([0.5, 2.0, 0.0, 1.0])
    model = plain(n_neighbors=2, semivalue=semivalue, utility=utility).fit(x, y)
    found = model.value(points, targets, point_weight=weights)
    single = [
        naive.knn_values(
            np.sqrt(((x - point) ** 2).sum(axis=1)).tolist(),
            (y == target).tolist(),
            n_neighbors=2,
            n_classes=np.unique(y).size,
            semivalue=("beta", 4, 1) if isinstance(semivalue, Beta) else semivalue,
            utility=utility,
            ties="average",
        )
        for point, target in zip(points, targets, strict=True)
    ]
    np.testing.assert_allclose(found.values, weighted_columns(np.transpose(single), weights), rtol=0, atol=1e-12)


MODELS: dict[str, Callable[[], Any]] = {
    **{f"exact {s}": lambda s=s: plain(semivalue=s) for s in SEMIVALUES},  # type: ignore[misc]
    "truncated": lambda: plain(method="truncated", tol=0.1),
    "ties": lambda: plain(ties="index", metric="manhattan"),
    "threshold": lambda: ThresholdKNNShapley(radius=2.0, progress=False),
    "weighted": lambda: WeightedKNNShapley(n_neighbors=3, progress=False),
    "semi-supervised": lambda: SemiSupervisedKNNShapley(progress=False),
    "regression": lambda: KNNRegressionShapley(progress=False),
}


@pytest.mark.parametrize("name", MODELS)
def test_values_are_weighted_means_of_the_values_on_single_points(name: str) -> None:
    model = MODELS[name]().fit(X, Y)
    found = model.value(V, T, point_weight=W, matrix=True, groups=T)
    without = model.value(V, T, matrix=True)
    np.testing.assert_array_equal(found.matrix, without.matrix)
    np.testing.assert_allclose(found.values, weighted_columns(found.matrix, W), rtol=0, atol=1e-12)
    for group in np.unique(T):
        inside = group == T
        expected = weighted_columns(found.matrix[:, inside], W[inside])
        np.testing.assert_allclose(found.group_values[group], expected, rtol=0, atol=1e-12)
    mean = np.einsum("l,ln->n", found.level_counts, found.level_values) / found.level_counts.sum()
    np.testing.assert_allclose(mean, found.values, rtol=0, atol=1e-12)
    np.testing.assert_allclose(sum(found.group_sizes), M)
    np.testing.assert_allclose(found.point_weight, W * M / W.sum())
    if found.boundary.any():
        at = found.boundary
        expected = weighted_columns(found.matrix[:, at], W[at])
        np.testing.assert_allclose(found.boundary_values, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_an_explanation_sums_up_to_the_weighted_value(name: str) -> None:
    model, rows = MODELS[name]().fit(X, Y), np.array([5, 0, 61])
    whole = model.value(V, T, point_weight=W, matrix=True)
    found = model.explain(V, T, rows, point_weight=W, n_points=M)
    np.testing.assert_allclose(found.values, model.value(V, T, point_weight=W).values[rows], rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.gain + found.loss, found.values, rtol=0, atol=1e-12)
    shares = np.bincount(found.points["row"], found.points["value"], 3) / M
    np.testing.assert_allclose(shares, found.values, rtol=0, atol=1e-12)
    worth = whole.matrix[rows] * W * M / W.sum()
    np.testing.assert_array_equal(found.positive, (worth > 0).sum(axis=1))
    np.testing.assert_array_equal(found.neutral, (worth == 0).sum(axis=1))
    listed = worth[found.points["row"], found.points["position"]]
    np.testing.assert_allclose(found.points["value"], listed, rtol=0, atol=1e-12)
    assert found.is_of(whole)
    assert found.parameters["point_weight"] == "given"
    assert found.sentences[0].split(" (")[0] == "Row 5"
    np.testing.assert_array_equal(found.near, model.explain(V, T, rows).near)
    same = model.weighted(W).explain(V, T, rows, n_points=M)
    np.testing.assert_array_equal(same.points["value"], found.points["value"])


def test_an_explanation_of_classes_that_count_alike() -> None:
    found = plain().fit(X, Y).explain(V, T, [3], point_weight="balanced")
    assert found.parameters["point_weight"] == "balanced"
    np.testing.assert_allclose(found.values, plain().fit(X, Y).value(V, T, point_weight="balanced").values[[3]])
    with pytest.raises(InputError, match="point_weight"):
        plain().fit(X, Y).explain(V, T, [3], point_weight=W[1:])


def test_whole_weights_are_repeated_points() -> None:
    times = np.arange(M) % 4
    model = plain().fit(X, Y)
    found = model.value(V, T, point_weight=times)
    again = model.value(np.repeat(V, times, axis=0), np.repeat(T, times))
    for name in ("values", "boundary_values", "nonboundary_values"):
        np.testing.assert_allclose(getattr(found, name), getattr(again, name), rtol=0, atol=1e-12)


def test_balanced_classes_count_alike() -> None:
    model = plain().fit(X, Y)
    found, by_class = model.value(V, T, point_weight="balanced"), model.value(V, T, groups=T)
    np.testing.assert_allclose(found.values, by_class.group_means.mean(axis=0), rtol=0, atol=1e-12)
    assert found.parameters["point_weight"] == "balanced"


def test_equal_weights_change_no_byte() -> None:
    model = plain().fit(X, Y)
    found, without = model.value(V, T, point_weight=np.full(M, 7)), model.value(V, T)
    assert found.values.tobytes() == without.values.tobytes()
    assert found.point_weight is None


def test_the_standard_error_is_that_of_a_weighted_mean() -> None:
    model = plain().fit(X, Y)
    found = model.value(V, T, point_weight=W, matrix=True, groups=T)
    for group in (None, 0):
        here = np.ones(M, dtype=bool) if group is None else group == T
        weights, values = W[here], found.matrix[:, here]
        off = weights * (values - weighted_columns(values, weights)[:, None])
        n = np.count_nonzero(weights)
        expected = (off**2).sum(axis=1) / weights.sum() ** 2 * n / (n - 1)
        if group is None:
            np.testing.assert_allclose(found.variance / n, expected, rtol=1e-9)
            assert found.sampling["units"] == n
    # Repeated points are clusters: weights are not taken for more points.
    times = np.arange(M) % 4
    copies = np.repeat(np.arange(M), times)
    by_weight = model.value(V, T, point_weight=times)
    by_cluster = model.value(V[copies], T[copies], clusters=copies)
    np.testing.assert_allclose(by_weight.variance, by_cluster.variance, rtol=1e-9)

    assert by_weight.reliability == pytest.approx(by_cluster.reliability, abs=1e-9)


def test_clusters_of_weighted_points() -> None:
    clusters = np.arange(M) % 9
    found = plain().fit(X, Y).value(V, T, point_weight=W, clusters=clusters, matrix=True)
    off = W * (found.matrix - found.values[:, None])
    sums = np.stack([off[:, clusters == c].sum(axis=1) for c in range(9)])
    np.testing.assert_allclose(found.variance / 9, (sums**2).sum(axis=0) / W.sum() ** 2 * 9 / 8, rtol=1e-9)


def large() -> tuple[Any, Any, Any, Any, Any]:
    rng = np.random.default_rng(8)
    y, t = rng.integers(0, 2, 2500), rng.integers(0, 2, 70)
    weights = np.where(np.arange(70) % 9 == 0, 0.0, rng.exponential(size=70))
    return rng.normal(size=(2500, 4)) + y[:, None], y, rng.normal(size=(70, 4)) + t[:, None], t, weights


@pytest.mark.parametrize(("method", "tol"), [("certified", 0.1), ("truncated", 0.02)])
def test_bounds_hold_for_weighted_values(method: str, tol: float, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, points, t, weights = large()
    exact = plain().fit(x, y).value(points, t, point_weight=weights, groups=t)
    monkeypatch.setattr("shapshift.engine.rows.file.LOAD_BYTES", 0)  # certified values of rows in memory are exact
    model = plain(method=method, tol=tol).fit(iter([(x, y)]))
    found = model.value(points, t, point_weight=weights, groups=t, matrix=method == "truncated")
    assert found.parameters.get("buckets", 1) > 0
    assert found.parameters["exact_ranks"] < 2500
    assert found.error_bound is not None
    assert (np.abs(found.values - exact.values) <= found.error_bound + 1e-15).all()
    assert np.abs(found.values - exact.values).max() > 1e-9
    np.testing.assert_allclose(found.level_counts, exact.level_counts)
    if method == "certified":
        np.testing.assert_allclose(found.variance, exact.variance, rtol=0.05, atol=1e-7)
    else:
        np.testing.assert_allclose(weighted_columns(found.matrix, weights), found.values, rtol=0, atol=1e-8)
        off, n = weights * (found.matrix - found.values[:, None]), np.count_nonzero(weights)
        expected = (off**2).sum(axis=1) / weights.sum() ** 2 * n**2 / (n - 1)
        np.testing.assert_allclose(found.variance, expected, rtol=1e-4, atol=1e-12)
    at, group = found.group_names[0], exact.group_values
    assert np.abs(found.group_values[at] - group[at]).max() < 20 * float(found.error_bound.max())


def test_rows_in_a_file_give_the_bytes_of_rows_in_memory(tmp_path: Path) -> None:
    x, y, points, t, weights = large()
    for method in ("exact", "truncated"):
        settings = {"method": method, "tol": 0.1 if method == "truncated" else None}
        inside = plain(**settings).fit(x, y).value(points, t, point_weight=weights)
        filed = plain(scratch=tmp_path, **settings).fit((x[k : k + 500], y[k : k + 500]) for k in range(0, 2500, 500))
        found = filed.value(points, t, point_weight=weights)
        for name in ("values", "level_values", "variance"):
            assert getattr(found, name).tobytes() == getattr(inside, name).tobytes(), (method, name)


def test_points_in_a_file_name_the_column_of_weights(tmp_path: Path) -> None:
    columns = {f"f{j}": V[:, j] for j in range(3)} | {"class": T, "cost": W}
    pq.write_table(pa.table(columns), tmp_path / "val.parquet")
    model = plain().fit(X, Y)
    found = model.value(tmp_path / "val.parquet", "class", point_weight="cost")
    np.testing.assert_array_equal(found.values, model.value(V, T, point_weight=W).values)
    pq.write_table(pa.table(columns).drop_columns(["cost"]), tmp_path / "plain.parquet")
    found = model.value(tmp_path / "plain.parquet", "class", point_weight="balanced")
    np.testing.assert_array_equal(found.values, model.value(V, T, point_weight="balanced").values)


def test_duplicates_workers_and_blocks_change_nothing() -> None:
    coarse, points = X.round(), V.round()
    model = plain().fit(coarse, Y)
    found = model.value(points, T, point_weight=W, matrix=True)
    np.testing.assert_allclose(found.values, weighted_columns(found.matrix, W), rtol=0, atol=1e-12)
    with small_blocks():
        one = model.value(points, T, point_weight=W)
        two = plain(n_jobs=2).fit(coarse, Y).value(points, T, point_weight=W)
    assert one.values.tobytes() == two.values.tobytes()


def test_a_checkpoint_knows_the_weights(tmp_path: Path) -> None:
    model = plain().fit(X, Y)
    found = model.value(V, T, point_weight=W, checkpoint=tmp_path / "run")
    assert found.values.tobytes() == model.value(V, T, point_weight=W, checkpoint=tmp_path / "run").values.tobytes()
    with pytest.raises(InputError, match="other point weight"):
        model.value(V, T, point_weight=W + 1, checkpoint=tmp_path / "run")


def test_results_keep_the_weights(tmp_path: Path) -> None:
    found = plain().fit(X, Y).value(V, T, point_weight=W, groups=T)
    found.save(tmp_path / "found.npz")
    again = Valuation.load(tmp_path / "found.npz")
    np.testing.assert_array_equal(again.point_weight, found.point_weight)
    np.testing.assert_array_equal(again.level_counts, found.level_counts)
    assert again.group_sizes == found.group_sizes


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(3), "one weight for each of the 40 rows"),
        (np.zeros(M), "only zeros"),
        (np.r_[-1.0, np.ones(M - 1)], "-1.0 for point 0"),
        (np.r_[np.inf, np.ones(M - 1)], "contains infinity"),
        (np.r_[np.nan, np.ones(M - 1)], "contains NaN"),
        (["a"] * M, "a finite number"),
        ("cost", "a column can be named only if"),
    ],
    ids=["size", "zeros", "negative", "infinite", "missing", "text", "column"],
)
def test_bad_weights_are_refused(weights: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        plain().fit(X, Y).value(V, T, point_weight=weights)


def test_what_does_not_go_with_weights_is_refused() -> None:
    model = plain().fit(X, Y)
    for other in ({"pool": "train"}, {"correction": PosteriorCorrector()}):
        with pytest.raises(InputError, match="point_weight"):
            model.value(V, T, point_weight=W, **other)
    with pytest.raises(InputError, match="balanced_accuracy"):
        SampledShapley(LogisticRegression(), max_fits=10).fit(X, Y).value(V, T, point_weight="balanced")
    with pytest.raises(InputError, match="is for classes"):
        KNNRegressionShapley().fit(X, Y).value(V, T, point_weight="balanced")
    with pytest.raises(InputError, match="above 0"):
        model.value(V, T, point_weight=(T > 0).astype(float), groups=T)
    with pytest.raises(InputError, match=r"weighted\(\)"):
        model.weighted()._prepare(V, T)


def test_one_point_and_one_class() -> None:
    model = plain().fit(X, Y)
    one = model.value(V[:1], T[:1], point_weight=[3.0])
    np.testing.assert_array_equal(one.values, model.value(V[:1], T[:1]).values)
    same = np.zeros(M, dtype=int)
    np.testing.assert_array_equal(model.value(V, same, point_weight="balanced").values, model.value(V, same).values)


def test_a_proxy_passes_weights_on() -> None:
    proxy = KNNProxy(LogisticRegression(), embed="probabilities", progress=False).fit(X, Y)
    found = proxy.value(V, T, point_weight=W, matrix=True)
    np.testing.assert_allclose(found.values, weighted_columns(found.matrix, W), rtol=0, atol=1e-12)
    weighted = proxy.weighted(W)
    np.testing.assert_array_equal(weighted.value(V, T).values, found.values)
    assert weighted.explain(V, T, [4]).is_of(found)


def test_an_audit_of_weighted_values() -> None:
    model = plain().fit(X, Y)
    audit = audit_shift(model.weighted("balanced"), V, T, noise=[0.2], repeats=3)
    assert audit.clean["mean"] == pytest.approx(model.value(V, T, point_weight="balanced").values.mean())
    assert audit.sampling["reliability"] == pytest.approx(model.value(V, T, point_weight="balanced").reliability)


def test_payouts_of_weighted_values() -> None:
    """Errors of payouts weigh the points, whether they are known from blocks or from single points."""
    owners, model = np.arange(N) % 3, plain().fit(X, Y)
    by_matrix = model.value(V, T, point_weight=W + 0.1, matrix=True)
    blocks = random_blocks(M, N)
    by_block = model.value(V, T, point_weight=W + 0.1, groups=blocks)
    paid = [allocate_budget(found, 100, owners=owners) for found in (by_matrix, by_block)]
    np.testing.assert_array_equal(paid[0].cents, paid[1].cents)
    np.testing.assert_array_equal(paid[0].sampling_low, paid[1].sampling_low)  # 40 blocks are single points


@pytest.mark.parametrize("folds", [None, 4])
def test_rows_valued_on_each_other_with_balanced_classes(folds: int | None) -> None:
    y = np.where(np.arange(N) % 5 == 0, 1, 0)
    found = cross_value(plain(), X, y, folds=folds, point_weight="balanced")
    weights = 1 / np.bincount(y)[y]
    if folds is None:
        expected = np.zeros(N)
        for i in range(N):
            others = np.arange(N) != i
            value = plain().fit(X[others], y[others]).value(X[i : i + 1], y[i : i + 1]).values
            expected[others] += weights[i] * value
        expected /= weights.sum() - weights
        np.testing.assert_allclose(found.values, expected, rtol=0, atol=1e-12)
    mean = np.einsum("l,ln->n", found.level_counts, found.level_values) / found.level_counts.sum()
    np.testing.assert_allclose(mean, found.values, rtol=0, atol=1e-12)
    assert found.parameters["point_weight"] == "balanced"
    equal = cross_value(plain(), X, y, folds=folds)
    assert np.abs(found.values - equal.values).max() > 1e-4
    assert found.standard_error is not None
    assert 0.3 < float(np.median(found.standard_error / equal.standard_error)) < 3


@pytest.mark.parametrize(
    ("given", "then"),
    [("weighted", "pooled"), ("pooled", "weighted"), ("weighted", "weighted"), ("pooled", "pooled")],
)
def test_weights_and_pooling_are_refused_together(given: str, then: str) -> None:
    model = getattr(plain().fit(X, Y), given)()
    with pytest.raises(InputError, match="already"):
        getattr(model, then)()
    with pytest.raises(InputError, match="without weights or pooling"):
        find_suspects(X, Y, model=model)


def test_a_weighted_model_refuses_corrections_and_other_weights() -> None:
    model = plain().fit(X, Y).weighted()
    with pytest.raises(InputError, match="'correction' parameter does not go with"):
        model.value(V, T, correction=PosteriorCorrector(noise=0.1))
    with pytest.raises(InputError, match="already"):
        model.value(V, T, point_weight=W)


def by_hand(matrix: Any, labels: Any) -> Any:
    """Variance of a mean over classes that count alike; a single point is compared with the mean."""
    classes = np.unique(labels)
    parts = [matrix[:, labels == label] for label in classes]
    means = np.mean([part.mean(axis=1) for part in parts], axis=0)
    each = [
        part.var(axis=1, ddof=1) / part.shape[1] if part.shape[1] > 1 else (part[:, 0] - means) ** 2 for part in parts
    ]
    return np.sum(each, axis=0) / classes.size**2


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("groups", [None, np.arange(M) % 3])
def test_the_variance_of_balanced_classes_is_that_within_them(single: bool, groups: Any) -> None:
    labels = np.where((T == 2) & (np.arange(M) != np.flatnonzero(T == 2)[0]), 0, T) if single else T
    for model in (plain(), plain(method="truncated", tol=1e-9), ThresholdKNNShapley(radius=2.0, progress=False)):
        found = model.fit(X, Y).value(V, labels, point_weight="balanced", matrix=True, groups=groups)
        np.testing.assert_allclose(found.variance / M, by_hand(found.matrix, labels), rtol=1e-6, atol=1e-12)
        if groups is not None:
            given = model.value(V, labels, point_weight=found.point_weight, groups=groups)
            np.testing.assert_allclose(found.group_means, given.group_means, rtol=0, atol=1e-12)
            np.testing.assert_allclose(found.group_errors, given.group_errors, rtol=1e-9)


@pytest.mark.parametrize("kind", ["balanced", "given"])
def test_standard_errors_are_those_of_repeated_samples(kind: str) -> None:
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(60, 2))
    labels = rows[:, 0] > 0.3
    labels[::9] ^= True
    model = plain(n_neighbors=3).fit(rows, labels)
    values, errors, reliabilities, inside = [], [], [], []
    for _ in range(60):
        points = rng.normal(size=(300, 2))
        targets = points[:, 0] + rng.normal(size=300) > 1.3
        found = model.value(points, targets, point_weight="balanced" if kind == "balanced" else np.exp(points[:, 1]))
        values.append(found.values)
        errors.append(found.standard_error)
        reliabilities.append(found.reliability)
        inside.append(found.interval())
    ratio = np.sqrt(np.square(errors).mean(axis=0)) / np.std(values, axis=0, ddof=1)
    assert 0.9 < np.median(ratio) < 1.15
    assert np.quantile(ratio, 0.1) > 0.75
    assert np.quantile(ratio, 0.9) < 1.7
    low, high = np.moveaxis(inside, 1, 0)
    truth = np.mean(values, axis=0)
    assert 0.92 < ((low <= truth) & (truth <= high)).mean() < 0.97
    true = np.corrcoef(values)[np.triu_indices(60, 1)].mean()
    assert np.mean(reliabilities) == pytest.approx(true, abs=0.03)


def test_many_classes_have_errors_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shapshift.knn.base.CLASSES_APART", 2)
    monkeypatch.setattr("shapshift.knn.base.SUMS_APART", 0)
    found = plain().fit(X, Y).value(V, T, point_weight="balanced")
    given = plain().fit(X, Y).value(V, T, point_weight=found.point_weight)
    np.testing.assert_allclose(found.standard_error, given.standard_error, rtol=1e-9)


def test_equal_weights_are_none_for_correctors_and_different_ones_are_told_apart() -> None:
    labels = np.arange(M) % 2
    model = plain().fit(X, Y)
    without, equal = model.value(V, labels), model.value(V, labels, point_weight=np.full(M, 2.0))
    balanced, uneven = (model.value(V, y, point_weight="balanced") for y in (labels, T))
    given, scaled, other = (model.value(V, labels, point_weight=w) for w in (W, 3 * W, W[::-1]))
    assert "point_weight" not in equal.parameters
    for clean, noisy in [(without, equal), (equal, without), (without, balanced), (balanced, uneven), (given, scaled)]:
        BoundaryCorrector().fit(clean).transform(noisy)
    with pytest.raises(InputError, match="other weights"):
        BoundaryCorrector().fit(given).transform(other)
    with pytest.raises(InputError, match="point_weight"):
        BoundaryCorrector().fit(without).transform(uneven)


def test_the_share_of_boundary_points_is_by_weight() -> None:
    found = plain().fit(X, Y).value(V, T, point_weight=W)
    assert found.boundary_fraction == pytest.approx(W[found.boundary].sum() / W.sum())
    assert found.boundary_fraction == pytest.approx(
        found.level_counts[found.boundary_levels].sum() / found.level_counts.sum()
    )


def test_statements_say_that_points_were_weighted_and_nothing_of_the_weights(tmp_path: Path) -> None:
    found = plain().fit(X, Y).value(V, T, point_weight=W)
    made = allocate_budget(found, 100, owners=["a", "b"] * (N // 2))
    page = write_statements(made, tmp_path)[1].read_text()
    assert "validation points were weighted" in page
    assert found.parameters["weight_digest"][1] not in page


def test_values_of_a_semi_supervised_model_say_why_they_have_no_classes() -> None:
    found = SemiSupervisedKNNShapley(progress=False).fit(X, Y).value(V, T)
    with pytest.raises(InputError, match="semi-supervised"):
        found.by_class()
