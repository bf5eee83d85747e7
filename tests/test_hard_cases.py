"""Cases that once went wrong, or easily could: identity of rows and labels, backends, outliers, frozen results."""

from __future__ import annotations

import copy
import datetime as dt
import pickle
import subprocess
import sys
import uuid
import warnings
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import reference
from scipy import sparse

from shapshift import (
    BoundaryCorrector,
    GaussianNoise,
    KNNProxy,
    KNNRegressionShapley,
    KNNShapley,
    PosteriorCorrector,
    SampledShapley,
    ShiftAudit,
    ThresholdKNNShapley,
    Valuation,
    ValuationStore,
    WeightedKNNShapley,
    audit_shift,
    knn_proxy,
    noise_demo,
)
from shapshift.engine import runner as engine_module

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(300, 3)), RNG.integers(0, 2, 300)
V, YV = RNG.normal(size=(40, 3)), RNG.integers(0, 2, 40)


def values(*fitted: object, val: object = V, labels: object = YV, **options: object) -> np.ndarray:
    return KNNShapley(3, **options).fit(*fitted).value(val, labels).values


@pytest.mark.parametrize("backend", ["loky", "multiprocessing", "threading", "sequential"])
def test_a_surrounding_backend_changes_no_bit(backend: str) -> None:
    X, y, V, yv = RNG.normal(size=(5000, 4)), RNG.integers(0, 2, 5000), RNG.normal(size=(900, 4)), np.zeros(900, int)
    alone = KNNShapley().fit(X, y).value(V, yv)
    with joblib.parallel_config(backend=backend, n_jobs=2):
        within = KNNShapley().fit(X, y).value(V, yv)
    np.testing.assert_array_equal(within.values, alone.values)
    np.testing.assert_array_equal(within.entropy, alone.entropy)


@pytest.mark.parametrize("far", [1e160, 1e200, 1.7e308, -1.7e308])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_an_outlier_that_would_make_ties_of_all_others_is_refused(far: float, form: object) -> None:
    outlying = X.copy()
    outlying[13, 1] = far
    with pytest.raises(ValueError, match=r"'X' has values too far apart.*(row 13, column 1|against)"):
        KNNShapley(3).fit(form(outlying), Y)  # type: ignore[operator]


def test_a_far_outlier_within_reach_is_exact() -> None:
    outlying = X.copy()
    outlying[13, 1] = 1e140
    found = KNNShapley(3).fit(outlying, Y).value(V, YV, matrix=True).matrix
    distances = ((V[:, None, :] - outlying[None]) ** 2).sum(axis=2)
    table = reference.shapley_table(300, 3, "soft")
    expected = reference.rank_values(distances, YV[:, None] == Y[None], table, 2, "average")
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_equal_rows_are_tied_however_far_the_point() -> None:
    assert KNNShapley().fit([[0.0]], [1]).value([[1e200]], [1]).values.tolist() == [0.0]
    found = KNNShapley(1).fit([[0.5], [0.5]], [0, 1]).value([[-1e300]], [1]).values
    np.testing.assert_allclose(found.sum(), 0.0, atol=1e-15)


