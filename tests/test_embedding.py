"""Images, texts and other items that are no rows of numbers: embedded by a function or by a model in a folder."""

from __future__ import annotations

import io
import json
import re
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli_files import run
from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from shapshift import Embedder, KNNShapley, SampledShapley, cross_value
from shapshift.tables import Images, TableSpec, prepare, read_table
from shapshift.tables.vector_cache import VectorCache, _checksum

IMAGES = np.random.default_rng(0).random((11, 4, 5, 3))


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of kept vectors: of its own for each test."""
    monkeypatch.setenv("SHAPSHIFT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "vectors"


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
    assert found.dtype == np.uint8


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
            r"must return one vector .* \(4, d\)\. Got shape \(4,\) for 4 items\.$",
        ),
        (lambda batch: [1.0] * len(batch), r"Got shape \(4,\) for 4 items\.$"),
        (lambda batch: batch, r"Got shape \(4, 4, 5, 3\) for 4 items\.$"),
        (lambda batch: None, r"Got NoneType for 4 items\.$"),
        (lambda batch: (image.ravel() for image in batch), r"Got generator for 4 items\.$"),
        (lambda batch: [[1.0], [1.0, 2.0]] * 2, "rows of the same length"),
        (lambda batch: np.zeros((1, 3)), r"one vector for each item.*Got shape \(1, 3\) for 4 items"),
        (
            lambda batch: np.zeros((len(batch), 1 + len(batch))),
            r"Got shape \(3, 4\) for 3 items after vectors of length 5",
        ),
        (
            lambda batch: np.full((len(batch), 2), np.nan),
            r"of finite numbers\. Got nan for item \d+ \(from 0\).* 4 of 4 items",
        ),
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

        def __init__(self, name: str, device: str | None = None, model_kwargs: Any = None) -> None:
            assert model_kwargs == {"use_safetensors": True}
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
    with pytest.raises(ValueError, match=r"nowhere', which is not there. On a machine with a network, save the model"):
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
    with pytest.raises(ValueError, match=r"'all-MiniLM-L6-v2', which is not on this machine or cannot be loaded"):
        Embedder("all-MiniLM-L6-v2").transform(["a"])
    assert not loaded


@pytest.mark.parametrize(
    ("file", "content", "name"),
    [
        ("modules.json", [{"type": "custom.Model"}], "custom.Model"),
        ("modules.json", [{"type": "sentence_transformers.util.torch"}], "sentence_transformers.util.torch"),
        ("modules.json", [{"type": 3}], "3"),
        ("1_Router/router_config.json", {"types": {"a": "joblib.numpy_pickle"}}, "joblib.numpy_pickle"),
        ("2_Dense/config.json", {"activation_function": "os.abort"}, "os.abort"),
    ],
)
def test_a_folder_with_classes_of_its_own_is_not_loaded(
    loaded: list[str], folder: Path, file: str, content: Any, name: str
) -> None:
    (folder / file).parent.mkdir(exist_ok=True)
    (folder / file).write_text(json.dumps(content))
    with pytest.raises(ValueError, match=rf"{re.escape(file)} names the class .*{re.escape(name)}.* pass a function"):
        Embedder(folder).transform(["a"])
    assert not loaded


def test_pickled_weights_are_not_loaded(loaded: list[str], folder: Path) -> None:
    (folder / "2_Dense").mkdir()
    (folder / "2_Dense" / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(ValueError, match=r"2_Dense/pytorch_model\.bin holds pickled weights.*Convert it"):
        Embedder(folder).transform(["a"])
    assert not loaded
    (folder / "2_Dense" / "model.safetensors").write_bytes(b"")  # which is loaded instead
    assert Embedder(folder).transform(["a"]).tolist() == [[1, 1]]


def test_classes_of_ordinary_models_are_loaded(loaded: list[str], folder: Path) -> None:
    names = ["models.Transformer", "models.Pooling.Pooling", "sentence_transformer.modules.dense.Dense"]
    (folder / "modules.json").write_text(json.dumps([{"type": f"sentence_transformers.{name}"} for name in names]))
    (folder / "config.json").write_text(json.dumps({"activation_function": "gelu_new", "architectures": ["GPT2Model"]}))
    (folder / "2_Dense").mkdir()
    (folder / "2_Dense" / "config.json").write_text('{"activation_function": "torch.nn.modules.activation.Tanh"}')
    assert Embedder(folder).transform(["a"]).tolist() == [[1, 1]]


def test_files_behind_linked_folders_identify_a_model(loaded: list[str], folder: Path, tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps({"model": name}))
    (folder / "1_Pooling").symlink_to(tmp_path / "a")
    (folder / "loop").symlink_to(folder)
    model = Embedder(folder, cache=tmp_path / "vectors")
    model.transform(["a"])
    model.transform(["a"])
    assert len(loaded) == 1
    (folder / "1_Pooling").unlink()
    (folder / "1_Pooling").symlink_to(tmp_path / "b")
    model.transform(["a"])
    assert len(loaded) == 2, "another model"


def test_text_columns_with_a_model_in_a_folder(loaded: list[str], folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("text,y\nabc,0\nde fg,1\nh,0\n")
    table = read_table(path, text="y")
    found = prepare(table, table, TableSpec("y", text="text", embed=str(folder)))
    assert found.X_train[:, 0].tolist() == [3, 5, 1]
    assert any(str(folder) in note for note in found.notes)
    assert loaded == [str(folder)]
    assert found.X_train.dtype == np.float32
    assert prepare(table, table, TableSpec(**found.spec)).X_train[:, 0].tolist() == [3, 5, 1]
    assert loaded == [str(folder)], "kept vectors need no model"
    with open(folder / "model.safetensors", "a") as weights:
        weights.write("changed")
    prepare(table, table, TableSpec(**found.spec))
    assert loaded == [str(folder)] * 2, "another model"


class Counted:
    """A function of texts that says how many it has seen."""

    def __init__(self, most: int | None = None) -> None:
        self.seen: list[str] = []
        self.most = most

    def __call__(self, batch: Any) -> Any:
        if self.most is not None and len(self.seen) >= self.most:
            raise KeyboardInterrupt
        self.seen += list(batch)
        return np.array([[len(text), text.count("a")] for text in batch], dtype=np.float16)


TEXTS = [f"{'ab' * (i % 7)} {i % 30}" for i in range(100)] + ["", "a\ud800", "é"]


def test_equal_items_are_embedded_once_in_an_order_of_their_own() -> None:
    function, again = Counted(), Counted()
    found = Embedder(function, batch_size=8).transform(TEXTS)
    assert found.dtype == np.float16
    assert found.tolist() == [[len(text), text.count("a")] for text in TEXTS]
    assert sorted(function.seen) == sorted(set(TEXTS))
    np.testing.assert_array_equal(Embedder(again, batch_size=8).transform(TEXTS[::-1]), found[::-1])
    assert again.seen == function.seen, "batches do not depend on the order of the items"
    pixels = np.zeros((6, 2, 2), np.uint8)
    pixels[3] = 1
    shapes: list[Any] = []
    Embedder(lambda batch: (shapes.append(batch.shape), batch.reshape(len(batch), -1))[1]).transform(pixels)
    assert shapes == [(2, 2, 2)]


def test_a_run_that_was_killed_resumes(cache: Path) -> None:
    killed, rest, nothing = Counted(24), Counted(), Counted()
    with pytest.raises(KeyboardInterrupt):
        Embedder(killed, batch_size=8, cache=cache, name="counts-1").transform(TEXTS)
    found = Embedder(rest, batch_size=8, cache=cache, name="counts-1").transform(TEXTS)
    assert sorted(killed.seen + rest.seen) == sorted(set(TEXTS))
    np.testing.assert_array_equal(found, Embedder(Counted()).transform(TEXTS))
    again = Embedder(nothing, cache=cache, name="counts-1").transform(TEXTS[:50])
    np.testing.assert_array_equal(again, found[:50])
    assert (nothing.seen, again.dtype) == ([], np.float16)
    Embedder(nothing, cache=cache, name="counts-2").transform(TEXTS)
    assert len(nothing.seen) == len(set(TEXTS)), "another name is another function"


def test_a_process_that_is_killed_loses_one_batch(tmp_path: Path) -> None:
    program = """
