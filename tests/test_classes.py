"""Values by class: the table, the note where a class is condemned, and selections that keep the shares of classes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from cli_files import run

from shapshift import KNNRegressionShapley, KNNShapley, ThresholdKNNShapley, Valuation, cross_value
from shapshift._facts import value_facts
from shapshift.exceptions import InputError
from shapshift.report import build_report
from shapshift.trust import class_facts, condemned_classes
from shapshift.valuation import best_first

RNG = np.random.default_rng(5)


def imbalanced(n: int) -> tuple[Any, Any]:
    y = np.where(RNG.random(n) < 0.2, "rare", "usual")
    return RNG.normal(size=(n, 4)) + 0.7 * (y == "rare")[:, None], y


TRAIN, VAL = imbalanced(300), imbalanced(200)
MODEL = KNNShapley(progress=False).fit(*TRAIN)


def with_values(values: Any, labels: Any) -> Valuation:
    """A valuation of these rows with other values and labels."""
    found = KNNShapley(progress=False).fit(np.arange(len(values))[:, None], np.arange(len(values)) % 2)
    made = found.value([[0.5]], [0])
    return replace(made, values=np.array(values, dtype=float), labels=None if labels is None else np.array(labels))


def test_the_table_by_class() -> None:
    found = MODEL.value(*VAL)
    table, y = found.by_class("pandas"), TRAIN[1]
    assert table["label"].tolist() == ["rare", "usual"]
    for label, rows, share, mean in zip(*(table[name] for name in table.columns[:4]), strict=True):
        values = found.values[y == label]
        assert (rows, share, mean) == (values.size, (values < 0).mean(), pytest.approx(values.mean()))
    assert list(table.columns) == ["label", "rows", "share_negative", "mean", "reliability"]
    assert found.by_class("pyarrow").column_names == list(table.columns)


def test_reliability_within_a_class_is_that_of_another_sample() -> None:
    told: list[Any] = []
    drawn = []
    for _ in range(30):
        found = MODEL.value(*imbalanced(200))
        told.append(found.by_class("pandas")["reliability"])
        drawn.append(found.values)
    told_mean = np.mean(told, axis=0)
    for k, label in enumerate(("rare", "usual")):
        values = np.array(drawn)[:, TRAIN[1] == label]
        agreed = np.corrcoef(values)[np.triu_indices(30, 1)].mean()
        assert told_mean[k] == pytest.approx(agreed, abs=0.1), label


def test_labels_are_kept_saved_and_loaded(tmp_path: Path) -> None:
    found = MODEL.value(*VAL)
    assert found.labels.tolist() == TRAIN[1].tolist()
    found.save(tmp_path / "v.npz")
    assert Valuation.load(tmp_path / "v.npz").labels.tolist() == TRAIN[1].tolist()
    replace(found, labels=None).save(tmp_path / "old.npz")
    old = Valuation.load(tmp_path / "old.npz")
    assert old.labels is None
    with pytest.raises(InputError, match="There are no labels"):
        old.by_class()
    assert class_facts(old) == {}
    times = np.arange(300)
    by_time = cross_value(KNNShapley(progress=False), *TRAIN, times=times)
    assert by_time.labels.tolist() == TRAIN[1][: by_time.n_train].tolist()
    numbers = KNNRegressionShapley(progress=False).fit(TRAIN[0], times).value(VAL[0], np.arange(200))
    assert numbers.labels is None
    # Labels are no part of what a private release may tell.
    model = ThresholdKNNShapley(radius=2.0, progress=False).fit(*TRAIN)
    assert model.release(*VAL, epsilon=1, delta=1e-3, random_state=0).labels is None


@pytest.mark.parametrize("fraction", [0.001, 0.1, 1 / 3, 0.5, 0.77, 1])
def test_a_selection_keeps_class_shares(fraction: float) -> None:
    found, y = MODEL.value(*VAL), TRAIN[1]
    kept = found.select(fraction)
    assert kept.sum() == max(int(np.floor(fraction * 300 + 0.5)), 1)
    for label in ("rare", "usual"):
        inside = y == label
        assert abs((kept & inside).sum() - kept.sum() * inside.mean()) < 1
        if (kept & inside).any() and (~kept & inside).any():
            assert found.values[kept & inside].min() >= found.values[~kept & inside].max()
    highest = found.select(fraction, keep_class_shares=False)
    assert highest.sum() == kept.sum()
    assert (~highest).all() or highest.all() or found.values[highest].min() >= found.values[~highest].max()


def test_the_order_of_rows_changes_a_selection_at_ties_only() -> None:
    values, labels = RNG.normal(size=50), RNG.integers(0, 3, 50)
    mixed = RNG.permutation(50)
    np.testing.assert_array_equal(mixed[best_first(values[mixed], labels[mixed])], best_first(values, labels))
    np.testing.assert_array_equal(best_first(np.zeros(4), np.array([0, 0, 1, 1])), [0, 2, 1, 3])
    assert best_first([1.0, 2.0]).tolist() == [1, 0]
    assert best_first([1.0], np.array(["a"])).tolist() == [0]
    for size in range(51):  # every part keeps shares
        counts = np.bincount(labels[best_first(values, labels)[:size]], minlength=3)
        assert (np.abs(counts - size * np.bincount(labels) / 50) < 1.5).all()


@pytest.mark.parametrize("fraction", [0, -0.1, 1.1, "a", None, np.nan])
def test_a_fraction_that_is_none_is_refused(fraction: Any) -> None:
    with pytest.raises(InputError, match="above 0 and at most 1"):
        MODEL.value(*VAL).select(fraction)


CONDEMNED = {
    "most of a class": ([-1] * 6 + [1] * 4 + [1] * 20, ["a"] * 10 + ["b"] * 20, ["a"]),
    "half of it": ([-1] * 5 + [1] * 5 + [1] * 20, ["a"] * 10 + ["b"] * 20, []),
    "all alike": ([-1] * 30, ["a"] * 10 + ["b"] * 20, []),
    "less than twice the others": ([-1] * 8 + [1] * 2 + [-1] * 9 + [1] * 11, ["a"] * 10 + ["b"] * 20, []),
    "too few rows": ([-1] * 4 + [1] * 20, ["a"] * 4 + ["b"] * 20, []),
    "one class": ([-1] * 10, ["a"] * 10, []),
    "two classes": ([-1] * 20 + [1] * 60, ["a"] * 10 + ["b"] * 10 + ["c"] * 60, ["a", "b"]),
}


@pytest.mark.parametrize("name", CONDEMNED)
def test_when_a_class_is_condemned(name: str) -> None:
    values, labels, expected = CONDEMNED[name]
    facts = class_facts(with_values(values, labels))
    assert facts["condemned"] == expected
    assert bool(condemned_classes(facts)) == bool(expected)


def test_of_many_classes_the_worst_are_listed() -> None:
    labels = np.repeat(np.arange(40), 10)
    values = np.where(np.arange(400) % 10 < labels // 4, -1.0, 1.0)
    facts = class_facts(with_values(values, labels))
    assert facts["all"] == 40
    assert [one["label"] for one in facts["listed"]] == [36, 37, 38, 39, 32, 33, 34, 35, 28, 29]


def test_summaries_say_it(tmp_path: Path) -> None:
    found = MODEL.value(*VAL)
    facts = value_facts(found)
    assert facts["classes"]["condemned"] == ["rare"]
    assert facts["negative"] == int((found.values < 0).sum())
    said = condemned_classes(facts["classes"])
    assert "class 'rare'" in said
    assert 'point_weight="balanced"' in said
    page = tmp_path / "page.html"
    build_report(page, valuation=found)
    for text in (page.read_text(encoding="utf8"), found._repr_html_()):
        assert "class &#39;rare&#39;" in text or "class 'rare'" in text
        assert "harm" not in text.split("<script")[0]
    balanced = MODEL.value(*VAL, point_weight="balanced")
    assert class_facts(balanced)["condemned"] == []
    assert "find_suspects" not in balanced._repr_html_()


def test_names_of_classes_are_text_wherever_they_are_shown(tmp_path: Path) -> None:
    hostile = "<b>x</b>\x1b[31m"
    y = np.where(TRAIN[1] == "rare", hostile, "usual").astype(object)
    found = replace(MODEL.value(*VAL), labels=y)
    html = found._repr_html_()
    assert "<b>x" not in html
    ElementTree.fromstring(html.replace("\x1b", ""))
    page = tmp_path / "page.html"
    build_report(page, valuation=found)
    assert "<b>x" not in page.read_text(encoding="utf8")


@pytest.fixture
def tables(tmp_path: Path) -> tuple[Path, Path]:
    paths = []
    for name, (X, y) in (("train", TRAIN), ("val", VAL)):
        columns = {f"f{j}": X[:, j] for j in range(4)} | {"cost": 1 + np.abs(X[:, 0]), "y": y}
        paths.append(tmp_path / f"{name}.csv")
        pacsv.write_csv(pa.table(columns), paths[-1])
    return paths[0], paths[1]


def test_weights_on_the_command_line(tables: tuple[Path, Path], tmp_path: Path) -> None:
    common = ("value", *tables, "--label", "y", "--scale", "none")
    ran = run(*common, "--drop", "cost", "--out", tmp_path / "plain")
    assert ran.code == 0, ran.err
    assert "Values by class" in ran.out
    assert "rows of class 'rare' have a negative value" in ran.out
    assert "harm" not in ran.out
    ran = run(*common, "--drop", "cost", "--point-weight", "balanced", "--out", tmp_path / "balanced")
    assert ran.code == 0, ran.err
    assert "all classes have the same total weight" in ran.out
    assert "rows of class 'rare' have a negative value" not in ran.out
    values = pq.read_table(tmp_path / "balanced" / "values.parquet")["value"].to_numpy()
    np.testing.assert_allclose(values, MODEL.value(*VAL, point_weight="balanced").values, rtol=0, atol=1e-12)
    cost = 1 + np.abs(VAL[0][:, 0])
    ran = run(*common, "--point-weight", "cost", "--out", tmp_path / "cost", "--json")
    assert ran.code == 0, ran.err
    assert ran.document["result"]["point_weight"] == "given"
    assert ran.document["result"]["classes"]["condemned"] == ["rare"]
    values = pq.read_table(tmp_path / "cost" / "values.parquet")["value"].to_numpy()
    np.testing.assert_allclose(values, MODEL.value(*VAL, point_weight=cost).values, rtol=0, atol=1e-12)
    again = run("rerun", tmp_path / "cost" / "manifest.json", "--out", tmp_path / "again")
    assert again.code == 0, again.err
    assert (tmp_path / "again" / "valuation.npz").read_bytes() == (tmp_path / "cost" / "valuation.npz").read_bytes()


def test_weights_with_one_table_and_with_an_audit(tables: tuple[Path, Path], tmp_path: Path) -> None:
    columns = ("--label", "y", "--drop", "cost", "--point-weight", "balanced")
    ran = run("value", tables[0], *columns, "--out", tmp_path / "one", "--json")
    assert ran.code == 0, ran.err
    assert ran.document["result"]["point_weight"] == "balanced"
    ran = run("audit", *tables, *columns, "--noise", "0.5", "--repeats", "2", "--out", tmp_path / "audit", "--json")
    assert ran.code == 0, ran.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--point-weight", "nothing"), "nothing"),
        (("--point-weight", "y"), "column of numbers"),
        (("--point-weight", "balanced", "--pool"), "--pool does not go with --point-weight"),
        (("--point-weight", "balanced", "--method", "sampled:estimator=logistic"), "--point-weight does not go with"),
    ],
    ids=["column", "text", "pool", "sampled"],
)
def test_wrong_weights_on_the_command_line(
    options: tuple[str, ...], message: str, tables: tuple[Path, Path], tmp_path: Path
) -> None:
    ran = run("value", *tables, "--label", "y", *options, "--out", tmp_path / "out")
    assert ran.code != 0
    assert message in ran.err
