"""Decisions about suspect rows: kept, replayed, applied to every kind of table, and what they change."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import balanced_accuracy_score, r2_score, recall_score
from sklearn.neighbors import KNeighborsClassifier

from shapshift import Decisions, find_suspects, measure_cleaning
from shapshift.cleaning.decisions import COLUMNS, row_hashes
from shapshift.cleaning.effect import _cross_parts, _number_copies, class_notes
from shapshift.exceptions import InputError
from shapshift.suspects.result import Suspects

TABLE = {"size": [1.5, 2.0, 3.25, 4.0], "code": ["007", "=1+1", "é", "x"], "count": [1, 2, 3, 4]}
LABELS = ["a", "b", "b", "a"]
KINDS = {
    "pandas": lambda: (pd.DataFrame(TABLE), pd.Series(LABELS, name="y")),
    "categorical": lambda: (pd.DataFrame(TABLE), pd.Series(LABELS, dtype="category")),
    "polars": lambda: (pl.DataFrame(TABLE), pl.Series("y", LABELS)),
    "pyarrow": lambda: (pa.table(TABLE), pa.chunked_array([LABELS])),
    "numpy": lambda: (np.array([TABLE["size"], TABLE["count"]]).T, np.array(LABELS)),
    "images": lambda: (np.arange(24.0).reshape(4, 2, 3), np.array(LABELS, dtype=object)),
    "list": lambda: ([[1.5, 1], [2.0, 2], [3.25, 3], [4.0, 4]], list(LABELS)),
    "sparse": lambda: (sparse.csr_array(np.eye(4)), np.array(LABELS)),
}


def rows_of(X: Any) -> list[Any]:
    if sparse.issparse(X):
        return X.toarray().tolist()
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    return (
        [list(row) for row in frame.rows()] if isinstance(frame, nw.DataFrame) else [np.asarray(r).tolist() for r in X]
    )


def labels_of(y: Any) -> list[Any]:
    series = nw.from_native(y, allow_series=True, pass_through=True)
    return series.to_list() if isinstance(series, nw.Series) else list(np.asarray(y, dtype=object))


def three(X: Any, y: Any) -> Decisions:
    return Decisions.of(
        X,
        y,
        ids=[0, 2, 3],
        actions=["drop", "relabel", "weight"],
        labels=[None, "a", None],
        weights=[np.nan, np.nan, 0.25],
        probabilities=[0.9, 0.8, 0.75],
        reasons=["neighbours disagree", "", "outlier"],
    )


@pytest.mark.parametrize("kind", KINDS)
def test_tables_of_every_kind_keep_it(kind: str, tmp_path: Path) -> None:
    X, y = KINDS[kind]()
    before = rows_of(X)
    decisions = three(X, y)
    decisions.to_csv(tmp_path / "decisions.csv")
    for each in (decisions, Decisions.read_csv(tmp_path / "decisions.csv")):
        X_clean, y_clean, weights = each.apply(X, y)
        assert type(X_clean) is type(X)
        assert type(y_clean) is type(y)
        assert rows_of(X_clean) == before[1:]
        assert rows_of(X) == before
        assert labels_of(y_clean) == ["b", "a", "a"]
        assert labels_of(y) == LABELS
        assert weights.tolist() == [1.0, 1.0, 0.25]
        for old, new in ((X, X_clean), (y, y_clean)):
            assert (
                getattr(old, "dtypes", None) is None or list(old.dtypes) == list(new.dtypes)
                if hasattr(old, "columns")
                else True
            )
            assert str(getattr(old, "dtype", "")) == str(getattr(new, "dtype", ""))
    if kind == "pandas":
        assert X_clean.index.tolist() == [1, 2, 3] == y_clean.index.tolist()
        assert y_clean.name == "y"
    if kind == "pyarrow":
        assert X_clean.schema == X.schema


def test_nothing_changes_without_decisions() -> None:
    X, y = KINDS["pandas"]()
    none = Decisions.of(X, y, ids=[], actions=[])
    X_clean, y_clean, weights = none.apply(X, y)
    pd.testing.assert_frame_equal(X_clean, X)
    pd.testing.assert_series_equal(y_clean, y)
    assert weights.tolist() == [1.0] * 4
    assert len(none) == 0
    assert len(none.to_frame()) == 0
    assert three(X, y).to_frame("pandas").columns.tolist() == list(COLUMNS)
    assert repr(three(X, y)) == "Decisions(drop=1, relabel=1, weight=1)"


def test_the_content_of_a_row_does_not_depend_on_the_kind_of_table() -> None:
    tables = [pd.DataFrame(TABLE), pl.DataFrame(TABLE), pa.table(TABLE), pd.DataFrame(TABLE).astype({"count": float})]
    found = [row_hashes(X, np.array(LABELS), [0, 1, 2, 3]) for X in tables]
    assert found[0] == found[1] == found[2] == found[3]
    assert len(set(found[0])) == 4
    assert row_hashes(tables[0], np.array(LABELS), [2, 0]) == [found[0][2], found[0][0]]
    empty = pd.DataFrame({"a": [None, 1.0], "b": ["", "x"]})
    filled = pl.DataFrame({"a": [None, 1], "b": [None, "x"]})
    assert row_hashes(empty, np.array([0, 1]), [0, 1]) == row_hashes(filled, np.array([0, 1]), [0, 1])
    # No two different rows look alike because of how they are put together.
    joined = pd.DataFrame({"a": ["x', 'y", "x"], "b": ["z", "y', 'z"]})
    assert len(set(row_hashes(joined, np.array(["l", "l"]), [0, 1]))) == 2


@pytest.mark.parametrize("change", ["feature", "label", "order"])
def test_a_row_that_has_changed_since_is_refused(change: str, tmp_path: Path) -> None:
    X, y = KINDS["pandas"]()
    three(X, y).to_csv(tmp_path / "d.csv")
    decisions = Decisions.read_csv(tmp_path / "d.csv")
    if change == "feature":
        X.loc[2, "size"] += 0.01
    elif change == "label":
        y[2] = "a"
    else:
        X, y = X[["code", "size", "count"]], y
    with pytest.raises(InputError, match=r"Line \d of '.*d.csv', column 'row': .* has changed since this decision"):
        decisions.apply(X, y)
    loose = Decisions(("2",), ("drop",), ("",), (np.nan,), (np.nan,), ("",), ("",))
    assert len(loose.apply(X, y)[0]) == 3


def test_the_last_decision_about_a_row_counts() -> None:
    X, y = KINDS["numpy"]()
    log = Decisions.of(
        X,
        y,
        ids=[1, 2, "1", 2, 3],
        actions=["drop", "drop", "weight", "keep", "relabel"],
        labels=[None] * 4 + ["b"],
        weights=[np.nan, np.nan, 0.5, np.nan, np.nan],
    )
    X_clean, y_clean, weights = log.apply(X, y)
    assert len(X_clean) == 4
    assert y_clean.tolist() == ["a", "b", "b", "b"]
    assert weights.tolist() == [1, 0.5, 1, 1]
    assert log.effective().ids == ("1", 2, 3)
    assert log.effective().actions == ("weight", "keep", "relabel")


def test_text_survives_the_file_and_no_spreadsheet_runs_it(tmp_path: Path) -> None:
    ids = [
        "=cmd|' /C calc'!A0",
        "'=1+1",
        "''=x",
        "-1",
        "+a",
        "@x",
        "it's",
        " lead",
        "a\nb",
        'q"uo,te',
        "é\u202e",
        "007",
        "-2-3",
    ]
    X, y = np.arange(float(len(ids)))[:, None], np.array(ids)
    decisions = Decisions.of(X, y, ids=ids, actions=["relabel"] * len(ids), labels=ids[::-1], table_ids=ids)
    decisions.to_csv(tmp_path / "one.csv")
    again = Decisions.read_csv(tmp_path / "one.csv")
    assert list(again.ids) == ids
    assert list(again.labels) == ids[::-1]
    assert again.rows == decisions.rows
    again.to_csv(tmp_path / "two.csv")
    assert (tmp_path / "one.csv").read_bytes() == (tmp_path / "two.csv").read_bytes()
    cells = pd.read_csv(tmp_path / "one.csv", dtype=str, keep_default_na=False)["id"].tolist()
    assert not [cell for cell in cells if cell[0] in "=+-@\t\r" and cell != "-1"]
    assert again.apply(X, y, ids=ids)[1].tolist() == ids[::-1]


def test_a_file_that_a_spreadsheet_has_saved_is_read(tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    path.write_text(
        "note;id;action;label;weight;probability;reason;row\r\n;3;weight;;0,25;0,5;;\r\nmine;0;drop;;;;x;\r\n\r\n",
        encoding="cp1252",
    )
    found = Decisions.read_csv(path)
    assert found.ids == ("3", "0")
    assert found.weights[0] == 0.25
    assert found.probabilities[0] == 0.5
    assert found.places == (f"Line 2 of {str(path)!r}", f"Line 3 of {str(path)!r}")


HEADER = ",".join(COLUMNS)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([HEADER, "0,destroy,,,,,"], "Line 2 of .* column 'action', must be one of 'keep', .* Got 'destroy'"),
        ([HEADER, "0,drop,,,,,", "1,weight,,-1,,,"], "Line 3 of .* column 'weight', must be a number from 0"),
        ([HEADER, "1,weight,,nan,,,"], "Line 2 .* column 'weight'.* Got 'nan'"),
        ([HEADER, "1,weight,,inf,,,"], "column 'weight'"),
        ([HEADER, "1,weight,,1e300,,,"], "column 'weight'"),
        ([HEADER, "1,weight,,,,,"], "column 'weight'"),
        ([HEADER, "1,weight,,much,,,"], "column 'weight'.* Got 'much'"),
        ([HEADER, "1,relabel,,,,,"], "column 'label', must be the new label"),
        ([HEADER, "1,drop,,,2,,"], "column 'probability', must be a number from 0 to 1"),
        ([HEADER, ",drop,,,,,"], "column 'id', must name a row"),
        ([HEADER, "1,drop,,,,,zz"], "column 'row', must be 'h' and the 16 hexadecimal digits"),
        ([HEADER, "1,drop,,,,"], "Line 2 of .* has 6 fields, but the header has 7"),
        ([HEADER, '1,drop,,,,"x,'], "quotation mark"),
        (["id,action", "1,drop"], "Line 1 of .* lacks the columns 'label', 'weight', .* Expected id, action"),
        ([f"{HEADER},id", "1,drop,,,,,,1"], "has 'id' more than once"),
        (["", ""], "is empty"),
    ],
)
def test_hostile_lists_are_refused_with_their_line(lines: list[str], said: str, tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(InputError, match=said):
        Decisions.read_csv(path)


def test_a_list_is_one_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Decisions.read_csv(tmp_path / "none.csv")
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text(HEADER)
    with pytest.raises(InputError, match="one file"):
        Decisions.read_csv(tmp_path / "*.csv")


def test_decisions_about_other_rows_are_refused_and_nothing_is_applied(tmp_path: Path) -> None:
    X, y = KINDS["numpy"]()
    (tmp_path / "d.csv").write_text(f"{HEADER}\n0,drop,,,,,\n9,drop,,,,,\n17,drop,,,,,\n")
    with pytest.raises(InputError, match=r"Line 3 of .* no row '9'; 2 decisions name such rows: '9', '17'"):
        Decisions.read_csv(tmp_path / "d.csv").apply(X, y)
    with pytest.raises(InputError, match="several rows 1, so it is not clear"):
        Decisions.of(X, y, ids=[1], actions=["drop"], table_ids=[0, 1, "1", 2])
    with pytest.raises(InputError, match="one entry per decision"):
        Decisions((1, 2), ("drop",), (None,), (1.0,), (1.0,), ("",), ("",))


def test_a_class_does_not_lose_its_last_row_unless_told() -> None:
    X, y = np.arange(4.0)[:, None], np.array(["a", "b", "b", "c"])
    for actions, weights in ((["drop", "drop"], [1, 1]), (["weight", "weight"], [0, 0]), (["relabel", "drop"], [1, 1])):
        decisions = Decisions.of(X, y, ids=[1, 2], actions=actions, weights=weights, labels=["a", None])
        with pytest.raises(InputError, match=r"no row of the class 'b'.*lose_classes=True"):
            decisions.apply(X, y)
        assert len(decisions.apply(X, y, lose_classes=True)[1]) == 4 - actions.count("drop")
    everything = Decisions.of(X, y, ids=[0, 1, 2, 3], actions=["drop"] * 4)
    with pytest.raises(InputError, match="drop every row"):
        everything.apply(X, y, lose_classes=True)
    with pytest.raises(InputError, match="no row with a weight above 0"):
        Decisions.of(X, y, ids=range(4), actions=["weight"] * 4, weights=[0.0] * 4).apply(X, y, lose_classes=True)
    numbers = np.array([0.5, 1.5, 2.5, 3.5])
    assert Decisions.of(X, numbers, ids=[1], actions=["drop"]).apply(X, numbers)[1].tolist() == [0.5, 2.5, 3.5]
    whole = np.array([1, 2, 3, 4])
    drop = Decisions.of(X, whole, ids=[1], actions=["drop"])
    assert drop.apply(X, whole, task="number")[1].tolist() == [1, 3, 4]
    with pytest.raises(InputError, match="the class 2"):
        drop.apply(X, whole)


def test_one_row() -> None:
    X, y = np.ones((1, 1)), np.array(["a"])
    assert Decisions.of(X, y, ids=[0], actions=["weight"], weights=[0.5]).apply(X, y)[2].tolist() == [0.5]
    with pytest.raises(InputError, match="drop every row"):
        Decisions.of(X, y, ids=[0], actions=["drop"]).apply(X, y)


@pytest.mark.parametrize(
    ("labels", "new", "expected"),
    [
        ([1, 2, 2], "1", 1),
        ([1, 2, 2], "7", 7),
        ([0.5, 1.25, 3.0], "1.75", 1.75),
        (["x", "y", "y"], "quite long", "quite long"),
        ([True, False, True], "False", False),
        ([1, 2, 2], "x", None),
        ([1, 2, 2], "1.5", None),
        ([0.5, 1.25, 3.0], "nan", None),
    ],
)
def test_new_labels_are_read_as_the_table_has_them(labels: list[Any], new: str, expected: Any) -> None:
    X = np.arange(3.0)[:, None]
    decisions = Decisions.of(X, labels, ids=[2], actions=["relabel"], labels=[new])
    if expected is None:
        with pytest.raises(
            InputError, match=r"column 'label', must be (one of the labels of the table|a whole number)"
        ):
            decisions.apply(X, np.array(labels), lose_classes=True, new_classes=True)
        return
    found = decisions.apply(X, np.array(labels), lose_classes=True, new_classes=True)[1].tolist()
    assert found == [*labels[:2], expected]
    assert type(found[2]) is type(labels[0])


def blobs(n: int, seed: int = 0, rare: float = 0.5) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < rare).astype(int)
    return rng.normal(size=(n, 3)) + 3.0 * y[:, None], np.array(["no", "yes"])[y]


@pytest.mark.parametrize("action", ["drop", "relabel", "weight"])
def test_decisions_are_made_of_suspects(action: str) -> None:
    X, given = blobs(20)
    ids = [f"r{i}" for i in range(20)]
    flagged = np.isin(np.arange(20), [2, 3, 11])
    found = Suspects(
        ids=np.array(ids),
        label=given,
        suggested=np.where(given == "no", "yes", "no"),
        probability=np.linspace(0, 1, 20),
        reason=np.where(flagged, "neighbours disagree", ""),
        flagged=flagged,
        error=0.1,
        expected_error=0.05,
        classes={},
        parameters={"task": "class"},
    )
    decisions = Decisions.from_suspects(found, X, given, action=action)
    at = np.flatnonzero(found.flagged)
    assert list(decisions.ids) == [ids[i] for i in at]
    assert set(decisions.actions) == {action}
    assert decisions.probabilities == tuple(found.probability[at].tolist())
    _, y_clean, weights = decisions.apply(X, given, ids=ids)
    if action == "drop":
        assert y_clean.tolist() == given[~found.flagged].tolist()
    elif action == "relabel":
        assert y_clean.tolist() == np.where(found.flagged, found.suggested, given).tolist()
    else:
        assert weights.tolist() == np.where(found.flagged, 1 - found.probability, 1.0).tolist()
    with pytest.raises(InputError, match="must hold the 20 rows"):
        Decisions.from_suspects(found, X[1:], given[1:])
    with pytest.raises(InputError, match="'action' parameter"):
        Decisions.from_suspects(found, X, given, action="keep")
    with pytest.raises(InputError, match="label sets"):
        Decisions.from_suspects(SimpleNamespace(parameters={"task": "set"}), X, given)


def drop(X: Any, y: Any, rows: Any, **more: Any) -> Decisions:
    return Decisions.of(X, y, ids=list(rows), actions=["drop"] * len(rows), **more)


def test_the_effect_is_that_of_models_fitted_by_hand() -> None:
    (X, y), (X_test, y_test) = blobs(80, rare=0.3), blobs(60, 1, rare=0.3)
    decisions = drop(X, y, range(10))
    found = measure_cleaning(decisions, X, y, X_test, y_test, LogisticRegression(), repeats=2)
    for what, rows in (("before", slice(0, None)), ("after", slice(10, None))):
        guess = LogisticRegression().fit(X[rows], y[rows]).predict(X_test)
        for measure, expected in (
            ("balanced accuracy", balanced_accuracy_score(y_test, guess)),
            ("minority recall", recall_score(y_test, guess, pos_label="yes")),
        ):
            value, low, high = found.value("LogisticRegression", measure, what)
            assert value == pytest.approx(expected)
            assert low <= value <= high
    change = found.value("LogisticRegression", "balanced accuracy", "after - before")[0]
    after, before = (found.value("LogisticRegression", "balanced accuracy", what)[0] for what in ("after", "before"))
    assert change == pytest.approx(after - before)
    assert found.held_out == "test rows"
    assert found.class_frame("pandas")["dropped"].sum() == 10
    frame = found.to_frame("pandas")
    assert frame.columns.tolist() == ["model", "measure", "what", "value", "low", "high"]
    assert len(frame) == 10
    again = measure_cleaning(decisions, X, y, X_test, y_test, LogisticRegression(), repeats=2)
    pd.testing.assert_frame_equal(again.to_frame("pandas"), frame)


def test_numbers_are_judged_by_r2() -> None:
    rng = np.random.default_rng(0)
    X, X_test = rng.normal(size=(60, 2)), rng.normal(size=(50, 2))
    y, y_test = X @ [1, 2] + rng.normal(size=60), X_test @ [1, 2] + rng.normal(size=50)
    y[:5] += 20
    found = measure_cleaning(drop(X, y, range(5)), X, y, X_test, y_test, ["forest", LinearRegression()], repeats=2)
    guess = LinearRegression().fit(X[5:], y[5:]).predict(X_test)
    assert found.value("LinearRegression", "r2", "after")[0] == pytest.approx(r2_score(y_test, guess))
    assert found.value("LinearRegression", "r2", "after - before")[1] > 0
    assert dict(found.classes) == {}
    assert set(found.effect["measure"]) == {"r2"}


def test_intervals_have_the_width_of_the_sampling_error() -> None:
    """Of a recall over n rows with one model, the bootstrap has the binomial standard error."""
    (X, y), (X_test, y_test) = blobs(100), blobs(400, 1)
    X_test = X_test + np.random.default_rng(2).normal(size=X_test.shape) * 3
    found = measure_cleaning(drop(X, y, [0]), X, y, X_test, y_test, LogisticRegression(), repeats=1)
    _, low, high = found.value("LogisticRegression", "balanced accuracy", "before")
    guess = LogisticRegression().fit(X, y).predict(X_test)
    recalls = [float((guess[y_test == name] == name).mean()) for name in ("no", "yes")]
    errors = [p * (1 - p) / int((y_test == name).sum()) for p, name in zip(recalls, ("no", "yes"), strict=True)]
    assert (high - low) / (2 * 1.96) == pytest.approx(np.sqrt(sum(errors)) / 2, rel=0.1)


class Spy(ClassifierMixin, BaseEstimator):
    """Remembers what it was fitted on and what it predicted."""

    seen: ClassVar[list[tuple[list[float], list[float] | None, list[float]]]] = []

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Spy:
        self.classes_ = np.unique(y)
        self.fitted_ = X[:, 0].tolist(), None if sample_weight is None else sample_weight.tolist()
        return self

    def predict(self, X: Any) -> Any:
        Spy.seen.append((*self.fitted_, X[:, 0].tolist()))
        return np.full(len(X), self.classes_[0])


def test_random_removal_takes_as_many_rows_and_weights_reach_the_model() -> None:
    X, y = np.arange(30.0)[:, None], np.array(["a", "b"] * 15)
    actions = ["drop", "relabel", "weight"]
    decisions = Decisions.of(X, y, ids=[1, 2, 3], actions=actions, labels=["", "b", ""], weights=[1, 1, 0.5])
    Spy.seen = []
    measure_cleaning(decisions, X, y, X[:4], y[:4], Spy(), repeats=3)
    assert len(Spy.seen) == 9
    removed = []
    for before, after, random in zip(Spy.seen[0::3], Spy.seen[1::3], Spy.seen[2::3], strict=True):
        assert before[0] == X[:, 0].tolist()
        assert before[1] is None
        assert after[0] == [0.0, *X[2:, 0].tolist()]
        assert after[1] == [1.0, 1.0, 0.5, *[1.0] * 26]
        assert len(random[0]) == 27
        assert random[1] is None
        removed.append(tuple(sorted(set(before[0]) - set(random[0]))))
    assert len(set(removed)) == 3
    with pytest.raises(InputError, match="takes no sample_weight"):
        measure_cleaning(decisions, X, y, X[:4], y[:4], KNeighborsClassifier(), repeats=1)


def test_cross_validation_never_sees_the_held_out_rows() -> None:
    X, y = np.arange(40.0)[:, None], np.array(["a", "b"] * 20)
    asked: list[list[float]] = []

    def find(part: Any, labels: Any, ids: Any) -> Decisions:
        assert ids.tolist() == [f"r{int(x)}" for x in part[:, 0]]
        assert labels.tolist() == [y[int(x)] for x in part[:, 0]]
        asked.append(part[:, 0].tolist())
        return drop(part, labels, ids[:2], table_ids=ids)

    Spy.seen = []
    ids = [f"r{i}" for i in range(40)]
    found = measure_cleaning(drop(X, y, ids[:2], table_ids=ids), X, y, models=Spy(), find=find, ids=ids, repeats=2)
    assert found.held_out == "cross-validation"
    assert len(asked) == 10
    assert len(Spy.seen) == 30
    held: list[float] = []
    for number, (rows, _, judged) in enumerate(Spy.seen):
        assert not set(rows) & set(judged)
        assert set(rows) <= set(asked[number // 3])
        assert sorted(asked[number // 3] + judged) == X[:, 0].tolist()
        held += judged if number % 3 == 0 else []
    assert sorted(held) == sorted(X[:, 0].tolist() * 2)
    with pytest.raises(InputError, match="'find' parameter of measure_cleaning"):
        measure_cleaning(drop(X, y, [0]), X, y, models=Spy())


def test_notes_name_a_condemned_class_and_a_worse_model() -> None:
    (X, y), (X_test, y_test) = blobs(300, rare=0.15), blobs(300, 1, rare=0.15)
    rare = np.flatnonzero(y == "yes")
    found = measure_cleaning(drop(X, y, rare[1:]), X, y, X_test, y_test, ["logistic"], repeats=2)
    assert any("Class 'yes' loses" in note for note in found.notes)
    assert any("is lower than after random removal" in note for note in found.notes)
    fair = measure_cleaning(drop(X, y, range(0, 300, 10)), X, y, X_test, y_test, ["logistic"], repeats=2)
    assert fair.notes == ()
    table = {"label": np.array(["a", "b"]), "rows": np.array([3, 97]), "dropped": np.array([1, 4])}
    assert class_notes({**table, "relabelled": np.zeros(2, int)}) == []  # one of three is chance


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"models": []}, "at least one model"),
        ({"models": "svm"}, "'models' parameter"),
        ({"models": LinearRegression()}, "take|must"),
        ({"models": LogisticRegression}, "estimators with fit"),
        ({"models": [LinearRegression(), LogisticRegression()]}, "classifiers only"),
        ({"task": "number"}, "must hold numbers to predict"),
        ({"task": "set"}, "'task' parameter"),
        ({"repeats": 0}, "'repeats' parameter"),
        ({"y_test": None}, "go together"),
        ({"decisions": [1]}, "'decisions' parameter"),
    ],
)
def test_wrong_arguments_are_refused(change: dict[str, Any], said: str) -> None:
    X, y = blobs(30)
    given = {"decisions": drop(X, y, [0]), "X": X, "y": y, "X_test": X, "y_test": y, "models": "logistic", **change}
    with pytest.raises(InputError, match=said):
        measure_cleaning(**given)


def test_models_that_cannot_be_fitted_are_named() -> None:
    X, y = pd.DataFrame({"a": ["x", "y"] * 10}), np.array([0, 1] * 10)
    with pytest.raises(InputError, match="The model 'logistic' of measure_cleaning cannot be fitted"):
        measure_cleaning(drop(X, y, [0]), X, y, X, y, "logistic", repeats=1)


def test_a_class_that_is_lost_and_labels_never_trained_on_are_misses() -> None:
    X, y = np.arange(10.0)[:, None], np.array(["a"] * 9 + ["b"])
    X_test, y_test = np.array([[0.0], [9.0], [5.0]]), np.array(["a", "b", "new"])
    found = measure_cleaning(drop(X, y, [9]), X, y, X_test, y_test, "logistic", repeats=1, lose_classes=True)
    assert found.value("logistic", "balanced accuracy", "after")[0] == pytest.approx(1 / 3)
    assert found.value("logistic", "minority recall", "after")[0] == 0


def prices() -> tuple[Any, Any]:
    """Whole numbers that nearly all differ; three of them are far too high."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(120, 2))
    y = np.rint(300_000 + 200_000 * X[:, 0] + rng.normal(size=120) * 3000).astype(int)
    y[[5, 50, 90]] += 900_000
    return X, y