import os, sys, time
import numpy as np
from shapshift import Embedder

def slow(batch):
    time.sleep(0.15)
    print(len(batch), flush=True)
    if len(batch) < 10:  # the last one
        os._exit(9)
    return np.array([[float(text)] for text in batch])

Embedder(slow, batch_size=10, cache=sys.argv[1], name="slow-1").transform([str(i) for i in range(1000, 1055)])
"""
    run = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True)
    assert (run.returncode, run.stdout.split()) == (9, ["10"] * 5 + ["5"]), run.stderr
    seen: list[str] = []

    def rest(batch: Any) -> Any:
        seen.extend(batch)
        return np.array([[float(text)] for text in batch])

    found = Embedder(rest, cache=tmp_path, name="slow-1").transform([str(i) for i in range(1000, 1055)])
    assert found[:, 0].tolist() == list(range(1000, 1055))
    assert len(seen) == 5


def test_two_at_a_time(cache: Path) -> None:
    def work(part: int) -> Any:
        return Embedder(Counted(), batch_size=3, cache=cache, name="n").transform(TEXTS[part:] + TEXTS[:part])

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(work, range(8)))
    for part, found in enumerate(results):
        np.testing.assert_array_equal(np.roll(found, part, axis=0), results[0])


def test_what_identifies_a_function_must_be_said(cache: Path) -> None:
    with pytest.raises(ValueError, match=r"'name' parameter of Embedder must identify the function.*name='halves-1'"):
        Embedder(colours, cache=cache).transform(IMAGES)
    with pytest.raises(ValueError, match="'cache' parameter of Embedder needs items whose content can be hashed"):
        Embedder(Counted(), cache=cache, name="n").transform([SimpleNamespace(), SimpleNamespace()])


def test_damaged_vectors_are_computed_again(cache: Path) -> None:
    expected = Embedder(Counted(), cache=cache, name="n").transform(TEXTS)
    (path,) = cache.iterdir()
    with sqlite3.connect(path) as file:
        keys = [key for (key,) in file.execute("SELECT key FROM vectors ORDER BY key")]
        file.execute("UPDATE vectors SET vector = ? WHERE key = ?", (b"\1\2\3\4", keys[0]))
        file.execute("UPDATE vectors SET kind = 'object' WHERE key = ?", (keys[1],))
        file.execute("UPDATE vectors SET vector = 5 WHERE key = ?", (keys[2],))
        file.execute("UPDATE vectors SET checksum = NULL WHERE key = ?", (keys[3],))
        file.execute("UPDATE vectors SET vector = X'' WHERE key = ?", (keys[4],))
    function = Counted()
    np.testing.assert_array_equal(Embedder(function, cache=cache, name="n").transform(TEXTS), expected)
    assert len(function.seen) == 5


def test_kept_vectors_that_are_not_numbers_or_too_long_are_computed_again(cache: Path) -> None:
    expected = Embedder(Counted(), cache=cache, name="n").transform(TEXTS)
    with VectorCache(cache, "function n") as kept:
        keys = [key for (key,) in kept._file.execute("SELECT key FROM vectors ORDER BY key").fetchall()]
        kept.put(np.array(keys[:1]), np.array([[np.nan, 1.0]]))
        kept.put(np.array(keys[-1:]), np.array([[1.0]]))
    np.testing.assert_array_equal(Embedder(Counted(), cache=cache, name="n").transform(TEXTS), expected)


@pytest.mark.parametrize("content", [b"", b"abc"])
def test_kept_vectors_without_whole_numbers_are_computed_again(cache: Path, content: bytes) -> None:
    expected = Embedder(Counted(), cache=cache, name="n").transform(TEXTS)
    with VectorCache(cache, "function n") as kept:
        for (key,) in kept._file.execute("SELECT key FROM vectors").fetchall():
            changed = content, _checksum(key, "float16", content), key
            kept._file.execute("UPDATE vectors SET vector = ?, checksum = ? WHERE key = ?", changed)
    np.testing.assert_array_equal(Embedder(Counted(), cache=cache, name="n").transform(TEXTS), expected)


def test_files_that_are_no_kept_vectors_are_refused(cache: Path, tmp_path: Path) -> None:
    Embedder(Counted(), cache=cache, name="n").transform(TEXTS)
    (path,) = cache.iterdir()
    path.write_bytes(b"not a database, but long enough to be looked at" * 50)
    with pytest.raises(ValueError, match=r"cache of vectors .* cannot be used .*Remove the file"):
        Embedder(Counted(), cache=cache, name="n").transform(TEXTS)
    path.unlink()
    with sqlite3.connect(path) as file:
        file.execute("CREATE TABLE other (x)")
        file.execute("CREATE VIEW vectors AS SELECT x AS key, x AS kind, x AS vector, x AS checksum FROM other")
    with pytest.raises(ValueError, match="is an SQLite file, but not a cache of vectors"):
        Embedder(Counted(), cache=cache, name="n").transform(TEXTS)
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="cannot be used"):
        Embedder(Counted(), cache=tmp_path / "file", name="n").transform(TEXTS)


@pytest.mark.parametrize("empty", [None, 3])
def test_texts_that_are_missing_are_named(loaded: list[str], folder: Path, empty: Any) -> None:
    with pytest.raises(ValueError, match=r"Item 1 is (NoneType|int)"):
        Embedder(folder).transform(["a", empty])
    assert Embedder(folder).transform(["a", ""]).tolist() == [[1, 1], [0, 1]]


def test_functions_and_embedders_for_columns_of_texts() -> None:
    table = pa.table({"body": ["abc", "", "abc", "d"], "x": [1.0, 2.0, 3.0, 4.0], "y": [0, 1, 0, 1]})
    for embed in (Counted(), Embedder(Counted(), batch_size=1)):
        got = prepare(table, table.slice(1, 2), TableSpec("y", text="body", embed=embed, scale="none"))
        assert got.X_train[:, :2].tolist() == [[3, 1], [0, 0], [3, 1], [1, 0]]
        assert got.X_val[:, :2].tolist() == [[0, 0], [3, 1]]
        assert got.spec["embed"] == "the function Counted"
        json.dumps(got.spec)
    with pytest.raises(ValueError, match=r"no column is to be embedded\. Name columns of texts with --text"):
        prepare(table, table, TableSpec("y", embed=Counted()))
    with pytest.raises(ValueError, match=r"Column 'body' cannot be embedded. .*Got shape \(3,\) for 3 items"):
        prepare(table, table, TableSpec("y", text="body", embed=lambda batch: np.zeros(len(batch))))


def test_progress_is_shown_where_it_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    table = pa.table({"body": ["abc", "d"], "y": [0, 1]})
    spec = TableSpec("y", text="body", embed=Counted())
    for progress in (True, False, None):
        prepare(table, table, spec, progress=progress)
        captured = capsys.readouterr()
        assert ("Embedding" in captured.err) is (progress is True)
        assert captured.out == ""


def test_many_short_texts() -> None:
    texts = [str(i % 50_000) for i in range(200_000)]
    found = Embedder(lambda batch: np.array([[float(text)] for text in batch], dtype=np.float32)).transform(texts)
    assert found[:, 0].tolist() == [float(text) for text in texts]


def picture(colour: tuple[int, int, int], size: tuple[int, int] = (12, 9)) -> bytes:
    """An encoded image of one colour."""
    pillow = pytest.importorskip("PIL.Image")
    with io.BytesIO() as file:
        pillow.new("RGB", size, colour).save(file, "PNG")
        return file.getvalue()


def mean_colours(batch: Any) -> Any:
    return [np.asarray(image).mean(axis=(0, 1)) for image in batch]


def test_images_from_files_and_from_bytes(tmp_path: Path) -> None:
    encoded = [picture((255, 0, 0)), picture((0, 255, 0), (5, 40)), picture((255, 0, 0))]
    (tmp_path / "img").mkdir()
    for name, content in zip("abc", encoded, strict=True):
        (tmp_path / "img" / f"{name}.png").write_bytes(content)
    paths = pa.array(["img/a.png", "img/b.png", "img/c.png"])
    both = pa.StructArray.from_arrays([pa.array([None, encoded[1], encoded[2]]), paths], ["bytes", "path"])
    expected = [[255, 0, 0], [0, 255, 0], [255, 0, 0]]
    assert Embedder(mean_colours).transform(Images(encoded)).tolist() == expected
    for name, column in {"paths": paths, "bytes": pa.array(encoded), "both": both}.items():
        pq.write_table(pa.table({"photo": column, "y": [0, 1, 0]}), tmp_path / f"{name}.parquet")
        table = read_table(tmp_path / f"{name}.parquet")
        got = prepare(table, table, TableSpec("y", image="photo", embed=mean_colours))
        assert got.X_train.tolist() == got.X_val.tolist() == expected
        assert got.feature_names == ["photo[0]", "photo[1]", "photo[2]"]


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        (["../outside.png"], r"Image 0, '\.\./outside\.png', lies outside the folder of its table"),
        (["/etc/hostname"], "lies outside the folder of its table"),
        (["link.png"], "lies outside the folder of its table"),
        (["gone.png"], r"Image 0, 'gone\.png', cannot be read \(No such file"),
        (["bad.png"], r"Image 0, 'bad\.png', cannot be decoded .*Replace the image, or leave its row out"),
        ([b"\x89PNG\r\n"], "Image 0 cannot be decoded"),
        ([None], r"Column 'photo' is to be embedded as images, but has no image in 1 rows, the first of them row 0"),
        ([3], "but holds int64, neither paths of files nor bytes"),
    ],
)
def test_images_that_cannot_be_used_are_named(entries: list[Any], words: str, tmp_path: Path) -> None:
    pytest.importorskip("PIL.Image")
    folder = tmp_path / "table"
    folder.mkdir()
    (tmp_path / "outside.png").write_bytes(picture((1, 2, 3)))
    (folder / "link.png").symlink_to(tmp_path / "outside.png")
    (folder / "bad.png").write_bytes(picture((1, 2, 3))[:40])
    kind = pa.string() if entries == [None] else None
    pq.write_table(pa.table({"photo": pa.array(entries, kind), "y": [0]}), folder / "rows.parquet")
    table = read_table(folder / "rows.parquet")
    with pytest.raises(ValueError, match=words):
        prepare(table, table, TableSpec("y", image="photo", embed=mean_colours))


def test_images_of_a_table_in_memory_lie_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("PIL.Image")
    (tmp_path / "here").mkdir()
    for name in ("here/a.png", "b.png"):
        (tmp_path / name).write_bytes(picture((1, 2, 3)))
    monkeypatch.chdir(tmp_path / "here")
    spec = TableSpec("y", image="photo", embed=mean_colours)
    for path in ("a.png", str(tmp_path / "here" / "a.png")):
        table = pa.table({"photo": [path], "y": [0]})
        assert prepare(table, table, spec).X_train.tolist() == [[1, 2, 3]]
    for path in ("../b.png", str(tmp_path / "b.png")):
        table = pa.table({"photo": [path], "y": [0]})
        with pytest.raises(ValueError, match="lies outside the current folder"):
            prepare(table, table, spec)


def test_images_that_are_programs_are_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = pytest.importorskip("PIL.EpsImagePlugin")
    run: list[bool] = []
    monkeypatch.setattr(plugin, "Ghostscript", lambda *_, **__: run.append(True))
    program = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n%%EOF\n"
    with pytest.raises(ValueError, match=r"Image 0 cannot be decoded .*EPS"):
        Embedder(mean_colours).transform(Images([program]))
    assert not run


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder with a small network, and a stand-in for torchvision that knows its architecture."""
    torch, safetensors = pytest.importorskip("torch"), pytest.importorskip("safetensors.torch")

    def small(num_classes: int) -> Any:
        return torch.nn.Sequential(
            torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(3, 4), torch.nn.Linear(4, num_classes)
        )

    def get_model(name: str, *, weights: None, num_classes: int) -> Any:
        return {"small": small}[name](num_classes)

    torch.manual_seed(0)
    made = small(2)
    folder = tmp_path / "network"
    folder.mkdir()
    safetensors.save_file(made.state_dict(), folder / "model.safetensors")
    settings = {
        "architecture": "small",
        "num_classes": 2,
        "resize": 8,
        "image_size": 8,
        "mean": [0] * 3,
        "std": [1] * 3,
    }
    (folder / "config.json").write_text(json.dumps(settings))
    models = SimpleNamespace(get_model=get_model)
    monkeypatch.setitem(sys.modules, "torchvision", SimpleNamespace(models=models))
    monkeypatch.setitem(sys.modules, "torchvision.models", models)
    return folder


