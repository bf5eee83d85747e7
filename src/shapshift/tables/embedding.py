"""Vectors for images, texts and whatever else is no table: from a function, or from a model in a folder."""

import importlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin

from shapshift._arrays import take_rows
from shapshift._progress import progress_bar
from shapshift.checks.inputs import check_count, check_features, check_progress, tensor_to_numpy, wrong
from shapshift.exceptions import InputError, MissingLibraryError

Floats = npt.NDArray[np.float64]

EMBEDDING_MODEL = "sentence-transformers/all-MiniLM-L6-v2"
EMBEDDING_TOKENS = 256
# Either file is in every folder of such a model.
_MODEL_FILES = ("modules.json", "config.json")


class Embedder(TransformerMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn ships no types
    """Vectors of items that are no rows of numbers, such as images and texts, for whatever measures distances.

    Parameters
    ----------
    embed : callable, str or path-like, default="sentence-transformers/all-MiniLM-L6-v2"
        A function from a batch of items, as they were given (an array of shape (b, height, width, channels), a list of
        b images or texts), to b vectors, as an array or tensor of shape (b, d). Or, for texts, a sentence-transformers
        model: its name, which is downloaded at first use, or the folder it was saved to, which needs no network. Texts
        are cut at 256 tokens and vectors have length 1. Needs the extra ``embed``.
    batch_size : int, default=256
        Number of items that are embedded at a time.
    device : str, optional
        Where a model computes, such as "cpu" or "cuda"; by default sentence-transformers chooses.
    progress : bool, default=None
        Show a progress bar; None shows it in terminals and notebooks only.

    Examples
    --------
    >>> import numpy as np
    >>> from shapshift import Embedder, KNNShapley
    >>> images = np.random.default_rng(0).random((20, 8, 8, 3))
    >>> colours = Embedder(lambda batch: batch.mean(axis=(1, 2)))
    >>> vectors = colours.transform(images)
    >>> vectors.shape
    (20, 3)
    >>> model = KNNShapley().fit(vectors[:15], [0, 1, 2] * 5)
    >>> model.value(vectors[15:], [0, 1, 2, 0, 1]).n_train
    15
    """

    def __init__(
        self,
        embed: Callable[[Any], Any] | str | os.PathLike[str] = EMBEDDING_MODEL,
        *,
        batch_size: int = 256,
        device: str | None = None,
        progress: bool | None = None,
    ) -> None:
        self.embed = embed
        self.batch_size = batch_size
        self.device = device
        self.progress = progress

    def fit(self, X: Any, y: Any = None) -> Self:
        """Return the transformer: there is nothing to learn.

        Parameters
        ----------
        X, y
            Ignored.

        Returns
        -------
        self
        """
        return self

    def transform(self, X: Any) -> Floats:
        """Embed items.

        Parameters
        ----------
        X : array of shape (n, ...), list, or column of a frame
            The items.

        Returns
        -------
        ndarray of shape (n, d)
        """
        owner = type(self).__name__
        check_count(owner, "batch_size", self.batch_size)
        check_progress(owner, self.progress)
        scalar = isinstance(X, str | bytes | dict) or not hasattr(X, "__len__")
        if scalar or getattr(X, "ndim", 1) == 0:
            raise InputError(f"'X' must be a list or array of items to embed. Got {type(X).__name__} instead.")
        if len(X) == 0:
            raise InputError("'X' is empty: there is nothing to embed. Pass at least one item.")
        function = self.embed if callable(self.embed) else _text_model(owner, self.embed, self.device, X)
        parts: list[Floats] = []
        with progress_bar("Embedding", len(X), self.progress) as advance:
            for first in range(0, len(X), int(self.batch_size)):
                here = np.arange(first, min(first + int(self.batch_size), len(X)))
                parts.append(_checked(owner, function(take_rows(X, here)), here.size, first, parts))
                advance(here.size)
        return np.vstack(parts)

    def __sklearn_is_fitted__(self) -> bool:
        return True


def _checked(owner: str, made: Any, size: int, first: int, before: list[Floats]) -> Floats:
    """Return the vectors of a batch; refuse too many or too few, of another length, or with what is no number."""
    called = f"what 'embed' returned for items {first} to {first + size - 1}"
    made = tensor_to_numpy(made)
    try:
        shape = None if sparse.issparse(made) or hasattr(made, "columns") else np.shape(made)
    except ValueError:  # vectors of several lengths
        shape = None
    if shape is not None and len(shape) != 2:
        got = f"shape {shape}" if shape else type(made).__name__
        raise InputError(
            f"The 'embed' function of {owner} must return one vector for each item, as an array of shape ({size}, d). "
            f"Got {got} for items {first} to {first + size - 1}."
        )
    vectors: Floats = check_features(made, called, sparse_ok="which is not supported").rows
    width = before[0].shape[1] if before else vectors.shape[1]
    if vectors.shape != (size, width):
        raise InputError(
            f"The 'embed' function of {owner} must return one vector for each item, all of one length. Got shape "
            f"{vectors.shape} for {size} items{f' after vectors of length {width}' if before else ''}."
        )
    return vectors


def _text_model(owner: str, embed: Any, device: str | None, texts: Any) -> Callable[[Any], Any]:
    """Load a sentence-transformers model, and return what embeds a batch of texts."""
    if not isinstance(embed, str | os.PathLike):
        raise wrong(owner, "embed", "a function, or the name or the folder of a model", embed)
    if not all(isinstance(text, str) for text in texts):
        raise InputError(f"'X' must be a sequence of strings for a text model. {owner} takes a function for others.")
    name = os.fspath(embed)
    folder = Path(name).expanduser()
    local = folder.is_dir() or isinstance(embed, os.PathLike) or folder.is_absolute() or name.startswith((".", "~"))
    how = (
        "Where there is a network, save the model with sentence_transformers.SentenceTransformer"
        f"('{EMBEDDING_MODEL}').save('folder'), copy the folder here, and name it."
    )
    if local and not any((folder / file).is_file() for file in _MODEL_FILES):
        missing = f"has neither {' nor '.join(_MODEL_FILES)}" if folder.is_dir() else "is not there"
        what = f"{name!r}, which is a file" if folder.is_file() else f"the folder {name!r}, which {missing}"
        raise InputError(f"The 'embed' parameter of {owner} names {what}. {how}")
    try:
        library = importlib.import_module("sentence_transformers")
    except ImportError as error:
        raise MissingLibraryError(
            f"Embedding texts needs the sentence-transformers package ({error}). Install it with: "
            'pip install "shapshift[embed]".'
        ) from error
    try:
        model = library.SentenceTransformer(str(folder) if local else name, device=device)
    except Exception as error:  # of the library, of what it loads with, or of the network
        what = f"the folder {name!r}, which is incomplete" if local else f"{name!r}, which is not here"
        raise InputError(
            f"The 'embed' parameter of {owner} names {what} or cannot be loaded ({type(error).__name__}: {error}). "
            f"{how}"
        ) from error
    model.max_seq_length = EMBEDDING_TOKENS

    def encode(batch: Any) -> Any:
        return model.encode(list(batch), batch_size=64, normalize_embeddings=True, show_progress_bar=False)

    return encode


def embed_texts(
    texts: Sequence[str],
    *,
    model_name: str | os.PathLike[str] = EMBEDDING_MODEL,
    batch_size: int = 64,
    device: str | None = None,
) -> npt.NDArray[np.float32]:
    """Embed texts as vectors of unit length with a sentence-transformers model.

    Needs the optional extra: ``pip install "shapshift[embed]"``. A model that is named is downloaded at its first use.

    Parameters
    ----------
    texts : sequence of str
        Each is cut at 256 tokens.
    model_name : str or path-like, default="sentence-transformers/all-MiniLM-L6-v2"
        As `embed` of :class:`shapshift.Embedder`: any model that sentence-transformers can load, or its folder.
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
    embedder = Embedder(model_name, batch_size=batch_size, device=device)
    return embedder.transform(list(texts)).astype(np.float32)
