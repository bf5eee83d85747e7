"""Models and pipelines for real frames: text, missing values, categories and dates reach the estimator as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from shapshift import KNNProxy, SampledShapley, cross_value, evaluate_valuation, knn_proxy
from shapshift.checks.identity import content_hash
from shapshift.sampled.rows import Encoder, as_numbers

N = 12
LABELS = np.array(["no", "yes"])[np.arange(N) % 2]


def people(n: int = N, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    yes = np.arange(n) % 2
    frame = pd.DataFrame(
        {
            "age": rng.normal(size=n) + 2 * yes,
            "city": [None if row % 5 == 3 else "Athens" if row % 2 else "Bergen" for row in range(n)],
            "kind": pd.Categorical(rng.choice(list("xyz"), n), categories=list("xyz")),
            "since": pd.date_range("2020-01-01", periods=n, freq="D"),
            "visits": rng.integers(0, 9, n),
        },
        index=[f"p{row}" for row in range(n)],
    )
    frame.loc["p3", "age"] = np.nan
    return frame


def pipeline(last: Any) -> Any:
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    names = OneHotEncoder(handle_unknown="ignore")
    return make_pipeline(ColumnTransformer([("n", numbers, ["age", "visits"]), ("c", names, ["city", "kind"])]), last)


class Sampled(SampledShapley):
    """Three owners, so that eight fits are all there are."""

    def fit(self, X: Any, y: Any, **options: Any) -> Sampled:
        options.setdefault("players", [row % 3 for row in range(len(y))])
        super().fit(X, y, **options)
        return self


def sampled(estimator: Any, **options: Any) -> Sampled:
    return Sampled(estimator, **{"max_fits": 8, "progress": False, **options})


def test_values_are_those_of_the_rows_encoded_beforehand() -> None:
    frame, points = people(), people(9, seed=1)
    plain = make_pipeline(OneHotEncoder(handle_unknown="ignore"), LogisticRegression())
    column = ColumnTransformer([("c", OneHotEncoder(handle_unknown="ignore"), ["city"])])
    named = sampled(make_pipeline(column, LogisticRegression()), utility="probability").fit(frame, LABELS)
    numbers = {"Athens": 1.0, "Bergen": 2.0}
    coded, val_coded = (table["city"].map(numbers).fillna(0.0).to_numpy()[:, None] for table in (frame, points))
    by_number = sampled(plain, utility="probability").fit(coded, LABELS)
    y_val = LABELS[:9]
    np.testing.assert_allclose(named.value(points, y_val).values, by_number.value(val_coded, y_val).values, atol=1e-9)
    by_row = sampled(GaussianNB(), max_fits=40).fit(frame[["visits"]], LABELS, players=None)
    assert by_row.value(points[["visits"]], y_val).ids.tolist() == frame.index.tolist()


class Watchful(ClassifierMixin, BaseEstimator):
    """Refuses anything but the frame's own types."""

    def __init__(self, kinds: tuple[str, ...]) -> None:
        self.kinds = kinds

    def fit(self, X: Any, y: Any) -> Watchful:
        if tuple(map(str, X.dtypes)) != self.kinds:
            raise TypeError(f"types {list(map(str, X.dtypes))}")
        self.classes_ = np.unique(y)
        return self

    def predict(self, X: Any) -> Any:
        self.fit(X, self.classes_)
        return np.full(X.shape[0], self.classes_[0])


@pytest.mark.parametrize("kind", ["pandas", "numbers", "polars"])
def test_coalitions_keep_the_types(kind: str) -> None:
    frame: Any = people()
    if kind == "numbers":
        frame = pd.DataFrame({"a": np.arange(N, dtype=np.int8), "b": np.arange(N) % 2 == 0, "c": np.float32(0)})
    if kind == "polars":
        frame = pl.from_pandas(frame)
    found = sampled(Watchful(tuple(map(str, frame.dtypes)))).fit(frame, LABELS).value(frame, LABELS)
    assert found.parameters["n_fits"] > 5
    assert found.kind == ("polars" if kind == "polars" else "pandas")


