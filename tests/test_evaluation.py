"""What values are used for, and nearest neighbours as a proxy of another model."""

from __future__ import annotations

import csv
import tracemalloc
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from scipy import sparse
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from shapshift import KNNProxy, KNNShapley, Valuation, evaluate_valuation, knn_proxy, load_dataset
from shapshift.evaluation import detection_auc
from shapshift.plots._figure import pyplot
from shapshift.sampled.proxy import rank_interval


@pytest.fixture(scope="module")
def case() -> dict[str, Any]:
    data = load_dataset("gaussian", n_train=60, n_val=200)
    wrong = np.arange(60) % 6 == 0
    y = np.where(wrong, 1 - data.y_train, data.y_train)
    X_val, y_val, X_test, y_test = data.X_val[:100], data.y_val[:100], data.X_val[100:], data.y_val[100:]
    valuation = KNNShapley(progress=False).fit(data.X_train, y).value(X_val, y_val)
    return {"valuation": valuation, "X": data.X_train, "y": y, "wrong": wrong, "X_test": X_test, "y_test": y_test}


def valued(values: Any) -> Valuation:
    values = np.asarray(values, dtype=float)
    nothing = np.empty(0)
    return Valuation(
        values=values,
        ids=np.arange(values.size),
        entropy=np.zeros(1),
        boundary=np.zeros(1, dtype=bool),
        level_entropy=np.zeros(1),
        level_values=values[None],
        level_counts=np.ones(1, dtype=np.int64),
        group_means=nothing.reshape(0, values.size),
        group_names=(),
        group_sizes=(),
        matrix=None,
        parameters={},
        fingerprint="",
    )


def test_detection_against_pairs(case: dict[str, Any]) -> None:
    values, wrong = case["valuation"].values.round(3), case["wrong"]
    pairs = [(a < b) + (a == b) / 2 for a in values[wrong] for b in values[~wrong]]
    assert detection_auc(values, wrong) == pytest.approx(np.mean(pairs))
    found = evaluate_valuation(case["valuation"], case["X"], case["y"], mislabelled=wrong).detection
    lowest = np.argsort(case["valuation"].values)[:10]
    assert found is not None
    assert found["precision"] == pytest.approx(wrong[lowest].mean())
    assert found["recall"] == pytest.approx(wrong[lowest].sum() / 10)
    assert found["auc"] > 0.8
    tied = evaluate_valuation(valued(np.zeros(60)), case["X"], case["y"], mislabelled=wrong, fraction=0.5).detection
    assert tied is not None
    assert tied["auc"] == 0.5
    assert tied["precision"] == pytest.approx(1 / 6)  # what chance finds


def test_curves_against_models_fitted_by_hand(case: dict[str, Any]) -> None:
    X, y, values = case["X"], case["y"], case["valuation"].values
    found = evaluate_valuation(
        case["valuation"],
        X,
        y,
        estimator=DecisionTreeClassifier(random_state=0),
        X_test=case["X_test"],
        y_test=case["y_test"],
        fractions=[0, 0.2, 0.5, 1],
        keep_class_shares=False,
        random_orders=2,
        progress=False,
    )
    order = np.argsort(-values)

    def score(rows: np.ndarray) -> float:
        rows = np.sort(rows)
        if len(np.unique(y[rows])) == 1:
            return float(np.mean(case["y_test"] == y[rows[0]]))
        return DecisionTreeClassifier(random_state=0).fit(X[rows], y[rows]).score(case["X_test"], case["y_test"])

    everybody = score(order)
    np.testing.assert_allclose(found.curves["remove_high"], [everybody, score(order[12:]), score(order[30:]), 0.5])
    np.testing.assert_allclose(found.curves["remove_low"], [everybody, score(order[:48]), score(order[:30]), 0.5])
    np.testing.assert_allclose(found.curves["add_high"], [0.5, score(order[:12]), score(order[:30]), everybody])
    np.testing.assert_allclose(found.curves["add_low"], [0.5, score(order[48:]), score(order[30:]), everybody])
    removed = found.curves["remove_high"]
    assert found.areas["remove_high"] == pytest.approx(
        (0.2 * (removed[0] + removed[1]) / 2 + 0.3 * (removed[1] + removed[2]) / 2) / 0.5
    )
    assert found.areas["remove_high"] < found.areas["remove_low"]
    assert found.selection is not None
    assert found.selection["score"] == max(found.curves["add_high"])
    assert found.to_frame().shape[1] == 3
    assert list(found.curve_frame()["fraction"]) == [0, 0.2, 0.5, 1]
    axes = found.plot()
    assert len(axes) == 2
    pyplot().close(axes[0].figure)


