"""find_suspects and ``shapshift suspects``: probabilities, the cut-off, reasons, label sets, numbers, and files."""

from __future__ import annotations

import csv
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from cli_files import run
from scipy import sparse
from sklearn.compose import make_column_transformer
from sklearn.datasets import make_multilabel_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from shapshift import KNNShapley, Suspects, find_suspects
from shapshift.checks.labels import are_numbers
from shapshift.suspects import find
from shapshift.suspects.scores import score_label_sets, score_labels
from shapshift.tables.preparing import prepare_features

COLUMNS = ["id", "label", "suggested", "probability", "reason", "flagged"]
WRONG = [3, 40, 77, 120]


def blobs(n: int = 150, seed: int = 0) -> tuple[npt.NDArray[np.float64], npt.NDArray[Any]]:
    """Three classes far from each other; the rows WRONG have the label of another one."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    X = rng.normal(size=(n, 2)) + 8 * np.array([[0, 0], [0, 1], [1, 0]])[y]
    y[WRONG] = (y[WRONG] + 1) % 3
    return X, np.array(["ant", "bee", "cat"])[y]


X, Y = blobs()
FOUND = find_suspects(X, Y)


def test_wrong_labels_are_flagged_with_the_right_ones() -> None:
    assert np.flatnonzero(FOUND.flagged).tolist() == WRONG
    assert FOUND.suggested[WRONG].tolist() == blobs(150)[1][[i % 3 for i in WRONG]].tolist()
    assert (FOUND.suggested != FOUND.label).all()
    assert set(FOUND.reason[WRONG]) == {"neighbours disagree"}
    assert set(FOUND.reason) <= {"neighbours disagree", "outlier", "neighbours disagree; outlier", ""}


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow"])
def test_the_frame_has_one_line_per_row_in_their_order(kind: str) -> None:
    table = FOUND.to_frame(kind)
    assert list(table.column_names if kind == "pyarrow" else table.columns) == COLUMNS
    columns = table.to_pydict() if kind == "pyarrow" else {name: table[name].to_list() for name in COLUMNS}
    assert columns["id"] == list(range(150))
    assert columns["label"] == Y.tolist()
    assert columns["flagged"] == FOUND.flagged.tolist()
    ranked = FOUND.flagged_frame("pyarrow")["probability"].to_pylist()
    assert ranked == sorted(FOUND.probability[FOUND.flagged].tolist(), reverse=True)


@pytest.mark.parametrize("error", [0.05, 0.2, 0.5])
def test_the_flagged_rows_are_the_largest_set_with_the_allowed_error(error: float) -> None:
    rng = np.random.default_rng(1)
    points, classes = rng.normal(size=(120, 2)), rng.integers(0, 2, 120)
    points[:, 0] += 1.5 * classes
    found = find_suspects(points, classes, error=error)
    ranked = np.sort(found.probability)[::-1]
    whole = [k for k in range(1, 121) if k == 120 or ranked[k] < ranked[k - 1]]  # equal ones are flagged together
    allowed = [k for k in whole if np.mean(1 - ranked[:k]) <= error and ranked[k - 1] > 0.5]
    assert found.flagged.sum() == max(allowed, default=0)
    assert found.expected_error == pytest.approx(np.mean(1 - found.probability[found.flagged]) if allowed else 0)
    assert found.error == error


def test_rows_keep_their_scores_in_another_order() -> None:
    order = np.random.default_rng(2).permutation(150)
    moved = find_suspects(X[order], Y[order], ids=order)
    np.testing.assert_allclose(moved.probability, FOUND.probability[order], atol=1e-9)
    assert moved.suggested.tolist() == FOUND.suggested[order].tolist()
    assert moved.reason.tolist() == FOUND.reason[order].tolist()
    assert moved.ids.tolist() == order.tolist()


@pytest.mark.parametrize(
    "model", ["forest", "logistic", RandomForestClassifier(20), KNNShapley(n_neighbors=3)], ids=lambda m: str(m)[:12]
)
def test_a_model_votes_too(model: Any) -> None:
    found = find_suspects(X, Y, model=model)
    assert set(found.ranking()[:4].tolist()) == set(WRONG)
    again = find_suspects(X, Y, model=model)
    assert found.probability.tolist() == again.probability.tolist()


def with_copies() -> tuple[npt.NDArray[np.float64], npt.NDArray[Any]]:
    """A pair of copies with two labels (150, of 0) and three copies of which one differs (151 and 152, of 1)."""
    rows, labels = np.vstack([X, X[[0, 1, 1]]]), Y.copy()
    return rows, np.append(labels, ["cat", labels[1], "cat"])


def test_contradicting_copies_are_wrong_with_probability_one_half_or_their_share() -> None:
    rows, labels = with_copies()
    found = find_suspects(rows, labels)
    _, codes = np.unique(labels, return_inverse=True)
    scores = score_labels(prepare_features(rows).X, codes, 3)
    expected = scores.probability.copy()
    for row, least in {0: 0.5, 150: 0.5, 1: 1 / 3, 151: 1 / 3, 152: 0.5}.items():
        expected[row] = max(expected[row], least)
        assert found.reason[row].startswith("contradicting copies")
    np.testing.assert_allclose(found.probability, expected)
    assert sum("contradicting" in reason for reason in found.reason) == 5


def test_where_features_are_coarse_copies_count_as_any_neighbours() -> None:
    rng = np.random.default_rng(3)
    rows = rng.integers(0, 3, size=(200, 2)).astype(float)
    codes = (rng.random(200) < 0.2 + 0.3 * rows[:, 0]).astype(int)
    found = find_suspects(rows, codes)
    np.testing.assert_allclose(found.probability, score_labels(prepare_features(rows).X, codes, 2).probability)
    assert any("exact copy with another label" in note for note in found.notes)


def test_a_copy_among_validation_rows_is_reported_and_not_flagged() -> None:
    points, labels = blobs(seed=5)[0][:60], np.array(["ant", "bee", "cat"])[np.arange(60) % 3]
    points[7] = X[10]
    labels[7] = Y[10]
    found = find_suspects(X, Y, X_val=points, y_val=labels)
    assert "near-duplicate across train and validation" in found.reason[10]
    assert not found.flagged[10]
    assert found.parameters["n_val"] == 60
    assert any("among the validation rows" in note for note in found.notes)


def test_an_outlier_is_reported_and_not_flagged_for_that() -> None:
    rows, labels = np.vstack([X, [[-40.0, -40.0]]]), np.append(Y, "ant")
    found = find_suspects(rows, labels)
    assert "outlier" in found.reason[150]
    assert not found.flagged[150]


def tagged() -> tuple[npt.NDArray[np.float64], pd.DataFrame]:
    rng = np.random.default_rng(4)
    rows = rng.normal(size=(120, 2))
    tags = pd.DataFrame({"warm": rows[:, 0] > 0, "tall": rows[:, 1] > 0.5, "old": rows.sum(axis=1) > 0}).astype(int)
    far = int(np.argmax(rows[:, 0]))
    tags.loc[far, "warm"] = 0
    return rows, tags


def test_label_sets_in_every_form_are_the_same() -> None:
    rows, tags = tagged()
    lists = [tuple(name for name in tags if row[name]) for _, row in tags.iterrows()]
    found = find_suspects(rows, tags)
    assert found.label.tolist() == lists
    assert found.parameters["task"] == "set"
    assert all(set(given) != set(other) for given, other in zip(found.label, found.suggested, strict=True))
    far = int(np.argmax(rows[:, 0]))
    assert found.ranking()[0] == far
    assert set(found.suggested[far]) == {*found.label[far], "warm"}
    each = score_label_sets(prepare_features(rows).X, tags.to_numpy() == 1)
    np.testing.assert_allclose(found.probability, np.max([one.probability for one in each], axis=0))
    alone = find_suspects(rows, tags, model="neighbors")
    forms = [tags.to_numpy(), pl.DataFrame(tags), sparse.csr_array(tags.to_numpy()), [set(one) for one in lists]]
    for form in [*forms, pd.Series(list(map(list, lists))), pl.Series(list(map(list, lists)))]:
        other = find_suspects(rows, form, model="neighbors")
        np.testing.assert_allclose(other.probability, alone.probability)
        assert other.classes["rows"].sum() == tags.to_numpy().sum()
    both = find_suspects(rows[:100], tags[:100], X_val=rows[100:], y_val=lists[100:], model="neighbors")
    assert both.probability.shape == (100,)


def test_the_stated_error_of_label_sets_holds() -> None:
    # Rows that are right among the flagged ones, and the number that is stated, over generated tables.
    right = stated = flags = 0.0
    for seed in range(2):
        rng = np.random.default_rng(seed)
        rows, tags = make_multilabel_classification(300, n_classes=5, n_labels=2, random_state=seed)
        clean = find_suspects(rows, tags)
        assert clean.flagged.sum() <= 2
        bad = rng.random(300) < 0.1
        separate = rng.normal(size=(300, 5))
        for features, sets in ((rows, tags == 1), (separate, separate > 0.3)):
            changed = np.arange(5) == np.where(bad, rng.integers(5, size=300), -1)[:, None]
            found = find_suspects(features, (sets ^ changed).astype(int))
            assert any("label entries" in note for note in found.notes) == (features is rows)
            right += float(np.count_nonzero(found.flagged & ~bad))
            stated += found.expected_error * found.flagged.sum()
            flags += found.flagged.sum()
    assert flags > 30
    assert abs(right - stated) / flags < 0.1


def test_a_label_that_all_rows_have_is_not_scored() -> None:
    rows, tags = tagged()
    tags["all"] = 1
    found = find_suspects(rows, tags)
    assert all("all" in given and "all" in other for given, other in zip(found.label, found.suggested, strict=True))
    with pytest.raises(ValueError, match="some rows have and others have not"):
        find_suspects(rows, tags[["all", "all"]].to_numpy())


def test_numbers_to_predict() -> None:
    rng = np.random.default_rng(6)
    rows = rng.uniform(size=(150, 2))
    targets = 10 * rows[:, 0] + rng.normal(scale=0.3, size=150)
    targets[[5, 50]] += 40
    found = find_suspects(rows, targets)
    assert set(found.ranking()[:2].tolist()) == {5, 50}
    assert found.flagged[[5, 50]].all()
    assert abs(found.suggested[5] - 10 * rows[5, 0]) < 2
    assert found.parameters["task"] == "number"
    assert not found.classes
    assert found.class_rows() == []
    assert "targets" in found.summary()
    whole = np.round(1000 * targets).astype(int)
    assert find_suspects(rows, whole).parameters["task"] == "number"
    assert find_suspects(rows, np.round(targets / 10), model=LinearRegression()).parameters["task"] == "number"
    assert find_suspects(rows, np.round(targets / 10)).parameters["task"] == "class"
    assert find_suspects(rows, np.arange(150) % 31, model="neighbors").parameters["task"] == "number"
    assert find_suspects(rows, np.arange(150) % 30, model="neighbors").parameters["task"] == "class"
    assert are_numbers(np.arange(800) % 41)
    assert not are_numbers(np.arange(800) % 40)
    half = find_suspects(rows[:100], targets[:100], X_val=rows[100:], y_val=targets[100:])
    assert half.flagged[[5, 50]].all()


def real_frame() -> pd.DataFrame:
    rng = np.random.default_rng(7)
    frame = pd.DataFrame({"size": X[:, 0], "weight": X[:, 1], "town": rng.choice(["York", "Bath"], 150)})
    frame.loc[::9, "size"] = np.nan
    frame.loc[4, "town"] = None
    frame["checked"] = rng.random(150) > 0.5
    frame.index = pd.Index([f"r{i}" for i in range(150)], name="row")
    return frame


def test_frames_with_text_and_missing_values() -> None:
    frame = real_frame()
    found = find_suspects(frame, pd.Series(Y, index=frame.index))
    assert {f"r{i}" for i in WRONG} <= set(found.ids[found.ranking()[:8]])
    assert found.to_frame().__class__.__module__.startswith("pandas")
    for other in (pl.from_pandas(frame), pa.Table.from_pandas(frame, preserve_index=False)):
        same = find_suspects(other, Y)
        np.testing.assert_allclose(same.probability, found.probability)
        assert type(same.to_frame()) is type(other)
    split = find_suspects(frame[:100], Y[:100], X_val=frame[100:], y_val=Y[100:])
    assert split.probability.shape == (100,)
    with pytest.raises(ValueError, match="same index in different orders"):
        find_suspects(frame, pd.Series(Y, index=frame.index)[::-1])
    with pytest.raises(ValueError, match=r"same columns\. Only one has 'town'"):
        find_suspects(frame, Y, X_val=frame.drop(columns="town"), y_val=Y)


@pytest.mark.filterwarnings("ignore:.*never seen in training")
def test_a_pipeline_gets_frames_as_they_are() -> None:
    frame = real_frame()
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    towns = OneHotEncoder(handle_unknown="ignore")
    model = make_pipeline(
        make_column_transformer((numbers, ["size", "weight"]), (towns, ["town"])), LogisticRegression()
    )
    found = find_suspects(frame, Y, model=model)
    assert set(found.ranking()[:4].tolist()) <= {*WRONG, *range(0, 150, 9)}
    partly_known = np.where(Y[100:] == "ant", "ox", Y[100:])
    split = find_suspects(frame[:100], Y[:100], model=model, X_val=frame[100:], y_val=partly_known)
    assert split.probability.shape == (100,)
    arrow = find_suspects(pa.Table.from_pandas(frame, preserve_index=False), Y, model=model)
    np.testing.assert_allclose(arrow.probability, found.probability)


def test_features_are_prepared_alike_in_arrays_and_frames() -> None:
    array = X.copy()
    array[::9, 0] = np.nan
    names = pd.DataFrame(array, columns=["a", "b"])
    np.testing.assert_allclose(prepare_features(array, array[:5]).X, prepare_features(names, names[:5]).X)
    np.testing.assert_allclose(prepare_features(array, array[:5]).X_val, prepare_features(names).X[:5])
    mixed = prepare_features(np.array([["a", 1.0], ["b", 3.0], ["a", None]], dtype=object))
    assert mixed.X.tolist() == [[1, 0, -np.sqrt(1.5)], [0, 1, np.sqrt(1.5)], [1, 0, 0]]
    assert (sparse.csr_array(X) != prepare_features(sparse.csr_array(X)).X).nnz == 0
    assert np.isnan(array[0, 0]), "the caller's array was changed"


def test_sparse_rows() -> None:
    found = find_suspects(sparse.csr_array(X), Y)
    assert set(found.ranking()[:4].tolist()) == set(WRONG)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"y": Y[:-1]}, "one label for each of the 150 rows"),
        ({"y": np.full(150, "ant")}, "at least two different labels. All 150 rows have 'ant'"),
        ({"y": [None, *Y[1:]]}, "missing entries: 1 of 150.*Drop those rows, or give each its label"),
        ({"y": np.arange(150).astype(str)}, "does not name classes"),
        ({"X": X[:6], "y": Y[:6]}, "at least 10 rows.*Got 6"),
        ({"X": X[:1], "y": Y[:1]}, "two different labels"),
        ({"X": X[:0], "y": Y[:0]}, "is empty"),
        ({"X": np.where(np.eye(150, 2) > 0, np.inf, X)}, "contains infinity"),
        ({"X": np.where([[True, False]], np.nan, X)}, "has no value in any row"),
        ({"error": 0}, "'error' parameter of find_suspects must be a number above 0 and below 1"),
        ({"error": 1.0}, "above 0 and below 1"),
        ({"error": "much"}, "above 0 and below 1"),
        ({"model": "tree"}, "must be one of 'neighbors', 'forest'"),
        ({"model": LinearRegression()}, "must be a classifier"),
        ({"model": RandomForestClassifier}, "must be a model with a fit method"),
        ({"model": "logistic", "y": X[:, 0]}, "'y' holds numbers"),
        ({"y": X[:, 0] * 1e150}, "numbers of at most 1e\\+100"),
        ({"task": "number"}, "must hold numbers to predict"),
        ({"task": "classes"}, "'task' parameter"),
        ({"X_val": X}, "belong together"),
        ({"X_val": X, "y_val": np.full(150, "dog")}, "No label of 'y_val'"),
        ({"X_val": X[:, :1], "y_val": Y}, "must have the 2 features"),
        ({"y": np.full((150, 2), 2)}, "0 or 1 for each row and label. Got 2 at row 0"),
        ({"y": np.zeros((149, 2))}, "each of the 150 rows"),
        ({"y": [["a"]] * 149 + [None]}, "an empty list says"),
        ({"y": [["a"]] * 149}, "each of the 150 rows"),
        ({"y": [["a"], ["b"]] * 74 + [["a"], [None]]}, "missing label in the list of row 149"),
        ({"y": pd.DataFrame(np.eye(150, 2), columns=["a", "a"])}, "a column name more than once"),
        ({"X": np.array([["x", None]] * 150, dtype=object)}, "Leave it out: drop the column"),
        ({"random_state": -1}, "random_state"),
    ],
    ids=lambda part: "" if isinstance(part, dict) else part[:24],
)
@pytest.mark.filterwarnings("ignore:.*never seen in training")
def test_errors_say_what_to_do(change: dict[str, Any], says: str) -> None:
    arguments: dict[str, Any] = {"X": X, "y": Y} | change
    with pytest.raises(ValueError, match=says):
        find_suspects(arguments.pop("X"), arguments.pop("y"), **arguments)


def test_the_table_of_classes_and_its_notes() -> None:
    rows = FOUND.class_rows()
    assert [one["label"] for one in rows] == ["ant", "bee", "cat"]
    assert sum(one["flagged"] for one in rows) == FOUND.flagged.sum()
    assert [one["rows"] for one in rows] == [int((one["label"] == Y).sum()) for one in rows]
    assert list(FOUND.class_frame("pyarrow").column_names) == ["label", "rows", "flagged", "share"]
    table = {"label": np.array(["a", "b"]), "rows": np.array([900, 100]), "flagged": np.array([9, 40])}
    (note,) = find._class_notes(table | {"share": table["flagged"] / table["rows"]})
    assert "class 'b' is flagged far more often" in note
    assert "40% of its 100 rows, 1.0% of all others" in note
    for few in (1, 2):
        part = {"label": table["label"], "rows": np.array([990, 10]), "flagged": np.array([few, few])}
        (note,) = find._class_notes(part | {"share": np.zeros(2)})
        assert f"{few} of {2 * few} flagged rows" in note
        assert "of class 'b', which has 1.0% of all rows" in note
    even = {"label": np.arange(20), "rows": np.full(20, 50), "flagged": (np.arange(20) == 3).astype(int)}
    assert find._class_notes(even | {"share": even["flagged"] / 50}) == []
    table["flagged"] = np.array([9, 2])
    assert find._class_notes(table | {"share": table["flagged"] / table["rows"]}) == []


def test_a_rare_class_with_right_labels_is_not_condemned() -> None:
    rng = np.random.default_rng(8)
    codes = (np.arange(400) < 20).astype(int)
    rows = rng.normal(size=(400, 3)) + 3 * codes[:, None]
    found = find_suspects(rows, codes)
    assert found.flagged[codes == 1].mean() <= 0.1
    assert find_suspects(rows[:395], [*codes[:394], 2]).notes[-1].startswith("classes with fewer than 10 rows: 2")


@pytest.mark.parametrize("seed", range(4))
def test_a_class_that_features_do_not_know_is_not_flagged(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, codes = rng.normal(size=(300, 3)), (np.arange(300) < 15).astype(int)
    found = find_suspects(rows, codes)
    assert not found.flagged.any()
    assert any("The features do not predict the label" in note for note in found.notes)


def test_who_knows_a_class_by_the_definition() -> None:
    rng = np.random.default_rng(11)
    codes = np.repeat([0, 1, 2], [30, 10, 20]).astype(np.int32)
    votes = rng.random((60, 3)) + np.eye(3)[codes] * [0.5, 0.0, 0.2]
    kept, unknown = find._spared(np.full(60, 0.8), votes, codes)
    for k in range(3):
        mine, others = votes[codes == k, k], votes[codes != k, k]
        wins = np.sum(mine[:, None] > others[None, :]) / mine.size / others.size
        deviation = np.sqrt(61 / 12 / mine.size / others.size)
        assert (k in unknown) == (wins < 0.5 + 2 * deviation)
        assert set(kept[codes == k]) == {0.4 if k in unknown else 0.8}
    assert set(unknown.tolist()) == {1, 2} or set(unknown.tolist()) == {1}


@pytest.mark.parametrize(("least", "said"), [(0.996, "0.99 or more"), (0.7, "0.70 or more"), (1.0, "1")])
def test_the_lowest_probability_of_flagged_rows_is_said_in_plain_words(least: float, said: str) -> None:
    certain = replace(FOUND, probability=np.where(FOUND.flagged, least, 0.1))
    assert f"flagged, with a probability of {said} each: " in certain.findings()[1]


def test_nothing_flagged_is_said() -> None:
    rng = np.random.default_rng(9)
    found = find_suspects(rng.normal(size=(60, 2)), np.arange(60) % 2, error=0.001)
    assert not found.flagged.any()
    assert found.expected_error == 0
    assert np.isnan(found.cutoff)
    assert "No row is flagged" in found.summary()
    assert ("a larger error" in found.summary()) == (found.probability.max() > 0.5)
    assert "harm" not in found.summary() + FOUND.summary()


@pytest.mark.parametrize("which", ["class", "set"])
def test_results_come_back_from_a_file(which: str, tmp_path: Path) -> None:
    found = FOUND if which == "class" else find_suspects(*tagged())
    found.save(tmp_path / "found.npz")
    again = Suspects.load(tmp_path / "found.npz")
    assert again.to_frame("pyarrow").equals(found.to_frame("pyarrow"))
    assert again.label.tolist() == found.label.tolist()
    assert again.class_rows() == found.class_rows()
    assert again.summary() == found.summary()
    assert (again.error, again.expected_error) == (found.error, found.expected_error)
    assert again.parameters == found.parameters


def test_markup_in_data_is_escaped_in_notebooks() -> None:
    names = np.where(Y == "ant", "<script>alert(1)</script>", Y)
    shown = find_suspects(X, names, ids=[f"<b>{i}" for i in range(150)])._repr_html_()
    assert "<script" not in shown
    assert "<b>" not in shown
    assert "&lt;script&gt;" in shown


# The command line.


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    table = pa.table({"row": [f"r{i}" for i in range(150)], "size": X[:, 0], "weight": X[:, 1], "kind": Y})
    pacsv.write_csv(table, "table.csv")
    rows, tags = tagged()
    features = {"size": rows[:, 0], "weight": rows[:, 1]}
    pacsv.write_csv(pa.table(features | {name: tags[name].to_numpy() for name in tags}), "tags.csv")
    lists = [[name for name in tags if row[name]] for _, row in tags.iterrows()]
    pq.write_table(pa.table(features | {"tags": lists}), "tags.parquet")
    return tmp_path


def written(path: Path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8-sig") as file:
        return list(csv.DictReader(file))


SUSPECTS = ("suspects", "table.csv", "--label", "kind", "--id", "row")


def test_the_command_is_the_library_s(here: Path) -> None:
    ran = run(*SUSPECTS)
    assert ran.code == 0, ran.err
    lines = written(here / "shapshift-suspects" / "suspects.csv")
    assert list(lines[0]) == COLUMNS
    assert [line["id"] for line in lines] == [f"r{i}" for i in range(150)]
    np.testing.assert_allclose([float(line["probability"]) for line in lines], FOUND.probability, atol=1e-9)
    assert [line["suggested"] for line in lines] == FOUND.suggested.tolist()
    assert [line["id"] for line in lines if line["flagged"] == "True"] == [f"r{i}" for i in WRONG]
    loaded = Suspects.load(here / "shapshift-suspects" / "suspects.npz")
    assert loaded.flagged.tolist() == FOUND.flagged.tolist()
    for said in ("4 rows are flagged", "Rows to act on first", "r120", "By class", "shapshift clean table.csv"):
        assert said in ran.out
    assert run(*SUSPECTS).code == 3
    assert run(*SUSPECTS, "--force", "--error", "0.3", "--model", "logistic").code == 0
    again = run("rerun", "shapshift-suspects", "--out", "again")
    assert again.code == 0, again.err
    assert "Identical" in again.out


def test_the_command_in_json_and_with_checked_rows(here: Path) -> None:
    ran = run(*SUSPECTS, "--val", "table.csv", "--json")
    assert ran.code == 0, ran.err
    result = ran.document["result"]
    assert result["rows"] == 150
    assert {one["label"] for one in result["classes"]} == {"ant", "bee", "cat"}
    assert any("among the validation rows: 150." in note for note in result["notes"])


@pytest.mark.parametrize("source", [("tags.csv", "warm,tall,old"), ("tags.parquet", "tags")], ids=lambda s: s[0])
def test_label_sets_from_files(source: tuple[str, str], here: Path) -> None:
    rows, tags = tagged()
    found = find_suspects(rows, tags)
    ran = run("suspects", source[0], "--label", source[1], "--out", "out")
    assert ran.code == 0, ran.err
    lines = written(here / "out" / "suspects.csv")
    np.testing.assert_allclose([float(line["probability"]) for line in lines], found.probability, atol=1e-9)
    assert {frozenset(filter(None, line["label"].split(", "))) for line in lines} == set(map(frozenset, found.label))
    assert "3 labels" in ran.err


def test_numbers_from_files(here: Path) -> None:
    ran = run("suspects", "table.csv", "--label", "size", "--drop", "row,kind", "--out", "out")
    assert ran.code == 0, ran.err
    assert "targets" in ran.out
    refused = run("suspects", "table.csv", "--label", "size", "--drop", "row,kind", "--task", "class", "--out", "o")
    assert refused.code == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("table.csv",), "--label must name the column"),
        (("table.csv", "--label", "sort"), "'sort' is not a column"),
        (("table.csv", "--label", "kind,sort"), "'sort' is not a column"),
        (("table.csv", "--label", "size,weight", "--drop", "row"), "must be 0 or 1 in each row"),
        (("table.csv", "--label", "kind", "--error", "1"), "--error must be above 0 and below 1"),
        (("table.csv", "--label", "kind", "--drop", "row", "--task", "set"), "must hold a list of labels"),
        (("tags.csv", "--label", "warm", "--model", "logistic", "--task", "number"), "--model logistic is for classes"),
        (("none.csv", "--label", "kind"), "none.csv"),
    ],
    ids=lambda part: part[:24] if isinstance(part, str) else "",
)
def test_errors_of_the_command(arguments: tuple[str, ...], says: str, here: Path) -> None:
    ran = run("suspects", *arguments)
    assert ran.code == 2, ran.out
    assert says in ran.err
    assert not (here / "shapshift-suspects").exists()


def test_markup_in_data_stays_text(here: Path) -> None:
    names = np.where(Y == "ant", "[red]x[/red]\x1b[31m", Y)
    pq.write_table(pa.table({"size": X[:, 0], "weight": X[:, 1], "kind": names}), "table.parquet")
    ran = run("suspects", "table.parquet", "--label", "kind")
    assert ran.code == 0, ran.err
    assert "[red]x[/red]\\x1b" in ran.out
    assert "\x1b" not in ran.out + ran.err


def test_the_next_step_has_the_options_that_were_given(here: Path) -> None:
    (here / "my table.csv").write_text((here / "table.csv").read_text().replace("weight", "body weight"))
    options = ("my table.csv", "--label", "kind", "--id", "row", "--drop", "body weight", "--impute", "median")
    ran = run("suspects", *options)
    assert ran.code == 0, ran.err
    (line,) = [line for line in ran.out.splitlines() if "shapshift clean" in line]
    words = shlex.split(line)
    assert words == ["shapshift", "clean", *options]
    assert run(*words[1:], "--models", "none").code == 0


def test_many_classes_are_cut_and_counted() -> None:
    codes = np.arange(240) % 12
    rows = np.random.default_rng(0).normal(size=(240, 2)) * 0.1 + np.column_stack([codes % 4, codes // 4])
    codes[:2] = 5
    found = find_suspects(rows, codes, model="neighbors", task="class")
    lines = [line for line in found.summary().splitlines() if line.startswith("Class ")]
    assert len(lines) == 10
    assert lines[0].startswith("Class 5:")
    assert "2 more classes" in found.summary()


def test_numbers_as_classes_name_an_option_that_the_command_has(here: Path) -> None:
    table = pa.table({"a": X[:, 0], "b": np.full(150, 2**60) + np.arange(150), "y": np.arange(150) % 25})
    pq.write_table(table, "t.parquet")
    ran = run("suspects", "t.parquet", "--label", "y", "--model", "neighbors")
    assert ran.code == 0, ran.err
    assert "--task number" in ran.err
    assert "--method" not in ran.err
    assert "(300 entries)" not in ran.err
