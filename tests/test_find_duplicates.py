"""find_duplicates against its definition, by brute force."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest
from cli_files import N_TRAIN, make_tables, run
from scipy import sparse
from scipy.spatial.distance import cdist

from shapshift import Duplicates, find_duplicates
from shapshift.exceptions import InputError

RNG = np.random.default_rng(0)


def stars(rows: np.ndarray, radius: float) -> list[int]:
    """Groups by definition: leaders in order, rows near them, and lone rows with the group of their nearest."""
    near = cdist(rows, rows)
    leader = list(range(len(rows)))
    for i in range(len(rows)):
        for j in range(i):
            if leader[j] == j and near[i, j] <= radius:
                leader[i] = j
                break
    lone = [i for i in range(len(rows)) if leader[i] == i and leader.count(i) == 1]
    np.fill_diagonal(near, np.inf)
    joined = list(leader)
    for i in lone:
        j = int(near[i].argmin())
        if near[i, j] <= radius:
            joined[i] = leader[j]
    kept = sorted({group for group in joined if joined.count(group) > 1})
    return [kept.index(group) if group in kept else -1 for group in joined]


def scaled(rows: np.ndarray, distinct: np.ndarray) -> np.ndarray:
    std = np.unique(distinct, axis=0).std(axis=0)  # copies do not move the scale
    return rows / np.where(std == 0, 1, std)


@pytest.mark.parametrize("width", [1, 2, 7, 150])
@pytest.mark.parametrize("radius", [0.05, 0.4, 3.0])
def test_groups_and_distances_are_those_of_the_definition(width: int, radius: float) -> None:
    rows = RNG.normal(size=(120, width))
    rows[100:110], rows[110:] = rows[:10] + 0.01, rows[10:20]
    found = find_duplicates(rows[:80], X_val=rows[80:], radius=radius)
    # Nor do near copies, where the radius of the data reaches them.
    points = scaled(rows, rows[:100] if width > 2 else rows)
    assert found.group.tolist() == stars(points, radius)
    near = cdist(points, points)
    np.fill_diagonal(near, np.inf)
    same = np.where(found.group[:, None] == found.group, near, np.inf).min(axis=1)
    grouped = found.group >= 0
    np.testing.assert_allclose(found.distance[grouped], same[grouped], atol=1e-12)
    assert np.isnan(found.distance[~grouped]).all()
    np.testing.assert_array_equal(found.across, (near[:80, 80:] <= radius).any(axis=1))
    table = found.to_frame("pandas")
    assert table.columns.tolist() == ["group", "id", "split", "owner", "label", "distance", "kind"]
    assert len(table) == grouped.sum()
    assert ((table["distance"] == 0) == (table["kind"] == "exact")).all()


def test_a_chain_does_not_swallow_the_data() -> None:
    rows = np.arange(100.0)[:, None]
    found = find_duplicates(rows, radius=1.5 / rows.std())
    assert np.bincount(found.group).max() <= 4  # all within two radii of the first
    for members in (np.flatnonzero(found.group == group) for group in range(found.n_groups)):
        assert np.ptp(rows[members]) <= 3


def test_exact_copies_and_contradictions_across_owners_splits_and_labels() -> None:
    X = [[0.0, 1.0], [-0.0, 1.0], [2.0, 2.0], [3.0, 3.0], [2.0, 2.0], [9.0, 9.0]]
    found = find_duplicates(
        X,
        ["a", "b", "a", "c", "a", "c"],
        owners=["x", "y", "x", "x", "x", "y"],
        X_val=[[3.0, 3.0], [9.0, 9.0]],
        y_val=["c", "d"],
        ids=list("ABCDEF"),
        ids_val=list("uv"),
        radius=0,
    )
    assert found.group.tolist() == [0, 0, 1, 2, 1, 3, 2, 3]
    assert found.contradicting.tolist() == [True, True, False, False, False, True]
    assert found.across.tolist() == [False, False, False, True, False, True]
    assert found.across_owners.tolist() == [True, True, False, False, False, False]
    assert found.clusters().tolist() == [0, 0, 2, 3, 2, 5]
    assert {name: entry for name, entry in found.summary().items() if name != "honest"} == {
        **dict.fromkeys(("rows", "exact"), 8),
        **dict.fromkeys(("near", "radius"), 0),
        "groups": 4,
        "across_owners": 1,
        "across_splits": 2,
        "contradicting": 3,
    }
    first = found.to_frame("pandas").iloc[[0, 5, 7]]
    assert first["id"].tolist() == ["A", "u", "v"]
    assert first["split"].tolist() == ["train", "validation", "validation"]
    assert first["label"].tolist() == ["a", "c", "d"]
    assert first["owner"].isna().tolist() == [False, True, True]
    assert repr(found) == (
        "Duplicates(4 groups of 8 rows: 8 exact, 0 near; groups across owners=1, splits=2; contradicting rows=3; "
        "radius=0)"
    )


def test_labels_of_one_split_alone() -> None:
    assert not find_duplicates([[1.0], [1.0]], X_val=[[1.0]], y_val=["a"]).contradicting.any()
    assert find_duplicates([[1.0], [1.0]], [1, 2], X_val=[[1.0]]).contradicting.all()
    assert find_duplicates([[1.0]], [1], X_val=[[1.0]], y_val=["1"]).contradicting.all()


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table], ids=["pandas", "polars", "pyarrow"])
def test_text_and_missing_entries_are_values(make: Any) -> None:
    columns = {
        "size": [1.0, 1.0, None, None, 0.0, 1.0],
        "name": ["a", "a", "b", "b", "b", None],
        "flag": [True, True, False, False, False, True],
    }
    train = make(columns)
    other = make({name: columns[name][3:] for name in ("name", "size", "flag")})
    found = find_duplicates(train, X_val=other, radius=0)
    assert found.group.tolist() == [0, 0, 1, 1, 2, 3, 1, 2, 3]
    alone = find_duplicates(train, radius=0.0)
    assert alone.group.tolist() == [0, 0, 1, 1, -1, -1]
    assert alone.ids_val.size == 0
    assert (alone.summary()["rows"], len(alone.to_frame("pandas"))) == (4, 4)
    numbers = find_duplicates(make({"size": [1.0, 2.0, 1.0]}))
    assert (numbers.summary()["rows"], len(numbers.to_frame("pandas"))) == (2, 2)
    assert type(found.to_frame()) is type(train)
    with pytest.raises(InputError, match="missing 'flag'"):
        find_duplicates(train, X_val=make({name: columns[name] for name in ("name", "size")}))


def test_arrays_may_have_text_and_missing_entries() -> None:
    found = find_duplicates([[np.nan, 1.0], [np.nan, 1.0], [0.5, 1.0]], X_val=[[np.nan, 2.0]])
    assert found.group.tolist() == [0, 0, -1, -1]
    assert found.kind == "numpy"
    texts = np.array([["a", 1.0], ["b", 1.0], ["a", 1.0], [None, 1.0]], dtype=object)
    assert find_duplicates(texts).group.tolist() == [0, -1, 0, -1]
    named = pd.DataFrame(texts, columns=[1, 0], index=list("klmn"))
    assert find_duplicates(named).to_frame()["id"].tolist() == ["k", "m"]


def test_near_rows_with_text() -> None:
    n = 60
    frame = pd.DataFrame({"a": RNG.normal(size=n), "b": RNG.normal(size=n), "c": RNG.normal(size=n)})
    frame["name"] = RNG.choice(["x", "y", "z"], size=n)
    copies = frame.iloc[:5].assign(a=frame["a"] + 1e-3)
    others = frame.iloc[5:10].assign(a=frame["a"] + 1e-3, name="another")
    found = find_duplicates(frame, X_val=pd.concat([copies, others]))
    assert found.across[:5].all()
    assert not found.across[5:].any()
    assert 0 < found.radius < 2**0.5
    # Texts alone: distances are the square root of 2 for each that differs.
    alone = find_duplicates(frame[["name"]].assign(other=[str(i) for i in range(n)]), radius=1.5)
    assert alone.distance[alone.group >= 0] == pytest.approx(2**0.5)
    assert alone.n_groups == 3


def test_sparse_rows_are_found_like_dense_ones() -> None:
    dense = np.where(RNG.random((150, 40)) < 0.1, RNG.integers(1, 9, size=(150, 40)), 0.0)
    dense[100:120] = dense[:20]
    dense[120:140] = dense[20:40] + (dense[20:40] > 0) * 1e-3
    found = find_duplicates(sparse.csr_matrix(dense[:110]), X_val=sparse.coo_array(dense[110:]), radius=0.01)
    assert found.group.tolist() == stars(dense, 0.01)
    chosen = find_duplicates(sparse.csr_array(dense))
    assert chosen.group.tolist() == find_duplicates(sparse.csr_array(dense), radius=chosen.radius).group.tolist()
    assert chosen.summary()["rows"] >= 80


def test_copies_in_float32_are_near() -> None:
    rows = RNG.normal(size=(200, 5))
    found = find_duplicates(rows, X_val=rows[:50].astype(np.float32))
    assert found.across.tolist() == [True] * 50 + [False] * 150
    assert found.summary()["near"] == 100


@pytest.mark.parametrize("width", [2, 4, 12])
@pytest.mark.parametrize("kind", ["normal", "skewed", "clusters"])
def test_the_radius_joins_about_as_many_honest_rows_as_it_says(width: int, kind: str) -> None:
    rng = np.random.default_rng(width)
    rows = rng.normal(size=(3000, width))
    if kind == "skewed":
        rows = np.exp(rows)
    elif kind == "clusters":
        rows = 0.2 * rows + rng.normal(size=(10, width))[rng.integers(10, size=3000)]
    found = find_duplicates(rows)
    assert found.radius > 0
    assert found.honest <= 0.00101 * 3000
    assert found.summary()["rows"] <= 12
    # A larger radius: the number that it says, within a factor, is what there is.
    if width == 2:
        wide = find_duplicates(rows, radius=4 * found.radius)
        assert wide.honest / 2.5 <= wide.summary()["rows"] <= 2.5 * wide.honest


@pytest.mark.parametrize("copies", [1, 5])
def test_noisy_copies_are_found_by_the_radius_of_the_data(copies: int) -> None:
    rows = RNG.normal(size=(600, 8))
    noisy = np.concatenate([rows[:100] + 0.01 * RNG.normal(size=(100, 8)) for _ in range(copies)])
    found = find_duplicates(np.concatenate([rows, noisy]), owners=["a"] * 600 + ["b"] * len(noisy))
    assert found.summary()["groups"] == found.summary()["across_owners"] == 100
    table = found.owners_frame("pyarrow").to_pylist()
    assert table == [{"owner": "a", "other": "b", "rows": 100 * copies, "exact": 0}]
    with pytest.raises(InputError, match="no owners"):
        find_duplicates(rows[:2]).owners_frame()
    assert (found.clusters()[600:] == np.tile(np.arange(100), copies)).all()
    assert (found.clusters()[:600] == np.arange(600)).all()


@pytest.mark.parametrize("width", [2, 5, 20])
def test_no_seller_moves_the_radius_far(width: int) -> None:
    rng = np.random.default_rng(width)
    rows = rng.normal(size=(300, width))
    honest, own = find_duplicates(rows).radius, rows[::6]
    far = rng.normal(size=(30, width)) * np.array([1.0, *[1e9] * (width - 1)])
    added = [
        *(np.repeat(own, times, axis=0) for times in (10, 20)),
        np.repeat(own[:1], 100, axis=0),
    ]
    added = [copies + noise * rng.normal(size=copies.shape) for copies in added for noise in (1e-12, 1e-7, 1e-3)]
    for more in (*added, far[:1], far, 1e18 * far, np.concatenate([added[0], far])):
        radius = find_duplicates(np.concatenate([rows, more])).radius
        assert honest / 8 < radius < 2 * honest


def test_many_near_copies_of_few_rows_are_near() -> None:
    rows = np.repeat(RNG.normal(size=(12, 4)), 11, axis=0) + 1e-7 * RNG.normal(size=(132, 4))
    assert find_duplicates(rows).summary()["groups"] == 12


def test_the_order_of_rows_changes_nothing_but_the_order() -> None:
    rows = np.concatenate([RNG.normal(size=(1500, 6)), np.zeros((3, 6))])
    rows[:50] = rows[100:150] + 0.001
    order = RNG.permutation(len(rows))
    found, other = find_duplicates(rows), find_duplicates(rows[order])
    assert other.radius == pytest.approx(found.radius, rel=0.01)  # of near rows, the earliest counts
    together = found.group[order]
    for group in range(other.n_groups):
        assert np.unique(together[other.group == group]).size == 1
    assert ((other.group >= 0) == (together >= 0)).all()


def test_it_is_saved_and_shown(tmp_path: Path) -> None:
    found = find_duplicates(
        [[1.0], [1.0], [2.0]], ["<b>", "b", "c"], owners=["o", "p", "o"], X_val=[[2.0]], ids=["a", "b", "c"]
    )
    found.save(tmp_path / "found.npz")
    again = Duplicates.load(tmp_path / "found.npz")
    assert again.to_frame("pyarrow").equals(found.to_frame("pyarrow"))
    assert again.summary() == found.summary()
    html = found._repr_html_()
    assert "across owners" in html
    assert "<script" not in html
    empty = find_duplicates([[1.0]])
    assert empty.summary()["groups"] == 0
    assert len(empty.to_frame("pandas")) == 0
    assert empty.to_frame("polars").shape == (0, 7)
    assert empty.to_frame("pyarrow").num_rows == 0


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"X": sparse.csr_array([[np.nan]])}, "contains NaN"),
        ({"X": [[1.0], [np.inf]]}, "infinity"),
        ({"X": pd.DataFrame({"a": [np.inf, None]})}, "infinity"),
        ({"X": pd.DataFrame({"a": [["list"], ["list"]]})}, "hashable"),
        ({"X": np.empty((0, 2))}, "is empty"),
        ({"X": pd.DataFrame({"a": []})}, "is empty"),
        ({"X": [[1.0]], "y": [1, 2]}, "'y' must have one label"),
        ({"X": [[1.0]], "owners": [1, 2]}, "owner"),
        ({"X": [[1.0]], "X_val": [[1.0, 2.0]]}, "features"),
        ({"X": [[1.0]], "y_val": [1]}, "'X_val' parameter"),
        ({"X": [[1.0]], "X_val": [[1.0]], "ids_val": [1, 2]}, "ids_val"),
        ({"X": [[1.0]], "radius": -1}, "radius"),
        ({"X": [[1.0]], "radius": "near"}, "radius"),
    ],
    ids=lambda given: given if isinstance(given, str) else "-".join(given),
)
def test_wrong_input_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        find_duplicates(**given)


def test_degenerate_tables() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        same = find_duplicates(np.ones((50, 3)), np.arange(50))
        assert same.group.tolist() == [0] * 50
        assert same.contradicting.all()
        assert find_duplicates([[1.0], [2.0]]).group.tolist() == [-1, -1]
        two = find_duplicates(np.repeat([[0.0], [1.0]], 40, axis=0), radius=10)
        assert two.group.tolist() == [0] * 80
        assert (two.distance == 0).all()
        huge = find_duplicates(np.array([[1e300], [1e300], [-1e300], [3e299]]), radius=0.1)
        assert huge.group.tolist() == [0, 0, -1, -1]
        assert find_duplicates(np.array([[5.0, i] for i in range(30)]), radius=0.0).n_groups == 0


@pytest.fixture
def market(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A market in which bob sells five rows of others, and the buyer validates on four near copies."""
    monkeypatch.chdir(tmp_path)
    train, val = make_tables()
    copied = train.take([0, 2, 3, 5, 6])
    names, sellers = pa.array([f"c{i}" for i in range(5)]), pa.array(["bob"] * 5)
    copied = copied.set_column(0, "row", names).set_column(1, "seller", sellers)
    copied = copied.set_column(5, "class", pa.array(["odd", *copied["class"].to_pylist()[1:]]))
    near = train.take([10, 11, 12, 13])
    near = near.set_column(2, "size", pa.array(near["size"].to_numpy() + 1e-4))
    pacsv.write_csv(pa.concat_tables([train, copied]), "train.csv")
    pacsv.write_csv(pa.concat_tables([val, near]), "val.csv")
    return tmp_path