def test_copies_are_found_and_compared() -> None:
    X = np.array([[0.0], [1.0], [0.0], [0.0], [2.0], [-0.0]])
    y = ["a", "a", "a", "b", "b", "a"]
    found = evaluate_valuation(valued([1.0, 2.0, 1.5, 3.0, 4.0, 1.0]), X, y).duplicates
    assert found["players"] == 3  # rows 0, 2 and 5; row 3 has another label
    assert found["groups"] == 1
    assert found["auc"] == 1.0
    assert found["largest_gap"] == pytest.approx(0.5 / np.std([1.0, 2.0, 1.5, 3.0, 4.0, 1.0]))
    assert found["share"] == pytest.approx(3.5 / 12.5)
    owners = evaluate_valuation(valued([1.0, 1.0, 5.0]), X, y, players=["p", "p", "q", "r", "r", "q"]).duplicates
    assert owners["players"] == 0  # p has (0, 1), q has (0, 0)
    marked = evaluate_valuation(valued([0.0, 1, 2, 3, 4, 5]), X, y, copies=[True] + [False] * 5).duplicates
    assert (marked["players"], marked["auc"]) == (1, 1.0)


def test_sparse_rows_stay_sparse() -> None:
    n_rows, width = 400, 200_000  # 640 MB, were they dense
    X = sparse.csr_array((np.ones(n_rows), (np.arange(n_rows), np.arange(n_rows) % 390)), shape=(n_rows, width))
    values = np.arange(float(n_rows))
    tracemalloc.start()
    try:
        found = evaluate_valuation(valued(values.tolist()), X, np.zeros(n_rows)).duplicates
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (found["players"], found["groups"]) == (20, 10)
    assert peak < 20e6


def test_sparse_copies_are_those_of_dense_rows() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 2, size=(60, 3)).astype(float), rng.integers(0, 2, 60)
    values = valued(rng.normal(size=60).tolist())
    assert evaluate_valuation(values, sparse.csr_array(X), y).duplicates == evaluate_valuation(values, X, y).duplicates


def test_owners_and_regression_curves() -> None:
    rng = np.random.default_rng(0)
    X, X_test = rng.normal(size=(12, 1)), rng.normal(size=(20, 1))
    found = evaluate_valuation(
        valued([3.0, 2.0, 1.0]),
        X,
        2 * X[:, 0],
        players=np.repeat(["a", "b", "c"], 4),
        estimator=LinearRegression(),
        X_test=X_test,
        y_test=2 * X_test[:, 0],
        fractions=[0, 1 / 3, 1],
    )
    assert found.curves["add_high"][0] < -0.5
    np.testing.assert_allclose(found.curves["add_high"][1:], 0, atol=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mislabelled": [0, 1] * 30}, "'mislabelled' .* must hold True or False for each of the 60 values"),
        ({"mislabelled": [True] * 5}, r"Got shape \(5,\)"),
        ({"copies": [True] * 5}, "'copies' parameter of evaluate_valuation must hold"),
        ({"estimator": LogisticRegression()}, "'X_test' and 'y_test' parameters of evaluate_valuation are needed"),
        ({"fractions": [0.1, 0.9]}, "'fractions' .* ascend from 0 to 1"),
        ({"players": ["a"] * 60}, "has 60 values for 1 players"),
    ],
)
def test_bad_input(case: dict[str, Any], options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        evaluate_valuation(case["valuation"], case["X"], case["y"], **options)


def test_other_things_than_valuations_are_refused(case: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="must be a Valuation"):
        evaluate_valuation(case["valuation"].values, case["X"], case["y"])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="There are no curves to draw"):
        evaluate_valuation(case["valuation"], case["X"], case["y"]).plot()


def test_curves_keep_the_shares_of_classes(case: dict[str, Any]) -> None:
    X, values = case["X"], case["valuation"].values
    y = np.where(np.arange(60) % 5 == 0, "rare", "common")
    model = LogisticRegression()
    given = (X, y), {"estimator": model, "X_test": case["X_test"], "y_test": np.where(case["y_test"], "rare", "common")}
    found = evaluate_valuation(case["valuation"], *given[0], **given[1], fractions=[0, 0.5, 1], random_orders=1)
    kept = np.zeros(60, dtype=bool)
    for label, half in (("rare", 6), ("common", 24)):
        rows = np.flatnonzero(y == label)
        kept[rows[np.argsort(-values[rows])][:half]] = True
    test = given[1]["X_test"], given[1]["y_test"]
    assert found.curves["add_high"][1] == found.curves["remove_low"][1]
    assert found.curves["add_high"][1] == pytest.approx(model.fit(X[kept], y[kept]).score(*test))
    assert found.curves["remove_high"][1] == pytest.approx(model.fit(X[~kept], y[~kept]).score(*test))
    with pytest.raises(ValueError, match="'keep_class_shares' parameter"):
        evaluate_valuation(case["valuation"], *given[0], **given[1], keep_class_shares="no")


