"""shapshift explain: rows by id and by value, what it writes, says and refuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from cli_files import make_tables, run

from shapshift import Explanation, Valuation

FILES = ("train.csv", "val.csv", "--label", "class", "--id", "row", "--owner", "seller")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, table in zip(("train.csv", "val.csv"), make_tables(), strict=True):
        pacsv.write_csv(table, name)
    return tmp_path


def test_rows_by_id_and_the_lowest(here: Path) -> None:
    assert run("value", *FILES).code == 0
    valuation = Valuation.load(here / "shapshift-value" / "valuation.npz")
    lowest = valuation.ids[np.argsort(valuation.values, kind="stable")[:2]].tolist()
    ran = run("explain", *FILES, "--row", "t003", "--lowest", 2, "--points", 3)
    assert ran.code == 0, ran.err
    out = here / "shapshift-explain"
    rows, points, near = (pq.read_table(out / f"{name}.parquet") for name in ("rows", "points", "neighbors"))
    assert rows["id"].to_pylist() == ["t003", *lowest]
    found = Explanation.load(out / "explanation.npz")
    np.testing.assert_array_equal(found.values, [valuation.values[valuation.ids.tolist().index(i)] for i in found.ids])
    assert rows["sentence"].to_pylist() == list(found.sentences)
    assert points.num_rows == found.points["row"].size == 18
    assert all(point.startswith("v") for point in points["point"].to_pylist())  # the ids of the validation table
    assert near.num_rows == 15
    assert found.sentences[0] in " ".join(ran.out.split())
    assert "Its nearest training rows" in ran.out
    document = run("explain", *FILES, "--row", "t003", "--force", "--json").document
    assert document["result"]["rows"][0]["sentence"] == found.sentences[0]
    assert len(document["result"]["rows"]) == 1


def test_the_ten_lowest_rows_unless_told_otherwise(here: Path) -> None:
    ran = run("explain", *FILES, "--format", "csv")
    assert ran.code == 0, ran.err
    assert ran.out.count(" lowers the result") == 10
    assert "name one with --row" in ran.out
    assert (here / "shapshift-explain" / "points.csv").is_file()
    again = run("explain", *FILES)
    assert again.code != 0
    assert "--force" in again.err


@pytest.mark.parametrize("method", ["knn", "proxy:estimator=tree"])
def test_rows_of_weighted_values(method: str, here: Path) -> None:
    files = ("train.csv", "val.csv", "-y", "class", "--id", "row", "--drop", "seller", "--method", method)
    weights = ("--point-weight", "cost")
    val = make_tables()[1]
    pacsv.write_csv(val.append_column("cost", [np.arange(val.num_rows) % 3]), "val.csv")
    ran = run("value", *files, *weights, "--report", "page.html")
    assert ran.code == 0, ran.err
    assert (here / "page.html").read_text(encoding="utf-8").count("data-why=") == 80
    ran = run("explain", *files, *weights, "--row", "t003", "--json")
    assert ran.code == 0, ran.err
    assert ran.document["result"]["point_weight"] == "given"
    valuation = Valuation.load(here / "shapshift-value" / "valuation.npz")
    found = Explanation.load(here / "shapshift-explain" / "explanation.npz")
    assert found.is_of(valuation)
    assert valuation.parameters["point_weight"] == found.parameters["point_weight"] == "given"
    plain = run("explain", *files, "--drop", "cost", "--row", "t003", "--out", "plain", "--json").document["result"][
        "rows"
    ][0]
    assert plain["value"] != ran.document["result"]["rows"][0]["value"]


def test_other_methods_and_rows_without_ids(here: Path) -> None:
    files = ("train.csv", "val.csv", "--drop", "seller,row")
    assert run("explain", *files, "-y", "class", "--row", 7, "--method", "threshold:radius=1", "--nearest", 0).code == 0
    ran = run("explain", *files, "-y", "size", "--drop", "class", "--row", 7, "--method", "regression", "--out", "r")
    assert "Row 7 (target " in ran.out
    assert "mean target of" in " ".join(ran.out.split())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ("--row", "t003", "--row", "nobody"),
            "--row must name training rows, such as 't000', 't001', 't002'. Got 'nobody'",
        ),
        (("--method", "sampled:estimator=logistic"), "has no explanations"),
        (("--lowest", 0), "--lowest"),
    ],
    ids=["row", "method", "lowest"],
)
def test_what_cannot_be_explained_is_refused(options: tuple[object, ...], said: str, here: Path) -> None:
    ran = run("explain", *FILES, *options)
    assert ran.code != 0
    assert said in " ".join(ran.err.split())
    assert not (here / "shapshift-explain").exists()


def test_a_page_explains_the_rows_it_lists(here: Path) -> None:
    files = ("train.csv", "val.csv", "--label", "class", "--id", "row", "--drop", "seller")
    assert run("value", *files, "--report", "page.html").code == 0
    page = (here / "page.html").read_text(encoding="utf-8")
    assert page.count("data-why=") == 80
    assert "validation points that have it among their 5 nearest training rows" in page
    ran = run("value", *files, "--report", "pooled.html", "--pool", "--out", "pooled")
    assert ran.code == 0, ran.err
    assert "data-why=" not in (here / "pooled.html").read_text(encoding="utf-8")
    ran = run("value", "train.csv", *files[2:], "--report", "one.html", "--out", "one")
    assert ran.code == 0, ran.err
    assert "data-why=" not in (here / "one.html").read_text(encoding="utf-8")