COLUMNS = ("--label", "class", "--id", "row", "--owner", "seller")


def test_the_command_finds_what_the_function_finds(market: Path) -> None:
    ran = run("duplicates", "train.csv", "val.csv", *COLUMNS, "--format", "csv")
    assert ran.code == 0, ran.err
    assert "5 groups across owners, 4 across TRAIN and VAL (4 training rows), 2 training rows with an exact" in ran.out
    saved = Duplicates.load("shapshift-duplicates/duplicates.npz")
    names = ["size", "weight", "age"]
    train, val = (pd.read_csv(path, encoding="utf-8-sig") for path in ("train.csv", "val.csv"))
    expected = find_duplicates(
        train[names],
        train["class"],
        owners=train["seller"].tolist(),
        X_val=val[names],
        y_val=val["class"],
        ids=train["row"],
        ids_val=val["row"],
    )
    assert saved.radius == expected.radius
    assert saved.group.tolist() == expected.group.tolist()
    assert saved.summary() == expected.summary()
    written = pd.read_csv("shapshift-duplicates/duplicates.csv", encoding="utf-8-sig")
    assert written["id"].tolist()[:2] == ["t000", "c0"]
    assert written["label"].tolist()[:2] == [train["class"][0], "odd"]
    again = run("rerun", "shapshift-duplicates", "--out", "again")
    assert again.code == 0
    assert "Identical" in again.out
    assert run("duplicates", "train.csv", *COLUMNS).code != 0  # results are there
    ran = run("duplicates", "train.csv", *COLUMNS, "--radius", "0", "--force", "--json")
    assert ran.document["result"]["groups"] == 5
    assert ran.document["result"]["near"] == 0
    manifest = json.loads(Path("shapshift-duplicates/manifest.json").read_text(encoding="utf-8"))
    assert manifest["options"]["Nearness"] == {"radius": 0.0}