@pytest.mark.parametrize("action", ["drop", "relabel", "weight"])
def test_decisions_take_labels_for_what_suspects_took_them_for(action: str, tmp_path: Path) -> None:
    X, y = prices()
    found = find_suspects(X, y, model="neighbors")
    decisions = Decisions.from_suspects(found, X, y, action=action)
    assert decisions.task == decisions.effective().task == "number"
    _, y_clean, _ = decisions.apply(X, y)
    assert y_clean.dtype == y.dtype
    decisions.to_csv(tmp_path / "d.csv")
    assert Decisions.read_csv(tmp_path / "d.csv").apply(X, y)[1].tolist() == y_clean.tolist()
    if action == "relabel":
        assert (y_clean[[5, 50, 90]] < 700_000).all()
    measured = measure_cleaning(decisions, X, y, X, y, ["logistic"], repeats=1)
    assert set(measured.effect["measure"]) == {"r2"}
    few = np.rint(y / 200_000).astype(int)  # few values, and a regressor that says what they are
    of_few = Decisions.of(X, few, ids=[5], actions=["drop"], task="number")
    assert set(measure_cleaning(of_few, X, few, X, few, ["logistic"], repeats=1).effect["measure"]) == {"r2"}
    with pytest.raises(InputError, match="'task' parameter of Decisions"):
        Decisions.of(X, few, ids=[5], actions=["drop"], task="set")