def test_a_network_for_images_in_a_folder(network: Path, tmp_path: Path) -> None:
    torch, safetensors = pytest.importorskip("torch"), pytest.importorskip("safetensors.torch")
    encoded = [picture((255, 0, 0)), picture((0, 51, 0), (40, 9)), picture((255, 0, 0))]
    weights = safetensors.load_file(network / "model.safetensors")
    colours = torch.tensor([[1.0, 0, 0], [0, 0.2, 0], [1.0, 0, 0]])
    expected = torch.nn.functional.linear(colours, weights["2.weight"], weights["2.bias"]).numpy()
    found = Embedder(network).transform(Images(encoded))
    np.testing.assert_allclose(found, expected, atol=1e-6)  # all layers but the last
    assert found.dtype == np.float32
    for name, content in zip("abc", encoded, strict=True):
        (tmp_path / f"{name}.png").write_bytes(content)
    np.testing.assert_array_equal(Embedder(str(network)).transform([tmp_path / f"{name}.png" for name in "abc"]), found)
    table = pa.table({"photo": encoded, "y": [0, 1, 0]})
    got = prepare(table, table, TableSpec("y", image="photo", embed=network))
    np.testing.assert_allclose(got.X_val, found, atol=1e-6)
    with pytest.raises(ValueError, match=r"is one for images. Name columns of images with --image"):
        prepare(
            pa.table({"t": ["a"], "y": [0]}), pa.table({"t": ["a"], "y": [0]}), TableSpec("y", text="t", embed=network)
        )
    (network / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(ValueError, match=r"whose network cannot be loaded.*safetensors\.torch\.save_file"):
        Embedder(network).transform(Images(encoded))


def test_networks_for_images_say_what_to_install(network: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchvision.models", None)
    with pytest.raises(ImportError, match=r'pip install "shapshift\[image\]"'):
        Embedder(network).transform(Images([picture((1, 2, 3))]))


def test_the_command_line_embeds_texts(loaded: list[str], folder: Path, tmp_path: Path) -> None:
    lengths = np.random.default_rng(0).permutation(60) + 1
    table = pa.table({"body": ["x" * int(n) for n in lengths], "y": (lengths > 30).astype(int)})
    pq.write_table(table, tmp_path / "texts.parquet")
    where = ["value", str(tmp_path / "texts.parquet"), "--label", "y"]
    given = [*where, "--text", "body", "--embed", str(folder), "--quiet"]
    assert run(*given, "--out", str(tmp_path / "first")).code == 0
    expected = cross_value(KNNShapley(), np.array([[n, 1.0] for n in lengths]), table["y"]).values
    first = pq.read_table(tmp_path / "first" / "values.parquet")
    np.testing.assert_allclose(first["value"], expected, atol=1e-12)
    assert run(*given, "--out", str(tmp_path / "second")).code == 0
    assert loaded == [str(folder)], "the second run has kept vectors"
    refused = run(*where, "--embed", str(folder))
    assert (refused.code, "--text" in refused.err) == (2, True)
