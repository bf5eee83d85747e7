"""Sources of data sets: a local folder, OpenML, the cache, and what happens when something is not as it should be."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sklearn.datasets
from parquet_files import write_table
from sklearn.utils import Bunch

from shapshift.data import list_datasets, load_dataset
from shapshift.data.sources import SOURCES, Source

REAL = ["phoneme", "2dplanes", "pol", "cpu", "news20", "creditcard"]
BUNDLED = ["iris", "wine", "breast_cancer", "digits"]
OPENML = [name for name in REAL if name != "news20"]

pytestmark = pytest.mark.usefixtures("no_data_folders")


def real_folder() -> Path:
    sibling = Path(__file__).resolve().parents[2] / "shared" / "datasets"
    folder = Path(os.environ.get("SHAPSHIFT_TEST_DATA") or sibling)
    if not folder.is_dir():
        pytest.skip("needs the real data sets: name their folder in SHAPSHIFT_DATA")
    return folder


# --- a local folder ----------------------------------------------------------------------------------------------


def test_a_local_file_that_is_the_published_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_table(tmp_path, "cpu")
    source = SOURCES["cpu"]
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setitem(SOURCES, "cpu", Source("openml", 2, source.counts, "", 761, sha256=digest))
    monkeypatch.setenv("SHAPSHIFT_DATA", str(tmp_path))
    made = load_dataset("cpu")
    assert made.verified is True
    assert made.source == "file cpu.parquet"
    assert made.feature_names == ("a", "b")
    assert str(tmp_path) not in json.dumps(made.parameters)


def test_an_own_copy_is_read_with_a_warning(tmp_path: Path) -> None:
    write_table(tmp_path, "cpu")
    with pytest.warns(UserWarning, match=r"cpu\.parquet is not the published file") as caught:
        made = load_dataset("cpu", data_dir=tmp_path)
    assert made.verified is False
    assert len(made.y_train) == 40
    assert caught[0].filename == __file__


def test_a_named_folder_is_the_only_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_table(tmp_path, "pol")
    with pytest.raises(FileNotFoundError, match=r"has no cpu\.parquet\. It has: pol\.parquet\."):
        load_dataset("cpu", data_dir=tmp_path)
    with pytest.raises(FileNotFoundError, match=r"no news20\.parquet and no news20_text\.parquet"):
        load_dataset("news20", data_dir=tmp_path)
    with pytest.raises(FileNotFoundError, match="'data_dir' parameter must name a folder"):
        load_dataset("cpu", data_dir=tmp_path / "none")
    monkeypatch.setenv("SHAPSHIFT_DATA", str(tmp_path / "none"))
    with pytest.raises(FileNotFoundError, match="environment variable SHAPSHIFT_DATA"):
        load_dataset("cpu")


@pytest.mark.filterwarnings("ignore:.*not the published file")
@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"a": pa.array([None] + [1.0] * 59)}, "contains NaN"),
        ({"a": ["x"] * 60}, "Column 'a' of 'cpu.parquet' has type String"),
        ({"label": ["x"] * 60}, "Column 'label' of cpu.parquet must hold integers"),
    ],
)
def test_damaged_local_tables(tmp_path: Path, columns: dict[str, Any], message: str) -> None:
    write_table(tmp_path, "cpu", **columns)
    with pytest.raises(ValueError, match=message):
        load_dataset("cpu", data_dir=tmp_path)


@pytest.mark.filterwarnings("ignore:.*not the published file")
def test_files_that_are_no_such_table(tmp_path: Path) -> None:
    (tmp_path / "cpu.parquet").write_bytes(b"PAR1 but not really")
    with pytest.raises(ValueError, match=r"cpu\.parquet' is not a whole Parquet file"):
        load_dataset("cpu", data_dir=tmp_path)
    pq.write_table(pa.table({"a": [1.0]}), tmp_path / "cpu.parquet")
    with pytest.raises(ValueError, match="must have the column 'label'"):
        load_dataset("cpu", data_dir=tmp_path)
    pq.write_table(pa.table({"label": [1]}), tmp_path / "cpu.parquet")
    with pytest.raises(ValueError, match="must have the column 'label' and feature columns"):
        load_dataset("cpu", data_dir=tmp_path)


# --- OpenML, with a stand-in for the network ---------------------------------------------------------------------


class OpenML:
    """Serves what scikit-learn's fetch_openml would, and counts how often it is asked."""

    def __init__(self, name: str) -> None:
        known = SOURCES[name]
        rng = np.random.default_rng(0)
        self.calls: list[dict[str, Any]] = []
        self.X = rng.normal(size=(sum(known.counts), known.n_features))
        labels = {code: text for text, code in (known.labels or {}).items()}
        y = np.repeat(np.arange(len(known.counts)), known.counts)
        self.target = np.array([labels[code] for code in y], dtype=object)
        self.names = [f"v{j}" for j in range(known.n_features)]
        self.categories: dict[str, list[str]] = {}

    def __call__(self, **arguments: Any) -> Bunch:
        self.calls.append(arguments)
        return Bunch(data=self.X, target=self.target, feature_names=self.names, categories=self.categories)