@pytest.mark.parametrize("container", ["polars", "pyarrow", "record batch"])
@pytest.mark.parametrize("estimator", [pipeline(GaussianNB()), pipeline(LogisticRegression())], ids=["nb", "logistic"])
def test_other_frames_give_the_values_of_pandas(container: str, estimator: Any) -> None:
    dense = make_pipeline(estimator[0], FunctionTransformer(lambda X: np.asarray(X)), estimator[1])
    dense[0].set_params(sparse_threshold=0)
    frame = people()
    make: Any = {
        "polars": pl.from_pandas,
        "pyarrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
        "record batch": lambda frame: pa.RecordBatch.from_pandas(frame, preserve_index=False),
    }[container]
    expected = sampled(dense).fit(frame, LABELS).value(frame[:5], LABELS[:5])
    fitted = sampled(dense).fit(make(frame), LABELS)
    for points in (make(frame[:5]), frame[:5][["visits", "since", "kind", "city", "age"]]):
        np.testing.assert_array_equal(fitted.value(points, LABELS[:5]).values, expected.values)


def test_names_in_a_polars_frame_of_numbers() -> None:
    frame = pl.DataFrame({"a": np.arange(N) % 2 + 0.5, "b": np.arange(N) * 1.0})
    by_name = make_pipeline(ColumnTransformer([("a", StandardScaler(), ["a"])]), LogisticRegression())
    array = sampled(make_pipeline(ColumnTransformer([("a", StandardScaler(), [0])]), LogisticRegression()))
    expected = array.fit(frame.to_numpy(), LABELS).value(frame.to_numpy(), LABELS)
    np.testing.assert_array_equal(sampled(by_name).fit(frame, LABELS).value(frame, LABELS).values, expected.values)


@pytest.mark.parametrize("container", [pd.DataFrame, pl.from_pandas], ids=["pandas", "polars"])
def test_boosting_takes_missing_values_and_categories(container: Any) -> None:
    frame = people().drop(columns=["city", "since"])
    boosting = HistGradientBoostingClassifier(max_iter=2, min_samples_leaf=1, categorical_features="from_dtype")
    found = sampled(boosting).fit(container(frame), LABELS).value(container(frame), LABELS)
    assert found.values.sum() > 0.3


def test_missing_numbers_in_arrays() -> None:
    X = people()[["age", "visits"]].to_numpy()
    assert np.isnan(X).any()
    boosting = HistGradientBoostingClassifier(max_iter=2, min_samples_leaf=1)
    gappy = sampled(boosting).fit(X, LABELS).value(X, LABELS)
    assert np.isfinite(gappy.values).all()
    whole = np.nan_to_num(X)
    makers: list[Any] = [
        np.asarray,
        lambda rows: pd.DataFrame(rows, columns=["a", "b"]),
        lambda rows: pl.DataFrame(rows, schema=["a", "b"]),
    ]
    for make in makers:
        found = sampled(boosting).fit(make(whole), LABELS).value(make(X), LABELS)
        assert np.isfinite(found.values).all()
    with pytest.raises(ValueError, match=r"Input X_val contains NaN at row 3.*cannot predict from it"):
        sampled(GaussianNB()).fit(whole, LABELS).value(X, LABELS)
    with pytest.raises(ValueError, match=r"Input X contains NaN at row 3.*cannot be fitted on it unchanged either"):
        sampled(GaussianNB(), on_error="constant").fit(X, LABELS)


def test_rows_of_text_without_a_frame() -> None:
    rows = [[row % 2, "ab"[row % 2]] for row in range(N)]
    model = sampled(make_pipeline(OneHotEncoder(), LogisticRegression()))
    listed = model.fit(rows, LABELS).value(rows, LABELS)
    array = model.fit(np.array(rows, dtype=object), LABELS).value(np.array(rows, dtype=object), LABELS)
    np.testing.assert_array_equal(listed.values, array.values)
    assert listed.values.sum() == pytest.approx(0.5)
    with pytest.raises(ValueError, match="in the same kind of container"):
        model.value(pd.DataFrame(rows), LABELS)


