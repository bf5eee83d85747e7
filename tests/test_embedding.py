"""Images, texts and other items that are no rows of numbers: embedded by a function or by a model in a folder."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from shapshift import Embedder, KNNShapley, SampledShapley, cross_value
from shapshift.tables import TableSpec, prepare, read_table

IMAGES = np.random.default_rng(0).random((11, 4, 5, 3))


def colours(batch: Any) -> Any:
    return np.asarray(batch).mean(axis=(1, 2))


@pytest.mark.parametrize("batch_size", [1, 4, 11, 256])
def test_arrays_of_any_shape_in_batches(batch_size: int) -> None:
    seen = []

    def watched(batch: Any) -> Any:
        seen.append(batch.shape)
        return colours(batch)

    found = Embedder(watched, batch_size=batch_size, progress=False).fit_transform(IMAGES)
    np.testing.assert_array_equal(found, IMAGES.mean(axis=(1, 2)))
    assert sum(shape[0] for shape in seen) == 11
    assert {shape[1:] for shape in seen} == {(4, 5, 3)}
    assert max(shape[0] for shape in seen) == min(batch_size, 11)


@pytest.mark.parametrize(
    ("items", "kind"),
    [
        (["a", "bb", "ccc"], list),
        (("a", "bb", "ccc"), list),
        (np.array(["a", "bb", "ccc"]), np.ndarray),
        (pd.Series(["a", "bb", "ccc"], index=[5, 3, 9]), pd.Series),
        (pl.Series(["a", "bb", "ccc"]), pl.Series),
    ],
    ids=["list", "tuple", "array", "pandas", "polars"],
)
def test_items_reach_the_function_as_they_are(items: Any, kind: type) -> None:
    def lengths(batch: Any) -> Any:
        assert isinstance(batch, kind)
        return [[float(len(text))] for text in batch]

    assert Embedder(lengths, batch_size=2).transform(items).tolist() == [[1.0], [2.0], [3.0]]


def test_objects_such_as_images_of_a_library() -> None:
    pictures = [SimpleNamespace(size=(row, 2)) for row in range(5)]
    found = Embedder(lambda batch: np.array([picture.size for picture in batch], dtype=np.uint8)).transform(pictures)
    assert found.tolist() == [[row, 2] for row in range(5)]
    assert found.dtype == np.float64


def test_valuing_images() -> None:
    with pytest.raises(ValueError, match=r"got 4D array instead.*shapshift\.Embedder\(function\)\.transform\(X\)"):
        KNNShapley().fit(IMAGES, [0, 1] * 5 + [0])
    vectors, labels = Embedder(colours).transform(IMAGES), [0, 1] * 5 + [0]
    assert KNNShapley().fit(vectors[:8], labels[:8]).value(vectors[8:], labels[8:]).n_train == 8
    assert cross_value(KNNShapley(2), vectors, labels).n_train == 11
    texts = np.array([["aa"], ["b"], ["cc"], ["d"]], dtype=object)
    pipe = make_pipeline(Embedder(lambda batch: [[len(row[0])] for row in batch]), LogisticRegression())
    found = SampledShapley(pipe, progress=False).fit(texts, [1, 0, 1, 0]).value(texts, [1, 0, 1, 0])
    assert found.values.sum() == pytest.approx(0.5)
    assert clone(pipe[0]).get_params()["batch_size"] == 256


@pytest.mark.parametrize(
    ("embed", "words"),
    [
        (
            lambda batch: np.zeros(len(batch)),
            r"must return one vector .* \(4, d\)\. Got shape \(4,\) for items 0 to 3\.$",
        ),
        (lambda batch: [1.0] * len(batch), r"Got shape \(4,\) for items 0 to 3\.$"),
        (lambda batch: batch, r"Got shape \(4, 4, 5, 3\) for items 0 to 3\.$"),
        (lambda batch: None, r"Got NoneType for items 0 to 3\.$"),
        (lambda batch: (image.ravel() for image in batch), r"Got generator for items 0 to 3\.$"),
        (lambda batch: [[1.0], [1.0, 2.0]] * 2, "rows of the same length"),
        (lambda batch: np.zeros((1, 3)), r"one vector for each item.*Got shape \(1, 3\) for 4 items"),
        (
            lambda batch: np.zeros((len(batch), 1 + len(batch))),
            r"Got shape \(3, 4\) for 3 items after vectors of length 5",
        ),
        (lambda batch: np.full((len(batch), 2), np.nan), r"returned for items 0 to 3 contains NaN"),
        (lambda batch: sparse.eye_array(len(batch)).tocsr(), "is sparse, which is not supported"),
        (lambda batch: [["text"]] * len(batch), "could not convert"),
        (3, "'embed' parameter of Embedder must be a function, or the name or the folder"),
    ],
    ids=["flat", "list", "images", "none", "generator", "ragged", "few", "lengths", "nan", "sparse", "text", "number"],
)
def test_what_a_function_must_return(embed: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Embedder(embed, batch_size=4).transform(IMAGES)


@pytest.mark.parametrize(
    "items",
    ["text", 5, {"a": 1}, iter([1]), [], np.array(3.0)],
    ids=["text", "number", "dict", "iterator", "empty", "scalar"],
)
def test_what_can_be_embedded(items: Any) -> None:
    with pytest.raises(ValueError, match=r"'X' (must be a list or array|is empty)"):
        Embedder(colours).transform(items)
    with pytest.raises(ValueError, match="'batch_size' parameter of Embedder"):
        Embedder(colours, batch_size=0).transform(IMAGES)


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A stand-in for sentence-transformers; it loads folders that have weights, and no name."""
    names: list[str] = []

    class SentenceTransformer:
        max_seq_length = 0

        def __init__(self, name: str, device: str | None = None) -> None:
            if not (Path(name) / "model.safetensors").exists():
                raise OSError("no file named model.safetensors")
            names.append(name)

        def encode(self, texts: list[str], **_: Any) -> Any:
            assert self.max_seq_length == 256
            return np.array([[len(text), 1.0] for text in texts], dtype=np.float32)

    monkeypatch.setitem(sys.modules, "sentence_transformers", SimpleNamespace(SentenceTransformer=SentenceTransformer))
    return names


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that looks like a saved model."""
    made = tmp_path / "minilm"
    made.mkdir()
    for name in ("modules.json", "model.safetensors"):
        (made / name).write_text("{}")
    return made


def test_a_model_in_a_folder_needs_no_network(loaded: list[str], folder: Path) -> None:
    for given in (folder, str(folder)):
        assert Embedder(given).transform(["a", "bcd"]).tolist() == [[1, 1], [3, 1]]
    assert loaded == [str(folder)] * 2
    with pytest.raises(TypeError, match="'X' must be a sequence of strings for a text model"):
        Embedder(folder).transform(IMAGES)


def test_a_folder_that_is_no_model_is_named(loaded: list[str], folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"nowhere', which is not there. Where there is a network, save the model"):
        Embedder(tmp_path / "nowhere").transform(["a"])
    with pytest.raises(ValueError, match=r"names '[^ ]*modules\.json', which is a file"):
        Embedder(folder / "modules.json").transform(["a"])
    with pytest.raises(ValueError, match=r"'\./nowhere', which is not there"):
        Embedder("./nowhere").transform(["a"])
    (folder / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"minilm', which is incomplete .*no file named model\.safetensors.*\.save\("):
        Embedder(folder).transform(["a"])
    (folder / "modules.json").unlink()
    with pytest.raises(ValueError, match=r"minilm', which has neither modules\.json nor config\.json"):
        Embedder(folder).transform(["a"])
    with pytest.raises(ValueError, match=r"'all-MiniLM-L6-v2', which is not here or cannot be loaded"):
        Embedder("all-MiniLM-L6-v2").transform(["a"])
    assert not loaded


def test_text_columns_with_a_model_in_a_folder(loaded: list[str], folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("text,y\nabc,0\nde fg,1\nh,0\n")
    table = read_table(path, text="y")
    found = prepare(table, table, TableSpec("y", text="text", embed=str(folder)))
    assert found.X_train[:, 0].tolist() == [3, 5, 1]
    assert any(str(folder) in note for note in found.notes)
    assert set(loaded) == {str(folder)}