class Counted(LogisticRegression):
    """A model that counts its fits."""

    fits: ClassVar[list[int]] = []

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Counted:
        Counted.fits.append(len(y))
        return super().fit(X, y, sample_weight)


def test_several_valuations_have_the_numbers_that_each_has_alone(case: dict[str, Any], tmp_path: Path) -> None:
    given: dict[str, Any] = {"estimator": Counted(), "X_test": case["X_test"], "y_test": case["y_test"]}
    given |= {"mislabelled": case["wrong"], "fractions": [0, 0.25, 1], "random_orders": 3}
    other = valued(np.linspace(0, 1, 60))
    methods = {"knn_5%": case["valuation"], "line": other, "same": case["valuation"]}
    Counted.fits.clear()
    found = evaluate_valuation(methods, case["X"], case["y"], **given)
    # 4 shares, of which all and none are common to all orders; two orders and one that occurs twice, three random ones.
    assert len(Counted.fits) == 2 * 2 * 2 + 3 * 2 + 1
    assert list(found.evaluations) == list(methods)
    for name, one in methods.items():
        alone = evaluate_valuation(one, case["X"], case["y"], **given)
        both = found.evaluations[name]
        assert (both.detection, both.areas, both.selection) == (alone.detection, alone.areas, alone.selection)
        assert both.duplicates == pytest.approx(alone.duplicates, nan_ok=True)
        for curve in alone.curves:
            np.testing.assert_array_equal(both.curves[curve], alone.curves[curve])
    table = found.to_frame("pandas").set_index(["method", "use", "statistic"])["value"]
    assert table.index.is_unique
    assert table["line", "detection", "auc"] == detection_auc(other.values, case["wrong"])
    chance = found.evaluations["line"].curves["random"]
    assert table["random order", "area", "remove_low"] == found.evaluations["line"].areas["random"]
    # Adding in a random order is removing read backwards: at 0, 0.75 and 1 of the players.
    by_hand = np.interp([0, 0.5], [0, 0.75, 1], chance[::-1]).mean()
    assert table["random order", "area", "add_high"] == pytest.approx(by_hand)
    curves = found.curve_frame("pandas")
    assert curves.shape == (9, 7)
    assert curves["method"].tolist()[::3] == list(methods)

    text = found.to_csv(tmp_path / "found.csv").read_text(encoding="utf-8")
    assert len(text.splitlines()) == len(table) + 1
    assert text.splitlines()[0] == "method,use,statistic,value"
    assert f"line,detection,auc,{table['line', 'detection', 'auc']}" in text
    latex = found.to_latex(tmp_path / "found.tex").read_text(encoding="utf-8")
    assert r"use & statistic & knn\_5\% & line & same & random order \\" in latex
    area = [f"{table[name, 'area', 'remove_high']:.6g}" for name in (*methods, "random order")]
    assert rf"area & remove\_high & {' & '.join(area)} \\" in latex


def test_names_of_methods_are_safe_in_files(case: dict[str, Any], tmp_path: Path) -> None:
    names = ["=cmd|'/c calc'!A1", "a<b>\n\\input{x}", " +1"]
    found = evaluate_valuation(dict.fromkeys(names, case["valuation"]), case["X"], case["y"])
    with open(found.to_csv(tmp_path / "found.csv"), encoding="utf-8", newline="") as file:
        written = {line["method"] for line in csv.DictReader(file)}
    assert written - {"random order"} == {"'=cmd|'/c calc'!A1", "a<b>\\n\\input{x}", "' +1"}
    lines = found.to_latex(tmp_path / "found.tex").read_text(encoding="utf-8").splitlines()
    header = next(line for line in lines if line.startswith("use & "))
    assert r"=cmd\textbar{}'/c calc'!A1 & a\textless{}b\textgreater{}\textbackslash n" in header
    assert r"input\{x\}" in header