def test_owners_groups_and_one_class() -> None:
    frame, owners = people(), ["a", "b", "c"] * 4
    found = sampled(pipeline(LogisticRegression())).fit(frame, LABELS, players=owners)
    valued = found.value(frame, LABELS, groups=LABELS)
    assert valued.ids.tolist() == ["a", "b", "c"]
    assert valued.group_names == ("no", "yes")
    alone = sampled(pipeline(LogisticRegression())).fit(frame[:1], ["yes"]).value(frame[1::2], LABELS[1::2])
    assert alone.values.shape == (1,)


def test_regression_scores_and_out_of_bag() -> None:
    frame, target = people(), np.arange(N) * 1.0
    ridge = pipeline(Ridge())
    assert sampled(ridge).fit(frame, target).value(frame, target).values.sum() > 0
    scored = sampled(pipeline(LogisticRegression()), utility="f1_macro").fit(frame, LABELS)
    assert scored.value(frame, LABELS, groups=["a", "a", "b", "b"] * 3).values.sum() > 0
    bagged = sampled(pipeline(LogisticRegression()), sampler="oob").fit(frame, LABELS)
    assert bagged.value(frame, LABELS).values.mean() > 0.3


def test_a_checkpoint_knows_the_frame(tmp_path: Path) -> None:
    frame, points = people(), people(6, seed=2)
    model = sampled(pipeline(LogisticRegression()), checkpoint=tmp_path / "run.npz").fit(frame, LABELS)
    first = model.value(points, LABELS[:6])
    again = model.fit(frame.copy(), LABELS).value(points.copy(), LABELS[:6])
    np.testing.assert_array_equal(first.values, again.values)
    changed = frame.copy()
    changed.loc["p0", "city"] = "Cork"
    assert model.fit(changed, LABELS).fingerprint_ != first.fingerprint
    with pytest.raises(ValueError, match="training rows"):
        model.value(points, LABELS[:6])
    moved = points.copy()
    moved.loc["p1", "since"] += pd.Timedelta(days=1)
    with pytest.raises(ValueError, match="validation set"):
        model.fit(frame, LABELS).value(moved, LABELS[:6])
    reordered = [table.assign(kind=table["kind"].cat.reorder_categories(list("zyx"))) for table in (frame, points)]
    assert model.fit(reordered[0], LABELS).fingerprint_ != first.fingerprint
    with pytest.raises(ValueError, match=r"training rows \(.*validation set"):
        model.value(reordered[1], LABELS[:6])


@pytest.mark.parametrize(
    "make",
    [
        pd.CategoricalDtype,
        lambda names: pd.Categorical(["r"], categories=names),
        lambda names: pd.Series(pd.Categorical(["r"], categories=names)),
        lambda names: pd.DataFrame({"a": pd.Categorical(["r"], categories=names)}),
        lambda names: pl.DataFrame({"a": pl.Series(["r"], dtype=pl.Enum(names))}),
    ],
    ids=["type", "array", "column", "frame", "polars"],
)
def test_the_order_of_categories_is_content(make: Any) -> None:
    assert content_hash(make(["r", "o"])) == content_hash(make(["r", "o"]))
    assert content_hash(make(["r", "o"])) != content_hash(make(["o", "r"]))


@pytest.mark.parametrize(
    "last",
    [RandomForestClassifier(5), MLPClassifier((8,), learning_rate_init=0.05, max_iter=1000)],
    ids=["leaves", "hidden"],
)
@pytest.mark.parametrize("container", [pd.DataFrame, pl.from_pandas], ids=["pandas", "polars"])
def test_proxies_of_pipelines(last: Any, container: Any) -> None:
    frame, estimator = container(people(40)), pipeline(last)
    labels = np.array(["no", "yes"])[np.arange(40) % 2]
    proxy = KNNProxy(estimator, progress=False).fit(frame, labels)
    found = proxy.value(container(people(20, 1)), labels[:20])
    assert found.values.sum() > 0.1
    assert found.parameters["embed"] == ("leaves" if isinstance(last, RandomForestClassifier) else "hidden")
    assert proxy.explain(container(people(20, 1)), labels[:20], [proxy.knn_.ids_[0]]).values[0] == found.values[0]
    across = cross_value(proxy, frame, labels)
    assert across.n_train == 40
    assert across.values.sum() > 0.1