def test_the_command_takes_text_and_missing_entries(market: Path) -> None:
    text = "a,b,y,who\n1,,k,[bold]x\n1,,k,y\n2,<i>,k,x\n,<i>,k,y\n"
    Path("table.csv").write_text(text, encoding="utf-8")
    ran = run("duplicates", "table.csv", "--label", "y", "--owner", "who")
    assert ran.code == 0, ran.err
    assert "2 of 4 rows have a copy, in 1 groups: 2 exact, 0 near." in ran.out
    assert "[bold]x" in ran.out
    for wrong, words in ((("--label", "z"), "'z'"), (("--label", "y", "--owner", "z"), "'z'"), ((), "--label")):
        ran = run("duplicates", "table.csv", *wrong, "--force")
        assert ran.code == 2
        assert words in ran.err
    assert run("duplicates", "table.csv", "--label", "y", "--radius", "-1").code == 2


@pytest.mark.parametrize("command", ["price", "report"])
def test_price_and_report_count_copies_across_owners_and_say_nothing_to_sellers(market: Path, command: str) -> None:
    ran = run(
        *(command, "train.csv", "val.csv", *COLUMNS, "--budget", 100, "--report", "page.html", "--out", "out"),
        *(("--noise", "0.5", "--repeats", 2) if command == "report" else ()),
    )
    assert ran.code == 0, ran.err
    said = f"10 of {N_TRAIN + 5} training rows have an exact copy of another owner"
    assert said in ran.err
    assert said in Path("page.html").read_text(encoding="utf-8")
    for page in Path("out/statements").rglob("*"):
        assert "copy of" not in page.read_text(encoding="utf-8")
