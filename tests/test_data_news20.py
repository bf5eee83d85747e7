"""News20: texts from a local file or from scikit-learn, embedded once."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sklearn.datasets
from sklearn.utils import Bunch

from shapshift.data import embed_texts, load_dataset

pytestmark = pytest.mark.usefixtures("no_data_folders")


@pytest.fixture
def encoder(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A stand-in for sentence-transformers that embeds a text by its length."""
    log = SimpleNamespace(texts=[], models=[], options=[])

    class SentenceTransformer:
        def __init__(self, name: str, device: str | None = None, model_kwargs: Any = None) -> None:
            log.models.append((name, device, self))

        def encode(self, texts: list[str], **options: Any) -> Any:
            log.texts.append(texts)
            log.options.append(options)
            angle = np.array([len(text) for text in texts], dtype=np.float32)
            return np.c_[np.cos(angle), np.sin(angle)]

    monkeypatch.setitem(sys.modules, "sentence_transformers", SimpleNamespace(SentenceTransformer=SentenceTransformer))
    return log


def test_embedding(encoder: SimpleNamespace) -> None:
    vectors = embed_texts(["a", "bcd"], batch_size=2, device="cpu")
    assert vectors.dtype == np.float32
    assert vectors.shape == (2, 2)
    name, device, model = encoder.models[0]
    assert (name, device) == ("sentence-transformers/all-MiniLM-L6-v2", "cpu")
    assert model.max_seq_length == 256
    assert encoder.options[0]["normalize_embeddings"] is True


def test_embedding_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(ImportError, match=r'pip install "shapshift\[embed\]"'):
        embed_texts(["a"])


@pytest.mark.parametrize("texts", ["one text", [1, 2]])
def test_texts_must_be_strings(texts: Any) -> None:
    with pytest.raises(TypeError, match="'texts' must be a sequence of strings"):
        embed_texts(texts)


def test_news20_from_local_text(encoder: SimpleNamespace, tmp_path: Path) -> None:
    texts = ["x" * n for n in range(1, 31)]
    table = {"text": texts, "label": [0, 1] * 15, "group": ["rec.autos", "comp.graphics"] * 15, "split": ["train"] * 30}
    pq.write_table(pa.table(table), tmp_path / "news20_text.parquet")
    with pytest.warns(UserWarning, match=r"news20_text\.parquet is not the published file"):
        made = load_dataset("news20", data_dir=tmp_path)
    length = made.rows_train + 1.0
    np.testing.assert_allclose(made.X_train, np.c_[np.cos(length), np.sin(length)], atol=1e-6)
    assert made.scaler_mean is None
    assert made.feature_names == ("e000", "e001")
    assert made.groups_train is not None
    np.testing.assert_array_equal(made.groups_train == "comp.graphics", made.y_train == 1)
    with pytest.warns(UserWarning, match="published") as caught:
        again = load_dataset("news20", data_dir=tmp_path)
    assert len(encoder.texts) == 1, "embeddings are cached"
    assert caught[0].filename == __file__
    assert again.X_train.tobytes() == made.X_train.tobytes()
    assert again.groups_val is not None
    assert made.groups_val is not None
    assert again.groups_val.tolist() == made.groups_val.tolist()
    assert (made.verified, again.verified) == (False, False)


def test_news20_from_scikit_learn(encoder: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["alt.atheism", "comp.graphics", "rec.autos"]
    asked = []

    def fetch(**arguments: Any) -> Bunch:
        asked.append(arguments)
        part = {"train": (["no", "one", "  \n", "three"], [0, 1, 2, 2]), "test": (["five5"], [1])}
        texts, target = part[arguments["subset"]]
        return Bunch(data=texts, target=np.array(target), target_names=names)

    monkeypatch.setattr(sklearn.datasets, "fetch_20newsgroups", fetch)
    made = load_dataset("news20")
    assert [sorted(batch) for batch in encoder.texts] == [["five5", "one", "three"]]
    assert [arguments["subset"] for arguments in asked] == ["train", "test"]
    assert asked[0]["remove"] == ("headers", "footers", "quotes")
    by_row = dict(zip(np.r_[made.rows_train, made.rows_val], np.r_[made.y_train, made.y_val], strict=True))
    assert by_row == {0: 1, 1: 0, 2: 1}
    assert load_dataset("news20").source == "20 Newsgroups, embedded here"
    assert len(encoder.texts) == 1


def test_news20_without_a_network() -> None:
    with pytest.raises(ConnectionError, match=r"put news20\.parquet or news20_text\.parquet into a folder"):
        load_dataset("news20")
