"""Texts as vectors."""

import importlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from shapshift.checks import inputs as check
from shapshift.exceptions import InputError, MissingLibraryError

EMBEDDING_MODEL = "sentence-transformers/all-MiniLM-L6-v2"
EMBEDDING_TOKENS = 256


def embed_texts(
    texts: Sequence[str], *, model_name: str = EMBEDDING_MODEL, batch_size: int = 64, device: str | None = None
) -> npt.NDArray[np.float32]:
    """Embed texts as vectors of unit length with a sentence-transformers model.

    Needs the optional extra: ``pip install "shapshift[embed]"``. The model is downloaded at its first use.

    Parameters
    ----------
    texts : sequence of str
        Each is cut at 256 tokens.
    model_name : str, default="sentence-transformers/all-MiniLM-L6-v2"
        Any model that sentence-transformers can load.
    batch_size : int, default=64
        Texts per batch.
    device : str, optional
        Such as "cpu" or "cuda"; by default sentence-transformers chooses.

    Returns
    -------
    ndarray of float32, shape (n_texts, n_dimensions)
    """
    if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
        raise InputError("'texts' must be a sequence of strings. Wrap a single text in a list.")
    check.check_count("embed_texts", "batch_size", batch_size)
    try:
        library = importlib.import_module("sentence_transformers")
    except ImportError as error:
        raise MissingLibraryError(
            f"Embedding texts needs the sentence-transformers package ({error}). Install it with: "
            'pip install "shapshift[embed]". To do without it, put news20.parquet into the folder that data_dir or '
            "SHAPSHIFT_DATA names."
        ) from error
    model = library.SentenceTransformer(model_name, device=device)
    model.max_seq_length = EMBEDDING_TOKENS
    vectors = model.encode(list(texts), batch_size=batch_size, normalize_embeddings=True, show_progress_bar=False)
    return np.asarray(vectors, dtype=np.float32)