def test_a_proxy_is_compared_with_its_model() -> None:
    frame, estimator = people(30), pipeline(RandomForestClassifier(3))
    labels, points = np.arange(30) % 2, people(10, 1)
    found = knn_proxy(
        estimator, frame, labels, points, labels[:10], subsample=6, sampled={"max_fits": 20}, progress=False
    )
    assert found.sampled.kind == found.proxy.kind == "pandas"
    assert found.sampled.ids.tolist() == found.proxy.ids.tolist()


def test_curves_of_a_pipeline() -> None:
    frame = people(30)
    labels = np.arange(30) % 2
    estimator = pipeline(LogisticRegression())
    valuation = sampled(estimator).fit(frame, labels).value(people(20, 2), labels[:20])
    options: dict[str, Any] = {"players": np.arange(30) % 3, "estimator": estimator, "progress": False}
    test: dict[str, Any] = {"X_test": people(20, 3), "y_test": labels[:20]}
    found = evaluate_valuation(valuation, frame, labels, fractions=[0.0, 0.4, 1.0], random_orders=1, **test, **options)
    assert all(curve.max() > 0.6 for curve in found.curves.values())


def test_what_a_model_cannot_take_is_named() -> None:
    frame = people()
    with pytest.raises(
        ValueError, match=r"Column 'city' of 'X' has type String.*cannot be fitted on it unchanged eith"
    ):
        sampled(LogisticRegression()).fit(frame[["age", "city"]], LABELS)
    with pytest.raises(ValueError, match=r"Column 'city'.*cannot be fitted on it unchanged either"):
        sampled(pipeline(LogisticRegression())).fit(frame[["age", "city", "kind"]], LABELS)
    model = sampled(pipeline(LogisticRegression())).fit(frame, LABELS)
    with pytest.raises(ValueError, match="missing 'city'"):
        model.value(frame.drop(columns="city"), LABELS)
    strict = make_pipeline(ColumnTransformer([("c", OneHotEncoder(), ["kind"])]), LogisticRegression())
    odd = frame.assign(kind=["q"] * N)
    with pytest.raises(ValueError, match="The model cannot predict from it"):
        sampled(strict, on_error="constant").fit(frame, LABELS).value(odd, LABELS)
    with pytest.raises(ValueError, match="lazy frame"):
        model.fit(pl.from_pandas(frame).lazy(), LABELS)
    with pytest.raises(ValueError, match="at least one row"):
        model.fit(frame[:0], [])


def test_nearness_of_frames() -> None:
    frame = pd.DataFrame(
        {
            "number": [1.0, 2.0, np.nan, 3.0],
            "whole": pd.array([1, None, 3, 2], dtype="Int64"),
            "flag": [True, False, True, False],
            "time": pd.to_datetime(["2020-01-01", None, "2020-01-03", "2020-01-02"]),
            "text": ["a", None, "b", "a"],
        }
    )
    numbers = as_numbers(frame).rows
    assert numbers.shape == (4, 4 + 3)
    assert np.isfinite(numbers).all()
    np.testing.assert_allclose(numbers[:, :4].mean(axis=0), 0, atol=1e-12)
    np.testing.assert_array_equal(numbers[0, 4:], numbers[3, 4:])
    unseen = Encoder(frame)(frame.assign(text="new", number="no number"))
    assert not unseen[:, 4:].any()
    assert not unseen[:, 0].any()
    np.testing.assert_allclose(as_numbers(pl.from_pandas(frame)).rows, numbers)
    numerous = pd.DataFrame({"text": [f"t{row}" for row in range(200)]})
    assert as_numbers(numerous).rows.shape[1] <= 51


def test_selectors_by_type() -> None:
    frame = people()
    by_type = ColumnTransformer(
        [
            ("n", SimpleImputer(), make_column_selector(dtype_include=np.number)),
            ("c", OneHotEncoder(handle_unknown="ignore"), make_column_selector(dtype_include="category")),
        ]
    )
    found = sampled(make_pipeline(by_type, LogisticRegression(max_iter=1000))).fit(frame, LABELS)
    assert found.value(frame, LABELS).values.sum() > 0.2
