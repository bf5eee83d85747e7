"""explain: against the matrix of values, brute-force ranks and distances, for every model and kind of rows."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.tree import DecisionTreeClassifier

import shapshift.knn.explain as module
from shapshift import (
    Beta,
    Explanation,
    KNNProxy,
    KNNRegressionShapley,
    KNNShapley,
    SemiSupervisedKNNShapley,
    ThresholdKNNShapley,
    WeightedKNNShapley,
)
from shapshift.exceptions import InputError
from shapshift.kernels.images import count_among, count_nearer
from shapshift.knn.explain import Nearness, class_sentence, number_sentence

MODELS = {
    "soft": KNNShapley(3),
    "hard, banzhaf": KNNShapley(3, utility="hard", semivalue="banzhaf"),
    "loo": KNNShapley(2, semivalue="loo"),
    "calibrated": KNNShapley(3, semivalue="calibrated"),
    "beta": KNNShapley(3, semivalue=Beta(4, 1)),
    "ties by index": KNNShapley(3, ties="index"),
    "certified": KNNShapley(3, method="certified"),
    "truncated": KNNShapley(3, method="truncated"),
    "budget": KNNShapley(3, max_memory="50MB"),
    "K beyond N": KNNShapley(100),
    "manhattan": KNNShapley(3, metric="manhattan"),
    "cosine": KNNShapley(3, metric="cosine"),
    "weighted": WeightedKNNShapley(3),
    "threshold": ThresholdKNNShapley(1.0),
    "regression": KNNRegressionShapley(3),
    "semi-supervised": SemiSupervisedKNNShapley(3),
}


FINE = 2.0**-20


def tables(n: int = 50, m: int = 20, step: float = 0.25) -> tuple[np.ndarray, ...]:
    """Rows on a grid, on which distances are exact: there are ties and equal rows, or none if it is fine."""
    rng = np.random.default_rng(0)
    X, X_val = (np.round(rng.normal(size=(size, 2)) / step) * step for size in (n, m))
    return (
        X,
        np.where(X.sum(axis=1) + rng.normal(size=n) > 0, "b", "a"),
        X_val,
        np.where(X_val.sum(axis=1) > 0, "b", "a"),
    )


def fitted(model: Any, X: Any, y: Any, X_val: Any, y_val: Any) -> tuple[Any, Any, Any]:
    if isinstance(model, KNNRegressionShapley):
        y, y_val = X[:, 0] + (y == "a"), X_val[:, 0]
    return model.fit(X, y), X_val, y_val


def mean_ranks(distances: np.ndarray, row: int) -> np.ndarray:
    at = distances[:, [row]]
    return (distances < at).sum(axis=1) + ((distances == at).sum(axis=1) + 1) / 2


@pytest.mark.parametrize("step", [1.0, 0.25, FINE])
@pytest.mark.parametrize("name", MODELS)
def test_what_an_explanation_says_is_in_the_matrix(name: str, step: float) -> None:
    step = FINE if name == "cosine" else step  # no row of zeros, which has no angle
    model, X_val, y_val = fitted(MODELS[name], *tables(step=step))
    X = tables(step=step)[0]
    asked, whole = [31, 4, 0], model.value(X_val, y_val, matrix=True)
    found = model.explain(X_val, y_val, asked, n_points=4, n_neighbors=3)
    metric = getattr(model, "metric", "euclidean")
    distances = cdist(X_val, X, {"manhattan": "cityblock"}.get(metric, metric))
    np.testing.assert_array_equal(found.values, model.value(X_val, y_val).values[asked])
    np.testing.assert_allclose(found.gain + found.loss, found.values, rtol=0, atol=1e-15)
    for i, row in enumerate(asked):
        column, points = whole.matrix[row], {key: part[found.points["row"] == i] for key, part in found.points.items()}
        assert [found.positive[i], found.negative[i], found.neutral[i]] == [
            np.sum(column > 0), np.sum(column < 0), np.sum(column == 0)
        ]  # fmt: skip
        assert found.gain[i] == pytest.approx(column[column > 0].sum() / 20, abs=1e-15)
        np.testing.assert_allclose(points["value"], column[points["position"]], rtol=0, atol=1e-12)
        highest, lowest = np.sort(column[column > 0])[::-1][:4], np.sort(column[column < 0])[:4][::-1]
        np.testing.assert_allclose(points["value"], np.concatenate([highest, lowest]), rtol=0, atol=1e-12)
        np.testing.assert_array_equal(points["label"], np.asarray(y_val)[points["position"]])
        np.testing.assert_allclose(points["distance"], distances[points["position"], row], atol=1e-7)
        if metric != "cosine":
            squared = distances if metric == "manhattan" else cdist(X_val, X, "sqeuclidean")
            np.testing.assert_array_equal(points["rank"], mean_ranks(squared, row)[points["position"]])
        own = found.neighbors["position"][found.neighbors["row"] == i]
        between = cdist(X[[row]], X, {"manhattan": "cityblock"}.get(metric, metric))[0]
        between[row] = np.inf
        np.testing.assert_allclose(
            found.neighbors["distance"][found.neighbors["row"] == i], np.sort(between)[:3], atol=1e-7
        )
        assert row not in own
        assert len(set(own.tolist())) == 3
    for sentence, row in zip(found.sentences, asked, strict=True):
        assert sentence.startswith(f"Row {row} (")
        assert sentence.endswith(".")


@pytest.mark.parametrize("metric", ["euclidean", "precomputed"])
@pytest.mark.parametrize("ties", ["average", "index"])
def test_points_that_have_a_row_among_their_nearest_are_counted(metric: str, ties: str) -> None:
    X, y, X_val, y_val = tables(step=FINE)
    distances = cdist(X_val, X)
    model = KNNShapley(3, metric=metric, ties=ties).fit(None if metric == "precomputed" else X, y)
    found = model.explain(distances if metric == "precomputed" else X_val, y_val, [0, 1, 2])
    for i in range(3):
        assert found.near[i] == np.sum(mean_ranks(distances, i) <= 3)
    if metric == "precomputed":
        assert not found.neighbors
        assert "nearest training rows have" not in found.sentences[0].replace("their 3 nearest training rows have", "")
        with pytest.raises(InputError, match="precomputed"):
            found.neighbors_frame()


@pytest.mark.parametrize("model", [KNNShapley(3, metric="precomputed"), ThresholdKNNShapley(1.0, metric="precomputed")])
def test_a_graph_of_nearest_rows(model: Any) -> None:
    X, y, X_val, y_val = tables(step=FINE)
    distances = cdist(X_val, X)
    graph = sparse.csr_array(np.where(distances <= 1.0, distances, 0.0))
    model.fit(None, y)
    found, values = model.explain(graph, y_val, [0, 1, 2]), model.value(graph, y_val, matrix=True)
    row, point = found.points["row"], found.points["position"]
    np.testing.assert_array_equal(found.values, values.values[:3])
    np.testing.assert_array_equal(found.points["value"], values.matrix[row, point])
    known = distances[point, row] <= 1.0
    np.testing.assert_allclose(found.points["distance"], np.where(known, distances[point, row], np.inf))
    ranks = np.stack([mean_ranks(distances, i) for i in range(3)])[row, point]
    np.testing.assert_array_equal(found.points["rank"], np.where(known, ranks, np.nan))


def test_rows_within_a_radius_are_near() -> None:
    X, y, X_val, y_val = tables()
    found = ThresholdKNNShapley(0.5).fit(X, y).explain(X_val, y_val, np.arange(50))
    np.testing.assert_array_equal(found.near, (cdist(X_val, X) <= 0.5 + 1e-12).sum(axis=0))
    np.testing.assert_array_equal(found.near, found.positive + found.negative)
    alone = np.flatnonzero(found.near == 0)[0]
    lead = f"Row {alone} (label {y[alone]}) neither raises nor lowers the result"
    assert found.sentences[alone].startswith(f"{lead}: no validation point lies within 0.5 of it")


def test_many_equal_rows_are_explained_alike() -> None:
    X, y, X_val, y_val = tables(n=40, step=1.0)
    X, y = np.repeat(X, 5, axis=0), np.repeat(y, 5)
    model = KNNShapley(3).fit(X, y)
    assert model._duplicates is not None
    found = model.explain(X_val, y_val, np.arange(200), n_points=2)
    matrix = model.value(X_val, y_val, matrix=True).matrix
    np.testing.assert_array_equal(found.points["value"], matrix[found.points["row"], found.points["position"]])
    np.testing.assert_array_equal(found.gain.reshape(40, 5), np.repeat(found.gain[::5, None], 5, axis=1))
    ranks = np.stack([mean_ranks(cdist(X_val, X), row) for row in range(200)])
    np.testing.assert_array_equal(found.points["rank"], ranks[found.points["row"], found.points["position"]])


def test_rows_in_files_and_sparse_rows_are_explained_as_dense_ones(tmp_path: Path) -> None:
    X, y, X_val, y_val = tables()
    dense = KNNShapley(3).fit(X, y).explain(X_val, y_val, [7, 3])
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "X_val.npy", X_val)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    for model, rows, points in (
        (KNNShapley(3, max_memory="50MB", scratch=tmp_path), mapped, X_val),
        (KNNShapley(3, max_memory="50MB", scratch=tmp_path), mapped, np.load(tmp_path / "X_val.npy", mmap_mode="r")),
        (KNNShapley(3, method="certified", max_memory="50MB", scratch=tmp_path), mapped, X_val),
        (KNNShapley(3), sparse.csr_array(X), sparse.csr_array(X_val)),
    ):
        found = model.fit(rows, y).explain(points, y_val, [7, 3])
        assert found.sentences == dense.sentences
        for part, same in ((found.points, dense.points), (found.neighbors, dense.neighbors)):
            for key in same:
                if same[key].dtype.kind == "f":
                    np.testing.assert_allclose(part[key], same[key], rtol=0, atol=1e-12)
                else:
                    np.testing.assert_array_equal(part[key], same[key])


def test_more_rows_than_fit_are_explained_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, X_val, y_val = tables()
    model, asked = KNNShapley(3).fit(X, y), [*range(49, 0, -3), 0]
    whole = model.explain(X_val, y_val, asked)
    monkeypatch.setattr(module, "MOST_KEPT", 100)
    pieces = model.explain(X_val, y_val, asked)
    for name in ("points", "neighbors"):
        for key, column in getattr(whole, name).items():
            np.testing.assert_array_equal(getattr(pieces, name)[key], column)
    assert pieces.sentences == whole.sentences
    np.testing.assert_array_equal(pieces.values, whole.values)
    np.testing.assert_array_equal(pieces.near, whole.near)


def test_workers_and_the_order_of_rows_change_nothing() -> None:
    X, y, X_val, y_val = tables(step=FINE)
    found = KNNShapley(3).fit(X, y).explain(X_val, y_val, [5, 9])
    order = np.random.default_rng(1).permutation(50)
    other = KNNShapley(3, n_jobs=2).fit(X[order], y[order], ids=order).explain(X_val, y_val, [5, 9])
    assert other.sentences == found.sentences
    for key in ("row", "position", "label", "value", "distance", "rank"):
        np.testing.assert_allclose(other.points[key], found.points[key], atol=1e-12) if key != "label" else None
    np.testing.assert_array_equal(other.neighbors["id"], found.neighbors["id"])


def test_ids_name_rows_as_the_table_does() -> None:
    X, y, X_val, y_val = tables()
    frame = pd.DataFrame(X, columns=["u", "v"], index=[f"r{i % 40}" for i in range(50)])
    points = pd.DataFrame(X_val, columns=["u", "v"], index=[f"p{i}" for i in range(20)])
    model = KNNShapley(3).fit(frame, y)
    found = model.explain(points, y_val, ["r41", "r3", "r41"][1:2])
    assert found.positions.tolist() == [3, 43]  # both rows of that id
    assert found.ids.tolist() == ["r3", "r3"]
    assert found.points["id"].tolist() == [f"p{i}" for i in found.points["position"]]
    assert model.explain(points, y_val, "r3").positions.tolist() == [3, 43]
    assert model.explain(points, y_val, ["r30", "r11", "r30"]).positions.tolist() == [30, 11]
    table = found.to_frame()
    assert isinstance(table, pd.DataFrame)
    assert list(table.columns) == ["label", "value", "point", "point_label", "point_value", "distance", "rank"]
    assert set(table.index) == {"r3"}
    assert found.neighbors_frame("pyarrow").column_names == ["id", "label", "neighbor", "neighbor_label", "distance"]
    assert len(found.rows_frame("polars")) == 2
    two = frame.set_index(pd.MultiIndex.from_arrays([np.arange(50) // 10, np.arange(50) % 10]))
    model = KNNShapley(3).fit(two, y)
    assert model.explain(points, y_val, (4, 2)).positions.tolist() == [42]
    assert model.explain(points, y_val, [(4, 2), (0, 1)]).positions.tolist() == [42, 1]
    dates = KNNShapley(3).fit(frame.set_index(pd.date_range("2020-01-01", periods=50)), y)
    assert dates.explain(points, y_val, [pd.Timestamp("2020-01-05")]).positions.tolist() == [4]


def test_rows_that_are_not_there_are_named() -> None:
    X, y, X_val, y_val = tables()
    model = KNNShapley(3).fit(X, y)
    for ids, said in (
        ([3, 77, "x"], "77, 'x', which no row has"),
        ([], "at least one"),
        ([[1]], "ids of training rows"),
    ):
        with pytest.raises(InputError, match=r"'ids' parameter of KNNShapley\.explain") as caught:
            model.explain(X_val, y_val, ids)
        assert said in str(caught.value)
    for name in ("n_points", "n_neighbors"):
        with pytest.raises(InputError, match=f"'{name}' parameter of KNNShapley.explain"):
            model.explain(X_val, y_val, [3], **{name: -1})
    with pytest.raises(InputError, match="Pooled values cannot be explained"):
        model.pooled().explain(X_val, y_val, [3])


def test_one_row_and_one_point() -> None:
    found = KNNShapley(5).fit([[0.0]], ["a"]).explain([[1.0]], ["a"], [0])
    assert found.sentences == (
        "Row 0 (label a) neither raises nor lowers the result: the only validation point that has it as its nearest "
        "training row has the same label.",
    )
    assert found.neighbors["position"].size == 0
    found = KNNShapley(1).fit([[0.0], [9.0]], ["a", "b"]).explain([[1.0]], ["b"], [0, 1], n_neighbors=0)
    assert found.neighbors["position"].size == 0
    assert found.sentences[0] == (
        "Row 0 (label a) lowers the result: the only validation point that has it as its nearest training row has "
        "label b."
    )
    assert found.sentences[1] == (
        "Row 1 (label b) raises the result from afar: no validation point has it as its nearest training row."
    )


def test_labels_never_seen_and_rows_without_a_label() -> None:
    X, y, X_val, y_val = tables()
    with pytest.warns(UserWarning, match="never"):
        found = KNNShapley(50).fit(X, y).explain(X_val, np.full(20, "new"), [0])
    assert (
        "all 20 validation points that have it among their 50 nearest training rows have label new"
        in found.sentences[0]
    )
    labels = y.astype(object)
    labels[3] = None
    found = SemiSupervisedKNNShapley(3).fit(X, labels).explain(X_val, y_val, [3, 4])
    assert found.labels.tolist() == [None, y[4]]
    assert found.sentences[0].startswith("Row 3 (no label, most probably ")


def test_training_rows_as_points_are_warned_about() -> None:
    X, y, _, _ = tables()
    with pytest.warns(UserWarning, match="cross_value"):
        KNNShapley(3).fit(X, y).explain(X, y, [0])


def test_a_proxy_explains_in_the_space_of_its_model() -> None:
    X, y, X_val, y_val = tables()
    proxy = KNNProxy(DecisionTreeClassifier(max_depth=3), 3, progress=False).fit(X, y)
    found, values = proxy.explain(X_val, y_val, [4]), proxy.value(X_val, y_val, matrix=True)
    np.testing.assert_array_equal(found.values, values.values[[4]])
    np.testing.assert_array_equal(found.points["value"], values.matrix[4][found.points["position"]])
    assert found.parameters["method"] == "KNNProxy"


def test_a_file_holds_an_explanation(tmp_path: Path) -> None:
    X, y, X_val, y_val = tables()
    labels = y.astype(object)
    labels[3] = None
    for model in (KNNShapley(3).fit(X, y), SemiSupervisedKNNShapley(3).fit(X, labels)):
        found = model.explain(X_val, y_val, [3, 8])
        found.save(tmp_path / "why.npz")
        same = Explanation.load(tmp_path / "why.npz")
        assert same.summary() == found.summary()
        assert same.to_frame("pyarrow").equals(found.to_frame("pyarrow"))
        assert repr(same) == repr(found)
    found = KNNShapley(3, metric="precomputed").fit(None, y).explain(cdist(X_val, X), y_val, [3])
    found.save(tmp_path / "why.npz")
    assert not Explanation.load(tmp_path / "why.npz").neighbors


def test_notebooks_show_it_with_everything_escaped() -> None:
    X, y, X_val, y_val = tables()
    names = np.where(y == "a", "<img src=x onerror=1>", "b & c")
    ids = [f"<b>{i}</b>" for i in range(50)]
    found = (
        KNNShapley(3)
        .fit(X, names, ids=ids)
        .explain(X_val, np.where(y_val == "a", names[y == "a"][0], "b & c"), ids[:3])
    )
    shown = found._repr_html_()
    assert "<img" not in shown
    assert "<b>" not in shown
    assert "&lt;b&gt;0&lt;/b&gt;" in shown
    assert "Row &lt;b&gt;2" in shown


NEAR = Nearness("has it among its 5 nearest rows", "have it among their 5 nearest rows")
WORDS = {
    "POINTS": f"validation points that {NEAR.several}",
    "ONE": f"the only validation point that {NEAR.one}",
    "NOBODY": f"no validation point {NEAR.one}",
    "ROWS": "nearest training rows",
    "ROW": "nearest training row",
}


def spelled(short: str) -> str:
    for word, words in WORDS.items():
        short = short.replace(word, words)
    return short


@pytest.mark.parametrize(
    ("value", "near", "own", "said"),
    [
        (-1, [1] * 14 + [0] * 2, [1] * 5, "lowers it: 14 of the 16 POINTS have label 1, and so do all 5 of its ROWS."),
        (-1, [1, 2, 0], [1, 0], "lowers it: 2 of the 3 POINTS have another label, and so does 1 of its 2 ROWS."),
        (
            -1,
            [0, 0, 1],
            [1, 0, 0],
            "lowers it although 2 of the 3 POINTS have the same label, and so do 2 of its 3 ROWS.",
        ),
        (1, [0, 0], [0, 1, 1, 1], "raises it: both POINTS have the same label, but only 1 of its 4 ROWS does."),
        (1, [0, 1], [1, 1, 1], "raises it: 1 of the 2 POINTS has the same label, but none of its 3 ROWS does."),
        (1, [1], [0], "raises it although ONE has label 1; its ROW does not."),
        (0, [0, 0, 0], [0], "neither raises nor lowers it: all 3 POINTS have the same label, and so does its ROW."),
        (-1, [], [0, 0, 1], "lowers it from afar: NOBODY; 2 of its 3 ROWS have the same label."),
        (-1, [], [1], "lowers it from afar: NOBODY; its ROW does not have the same label."),
        (-1, [], [1, 1], "lowers it from afar: NOBODY; none of its 2 ROWS has the same label."),
        (0, [], None, "neither raises nor lowers it: NOBODY."),
        (-1, [1, 1], None, "lowers it: both POINTS have label 1."),
    ],
)
def test_sentences_about_labels(value: float, near: list[int], own: list[int] | None, said: str) -> None:
    sentence = class_sentence("Row 1", 0, value, np.array(near), None if own is None else np.array(own), NEAR)
    assert sentence.replace("the result", "it") == f"Row 1 {spelled(said)}"


@pytest.mark.parametrize(
    ("near", "own", "said"),
    [
        ([1.0, 2.0], [3.0, 4.0], "the 2 POINTS have a mean target of 1.5, and its 2 ROWS one of 3.5."),
        ([1.0], [3.0, 4.0], "ONE has target 1, and its 2 ROWS have a mean target of 3.5."),
        ([1.0], [3.0], "ONE has target 1, and its ROW has target 3."),
        ([1.0, 2.0], None, "the 2 POINTS have a mean target of 1.5."),
    ],
)
def test_sentences_about_targets(near: list[float], own: list[float] | None, said: str) -> None:
    sentence = number_sentence("Row 1", 0.5, np.array(near), None if own is None else np.array(own), NEAR)
    assert sentence == f"Row 1 raises the result: {spelled(said)}"
    far = number_sentence("Row 1", -0.5, np.array([]), np.array([2.0, 4.0]), NEAR)
    assert far == spelled("Row 1 lowers the result from afar: NOBODY; its 2 ROWS have a mean target of 3.")


@pytest.mark.parametrize("asked", [1, 5, 40])
def test_ranks_of_many_rows_are_counted_as_those_of_few(asked: int) -> None:
    rng = np.random.default_rng(asked)
    kinds = [rng.random(300), rng.integers(0, 4, 300) / 2, np.zeros(300), 10.0 ** rng.integers(-300, 300, 300)]
    for distances in kinds:
        at, sizes = np.append(rng.choice(distances, asked), [0.0, np.finfo(float).max]), rng.integers(1, 4, 300)
        for counted in (np.empty(0, np.int64), sizes):
            ranks, rows = np.zeros(at.size), np.repeat(distances, counted) if counted.size else distances
            count_among(distances, counted, at, ranks)
            np.testing.assert_array_equal(ranks, [(rows < x).sum() + (rows == x).sum() / 2 for x in at])
        ranks = np.zeros((1, at.size))
        count_nearer(distances[None], at[None], ranks)
        np.testing.assert_array_equal(ranks[0], [(distances < x).sum() + (distances == x).sum() / 2 for x in at])


def test_a_row_is_near_where_one_of_its_copies_is() -> None:
    X = np.array([[0.0, 0.0]] * 12 + [[5.0, 5.0], [6.0, 6.0], [7.0, 7.0]])
    model = KNNShapley(n_neighbors=5, progress=False).fit(X, [1] * 12 + [0, 0, 0])
    found = model.explain([[0.0, 0.0], [0.1, 0.0], [0.0, 0.2]], [0, 0, 0], [0, 12])
    assert found.near.tolist() == [3, 0]
    assert found.sentences[0].startswith(
        "Row 0 (label 1) lowers the result: all 3 validation points that have it among"
    )


def test_ids_that_are_none() -> None:
    frame = pd.DataFrame({"a": [0.0, 1.0, 2.0]}, index=pd.date_range("2020-01-01", periods=3))
    model = KNNShapley(n_neighbors=1, progress=False).fit(frame, [0, 1, 1])
    assert model.explain(frame[2:], [1], [frame.index[2]]).sentences[0].startswith("Row 2020-01-03 (label 1) raises")
    with pytest.raises(ValueError, match="must hold ids of training rows, such as"):
        model.explain(frame[2:], [1], ["foo"])
    for mask in ([True, False, True], np.array([True, False, True])):
        for ids in (None, ["x", "y", "z"]):
            fitted = KNNShapley(n_neighbors=1, progress=False).fit([[0.0], [1.0], [2.0]], [0, 1, 1], ids=ids)
            with pytest.raises(ValueError, match="not a mask"):
                fitted.explain([[2.0]], [1], mask)


def test_a_sentence_has_one_contrast() -> None:
    near = Nearness("has it near", "have it near")
    said = class_sentence("Row 7", 0, -0.1, np.array([0] * 5 + [1] * 4), np.ones(5), near)
    assert said.endswith("although 5 of the 9 validation points that have it near have the same label; none of its 5 "
                         "nearest training rows does.")  # fmt: skip
    half = class_sentence("Row 7", 0, -0.1, np.array([0, 0, 1, 1]), np.ones(5), near)
    assert "lowers the result: half of the 4 validation points that have it near have label 1, and so do all 5" in half