def test_several_valuations_are_one_figure(case: dict[str, Any]) -> None:
    two = [case["valuation"], valued(np.arange(60.0)), case["valuation"]]
    found = evaluate_valuation(
        two, case["X"], case["y"], estimator=LogisticRegression(), X_test=case["X_test"], y_test=case["y_test"]
    )
    assert list(found.evaluations) == ["KNNShapley", "Valuation", "KNNShapley 2"]
    axes = found.plot()
    assert [len(ax.lines) for ax in axes] == [4, 4]
    np.testing.assert_array_equal(axes[1].lines[1].get_ydata(), found.evaluations["Valuation"].curves["remove_low"])
    assert [text.get_text() for text in axes[0].get_legend().get_texts()][3].startswith("random order")
    pyplot().close(axes[0].figure)
    assert repr(found).startswith("ValuationComparison(ValuationEvaluation(KNNShapley, remove_high area=")
    without = evaluate_valuation({"a": two[0]}, case["X"], case["y"])
    assert set(without.to_frame("pandas")["use"]) == {"duplicates"}
    assert without.curve_frame("pandas").columns.tolist() == ["method", "fraction"]
    with pytest.raises(ValueError, match="There are no curves to draw"):
        without.plot()


@pytest.mark.parametrize(
    ("given", "message"),
    [({}, "at least one valuation"), ([], "at least one"), ({1: None}, "must map names"), ([3], "must be a Valuation")],
    ids=["mapping", "list", "names", "numbers"],
)
def test_other_collections_are_refused(case: dict[str, Any], given: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        evaluate_valuation(given, case["X"], case["y"])
    with pytest.raises(ValueError, match="5 values for 60 rows"):
        evaluate_valuation([case["valuation"], valued(np.zeros(5))], case["X"], case["y"])


# --- proxy ----------------------------------------------------------------------------------------------------------


def test_leaves_count_the_trees_in_which_rows_part(case: dict[str, Any]) -> None:
    X, y = case["X"], case["y"]
    proxy = KNNProxy(RandomForestClassifier(4, random_state=0), 3, progress=False).fit(X, y)
    apart = (proxy.model_.apply(case["X_test"])[:, None] != proxy.model_.apply(X)).sum(axis=2)
    by_hand = KNNShapley(3, metric="precomputed", progress=False).fit(None, y).value(apart, case["y_test"])
    found = proxy.value(case["X_test"], case["y_test"])
    np.testing.assert_allclose(found.values, by_hand.values, atol=1e-12)
    assert found.parameters["embed"] == "leaves"
    assert found.parameters["method"] == "KNNProxy"


def test_hidden_layer_of_a_network_in_a_pipeline(case: dict[str, Any]) -> None:
    network = MLPClassifier((4, 3), activation="tanh", max_iter=2, early_stopping=True, random_state=0)
    with pytest.warns(UserWarning, match="Maximum iterations"):
        proxy = KNNProxy(make_pipeline(StandardScaler(), network), progress=False).fit(case["X"], case["y"])
    scaler, fitted = proxy.model_[0], proxy.model_[1]

    def layer(model: Any, rows: Any) -> Any:
        first = np.tanh(scaler.transform(rows) @ fitted.coefs_[0] + fitted.intercepts_[0])
        return np.tanh(first @ fitted.coefs_[1] + fitted.intercepts_[1])

    by_hand = KNNShapley(progress=False).fit(layer(None, case["X"]), case["y"])
    np.testing.assert_allclose(
        proxy.value(case["X_test"], case["y_test"]).values,
        by_hand.value(layer(None, case["X_test"]), case["y_test"]).values,
        atol=1e-12,
    )


def test_a_proxy_of_neighbours_themselves_agrees(case: dict[str, Any]) -> None:
    found = knn_proxy(
        KNeighborsClassifier(3),
        case["X"],
        case["y"],
        case["X_test"],
        case["y_test"],
        embed=lambda model, rows: rows,
        n_neighbors=3,
        subsample=9,
        sampled={"max_fits": 5000, "utility": "probability"},
        progress=False,
    )
    assert found.reliability == 1.0  # nine players are enumerated
    assert found.spearman > 0.9
    assert found.low <= found.spearman <= found.high
    assert found.valuation.n_train == 60
    np.testing.assert_array_equal(found.sampled.ids, found.rows)
    assert "on 9 rows" in repr(found)


def test_rank_interval() -> None:
    low, high = rank_interval(0.0, 103)
    assert (low, high) == (pytest.approx(-0.1935, abs=1e-3), pytest.approx(0.1935, abs=1e-3))
    assert np.isnan(rank_interval(float("nan"), 50)).all()


def test_bad_proxies(case: dict[str, Any]) -> None:
    X, y = case["X"], case["y"]
    with pytest.raises(ValueError, match="'embed' parameter of KNNProxy is 'auto', but LogisticRegression has no"):
        KNNProxy(LogisticRegression()).fit(X, y)
    with pytest.raises(ValueError, match="must be a classifier"):
        KNNProxy(LinearRegression()).fit(X, y)
    with pytest.raises(ValueError, match=r"must return one row per row. Got 1 for 60"):
        KNNProxy(DecisionTreeClassifier(), embed=lambda model, rows: rows[:1]).fit(X, y)