@pytest.mark.parametrize(("classes", "typed"), [(["yes", "no"], "yess"), (["a", "b"], "a "), (["007", "8"], "7")])
def test_a_class_that_the_table_does_not_have_is_refused_unless_told(classes: list[str], typed: str) -> None:
    X, y = np.arange(8.0)[:, None], np.array(classes * 4)
    decisions = Decisions.of(X, y, ids=[2], actions=["relabel"], labels=[typed])
    with pytest.raises(InputError, match=r"column 'label', must be a class of the table .*new_classes=True.* Got"):
        decisions.apply(X, y)
    assert decisions.apply(X, y, new_classes=True)[1][2] == typed
    found = measure_cleaning(decisions, X, y, X, y, "logistic", repeats=1, new_classes=True)
    table = found.class_frame("pandas").set_index("label")
    assert table.loc[typed, "rows"] == 0
    assert table["relabelled"].sum() == 1


def test_lists_that_a_spreadsheet_has_saved_are_read(tmp_path: Path) -> None:
    X, y = KINDS["pandas"]()
    hashes = row_hashes(X, y.to_numpy(), [0, 1, 2, 3])
    assert all(re.fullmatch("h[0-9a-f]{16}", one) for one in hashes)  # never a number
    (tmp_path / "d.csv").write_text(f"{HEADER}\n2, Drop,,,,,{hashes[2].upper()}\n,,,,,,\n , ,,,,,\n")
    decisions = Decisions.read_csv(tmp_path / "d.csv")
    assert decisions.actions == ("drop",)
    assert decisions.apply(X, y)[1].tolist() == ["a", "b", "a"]