@pytest.fixture
def openml(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> OpenML:
    server = OpenML(getattr(request, "param", "phoneme"))
    monkeypatch.setattr(sklearn.datasets, "fetch_openml", server)
    return server


@pytest.mark.parametrize(("openml", "name"), [(name, name) for name in OPENML], indirect=["openml"])
def test_openml_labels_and_numbers(openml: OpenML, name: str) -> None:
    ids = {"phoneme": 1489, "2dplanes": 727, "pol": 722, "cpu": 761, "creditcard": 42477}
    ones = {"phoneme": "2", "creditcard": "1"}.get(name, "P")
    made = load_dataset(name, standardize=False)
    assert openml.calls[0]["data_id"] == ids[name]
    assert made.source == f"OpenML {ids[name]}"
    np.testing.assert_array_equal(made.X_train, openml.X[made.rows_train])
    np.testing.assert_array_equal(made.y_train, openml.target[made.rows_train] == ones)


def test_openml_is_asked_once_and_checked_afterwards(openml: OpenML, tmp_path: Path) -> None:
    first, second = load_dataset("phoneme"), load_dataset("phoneme")
    assert len(openml.calls) == 1
    assert (first.verified, second.verified) == (None, True)
    assert first.X_train.tobytes() == second.X_train.tobytes()
    assert first.sha256 == second.sha256
    cache = tmp_path / "cache"
    assert sorted(path.name for path in cache.iterdir()) == ["openml-1489.json", "openml-1489.parquet"]
    assert json.loads((cache / "openml-1489.json").read_text())["sha256"] == first.sha256


def test_a_changed_cache_is_refused(openml: OpenML, tmp_path: Path) -> None:
    load_dataset("phoneme")
    path = tmp_path / "cache" / "openml-1489.parquet"
    table = pq.read_table(path)
    column = table["v0"].to_numpy().copy()
    column[17] += 1e-9
    pq.write_table(table.set_column(0, "v0", pa.array(column)), path)
    with pytest.raises(ValueError, match=r"cached file openml-1489\.parquet differs from the first fetch.*Delete"):
        load_dataset("phoneme")


def test_a_later_fetch_must_give_the_same_rows(openml: OpenML, tmp_path: Path) -> None:
    load_dataset("phoneme")
    data_file, note = (tmp_path / "cache" / f"openml-1489.{kind}" for kind in ("parquet", "json"))
    data_file.unlink()
    assert load_dataset("phoneme").verified is True
    data_file.unlink()
    openml.target[[0, -1]] = openml.target[[-1, 0]]
    with pytest.raises(ValueError, match="The fetched data set differs from the first fetch"):
        load_dataset("phoneme")
    assert not data_file.exists()
    note.unlink()
    assert load_dataset("phoneme").verified is None


@pytest.mark.parametrize("content", ["", "{", "[1]", "{}", '{"sha256": 3, "source": "x"}', '{"sha256": "x"}', "\udcff"])
def test_a_damaged_note_is_said(openml: OpenML, tmp_path: Path, content: str) -> None:
    load_dataset("phoneme")
    note = tmp_path / "cache" / "openml-1489.json"
    note.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(ValueError, match=r"note openml-1489\.json.*is damaged.*delete openml-1489\.json and"):
        load_dataset("phoneme")


def test_rows_without_a_stored_checksum_are_fetched_again(openml: OpenML, tmp_path: Path) -> None:
    load_dataset("phoneme")
    (tmp_path / "cache" / "openml-1489.json").unlink()
    load_dataset("phoneme")
    assert len(openml.calls) == 2


def test_openml_id_columns_are_dropped_and_nominal_ones_decoded(openml: OpenML) -> None:
    openml.X = np.c_[np.arange(len(openml.X)), openml.X]
    openml.X[:, 2] = np.arange(len(openml.X)) % 3
    openml.names = ["ID", *openml.names]
    openml.categories = {"v1": ["-1", "5", "0"], "Class": ["1", "2"]}
    made = load_dataset("phoneme", standardize=False)
    assert made.feature_names == ("v0", "v1", "v2", "v3", "v4")
    np.testing.assert_array_equal(made.X_train[:, 1], np.array([-1.0, 5.0, 0.0])[made.rows_train % 3])


def test_openml_content_that_is_another_set(openml: OpenML, tmp_path: Path) -> None:
    openml.target[0] = "3"
    with pytest.raises(ValueError, match=r"not the 'phoneme' that was expected.*unknown labels \['3'\]"):
        load_dataset("phoneme")
    openml.target[0] = "2"  # a known label, but the class sizes are off by one
    with pytest.raises(ValueError, match=r"class sizes \(3817, 1587\)"):
        load_dataset("phoneme")
    openml.target[0] = "1"
    openml.X = openml.X[:, :4]
    openml.names = openml.names[:4]
    with pytest.raises(ValueError, match=r"Got shape \(5404, 4\)"):
        load_dataset("phoneme")
    assert not (tmp_path / "cache").exists()


def test_no_network() -> None:
    with pytest.raises(ConnectionError, match=r"Could not fetch 'cpu' from OpenML .*put cpu\.parquet into a folder"):
        load_dataset("cpu")


# --- the list ----------------------------------------------------------------------------------------------------


def test_the_list_tells_where_each_set_comes_from(tmp_path: Path, openml: OpenML) -> None:
    load_dataset("phoneme")
    write_table(tmp_path, "pol")
    remote = list_datasets().set_index("name")
    assert list(remote.index) == ["gaussian", *REAL, *BUNDLED]
    assert remote.loc["phoneme", ["rows", "features", "classes", "source", "offline"]].tolist() == [
        5404,
        5,
        2,
        "OpenML 1489 (cached)",
        True,
    ]
    assert remote.loc["cpu", "source"] == "OpenML 761"
    assert not remote.loc["cpu", "offline"]
    assert remote.loc["digits", ["rows", "classes", "offline"]].tolist() == [1797, 10, True]
    local = list_datasets(data_dir=tmp_path).set_index("name")
    assert local.loc["pol", ["source", "offline"]].tolist() == ["file pol.parquet", True]
    assert local.loc["cpu", ["source", "offline"]].tolist() == ["missing: no cpu.parquet in the folder", False]
    (tmp_path / "news20_text.parquet").touch()
    listed = list_datasets(data_dir=tmp_path).set_index("name")
    assert listed.loc["news20", "source"] == "file news20_text.parquet, embedded here"


# --- the real files ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", REAL)
def test_real_files(name: str) -> None:
    made = load_dataset(name, data_dir=real_folder())
    assert made.verified is True
    known = SOURCES[name]
    assert made.X_train.shape == (2000, known.n_features)
    assert made.X_val.shape == (1000, known.n_features)
    share = known.counts[1] / sum(known.counts)
    assert abs(made.y_train.mean() - share) < 5 * np.sqrt(share * (1 - share) / 2000)
    if name == "news20":
        np.testing.assert_allclose(np.linalg.norm(made.X_val, axis=1), 1.0, atol=1e-5)
        assert made.scaler_mean is None
    else:
        varied = made.X_train.std(axis=0) > 0
        np.testing.assert_allclose(made.X_train.std(axis=0)[varied], 1.0)
        np.testing.assert_allclose(made.X_train.mean(axis=0), 0.0, atol=1e-9)
    if name == "pol":
        assert made.scaler_scale is not None
        assert (made.scaler_scale == 0).sum() >= 22


def test_real_files_have_the_known_class_sizes() -> None:
    folder = real_folder()
    for name in REAL:
        labels = pq.read_table(folder / f"{name}.parquet", columns=["label"])["label"].to_numpy()
        assert tuple(np.bincount(labels)) == SOURCES[name].counts


def test_real_balanced() -> None:
    made = load_dataset("creditcard", data_dir=real_folder(), protocol="balanced")
    assert abs(made.y_train.mean() - 0.5) < 0.06
