"""The sampling error of values: against the values on single points, from every model and every way to compute them."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_clusters import Pretended

from shapshift import (
    BoundaryCorrector,
    EntropyNormalizer,
    GaussianNoise,
    KNNProxy,
    KNNRegressionShapley,
    KNNShapley,
    PosteriorCorrector,
    SampledShapley,
    ThresholdKNNShapley,
    Valuation,
    ValuationStore,
    WeightedKNNShapley,
)
from shapshift.engine.certified import Coarseness
from shapshift.engine.estimate import random_blocks
from shapshift.exceptions import InputError
from shapshift.sampling_error import Spread

ERRORS = ("standard_error", "degrees_of_freedom", "variance", "group_errors", "group_freedom")


class Data:
    """Normal clouds; every third point belongs to the same of some clusters, and groups cut across them."""

    def __init__(self, n: int, m: int, *, step: float = 0.0, classes: int = 3, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.y, self.y_val = rng.integers(0, classes, n), rng.integers(0, classes, m)
        self.y[:classes] = range(classes)
        self.X = rng.normal(size=(n, 3)) + self.y[:, None] / 2
        self.X_val = rng.normal(size=(m, 3)) + self.y_val[:, None] / 2
        if step:
            self.X, self.X_val = np.round(self.X / step) * step, np.round(self.X_val / step) * step
        self.groups = np.where(np.arange(m) % 5 == 0, "few", "many")
        self.clusters = rng.integers(0, max(m // 3, 1), m)

    @property
    def points(self) -> tuple[np.ndarray, np.ndarray]:
        return self.X_val, self.y_val


def variance_of(matrix: np.ndarray, clusters: np.ndarray | None = None) -> np.ndarray:
    """Variance of each row of a matrix over its columns, or over the scaled sums of clusters of them."""
    if clusters is None:
        return matrix.var(axis=1, ddof=1)
    names = np.unique(clusters)
    centred = matrix - matrix.mean(axis=1, keepdims=True)
    sums = np.array([centred[:, clusters == name].sum(axis=1) for name in names]).T
    return (sums * names.size / matrix.shape[1]).var(axis=1, ddof=0) * names.size / (names.size - 1)


def check_against_matrix(found: Valuation, matrix: np.ndarray, groups: Any = None, clusters: Any = None) -> None:
    """Variances are those of the values on single points, and errors follow from them."""
    atol = 1e-12 * (matrix**2).mean()
    np.testing.assert_allclose(found.variance, variance_of(matrix, clusters), rtol=1e-6, atol=atol)
    units = matrix.shape[1] if clusters is None else np.unique(clusters).size
    assert found.sampling["units"] == units
    facts = Spread(found.variance, **found.sampling)
    np.testing.assert_array_equal(found.standard_error, facts.errors()[0])
    np.testing.assert_array_equal(found.degrees_of_freedom, facts.errors()[1])
    for name, errors in found.group_standard_errors.items():
        here = np.asarray(groups) == name
        variance = variance_of(matrix[:, here], None if clusters is None else np.asarray(clusters)[here])
        units = here.sum() if clusters is None else np.unique(np.asarray(clusters)[here]).size
        # Shrinking leaves the mean of the variances, and orders rows as their own variances do.
        mean = variance.mean() / units
        assert 0.6 * mean < (errors**2).mean() < 1.3 * mean
        assert np.corrcoef(errors**2, variance)[0, 1] > 0.99


MODELS = {
    "exact": lambda: KNNShapley(),
    "hard": lambda: KNNShapley(3, utility="hard"),
    "ties by index": lambda: KNNShapley(ties="index"),
    "banzhaf": lambda: KNNShapley(semivalue="banzhaf"),
    "loo": lambda: KNNShapley(semivalue="loo"),
    "truncated": lambda: KNNShapley(method="truncated", tol=0.1),
    "regression": lambda: KNNRegressionShapley(),
    "threshold": lambda: ThresholdKNNShapley(1.0),
    "weighted": lambda: WeightedKNNShapley(3),
}


@pytest.mark.parametrize("given", ["points", "groups", "clusters", "both"])
@pytest.mark.parametrize("name", MODELS)
def test_errors_are_those_of_the_values_on_single_points(name: str, given: str) -> None:
    data = Data(150, 60, step=0.5)  # with ties
    model = MODELS[name]().set_params(progress=False).fit(data.X, data.y)
    groups = data.groups if given in ("groups", "both") else None
    clusters = data.clusters if given in ("clusters", "both") else None
    found = model.value(*data.points, groups=groups, clusters=clusters)
    matrix = model.value(*data.points, matrix=True).matrix
    check_against_matrix(found, matrix, groups, clusters)
    np.testing.assert_array_equal(found.values, model.value(*data.points).values)
    if groups is not None:
        assert found.group_names == ("few", "many")
        assert found.group_sizes == (12, 48)
        np.testing.assert_allclose(found.group_means[0], matrix[:, groups == "few"].mean(axis=1), atol=1e-14)


@pytest.mark.parametrize("semivalue", ["shapley", "banzhaf"])
def test_errors_of_certified_values(semivalue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shapshift.engine.certified.choose_coarseness", lambda n, limit: Coarseness(200, 300))
    monkeypatch.setattr("shapshift.engine.rows.file.LOAD_BYTES", 0)
    data = Data(5000, 60, classes=2)
    model = KNNShapley(method="certified", tol=1e9, semivalue=semivalue).fit(iter([(data.X, data.y)]))
    found = model.value(*data.points, groups=data.groups)
    assert found.parameters["buckets"] == 300
    exact = KNNShapley(semivalue=semivalue).fit(data.X, data.y).value(*data.points, groups=data.groups)
    np.testing.assert_allclose(found.standard_error, exact.standard_error, rtol=0.01)
    np.testing.assert_allclose(found.group_errors, exact.group_errors, rtol=0.02)


def test_errors_of_duplicates_are_equal() -> None:
    data = Data(80, 40)
    X, y = np.tile(data.X, (4, 1)), np.tile(data.y, 4)
    model = KNNShapley().fit(X, y)
    found = model.value(*data.points)
    check_against_matrix(found, model.value(*data.points, matrix=True).matrix)
    np.testing.assert_array_equal(found.standard_error[:80], found.standard_error[80:160])
    assert found.standard_error.std() > 0


def test_clusters_of_one_point_are_no_clusters() -> None:
    data = Data(100, 50)
    model = KNNShapley().fit(data.X, data.y)
    alone = model.value(*data.points, groups=data.groups, clusters=[f"patient {j}" for j in range(50)])
    plain = model.value(*data.points, groups=data.groups)
    np.testing.assert_array_equal(alone.values, plain.values)
    np.testing.assert_allclose(alone.group_means, plain.group_means, rtol=1e-12)
    for name in ERRORS:
        np.testing.assert_allclose(getattr(alone, name), getattr(plain, name), rtol=1e-9, err_msg=name)
    assert alone.reliability == pytest.approx(plain.reliability)
    assert alone.group_sizes == plain.group_sizes


def test_copies_of_points_in_clusters_tell_nothing_new() -> None:
    data = Data(100, 40)
    model = KNNShapley().fit(data.X, data.y)
    plain = model.value(*data.points)
    X_val, y_val, numbers = np.repeat(data.X_val, 5, axis=0), np.repeat(data.y_val, 5), np.repeat(np.arange(40), 5)
    np.testing.assert_allclose(
        model.value(X_val, y_val, clusters=numbers).standard_error, plain.standard_error, rtol=1e-9
    )
    assert np.median(model.value(X_val, y_val).standard_error / plain.standard_error) < 0.6


@pytest.mark.parametrize("method", ["exact", "truncated"])
def test_errors_have_the_same_bytes_however_they_are_computed(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shapshift.engine.runner.BLOCK_PAIRS", 2**14)
    data = Data(1500, 90)
    options: dict[str, Any] = {"method": method, "progress": False}
    options |= {"exact": {}, "truncated": {"tol": 0.05}}[method]
    asked = {"groups": data.groups, "clusters": data.clusters}

    def fields(**changed: Any) -> list[bytes]:
        model = KNNShapley(**(options | changed)).fit(data.X, data.y)
        found = model.value(*data.points, **asked)
        return [getattr(found, name).tobytes() for name in ERRORS] + [repr(sorted(found.sampling.items()))]

    want = fields(n_jobs=1)
    assert fields(n_jobs=2) == want
    assert fields(n_jobs=2, max_memory="12MB") == want
    np.save(tmp_path / "rows.npy", data.X)
    monkeypatch.setattr("shapshift.engine.rows.file.LOAD_BYTES", 0)
    model = KNNShapley(**options).fit(np.load(tmp_path / "rows.npy", mmap_mode="r"), data.y)
    found = model.value(*data.points, **asked, checkpoint=tmp_path / "run")
    assert [getattr(found, name).tobytes() for name in ERRORS] == want[:-1]
    again = model.value(*data.points, **asked, checkpoint=tmp_path / "run")
    assert [getattr(again, name).tobytes() for name in ERRORS] == want[:-1]
    cluster = Pretended()
    monkeypatch.setattr("shapshift.engine.runner.active_cluster", lambda n_jobs: cluster)
    assert fields() == want
    assert cluster.placed == 1


def test_a_checkpoint_knows_its_clusters(tmp_path: Path) -> None:
    data = Data(200, 40)
    model = KNNShapley().fit(data.X, data.y)
    model.value(*data.points, clusters=data.clusters, checkpoint=tmp_path)
    with pytest.raises(InputError, match="with other groups"):
        model.value(*data.points, checkpoint=tmp_path)


def test_one_point_has_no_error() -> None:
    data = Data(50, 4)
    found = KNNShapley().fit(data.X, data.y).value(data.X_val[:1], data.y_val[:1], groups=["one"])
    for name in (*ERRORS, "reliability", "reliability_spearman"):
        assert getattr(found, name) is None, name
    assert dict(found.sampling) == {}
    assert found.group_standard_errors == {}
    for ask in (
        found.interval,
        found.rank_interval,
        found.points_needed,
        lambda: found.sign_probability,
        lambda: found.open,
    ):
        with pytest.raises(InputError, match="no sampling error: it takes at least two validation points"):
            ask()
    assert "nan" not in repr(found).lower() + found._repr_html_().lower()
    assert not {"standard_error", "low", "high"} & set(found.to_frame("pandas").columns)


def test_a_group_of_one_point_and_one_cluster_only() -> None:
    data = Data(50, 20)
    model = KNNShapley().fit(data.X, data.y)
    found = model.value(*data.points, groups=["one"] + ["rest"] * 19)
    assert np.isinf(found.group_standard_errors["one"]).all()
    assert np.isfinite(found.group_standard_errors["rest"]).all()
    low, high = found.interval(group="one")
    assert np.isneginf(low).all()
    assert np.isposinf(high).all()
    found = model.value(*data.points, clusters=[1] * 20)
    assert found.standard_error is None
    with pytest.raises(InputError, match=r"no sampling error.*cluster"):
        found.interval()


def test_two_points_have_errors() -> None:
    data = Data(50, 2)
    model = KNNShapley().fit(data.X, data.y)
    found = model.value(*data.points)
    np.testing.assert_allclose(found.variance, model.value(*data.points, matrix=True).matrix.var(axis=1, ddof=1))
    assert (found.standard_error > 0).all()
    assert found.reliability_spearman is None
    assert 0 <= found.reliability <= 1


@pytest.mark.parametrize("case", ["one class", "unseen labels", "no difference"])
def test_values_that_do_not_differ(case: str) -> None:
    data = Data(40, 30)
    y, y_val = data.y, data.y_val
    if case == "one class":
        y, y_val = np.zeros(40, dtype=int), np.zeros(30, dtype=int)
    X_val = data.X_val
    if case == "unseen labels":
        y_val = np.full(30, 9)
    if case == "no difference":  # all rows alike, one half of the points of their class
        data.X[:], y, y_val = data.X[0], np.zeros(40, dtype=int), np.arange(30) % 2
    with pytest.warns(UserWarning, match="never seen in training|one class") if case != "one class" else nullcontext():
        found = KNNShapley().fit(data.X, y).value(X_val, y_val)
    assert np.isfinite(found.standard_error).all()
    low, high = found.interval()
    assert (low <= found.values).all()
    assert (high >= found.values).all()
    assert ((found.sign_probability >= 0) & (found.sign_probability <= 1)).all()
    assert found.surely_positive + found.surely_negative + found.open == 40
    if case != "unseen labels":
        assert found.reliability is None
        assert found.points_needed() == np.inf
    assert "nan" not in repr(found)


@pytest.mark.parametrize("missing", [None, np.nan])
def test_missing_clusters_are_refused(missing: Any) -> None:
    data = Data(50, 20)
    names: list[Any] = ["a"] * 19 + [missing]
    with pytest.raises(InputError, match="clusters"):
        KNNShapley().fit(data.X, data.y).value(*data.points, clusters=names)
    with pytest.raises(InputError, match="clusters"):
        KNNShapley().fit(data.X, data.y).value(*data.points, clusters=["a"] * 19)


@pytest.mark.parametrize("m", [50, 200])
@pytest.mark.parametrize("semivalue", ["shapley", "banzhaf", "loo"])
def test_intervals_cover_the_values_on_the_population(semivalue: str, m: int) -> None:
    data = Data(120, 3000, classes=2, seed=5)
    model = KNNShapley(semivalue=semivalue, progress=False).fit(data.X, data.y)
    truth, rng = model.value(*data.points).values, np.random.default_rng(0)
    hits, wide, agreed, foreseen = [], [], [], []
    for _ in range(30):
        some = rng.integers(0, 3000, m)
        found = model.value(data.X_val[some], data.y_val[some])
        low, high = found.interval()
        hits.append((low <= truth) & (truth <= high))
        joint = found.interval(joint=True)
        wide.append(((joint[0] <= truth) & (truth <= joint[1])).all())
        agreed.append(np.corrcoef(found.values, truth)[0, 1])
        foreseen.append(np.sqrt(found.reliability))
    assert 0.90 < np.mean(hits) < 0.99
    assert np.mean(wide) > 0.8
    if m == 200:
        assert abs(np.mean(foreseen) - np.mean(agreed)) < 0.1


def test_errors_are_kept_in_files(tmp_path: Path) -> None:
    data = Data(60, 30)
    found = KNNShapley().fit(data.X, data.y).value(*data.points, groups=data.groups)
    found.save(tmp_path / "values.npz")
    loaded = Valuation.load(tmp_path / "values.npz")
    for name in ERRORS:
        np.testing.assert_array_equal(getattr(loaded, name), getattr(found, name))
    assert loaded.sampling == found.sampling
    assert loaded.reliability == found.reliability
    table = loaded.to_frame("pandas")
    np.testing.assert_array_equal(table["low"], found.interval()[0])


# --- values that are estimated, corrected or kept up to date


def test_sampled_values_have_the_error_of_the_validation_set_too() -> None:
    data = Data(8, 200, classes=2)
    model = SampledShapley("naive_bayes", sampler="exact", on_error="constant", max_fits=300, progress=False).fit(
        data.X, data.y
    )
    found = model.value(*data.points, groups=data.groups)
    matrix = model.value(*data.points, matrix=True, groups=data.groups)
    assert found.sampling["units"] == 200
    assert found.sampling["estimation_error"] == 0
    want = variance_of(matrix.matrix, random_blocks(200)) * 200 / 20
    np.testing.assert_allclose(found.variance, want, rtol=1e-9)
    np.testing.assert_allclose(found.standard_error, matrix.standard_error, rtol=1e-9)
    np.testing.assert_allclose(found.group_errors, matrix.group_errors, rtol=1e-9)
    assert (found.group_errors[0] > found.group_errors[1]).mean() > 0.7  # 40 points, 160 points
    assert 0 < found.reliability < 1
    assert found.points_needed(0.99) > 200
    # The same values, each observed by chance: both errors together.
    drawn = SampledShapley("naive_bayes", sampler="permutation", on_error="constant", max_fits=100, progress=False)
    some = drawn.fit(data.X, data.y).value(*data.points)
    assert 0 < some.sampling["estimation_error"] < 1
    assert (some.standard_error**2).mean() > (found.standard_error**2).mean()


def test_clusters_of_sampled_values() -> None:
    data = Data(6, 40, classes=2)
    model = SampledShapley("naive_bayes", on_error="constant", progress=False, max_fits=500).fit(data.X, data.y)
    X_val, y_val, numbers = np.repeat(data.X_val, 10, axis=0), np.repeat(data.y_val, 10), np.repeat(np.arange(40), 10)
    plain, copied = model.value(*data.points), model.value(X_val, y_val, clusters=numbers)
    np.testing.assert_allclose(copied.values, plain.values, atol=1e-12)
    np.testing.assert_allclose(copied.standard_error, plain.standard_error, rtol=1e-9)
    assert copied.sampling["units"] == 40
    naive = model.value(X_val, y_val)
    assert (naive.standard_error**2).mean() < 0.5 * (copied.standard_error**2).mean()
    one = model.value(data.X_val[:1], data.y_val[:1])
    assert one.standard_error is None
    with pytest.raises(InputError, match="clusters"):
        model.value(*data.points, clusters=[None] * 40)


def test_intervals_of_sampled_values_cover_those_on_the_population() -> None:
    data = Data(8, 2000, classes=2, seed=3)
    truth = (
        SampledShapley("naive_bayes", sampler="exact", max_fits=300, on_error="constant", progress=False)
        .fit(data.X, data.y)
        .value(*data.points)
    )
    hits = []
    for seed in range(12):
        some = np.random.default_rng(seed).integers(0, 2000, 100)
        model = SampledShapley(
            "naive_bayes", sampler="permutation", max_fits=120, on_error="constant", random_state=seed, progress=False
        )
        low, high = model.fit(data.X, data.y).value(data.X_val[some], data.y_val[some]).interval()
        hits.append((low <= truth.values) & (truth.values <= high))
    assert np.mean(hits) > 0.9


def test_out_of_bag_values_do_not_depend_on_the_validation_set() -> None:
    data = Data(20, 30, classes=2)
    found = SampledShapley("tree", sampler="oob", max_fits=100, progress=False).fit(data.X, data.y).value(*data.points)
    assert (found.standard_error > 0).all()
    assert found.variance is None
    assert dict(found.sampling) == {}
    assert found.reliability is None


def test_a_proxy_has_the_errors_of_its_neighbours() -> None:
    data = Data(60, 30, classes=2)
    proxy = KNNProxy("tree", progress=False).fit(data.X, data.y)
    found = proxy.value(*data.points, clusters=data.clusters)
    matrix = proxy.value(*data.points, matrix=True).matrix
    check_against_matrix(found, matrix, clusters=data.clusters)


def test_a_posterior_correction_adds_variances() -> None:
    data = Data(200, 150, classes=2)
    model = KNNShapley(progress=False).fit(data.X, data.y)
    X_noisy, y_val = GaussianNoise(0.5, random_state=0)(*data.points)
    corrector = PosteriorCorrector(GaussianNoise(0.5), draws=4, progress=False).fit(model)
    found = corrector.transform(X_noisy, y_val)
    assert found.sampling["units"] == 150
    assert 0 < found.sampling["estimation_error"] < 1
    estimation = found.sampling["estimation_error"] * (found.standard_error**2).mean()
    stated = (corrector.report_.standard_error * found.values.std()) ** 2
    assert estimation == pytest.approx(stated)
    # Averaging over what points may have been makes them more alike, not less.
    noisy = model.value(X_noisy, y_val)
    assert 0.2 < (found.variance / noisy.variance).mean() < 1.5
    assert 0 < found.reliability < 1
    assert found.group_names == ()
    assert found.group_errors is None


def test_the_error_of_a_posterior_correction_is_how_far_values_on_other_points_lie() -> None:
    data = Data(200, 800, classes=2)
    model = KNNShapley(progress=False).fit(data.X, data.y)
    corrector = PosteriorCorrector(GaussianNoise(0.5), draws=4, progress=False).fit(model)
    runs = []
    for part in np.array_split(np.arange(800), 8):
        X_noisy, y_val = GaussianNoise(0.5, random_state=int(part[0]))(data.X_val[part], data.y_val[part])
        runs.append(corrector.transform(X_noisy, y_val))
    spread = np.var([each.values for each in runs], axis=0, ddof=1).mean()
    assert 0.8 < np.sqrt(spread / np.mean([each.standard_error**2 for each in runs])) < 1.2


def test_clusters_that_do_not_fit_in_memory_are_named() -> None:
    data = Data(5000, 300)
    model = KNNShapley(max_memory="5MB", progress=False).fit(data.X, data.y)
    with pytest.raises(InputError, match=r"100 clusters.*make fewer clusters"):
        model.value(*data.points, clusters=np.arange(300) % 100)


def test_corrected_values_say_nothing_of_their_error() -> None:
    data = Data(100, 120, classes=2)
    model = KNNShapley(progress=False).fit(data.X, data.y)
    clean, noisy = model.value(*data.points), model.value(data.X_val + 0.1, data.y_val)
    for corrector in (BoundaryCorrector(), EntropyNormalizer()):
        found = corrector.fit(clean, noisy).transform(noisy)
        for name in (*ERRORS, "reliability"):
            assert getattr(found, name) is None, name
        assert dict(found.sampling) == {}


def test_a_store_adds_up_errors() -> None:
    data = Data(80, 90, classes=2)
    model = KNNShapley(progress=False).fit(data.X, data.y)
    store = ValuationStore(model)
    for part in (slice(0, 1), slice(1, 2), slice(2, 40), slice(40, 60)):  # two single points first
        store.add(data.X_val[part], data.y_val[part], groups=["a"] * (part.stop - part.start))
    fresh = model.value(data.X_val[:60], data.y_val[:60])
    found = store.valuation()
    np.testing.assert_allclose(found.variance, fresh.variance, rtol=1e-9)
    np.testing.assert_allclose(found.standard_error, fresh.standard_error, rtol=0.05)
    np.testing.assert_allclose(found.sampling["kurtosis"], fresh.sampling["kurtosis"], rtol=0.3)
    np.testing.assert_allclose(found.sampling["covariance"], fresh.sampling["covariance"], rtol=1e-6)
    assert found.sampling["units"] == 60
    assert found.reliability == pytest.approx(fresh.reliability, abs=0.25)
    assert found.reliability_spearman == pytest.approx(fresh.reliability_spearman, abs=0.2)
    store.add(data.X_val[60:], data.y_val[60:], groups=["b"] * 30)
    store.reweight({"b": 3.0})
    both, b = store.valuation(), model.value(data.X_val[60:], data.y_val[60:])
    share = np.array([60, 90]) / 150
    want = share[0] ** 2 * found.standard_error**2 + share[1] ** 2 * b.standard_error**2
    np.testing.assert_allclose(both.standard_error**2, want, rtol=1e-9)
    np.testing.assert_array_equal(both.group_standard_errors["b"], b.standard_error)
    assert (both.degrees_of_freedom > 0).all()
    assert 0 <= both.reliability <= 1
    store.add(data.X_val[:1], data.y_val[:1], groups=["c"])
    alone = store.valuation()
    assert alone.standard_error is None
    store.reweight({"c": 0.0})
    assert np.isinf(store.valuation().group_standard_errors["c"]).all()
    np.testing.assert_allclose(store.valuation().standard_error, both.standard_error)


def test_a_store_keeps_its_errors_in_a_file(tmp_path: Path) -> None:
    data = Data(50, 30, classes=2)
    store = ValuationStore(KNNShapley(progress=False).fit(data.X, data.y))
    store.add(*data.points, groups=data.groups)
    store.save(tmp_path / "store.npz")
    again = ValuationStore.load(tmp_path / "store.npz")
    np.testing.assert_array_equal(again.valuation().standard_error, store.valuation().standard_error)
    more = data.X_val[:5], data.y_val[:5]
    for each in (store, again):
        each.add(*more, groups=["few"] * 5)
    np.testing.assert_array_equal(again.valuation().group_errors, store.valuation().group_errors)