def test_copies_are_held_out_together() -> None:
    X, y = np.tile(np.arange(30.0), 2)[:, None], np.array(["a", "b"] * 30)
    found = measure_cleaning(drop(X, y, [0]), X, y, models=Spy(), find=lambda *part: drop(*part[:2], []), repeats=2)
    assert found.held_out == "cross-validation"
    Spy.seen = []
    for table in (X, pd.DataFrame(X, columns=["a"])):
        parts = list(_cross_parts(lambda *_: drop(X, y, []), table, y, np.arange(60), 2, 5, 0, "class", _copies(table)))
        for part in parts:
            assert not set(np.ravel(part.X)) & set(np.ravel(part.X_held))
            assert len(part.held) == 12
        assert sorted(np.concatenate([part.held for part in parts])) == sorted([*range(60), *range(60)])
    same = np.ones((20, 1))
    with pytest.raises(InputError, match="different rows for cross-validation"):
        measure_cleaning(drop(same, y[:20], [0]), same, y[:20], models=Spy(), find=lambda *_: drop(same, y[:20], []))


def _copies(X: Any) -> Any:
    return _number_copies(X, 60)


def test_a_class_that_no_model_finds_is_named() -> None:
    X, y = np.zeros((60, 1)), np.array(["a"] * 54 + ["rare"] * 6)
    X[:, 0] = np.random.default_rng(0).normal(size=60)
    found = measure_cleaning(drop(X, y, [0]), X, y, X, y, Spy(), repeats=1)
    assert [note for note in found.notes if "class 'rare', 'Spy' predicts none right" in note]