def test_long_runs_of_nearly_equal_distances_are_put_in_order() -> None:
    n = 5000
    unsampled = np.setdiff1d(np.arange(n), np.arange(64) * n // 64)
    y = RNG.integers(0, 2, n)
    for cluster in (20, 200):
        distances = 1 + 0.1 * RNG.random((1, n))
        far = RNG.choice(unsampled, 1000, replace=False)
        centres = np.repeat(10.0 ** RNG.uniform(5, 290, 1000 // cluster), cluster)
        distances[0, far] = centres * (1 + 1e-9 * RNG.random(1000))
        found = KNNShapley(metric="precomputed").fit(None, y).value(distances, [1], matrix=True).matrix
        expected = reference.rank_values(distances, (y == 1)[None], reference.shapley_table(n, 5, "soft"), 2, "average")
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)


def test_an_arrow_batch_is_matched_by_name() -> None:
    frame, val = pd.DataFrame(X, columns=list("abc")), pd.DataFrame(V, columns=list("abc"))
    batches = [pa.RecordBatch.from_pandas(each) for each in (frame, val[["c", "a", "b"]])]
    np.testing.assert_array_equal(values(batches[0], Y, val=batches[1]), values(X, Y))


def test_named_distances_are_matched_by_row_id() -> None:
    names = [f"r{i}" for i in range(300)]
    distances = np.abs(V[:, :1] - X[:, 0])
    model = KNNShapley(3, metric="precomputed").fit(None, pd.Series(Y, index=names))
    assert model.ids_.tolist() == names
    turned = pd.DataFrame(distances[:, ::-1], columns=names[::-1])
    np.testing.assert_array_equal(model.value(turned, YV).values, model.value(distances, YV).values)
    with pytest.raises(ValueError, match="different lengths"):
        KNNShapley(metric="precomputed").fit(X[:5], Y)


def test_a_table_and_labels_in_different_orders_are_refused() -> None:
    frame = pd.DataFrame(X)
    with pytest.raises(ValueError, match="same index in different orders"):
        KNNShapley().fit(frame, pd.Series(Y).sample(frac=1, random_state=0))


DAYS = ["2024-01-01", "2024-01-02"]
DATES = {
    "ns": lambda y: pd.Series(pd.to_datetime(DAYS).astype("datetime64[ns]"))[y].reset_index(drop=True),
    "us": lambda y: pd.Series(pd.to_datetime(DAYS).astype("datetime64[us]"))[y].reset_index(drop=True),
    "days": lambda y: np.array(DAYS, dtype="datetime64[D]")[y],
    "polars": lambda y: pl.Series([dt.datetime.fromisoformat(DAYS[k]) for k in y]),
    "list": lambda y: [dt.datetime.fromisoformat(DAYS[k]) for k in y],
    "scalars": lambda y: [np.datetime64(DAYS[k], "ns") for k in y],
}


@pytest.mark.parametrize("trained", DATES)
@pytest.mark.parametrize("valued", DATES)
def test_dates_match_whatever_their_unit(trained: str, valued: str) -> None:
    found = values(X, DATES[trained](Y), labels=DATES[valued](YV))
    np.testing.assert_array_equal(found, values(X, Y))


@pytest.mark.parametrize(
    ("labels", "n_classes"),
    [
        ([2**63, 2**63 + 1, -1], 3),
        (["a", "a\0", "b"], 3),
        ([np.array(1), np.array(1), np.array(2)], 2),
        ([1, 1.0, True], 1),
        ([("a", 1), ("a", 2), ("a", 1)], 2),
        ([1, "1", 2], 3),
    ],
)
def test_labels_keep_their_identity(labels: list[object], n_classes: int) -> None:
    assert len(KNNShapley().fit([[0.0], [1.0], [2.0]], labels).classes_) == n_classes


@pytest.mark.parametrize(
    "labels", [{0, 1}, {0: 1, 1: 0}, "01", b"01", 5, np.ma.masked_array([0, 1], [True, False])], ids=str
)
def test_what_is_no_sequence_of_labels_is_refused(labels: object) -> None:
    with pytest.raises((TypeError, ValueError), match="y"):
        KNNShapley().fit([[0.0], [1.0]], labels)


def test_results_do_not_follow_the_caller() -> None:
    ids = np.arange(300)
    found = KNNShapley(3).fit(X, Y, ids=ids).value(V, YV)
    ids[0] = 99
    assert found.ids[0] == 0
    for name in ("values", "ids", "entropy", "level_values", "group_means"):
        with pytest.raises(ValueError, match=r"(?i)writeable"):
            getattr(found, name).flags.writeable = True


def test_a_result_can_be_copied_and_sent() -> None:
    found = KNNShapley(3).fit(X, Y).value(V, YV, groups=["a", "b"] * 20)
    for other in (copy.deepcopy(found), pickle.loads(pickle.dumps(found))):
        np.testing.assert_array_equal(other.values, found.values)
        assert dict(other.parameters) == dict(found.parameters)
        with pytest.raises(ValueError, match="read-only"):
            other.values[0] = 1


def test_an_index_of_several_levels_comes_back() -> None:
    index = pd.MultiIndex.from_product([["n", "s"], range(150)], names=["region", "row"])
    frame = pd.DataFrame(X, index=index, columns=list("abc"))
    table = KNNShapley(3).fit(frame, Y).value(pd.DataFrame(V, columns=list("abc")), YV).to_frame()
    assert table.index.equals(index)
    assert table.index.names == ["region", "row"]
    assert frame.join(table).notna().all()["value"]
    named = pd.DataFrame(X, index=pd.Index(range(300), name="customer"))
    assert KNNShapley(3).fit(named, Y).value(V, YV).to_frame().index.name == "customer"


def results_per_training_row(X: pd.DataFrame, y: np.ndarray, V: pd.DataFrame, yv: np.ndarray) -> dict[str, Any]:
    """Every result that has a table with a row per training row."""
    model = KNNShapley(3, progress=False).fit(X, y)
    reference_valuation = model.value(V, yv)
    proxy = knn_proxy("tree", X, y, V, yv, subsample=20, sampled={"max_fits": 60}, progress=False)
    noise = GaussianNoise(0.3, random_state=0)
    boundary = BoundaryCorrector().fit(reference_valuation)
    store = ValuationStore(KNNShapley(3, progress=False).fit(X[:50], y[:50]))
    store.add(V, yv)
    store.add_rows(X[50:], y[50:])
    return {
        "exact": reference_valuation,
        "certified": KNNShapley(3, method="certified", progress=False).fit(X, y).value(V, yv),
        "regression": KNNRegressionShapley(3, progress=False).fit(X, y).value(V, yv),
        "radius": ThresholdKNNShapley(1.0, progress=False).fit(X, y).value(V, yv),
        "weighted": WeightedKNNShapley(3, progress=False).fit(X, y).value(V, yv),
        "sampled": SampledShapley("naive_bayes", sampler="oob", max_fits=30, progress=False).fit(X, y).value(V, yv),
        "proxy": KNNProxy("tree", progress=False).fit(X, y).value(V, yv),
        "knn_proxy": proxy.valuation,
        "store": store.valuation(),
        "posterior": PosteriorCorrector(noise, draws=2, progress=False).fit(model).transform(V, yv),
        "boundary": boundary.transform(reference_valuation),
        "audit": audit_shift(model, V, yv, noise=[0.2], repeats=2, progress=False),
        "subsample, sampled": (proxy.sampled, proxy.rows),
        "subsample, proxy": (proxy.proxy, proxy.rows),
    }


@pytest.mark.parametrize("levels", [1, 2])
def test_every_result_has_the_index_of_the_training_rows(levels: int, tmp_path: Path) -> None:
    rows = pd.MultiIndex.from_product([["n", "s"], range(30)], names=["region", "row"])
    index = rows if levels == 2 else pd.Index([f"row {i}" for i in range(60)], name="customer")
    frame, points = pd.DataFrame(X[:60], index=index, columns=list("abc")), pd.DataFrame(V, columns=list("abc"))
    labels, point_labels = (X[:60, 0] > 0).astype(int), (V[:, 0] > 0).astype(int)
    for name, result in results_per_training_row(frame, labels, points, point_labels).items():
        whole, expected = (result[0], index[result[1]]) if isinstance(result, tuple) else (result, index)
        whole.save(tmp_path / "result.npz")
        for made in (whole, type(whole).load(tmp_path / "result.npz")):
            found = (made.rows_frame() if isinstance(made, ShiftAudit) else made.to_frame()).index
            assert found.names == expected.names, name
            assert found.equals(expected), name
    demo = noise_demo(KNNShapley(3).fit(frame, labels), points, point_labels, frame, noise=0.5)
    shown = np.unique(np.concatenate([demo.before, demo.after]))
    assert demo.to_frame().index.names == index.names
    assert set(demo.to_frame().index) == set(index[shown])


@pytest.mark.parametrize(
    "entry",
    [uuid.UUID(int=5), dt.date(2024, 1, 2), dt.datetime(2024, 1, 2, 3), b"\x00\xff", ("a", dt.date(2024, 1, 1)),
     dt.timedelta(days=1, microseconds=3)],
    ids=str,
)  # fmt: skip
def test_unusual_ids_survive_a_file(entry: object, tmp_path: Path) -> None:
    found = KNNShapley(1).fit([[0.0], [1.0]], [0, 1], ids=[entry, "plain"]).value([[0.2]], [0])
    found.save(tmp_path / "v.npz")
    assert Valuation.load(tmp_path / "v.npz").ids.tolist() == [entry, "plain"]
    for kind in ("pandas", "polars", "pyarrow"):
        assert len(found.to_frame(kind)) == 2


def test_group_names_that_print_alike_keep_their_columns() -> None:
    table = KNNShapley(3).fit(X, Y).value(V, YV, groups=[1, "1"] * 20).to_frame()
    assert {"value[1]", "value['1']"} <= set(table.columns)


@pytest.mark.parametrize("kind", [np.int8, np.int16, np.uint8])
def test_a_small_integer_type_does_as_k(kind: type) -> None:
    np.testing.assert_array_equal(KNNShapley(kind(3)).fit(X, Y).value(V, YV).values, values(X, Y))


def test_the_least_memory_that_an_error_names_is_accepted() -> None:
    for n in (50, 300, 1234, 20_000):
        X, y = RNG.normal(size=(n, 2)), np.arange(n) % 3
        with pytest.raises(ValueError, match="at least") as refusal:
            KNNShapley(max_memory=1000).fit(X, y).value(V[:, :2], YV)
        least = str(refusal.value).split("at least ")[1].split(" for")[0]
        KNNShapley(max_memory=least).fit(X, y).value(V[:, :2], YV)


def test_the_bar_moves_with_every_tile(monkeypatch: pytest.MonkeyPatch) -> None:
    moves: list[int] = []
    monkeypatch.setattr(engine_module, "TILE_BYTES", 8 * 300 * 8)  # eight points a tile

    class Bar:
        def __enter__(self) -> object:
            return moves.append

        def __exit__(self, *problem: object) -> None:
            pass

    monkeypatch.setattr(engine_module, "progress_bar", lambda *arguments: Bar())
    KNNShapley(3).fit(X, Y).value(V, YV)
    assert moves == [8] * 5


@pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.1.0", reason="NumPy itself does not load without stderr")
def test_a_closed_error_stream_is_silence() -> None:
    code = "from shapshift import KNNShapley; KNNShapley().fit([[0.], [1.]], [0, 1]).value([[0.]], [0]); print('done')"
    run = subprocess.run(f'{sys.executable} -c "{code}" 2>&-', shell=True, capture_output=True, text=True, check=False)
    assert run.stdout == "done\n"


def test_warnings_point_at_the_callers_line() -> None:
    model = KNNShapley(3).fit(X, Y)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.value(V, np.where(YV == 1, 7, YV))
        model.value(V, YV[:, None])
    assert {Path(each.filename).name for each in caught} == {Path(__file__).name}
